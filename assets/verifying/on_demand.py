"""Reconciles committed ranges without moving data, and records the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log import ledger, records
from tableferry.assets.log.states import State
from tableferry.assets.log.writer import EventLogger, Writer
from tableferry.assets.planning.columns.hop_columns import watermark_column
from tableferry.assets.planning.moved_by_others import by_a_mover, last_written
from tableferry.assets.planning.resolve import Hop, levels_of
from tableferry.assets.planning.rows.deltas import keys_and_watermarks
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan, present_ranges
from tableferry.assets.verifying import as_committed, whole_tables
from tableferry.assets.verifying.checked import Checked, CheckRequest
from tableferry.checks.expectations import run_suite
from tableferry.checks.levels import CHECK_NAMES, LEVELS, Level
from tableferry.checks.recheck import Recheck, RepeatedLooks, look_together
from tableferry.checks.reconcile import reconcile, reconcile_all, target_digests
from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Verdict
from tableferry.resources.contract.fields import Side
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange

MOST_COMPARISONS = 4
"""Maximum comparisons of a range that runs keep recording; its last verdict does not count then."""


def verify(
    plan: TransferPlan,
    servers: Servers,
    context: EventLogger,
    request: CheckRequest,
) -> list[Checked]:
    """Compare source and target of committed ranges; return the verdicts by hop and range.

    Of a transfer that moves nothing (`write: none`), all ranges are compared, and those that are
    equal are recorded, so that later verdicts say which side has changed since.

    The next run moves ranges with a failed verdict again. If the target is as committed and only
    the source has changed, the verdict is `source_newer`, a warning. Verdicts are reported within
    a run: of those reported outside, Dagster keeps only one per check and range.

    Args:
        plan: the plan of the transfer.
        servers: the servers of its tables.
        context: the context of the run that reports the verdicts.
        request: what is compared, and how.
    """
    instance, transfer, hops = context.instance, plan.transfer, plan.hops
    ranges = present_ranges(plan, servers)
    checked: list[Checked] = []
    for hop in hops:
        if hop.not_yet:
            raise InputError(f"{transfer.transfer}: {hop.not_yet}; run it first")
        done = ledger.committed(instance, hop.asset, ())
        chosen = [
            key_range
            for key_range in ranges
            if (key_range.name in done or not (transfer.write.moves or request.as_of_last_run))
            and (not request.ranges or key_range.name in request.ranges)
        ]
        before = None if hop.first else hops[hop.number - 2]
        check = _HopCheck(transfer, hop, before, servers, context)
        levels = (request.level,) if request.level else levels_of(transfer)
        compared = partial(check.compared, levels=levels, recheck=request.recheck)
        compare = check.compared_with_commit if request.as_of_last_run else compared
        for verdict_of in check.verify(chosen, compare):
            checked += [
                Checked(hop, name, verdict, _warns(transfer, verdict, request.up_to_date))
                for name, verdict in verdict_of.items()
            ]
    return checked


def _warns(transfer: Transfer, verdict: Verdict, up_to_date: bool) -> bool:
    if verdict.source_newer and not up_to_date:
        return True
    return transfer.check_spec(verdict.check).severity == "warn"


@dataclass(frozen=True)
class _HopCheck:
    """A hop whose ranges are compared without a move."""

    transfer: Transfer
    hop: Hop
    before: Hop | None
    """The hop before, if there is one."""
    servers: Servers
    context: EventLogger

    def verify(
        self,
        ranges: Sequence[KeyRange],
        compare: Callable[[Sequence[KeyRange]], Iterable[dict[str, Verdict]]],
    ) -> list[dict[str, Verdict]]:
        """Compare ranges, and record each check's verdicts about what was in the target before.

        A range that another run has recorded meanwhile is compared again: the comparison may have
        read rows from before and after.

        Args:
            ranges: the ranges.
            compare: yields the verdicts of one check after the other, by range.
        """
        instance, asset = self.context.instance, self.hop.asset
        writer = Writer(self.context, asset, self.transfer)
        by_check: dict[str, dict[str, Verdict]] = {}
        todo = list(ranges)
        for _ in range(MOST_COMPARISONS):
            if not todo:
                break
            names = [key_range.name for key_range in todo]
            compared, failure = compare(todo), None
            if not self.transfer.write.moves:
                compared, failure = _up_to_a_failure(compared)
                if failure is None:
                    self._record_equal(writer, names, compared)
            about = ledger.newest(instance, asset, names)
            for verdicts in compared:
                # failures last: the page of a check shows the latest verdict
                for name in sorted(verdicts, key=lambda name: not verdicts[name].passed):
                    if (
                        verdicts[name].note != as_committed.UNKNOWN
                    ):  # that is no verdict about the rows
                        writer.checked(name, verdicts[name], about.get(name))
                    by_check.setdefault(verdicts[name].check, {})[name] = verdicts[name]
            if failure is not None:
                raise failure
            now = ledger.newest(instance, asset, names)
            todo = [
                key_range
                for key_range in todo
                if now.get(key_range.name) != about.get(key_range.name)
            ]
        in_order = [key_range.name for key_range in ranges]
        return [{name: of[name] for name in in_order if name in of} for of in by_check.values()]

    def _record_equal(
        self, writer: Writer, names: Sequence[str], compared: Sequence[Mapping[str, Verdict]]
    ) -> None:
        """Record the ranges that are equal, unless they were recorded with these rows."""
        hop = self.hop
        known = ledger.committed_records(self.context.instance, hop.asset, names)
        for name in names:
            verdicts = [of_check[name] for of_check in compared if name in of_check]
            if not all(verdict.passed for verdict in verdicts):
                continue
            counts = (int(each.target[ROWS]) for each in verdicts if ROWS in each.target)
            rows = next(counts, None)
            record = as_committed.with_digest(
                records.RangeRecord(name, State.ADOPTED, rows=rows), hop, verdicts
            )
            if (
                name in known
                and record.target_digest in (None, known[name].target_digest)
                and known[name].declared in (None, writer.declared)
            ):
                continue
            source = records.digest(rows, record.target_digest)
            version = records.DataVersion(source, hop.schema_hash, hop.settings_hash)
            writer.commit(replace(record, data_version=str(version)))

    def compared(
        self, ranges: Sequence[KeyRange], *, levels: Sequence[Level], recheck: Recheck
    ) -> Iterator[dict[str, Verdict]]:
        """Yield the verdicts of each level, and of the expectations, by range."""
        both_sides = self.servers.comparison(self.hop.found_plan, ranges)
        compared = {key_range.name: both_sides.only(key_range) for key_range in ranges}
        looks = {name: RepeatedLooks(both, recheck) for name, both in compared.items()}
        for level in levels:
            found = reconcile_all(both_sides, level)
            verdicts = {}
            for name, both in compared.items():
                (verdicts[name],) = whole_tables.allowing_extra_rows(self.hop, both, [found[name]])
            failed = [key_range for key_range in ranges if not verdicts[key_range.name].passed]
            sides = self._changed_sides(both_sides.only(*failed), verdicts, level)
            newer = [key_range for key_range in failed if sides[key_range.name] == "source"]
            why = self._why_not_newer(newer, CHECK_NAMES[level])
            behind = {each.name for each in newer if each.name not in why}
            look_together([looks[name] for name in sides if name not in behind])
            for name, side in sides.items():
                if name in behind:
                    verdicts[name] = as_committed.source_is_newer(verdicts[name])
                    continue
                try:
                    keeps = whole_tables.allows_extra_rows(self.hop, compared[name])
                    ask = partial(self._asked, compared[name], level)
                    verdict = looks[name].judge(verdicts[name], ask, keeps_rows=keeps)
                except Exception as error:
                    verdict = verdicts[name].unexplained(error)
                if side is None and self.transfer.write.moves:
                    why[name] = as_committed.UNKNOWN
                if not verdict.passed and name in why:
                    verdict = as_committed.explained(verdict, why[name])
                verdicts[name] = verdict
            if self.transfer.mover is not None:
                known = last_written(
                    self.transfer.mover, self.hop.plan.target, self.hop.existing, both_sides.target
                )
                verdicts = {name: by_a_mover(verdict, known) for name, verdict in verdicts.items()}
            yield verdicts
        if suite := self.transfer.suite:
            target = self.servers.side(self.hop.plan, "target")
            yield {key_range.name: run_suite(suite, target, key_range) for key_range in ranges}

    def _asked(self, both: Comparison, level: Level) -> Verdict:
        (verdict,) = whole_tables.allowing_extra_rows(self.hop, both, [reconcile(both, level)])
        return verdict

    def _changed_sides(
        self, failed: Comparison, verdicts: Mapping[str, Verdict], level: Level
    ) -> dict[str, Side | None]:
        """Return which side of each failed range has changed since its commit."""
        names = [key_range.name for key_range in failed.ranges]
        if not names:
            return {}
        known = ledger.committed_records(self.context.instance, self.hop.asset, names)
        now: dict[str, Verdict] = {}
        if LEVELS[level].compares == "sample":
            # without these digests the side is unknown, but the failures are not
            with suppress(Exception):
                now = target_digests(failed)
        sides = {
            name: as_committed.changed_side(verdicts[name], known.get(name), now.get(name))
            for name in names
        }
        held = {
            name: digest
            for name, side in sides.items()
            if side is None
            and (record := known.get(name))
            and (proven := record.proven)
            and (digest := proven.held)
        }
        return sides | dict.fromkeys(self._only_newer(failed, held), "source")

    def _only_newer(self, failed: Comparison, held: Mapping[str, str]) -> list[str]:
        """Return the ranges that differ in nothing but rows that a move of newer rows would bring.

        Such a move proves keys and watermarks of all rows, but values of the newer ones alone.

        Args:
            failed: the ranges that differ.
            held: the digest of the keys and watermarks that the last move left, by range.
        """
        if not held or self.transfer.watermark is None:
            return []
        both = failed.only(*(each for each in failed.ranges if each.name in held)).observed
        plan = keys_and_watermarks(both.plan, self.transfer)
        now = target_digests(replace(both, plan=plan, known={}))
        watermark = watermark_column(both.plan, self.transfer).target.name
        only_newer = []
        for key_range in both.ranges:
            if as_committed.digest_of(now[key_range.name], "target") == held[key_range.name]:
                differences = failed.only(key_range).differences
                if differences.different == differences.by_column.get(watermark, 0):
                    only_newer.append(key_range.name)
        return only_newer

    def _why_not_newer(self, ranges: Sequence[KeyRange], check: str) -> dict[str, str]:
        """Say of ranges with a target as committed why the next run would not move them as changed.

        A later hop is behind only if the hop before has committed a newer state. Otherwise its
        source was damaged, or what it has was taken from rows that were. And a range that has
        failed is moved by the next run; until then no verdict says that it is only behind.
        """
        if not ranges or not self.transfer.write.moves:
            return {}
        instance, before, why = self.context.instance, self.before, dict[str, str]()
        stands = ledger.standing(instance, self.hop.asset, [check])
        for key_range in ranges:
            if check in (verdicts := stands.get(key_range.name, {})) and not verdicts[check].passed:
                why[key_range.name] = "it has failed before, and no run has moved it since"
        if before is None:
            return why
        here, there = (ledger.committed(instance, each.asset, ()) for each in (self.hop, before))
        same = [
            key_range
            for key_range in ranges
            if key_range.name in there
            and here[key_range.name].data_version.is_of(there[key_range.name].data_version)
        ]
        known = ledger.committed_records(
            instance, before.asset, [key_range.name for key_range in same]
        )
        damaged = as_committed.changed_since(before, self.servers, same, known)
        middle, target = before.plan.target, self.hop.plan.target
        for key_range in same:
            why[key_range.name] = (
                f"{middle} was changed since hop {before.number} proved it, and {target} holds "
                "what was committed"
                if key_range.name in damaged
                else f"{target} holds what was committed, and {middle} has been mended since"
            )
        return why

    def compared_with_commit(self, ranges: Sequence[KeyRange]) -> Iterator[dict[str, Verdict]]:
        """Yield verdicts by range that compare what was committed with what the target has now."""
        names = [key_range.name for key_range in ranges]
        known = ledger.committed_records(self.context.instance, self.hop.asset, names)
        yield as_committed.compared_with_commit(self.hop, self.servers, ranges, known)


def _up_to_a_failure(
    compared: Iterable[dict[str, Verdict]],
) -> tuple[list[dict[str, Verdict]], Exception | None]:
    """Compare until a check cannot be done: what was concluded before is recorded nevertheless."""
    done: list[dict[str, Verdict]] = []
    try:
        for verdicts in compared:
            done.append(verdicts)
    except Exception as error:
        return done, error
    return done, None
