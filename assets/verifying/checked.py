"""What a run that only checks is asked to compare, what it found, and what it did not compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.judging import why_lacking, why_not_committed
from tableferry.assets.log.ledger import evaluations, standing, verdicts
from tableferry.assets.log.ranges import read_status
from tableferry.assets.log.runs import (
    ADOPT,
    AS_OF_LAST_RUN,
    COMPLETE,
    LEVEL,
    RANGES,
    RECHECK,
    UP_TO_DATE,
    checked_ranges,
)
from tableferry.assets.log.states import State
from tableferry.assets.log.writer import EventLogger, Writer
from tableferry.assets.planning.resolve import Hop, checks_of
from tableferry.checks.levels import CHECK_NAMES, LEVELS, Level, require_level
from tableferry.checks.recheck import ONCE, Recheck
from tableferry.checks.verdict import Verdict
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.errors import InputError
from tableferry.resources.words import counted


@dataclass(frozen=True)
class Checked:
    """One verdict about one range of one hop, or about a whole target table."""

    hop: Hop
    range: str | None
    """None for a whole table."""
    verdict: Verdict
    warning: bool = False
    """A failure is only a warning, e.g. because the source has changed since the commit."""

    @property
    def failed(self) -> bool:
        return not self.verdict.passed and not self.warning

    def summary(self) -> str:
        """Return one line, e.g. `clickhouse://w.t 1..5: checksum FAILED: ...`."""
        where = "as a whole" if self.range is None else self.range
        return f"{self.hop.plan.target} {where}: {self.outcome}"

    @property
    def outcome(self) -> str:
        """What was compared, and how it ended."""
        return self.verdict.summary(warning=self.warning)


@dataclass(frozen=True)
class NotCommitted:
    """A range of one hop that its latest attempt did not commit, or that no run has moved."""

    target: str
    range: str
    state: State
    error: str | None = None
    why: str | None = None
    """The error without the transfer, the target and the range, if that is known."""

    def summary(self) -> str:
        """Return one line, e.g. `clickhouse://w.t 1..5: failed: value ... is outside of ...`."""
        why = why_not_committed(self.state, self.why or self.error)
        return f"{self.target} {self.range}: {why}"


def summarise(
    transfer: Transfer,
    context: EventLogger,
    checked: Sequence[Checked],
    selected: Collection[dg.AssetCheckKey],
) -> None:
    """Record of each selected check how the ranges did in it.

    A check that this run did not do, but selected, repeats how they did in it last.
    """
    for key in selected:
        writer = Writer(context, key.asset_key, transfer)
        ranges = [
            check
            for check in checked
            if check.hop.asset == key.asset_key and check.verdict.check == key.name and check.range
        ]
        if ranges:
            writer.summarised(
                key.name,
                ranges=len(ranges),
                failed=sum(not check.verdict.passed for check in ranges),
                warning=all(check.warning for check in ranges if not check.verdict.passed),
            )
        elif key.name not in WHOLE_TABLE_CHECKS:
            last = standing(context.instance, key.asset_key, [key.name])
            passed = [verdict[key.name].passed for verdict in last.values()]
            if passed:
                writer.summarised(key.name, ranges=len(passed), failed=passed.count(False))


def not_committed(
    transfer: Transfer, instance: dg.DagsterInstance, names: Sequence[str] = ()
) -> list[NotCommitted]:
    """Return the ranges, of `names` or of all, that their latest attempt did not commit.

    With those that somebody has deleted. None of a transfer that moves nothing, whose ranges are
    all compared.
    """
    if not transfer.write.moves:
        return []
    statuses = read_status(instance, [transfer], only=names or None)
    open_ranges = [
        NotCommitted(str(target), name, State.MISSING, why_lacking(transfer))
        for target, status in statuses.items()
        for name in (() if names else status.lacking)
    ]
    for target, status in statuses.items():
        for name, of_range in status.ranges.items():
            record, error, why = of_range.record, of_range.record.error, of_range.record.why
            if record.state.in_target:
                continue
            run = instance.get_run_by_id(record.run_id) if record.run_id else None
            if record.state is not State.FAILED and run and not run.is_finished:
                if of_range.committed:
                    continue  # what is committed stands until the run has moved it again
                error = why = f"run {record.run_id} is moving it"
            open_ranges.append(NotCommitted(str(target), name, record.state, error, why))
    return open_ranges


@dataclass(frozen=True)
class Findings:
    """What the checks of a transfer have found, and the ranges that they did not compare."""

    transfer: str
    checks: Sequence[Checked]
    open_ranges: Sequence[NotCommitted]
    """Ranges that are not committed, or whose latest attempt failed."""

    @property
    def good(self) -> bool:
        return bool(self.checks) and not self.errors

    @property
    def errors(self) -> list[str]:
        """Why the transfer is not good, one line each."""
        errors = [check.summary() for check in self.checks if check.failed]
        errors += [range_.summary() for range_ in self.open_ranges]
        return errors if self.checks or errors else [self.closing]

    @property
    def closing(self) -> str:
        """A summary, e.g. `1 of 32 checks failed, 1 warned; ranges: 2 failed, 1 missing`."""
        checked = self.checks
        failed = sum(each.failed for each in checked)
        behind = {each.range: each for each in checked if each.verdict.source_newer}
        warned = sum(
            each.warning and not each.verdict.passed and not each.verdict.source_newer
            for each in checked
        )
        line = f"{failed} of {len(checked)} checks failed"
        if not checked:
            line = "nothing was checked: no range is committed"
        elif not failed and not warned and not behind:
            line = "1 check passed" if len(checked) == 1 else f"all {len(checked)} checks passed"
        if warned:
            line += f", {warned} warned"
        if behind:
            line += f"; {_behind([each.verdict for each in behind.values()])}"
        states = Counter(each.state for each in self.open_ranges)
        parts = [f"{number} {state}" for state, number in states.items()]
        return f"{line}; ranges: {', '.join(parts)}" if parts else line


def _behind(newer: Sequence[Verdict]) -> str:
    """Return how far a source has advanced, e.g. `the source is newer ... (120 rows more)`."""
    rows = sum(
        int(verdict.source[ROWS]) - int(verdict.target[ROWS])
        for verdict in newer
        if ROWS in verdict.source
    )
    ranges = "1 range" if len(newer) == 1 else f"{len(newer)} ranges"
    more = f" ({counted(abs(rows), 'row')} {'more' if rows > 0 else 'fewer'})" if rows else ""
    return f"the source is newer than the last move in {ranges}{more}"


def explain_unproven(
    context: EventLogger,
    transfer: Transfer,
    selected: Collection[dg.AssetCheckKey],
    ranges: Sequence[str],
    good: Mapping[dg.AssetKey, Collection[str]],
    problem: str,
) -> None:
    """Record an outcome of each check that a failed run had planned.

    Dagster shows a planned check without an outcome as failed. A check that found no fault becomes
    a warning: it has not seen all ranges.

    Args:
        context: the run's context.
        transfer: the run's transfer.
        selected: the planned checks.
        ranges: the run's partition keys.
        good: the ranges in each target.
        problem: why the run failed, in one line.
    """
    for hop in transfer.hops:
        asset = asset_key(hop.to)
        names = [key.name for key in selected if key.asset_key == asset]
        of_ranges = [name for name in names if name not in WHOLE_TABLE_CHECKS]
        writer = Writer(context, asset, transfer)
        found = verdicts(context.instance, asset, of_ranges)
        unseen = sum(name not in good.get(asset, ()) for name in ranges)
        for check in of_ranges:
            failed = sum(found.get(name, {}).get(check) is False for name in ranges)
            writer.summarised(
                check, ranges=len(ranges), failed=failed, unseen=unseen - failed, problem=problem
            )
        of_table = [name for name in names if name in WHOLE_TABLE_CHECKS]
        of_tables = evaluations(context.instance, asset, of_table).get(None, {})
        for check in of_table:
            writer.checked_no_table(check, of_tables.get(check), problem)


@dataclass(frozen=True)
class CheckRequest:
    """What a run that selects checks alone compares; by default everything that is committed."""

    level: Level | None = None
    """How strict; by default as the transfer declares."""
    ranges: tuple[str, ...] = ()
    """Partition keys; if empty, all committed ranges, and the tables as a whole."""
    as_of_last_run: bool = False
    """Compare the targets with the recorded digests, without reading the source."""
    up_to_date: bool = False
    """Also fail where the source is newer than the last move."""
    complete: bool = False
    """Also fail if ranges are not committed, or nothing is."""
    adopt: bool = False
    """Compare what is not committed, and record it as committed where it is equal."""
    recheck: Recheck = ONCE
    """How often rows that differ are compared again before they are called different."""

    def __post_init__(self) -> None:
        if self.level is not None:
            require_level(self.level)

    @property
    def whole_tables(self) -> bool:
        """Whether the checks of whole tables belong to it."""
        return not self.ranges and not self.as_of_last_run

    def checks(self, transfer: Transfer) -> list[dg.AssetCheckKey]:
        """Return the declared checks that a run should select, at least one per target."""
        declared = checks_of(transfer)
        name = CHECK_NAMES[self.level] if self.level else None
        names = [check for check in declared if name in (None, check)] or declared[:1]
        tables = WHOLE_TABLE_CHECKS if self.whole_tables else ()
        return [
            dg.AssetCheckKey(asset_key(hop.to), check)
            for hop in transfer.hops
            for check in (*names, *tables)
        ]

    def tags(self) -> dict[str, str]:
        """Return the run tags that say the same."""
        given = {
            LEVEL: self.level,
            RANGES: json.dumps(self.ranges) if self.ranges else None,
            AS_OF_LAST_RUN: "true" if self.as_of_last_run else None,
            UP_TO_DATE: "true" if self.up_to_date else None,
            COMPLETE: "true" if self.complete else None,
            ADOPT: "true" if self.adopt else None,
            RECHECK: str(self.recheck) if self.recheck != ONCE else None,
        }
        return {tag: value for tag, value in given.items() if value}

    @classmethod
    def parse(cls, transfer: Transfer, tags: Mapping[str, str], known: list[str]) -> CheckRequest:
        """Read the tags of a run.

        Args:
            transfer: the transfer that the run checks.
            tags: the run's tags.
            known: the transfer's partition keys.

        Raises:
            InputError: a tag has an invalid value.
        """
        level = next((level for level in LEVELS if level == tags.get(LEVEL)), None)
        if LEVEL in tags and level is None:
            raise _invalid(transfer, LEVEL, tags, f"one of {', '.join(LEVELS)}")
        ranges = checked_ranges(tags)
        if ranges is None:
            raise _invalid(transfer, RANGES, tags, 'a JSON list of key ranges, as ["1..5"]')
        if unknown := [name for name in ranges if name not in known]:
            raise InputError(
                f"{transfer.transfer}: the run tag {RANGES} names {unknown[0]!r}, which is no key "
                f"range of it; `ferry status {transfer.transfer}` lists them"
            )
        as_of_last_run, up_to_date, complete, adopt = (
            _flag(transfer, tag, tags) for tag in (AS_OF_LAST_RUN, UP_TO_DATE, COMPLETE, ADOPT)
        )
        try:
            recheck = Recheck.parse(tags[RECHECK]) if RECHECK in tags else ONCE
        except InputError as error:
            raise InputError(f"{transfer.transfer}: the run tag {RECHECK}: {error}") from None
        return cls(level, ranges, as_of_last_run, up_to_date, complete, adopt, recheck)


def _flag(transfer: Transfer, tag: str, tags: Mapping[str, str]) -> bool:
    value = tags.get(tag, "false")
    if value not in ("true", "false"):
        raise _invalid(transfer, tag, tags, "true or false")
    return value == "true"


def _invalid(transfer: Transfer, tag: str, tags: Mapping[str, str], expected: str) -> InputError:
    return InputError(
        f"{transfer.transfer}: the run tag {tag} is {tags[tag]!r}; it should be {expected}"
    )
