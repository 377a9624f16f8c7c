"""Records ranges that are in the target already, without a move.

The event log was lost, or another tool filled the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import dagster as dg

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.ledger import committed_records
from tableferry.assets.log.queries import Log
from tableferry.assets.log.states import Reason, State
from tableferry.assets.planning.changes.change_plan import plan_changes
from tableferry.assets.planning.changes.widening import fitting_declaration, misfits
from tableferry.assets.planning.columns.hop_columns import new_columns
from tableferry.assets.planning.columns.renaming import not_yet
from tableferry.assets.planning.intent import AS_DECLARED
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.decision import Decision
from tableferry.assets.planning.rows.decisions import decisions
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import (
    TransferPlan,
    apply_growth,
    fingerprints_of,
    plan_transfer,
)
from tableferry.assets.running.caller import Caller, plan_of_run
from tableferry.assets.running.execute import build_work
from tableferry.assets.running.fitting import prepare
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.assets.running.rows import proven_whole
from tableferry.assets.running.work import Candidate, Work
from tableferry.assets.verifying.as_committed import (
    changed_since,
    proven_figures,
    target_digest_of,
    with_digest,
)
from tableferry.assets.verifying.extra_rows import allowing_extra_rows
from tableferry.checks.expectations import CHECK_NAME as EXPECTATIONS
from tableferry.checks.expectations import run_suite
from tableferry.checks.levels import LEVELS, Level
from tableferry.checks.reconcile import reconcile, reconcile_all, row_count_of
from tableferry.checks.verdict import Verdict
from tableferry.checks.whole_table import stray_rows
from tableferry.resources.connecting.retry import retrying
from tableferry.resources.contract.fingerprint import KnownFigures
from tableferry.resources.crash_points import reached
from tableferry.resources.digest.fields import not_compared
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.words import counted

Record = Callable[[Candidate], str]
"""Records an equal range; returns why it could not be recorded."""


def level_of(transfer: Transfer) -> Level:
    """The level at which ranges are compared by default: as declared, but never without values."""
    return transfer.reconcile if LEVELS[transfer.reconcile].complete else "checksum"


def adopt(
    context: dg.AssetExecutionContext,
    transfer: Transfer,
    servers: Servers,
    caller: Caller,
    *,
    level: Level | None,
    names: Sequence[str],
) -> None:
    """Compare ranges with their targets, and record those that are equal as committed.

    Nothing is moved, and no table but that of the markers is created or altered. The candidates
    are added to `caller.candidates`.

    Args:
        context: the context of the run that records them.
        transfer: the transfer.
        servers: the servers of its tables.
        caller: the command of the run.
        level: how strictly; by default by `level_of`.
        names: the ranges to adopt; empty: all.

    Raises:
        InputError: there is nothing to adopt, or the transfer's ranges cannot be adopted.
    """
    instance = context.instance
    known = list(instance.get_dynamic_partitions(transfer.partitions_name))
    with plan_of_run(
        transfer, servers, instance, AS_DECLARED, list(names) or known, caller, decides=False
    ) as plan:
        hops = [hop for hop in plan.hops if not unfit(transfer, hop)]
        _require_adoptable(transfer, plan.hops)
        numbers = [hop.number for hop in hops]
        changes = plan_changes(transfer, plan.hops, servers, instance, among=numbers, moving=())
        changes.require_allowed()
        for hop in hops:
            prepare(context, plan, hop, servers, caller)
        work = build_work(context, plan, servers, hops, changes.gone, caller)
        compared = compare(plan, servers, instance, level or level_of(transfer), _recording(work))
    caller.candidates += compared
    for candidate in compared:
        if candidate.why_not:
            context.log.info(
                f"{candidate.hop.plan.target} {candidate.range}: left: {candidate.why_not}"
            )
    adopted = sum(not candidate.why_not for candidate in compared)
    context.log.info(f"{counted(adopted, 'range')} of {len(compared)} adopted")


def extend_ranges(transfer: Transfer, servers: Servers, instance: dg.DagsterInstance) -> None:
    """Make the ranges known that the first run would move.

    Where known ranges would be replaced, that is left to the run that moves them.
    """
    plan = plan_transfer(transfer, servers, instance, purpose="cut")
    if not (plan.growth.retire or plan.growth.remove):
        apply_growth(plan, servers, instance)


def compare(
    plan: TransferPlan, servers: Servers, log: Log, level: Level, record: Record | None = None
) -> list[Candidate]:
    """Compare the ranges of a plan that are not committed as they are, hop after hop.

    A range of a later hop is compared only if the table before has the source's present rows.

    Args:
        plan: the plan, fingerprinted; it is decided hop by hop, as ranges are recorded meanwhile.
        servers: the servers of its tables.
        log: the event log.
        level: how strictly: one that is `complete`.
        record: records those that are equal.

    Raises:
        InputError: there is nothing to adopt, or the transfer's ranges cannot be adopted.
        SourceMoved: the source was rewritten meanwhile.
    """
    _require_adoptable(plan.transfer, plan.hops)
    current = set(plan.ranges)
    figures = {name: each.source_figures for name, each in plan.fingerprints.items()}
    damaged: dict[str, str] = {}
    compared: list[Candidate] = []
    decided: Mapping[str, Decision] | None = None
    for hop in plan.hops:
        decided = decisions(plan, hop, servers, log, before=decided)
        done = {name for name in current if decided[name].reason.needs_no_move}
        wanted = [name for name in plan.ranges if name in current and name not in done]
        compared += [
            Candidate(
                hop,
                name,
                why_not=damaged.get(name)
                or f"{hop.plan.source} does not have the source's rows yet",
            )
            for name in plan.ranges
            if name not in current and not decided[name].reason.needs_no_move
        ]
        why_not = unfit(plan.transfer, hop)
        if why_not:
            candidates = [Candidate(hop, name, why_not=why_not) for name in wanted]
        else:
            candidates = _compared(plan, hop, servers, wanted, level, figures)
        if record is not None:
            with ThreadPoolExecutor(_RECORDED_AT_ONCE) as pool:
                recorded = [pool.submit(_recorded, candidate, record) for candidate in candidates]
                candidates = [future.result() for future in recorded]
        equal = [candidate for candidate in candidates if not candidate.why_not]
        current = done | {candidate.range for candidate in equal}
        compared += candidates
        if hop.number < len(plan.hops):
            known = committed_records(log, hop.spec.to, done)
            ranges = [plan.ranges[name] for name in known]
            changed = changed_since(hop, servers, ranges, known)
            damaged = {
                name: f"{hop.plan.target} was changed since: {verdict.summary()}"
                for name, verdict in changed.items()
            }
            current -= set(damaged)
            digests = {name: record.target_digest for name, record in known.items()}
            digests |= {each.range: target_digest_of(hop, each.verdicts) for each in equal}
            figures = {name: proven_figures(digest) for name, digest in digests.items()}
    return compared


_RECORDED_AT_ONCE = 4
"""Each range that is recorded holds a session of the target."""


def unfit(transfer: Transfer, hop: Hop) -> str:
    """Why no rows of a hop's target can be adopted; empty if they can be."""
    if hop.existing is None:
        return f"{hop.plan.target} does not exist"
    if why := not_yet(hop.plan.target, hop.renames):
        return why
    if missing := [column.name for column in new_columns(hop.plan, hop.existing)]:
        return f"{hop.plan.target} has no column {', '.join(map(repr, missing))}"
    if reasons := misfits(hop):
        declared = fitting_declaration(transfer, hop)
        remedy = f"; declare {declared} to compare the values" if declared else ""
        told = (f"column {name!r} {why}" for name, why in reasons.items())
        return f"{hop.plan.target}: {'; '.join(told)}{remedy}"
    if columns := not_compared(hop.plan):
        return (
            f"{', '.join(map(repr, columns))} cannot be compared, as the source's SQL cannot "
            "compute what on_overflow does"
        )
    return ""


