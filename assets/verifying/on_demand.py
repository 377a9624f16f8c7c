"""Reconciles committed ranges without moving data, and records the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from assets.asset_keys import asset_key
from assets.declaring.manifest import Transfer
from assets.log.ledger import committed, newest, records
from assets.log.records import State
from assets.log.writer import EventLogger, Writer
from assets.planning.resolve import Hop, Servers, levels_of
from assets.planning.transfer_plan import present_ranges
from assets.verifying.extra_rows import allowing_extra_rows
from checks.drilldown import Comparison
from checks.expectations import run_suite
from checks.reconcile import reconcile_all
from checks.verdict import Level, Verdict
from resources.keys.range import KeyRange

MOST_COMPARISONS = 4
"""Of a range that runs record anew all the while; its last verdict does not count then."""


@dataclass(frozen=True)
class Checked:
    """One verdict about one range of one hop, or about a whole target table."""

    hop: Hop
    range: str | None
    """None of a whole table."""
    verdict: Verdict
    warning: bool = False
    """A failure is no more than a hint, e.g. because ranges are not committed yet."""

    @property
    def failed(self) -> bool:
        return not self.verdict.passed and not self.warning

    def summary(self) -> str:
        """One line, e.g. `clickhouse://w.t 1..5: checksum FAILED: ...`."""
        where = "as a whole" if self.range is None else self.range
        return f"{self.hop.plan.target} {where}: {self.verdict.summary()}"


@dataclass(frozen=True)
class NotCommitted:
    """A range of one hop whose latest attempt did not commit it, or that no run has come to."""

    target: str
    range: str
    state: State
    error: str | None = None

    def summary(self) -> str:
        """One line, e.g. `clickhouse://w.t 1..5: failed: value ... is outside of ...`."""
        if self.error:
            # the error says of which transfer, target and range it is, too
            _, _, problem = self.error.partition(f"range {self.range}: ")
            return f"{self.target} {self.range}: {self.state}: {problem or self.error}"
        why = "no run has moved it yet" if self.state is State.MISSING else "its run did not finish"
        return f"{self.target} {self.range}: {self.state}: {why}"


def verify(
    transfer: Transfer,
    hops: Sequence[Hop],
    servers: Servers,
    context: EventLogger,
    *,
    level: Level | None = None,
    names: Sequence[str] = (),
) -> list[Checked]:
    """Compare source and target of committed ranges now; a failed verdict makes the range suspect.

    The next run moves suspect ranges again. A range whose source changed since it was committed
    fails too: both sides do not agree, whatever the reason.

    Args:
        transfer: whose ranges.
        hops: its hops, resolved.
        servers: where its tables are.
        context: of the run that reports the verdicts. (Dagster keeps but one verdict per check and
            range of all that is reported outside of runs.)
        level: how strict; the transfer's own levels when None.
        names: these ranges only; all committed ones when empty.

    Returns:
        The verdicts, in order of hops and ranges.
    """
    instance = context.instance
    ranges = present_ranges(transfer, hops, servers, instance)
    found: list[Checked] = []
    for hop in hops:
        done = committed(instance, hop.asset, ())
        chosen = [
            key_range
            for key_range in ranges
            if key_range.name in done and (not names or key_range.name in names)
        ]
        for verdict_of in _verify_hop(transfer, hop, servers, context, chosen, level):
            found += [
                Checked(hop, name, verdict, transfer.check_spec(verdict.check).severity == "warn")
                for name, verdict in verdict_of.items()
            ]
    return found


def summarise(
    transfer: Transfer,
    context: EventLogger,
    found: Sequence[Checked],
    selected: Collection[dg.AssetCheckKey],
) -> None:
    """Record of each selected check how the ranges did in it."""
    for key in selected:
        ranges = [
            one
            for one in found
            if one.hop.asset == key.asset_key and one.verdict.check == key.name and one.range
        ]
        if ranges:
            Writer(context, key.asset_key, transfer).summarised(
                key.name,
                ranges=len(ranges),
                failed=sum(not one.verdict.passed for one in ranges),
                warning=all(one.warning for one in ranges),
            )


def _verify_hop(
    transfer: Transfer,
    hop: Hop,
    servers: Servers,
    context: EventLogger,
    ranges: Sequence[KeyRange],
    level: Level | None,
) -> list[dict[str, Verdict]]:
    """The verdicts of each check by range, recorded as about what was in the target before.

    A range that was recorded anew meanwhile, because a run goes on beside this one, is compared
    again: what was seen of it may have been of before and after.
    """
    writer = Writer(context, hop.asset, transfer)
    found: dict[str, dict[str, Verdict]] = {}
    todo = list(ranges)
    for _ in range(MOST_COMPARISONS):
        if not todo:
            break
        about = newest(context.instance, hop.asset, [one.name for one in todo])
        for verdicts in _compared(transfer, hop, servers, todo, level):
            # failed ones last: the check's page opens with the latest
            for name in sorted(verdicts, key=lambda name: not verdicts[name].passed):
                writer.checked(name, verdicts[name], about.get(name))
                found.setdefault(verdicts[name].check, {})[name] = verdicts[name]
        now = newest(context.instance, hop.asset, [one.name for one in todo])
        todo = [one for one in todo if now.get(one.name) != about.get(one.name)]
    in_order = [one.name for one in ranges]
    return [{name: of[name] for name in in_order if name in of} for of in found.values()]


def _compared(
    transfer: Transfer,
    hop: Hop,
    servers: Servers,
    ranges: Sequence[KeyRange],
    level: Level | None,
) -> Iterator[dict[str, Verdict]]:
    source = servers.endpoint(hop.plan.source)
    target = servers.endpoint(hop.plan.target)
    compared = {one.name: Comparison(hop.found_plan, source, target, one) for one in ranges}
    for one_level in (level,) if level else levels_of(transfer):
        found = reconcile_all(hop.found_plan, source, target, ranges, one_level)
        verdicts = {}
        for name, both in compared.items():
            (verdict,) = allowing_extra_rows(hop, both, [found[name]])
            verdicts[name] = both.explained(verdict)
        yield verdicts
    if suite := transfer.suite:
        yield {one.name: run_suite(suite, hop.plan, target, one) for one in ranges}


def not_committed(
    transfer: Transfer, instance: dg.DagsterInstance, names: Sequence[str] = ()
) -> list[NotCommitted]:
    """The ranges of which a check cannot say that all is well, whatever it compared.

    Args:
        transfer: whose ranges.
        instance: whose event log.
        names: these ranges only; all when empty.
    """
    known = instance.get_dynamic_partitions(transfer.partitions_name)
    found: list[NotCommitted] = []
    for hop in transfer.hops:
        asset = asset_key(hop.to)
        seen, done = records(instance, asset, known), committed(instance, asset, ())
        for name in known:
            record = seen.get(name)
            if names and name not in names:
                continue
            if record is None:
                found.append(NotCommitted(str(hop.to), name, State.MISSING))
            elif not record.state.settled:
                run = instance.get_run_by_id(record.run_id) if record.run_id else None
                moving = record.state is not State.FAILED and run and not run.is_finished
                if moving and name in done:
                    continue  # what is committed stands until the run has moved it again
                why = f"run {record.run_id} is moving it" if moving else record.error
                found.append(NotCommitted(str(hop.to), name, record.state, why))
    return found


def closing_line(found: Sequence[Checked], open_ranges: Sequence[NotCommitted]) -> str:
    """How all of it ended, e.g. `1 of 32 checks failed, 1 warned; ranges: 2 failed, 1 missing`."""
    failed = sum(one.failed for one in found)
    warned = sum(one.warning and not one.verdict.passed for one in found)
    line = f"{failed} of {len(found)} checks failed"
    if not found:
        line = "nothing was checked: no range is committed"
    elif not failed and not warned:
        line = f"all {len(found)} checks passed"
    if warned:
        line += f", {warned} warned"
    states = Counter(one.state for one in open_ranges)
    parts = [f"{number} {state}" for state, number in states.items()]
    return f"{line}; ranges: {', '.join(parts)}" if parts else line