def stray_notes(plan: TransferPlan, servers: Servers) -> list[str]:
    """Name the targets with rows that belong to no range, which no run moves or checks."""
    notes = []
    for hop in plan.hops:
        if hop.existing is None:
            continue
        target = servers.side(hop.plan, "target")
        if rows := stray_rows(target, [*plan.ranges.values()]):
            notes.append(
                f"{hop.plan.target}: {counted(rows, 'row')} outside of all ranges of the transfer; "
                "no run will move, check or remove them"
            )
    return notes


def _require_adoptable(transfer: Transfer, hops: Sequence[Hop]) -> None:
    if transfer.by_place:
        raise InputError(
            f"{transfer.transfer}: ranges of storage blocks cannot be adopted: an updated row may "
            "since be stored in the blocks of another range; `ferry run` moves them"
        )
    if all(hop.existing is None for hop in hops):
        targets = ", ".join(str(hop.plan.target) for hop in hops)
        raise InputError(f"{transfer.transfer}: nothing to adopt: {targets} does not exist")


def _compared(
    plan: TransferPlan,
    hop: Hop,
    servers: Servers,
    names: Sequence[str],
    level: Level,
    figures: Mapping[str, KnownFigures | None],
) -> list[Candidate]:
    """Compare ranges of one hop, all of them by one query to each side as far as possible."""
    transfer = plan.transfer
    refused = {name: plan.fingerprints[name].refused for name in names}
    if not hop.first:
        refused = dict.fromkeys(names, "")
    ranges = [plan.ranges[name] for name in names if not refused[name]]
    if not ranges:
        return [Candidate(hop, name, why_not=str(refused[name])) for name in names]
    known = {name: each for name, each in figures.items() if each is not None}
    snapshot = plan.snapshot if hop.first else None
    both = servers.comparison(hop.found_plan, ranges, snapshot=snapshot)
    sums = reconcile_all(replace(both, known=known), "checksum")
    by_range: dict[str, tuple[Verdict, ...]] = {}
    for key_range in ranges:
        checksum = sums[key_range.name]
        verdicts: tuple[Verdict, ...] = (row_count_of(checksum), checksum)
        compared = both.only(key_range)
        if not checksum.passed:
            verdicts = allowing_extra_rows(hop, compared, verdicts)
        if LEVELS[level].row_by_row and all(verdict.passed for verdict in verdicts):
            verdicts += allowing_extra_rows(hop, compared, [reconcile(compared, level)])
        if transfer.suite and all(verdict.passed for verdict in verdicts):
            verdicts += (run_suite(transfer.suite, servers.side(hop.plan, "target"), key_range),)
        by_range[key_range.name] = verdicts
    changed = _changed(plan, hop, servers, by_range)
    return [
        Candidate(
            hop,
            name,
            by_range.get(name, ()),
            refused[name] or changed.get(name) or _difference(transfer, by_range[name]),
        )
        for name in names
    ]


def _difference(transfer: Transfer, verdicts: Iterable[Verdict]) -> str:
    """Say why verdicts do not allow to adopt a range; empty if they do."""
    failed = [
        verdict
        for verdict in verdicts
        if not verdict.passed
        and (verdict.check != EXPECTATIONS or transfer.check_spec(EXPECTATIONS).blocking)
    ]
    return failed[-1].summary() if failed else ""


def _changed(
    plan: TransferPlan, hop: Hop, servers: Servers, names: Collection[str]
) -> dict[str, str]:
    """Say of which ranges the source has changed since it was fingerprinted.

    Under a snapshot, fingerprints and comparisons are of one state, unless the table was rewritten.
    """
    if not hop.first:
        return {}
    if plan.snapshot is not None:
        plan.snapshot.require_source_unchanged()
        return {}
    ranges = [plan.ranges[name] for name in names]
    now = fingerprints_of(plan.transfer, plan.hops[0], servers, ranges, plan.recorded)
    return {
        name: "the source has changed while it was compared"
        for name in names
        if now[name] != plan.fingerprints[name]
    }


_NOT_MOVED = Decision(Reason.MISSING)
"""What stands for the decision about a range that has been compared instead."""


def _recorded(candidate: Candidate, record: Record) -> Candidate:
    if candidate.why_not:
        return candidate
    return replace(candidate, why_not=record(candidate))


def _recording(work: Work) -> Record:
    def record(candidate: Candidate) -> str:
        try:
            for again in retrying():
                with again:
                    return _record(work, candidate)
        except TableferryError as error:
            return str(error)
        raise AssertionError("a retry loop ends with a result or an error")

    return record


def _record(work: Work, candidate: Candidate) -> str:
    """Record an equal range, unless somebody else has published it meanwhile."""
    hop, verdicts = candidate.hop.in_place, candidate.verdicts
    reading = work.source.latest(candidate.range)
    if hop.plan.fitting:
        return "only a move finds the rows that it rejects"
    if not hop.first:
        before = work.recorded_before(hop, candidate.range)
        reading = replace(reading, snapshot=None, of_source=False, before=before)
    attempt = RangeAttempt(work, hop, work.plan.ranges[candidate.range], reading, _NOT_MOVED)
    if attempt.marked_by_moving:
        if hop.plan.target.system.by_path:
            return "its marker is part of its file, which only a move writes"
        return "another run was about to publish it, and may still do so"
    extra = verdicts[0].target[ROWS] != verdicts[0].source[ROWS]
    attempt = replace(attempt, proven=proven_whole(attempt, extra=extra))
    with attempt.marking(always=True):
        reached("after_adopted_marker")
        record = attempt.record_of_move(
            State.ADOPTED,
            rows=reading.fingerprint.rows,
            proven=attempt.proven,
        )
        record = with_digest(record, hop, verdicts)
        attempt.writer.record_commit(record, reversed(verdicts))
        reached("after_event")
    return ""
