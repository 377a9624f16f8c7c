"""Judges whether ranges, tables and transfers are proven, by what the event log says of them.

Commands, reports and sensors show these judgements, and make none of their own. Neither Dagster nor
servers are needed: what only servers can tell, a report adds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.declared import asked_of, changes, declaration_of, too_many_rejected
from tableferry.assets.log.ranges import RangeStatus, TargetStatus
from tableferry.assets.log.records import DataVersion, RangeRecord
from tableferry.assets.log.states import State
from tableferry.assets.planning.resolve import checks_of
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.contract.target_names import SUFFIX
from tableferry.resources.tables import TableRef
from tableferry.resources.words import counted, listed, one_line


class ProofState(StrEnum):
    """How far a range, a table or a transfer is proven, the worst first."""

    FAILED = "failed"
    """The latest attempt, a check or the last run failed."""
    NOT_PROVEN = "not proven"
    """Rows or verdicts are missing, or the source has changed since."""
    OTHERWISE = "proven otherwise"
    """Proven by another declaration than the one that is shown, or of rows that the hop before has
    replaced since."""
    NOT_MOVED = "not moved"
    PROVEN = "proven"
    """All rows are committed, and every declared check holds for them as they are."""


@dataclass(frozen=True)
class RangeJudgement:
    """Whether a range is proven in one target."""

    state: ProofState
    problems: tuple[str, ...] = ()
    """Why it is not proven, a reason each; empty if it is."""
    good: bool = False
    """Whether its rows are in the target, and no check of them failed: there is nothing to mend."""


@dataclass(frozen=True)
class TableJudgement:
    """Whether one target of a transfer is proven."""

    state: ProofState
    problems: tuple[str, ...] = ()
    """Why the table as a whole is not proven, a sentence each that names it."""
    ranges: Mapping[str, RangeJudgement] = field(default_factory=dict)

    @property
    def unproven(self) -> dict[str, RangeJudgement]:
        """The ranges that are not proven, those that failed first.

        There are none of a table that no run has moved: the table's own problem says it of all.
        """
        if self.state is ProofState.NOT_MOVED:
            return {}
        unproven = [item for item in self.ranges.items() if item[1].problems]
        return dict(sorted(unproven, key=lambda item: item[1].state is not ProofState.FAILED))


def judge_ranges(
    transfer: Transfer, target: TableRef, statuses: Mapping[TableRef, TargetStatus]
) -> dict[str, RangeJudgement]:
    """Judge the ranges of a target by their records and the standing verdicts.

    Args:
        transfer: the declaration that is shown.
        target: one of its targets.
        statuses: what the event log says of all of its targets.
    """
    hop, checks = transfer.hop_of(target), checks_of(transfer)
    declared, asked = declaration_of(transfer, hop), asked_of(transfer)
    before = statuses[transfer.hops[hop - 2].to].ranges if hop > 1 else {}
    judged = {}
    for name, status in statuses[target].ranges.items():
        otherwise = [*_declared_otherwise(status, declared, asked)]
        otherwise += filter(None, [too_many_rejected(transfer, status.record)])
        # what is compared alone is proven of rows that nobody has taken from the hop before
        if name in before and transfer.write.moves:
            otherwise += _replaced_since(status, before[name], transfer.hops[hop - 2].to)
        judged[name] = _judge_range(status, checks, otherwise)
    return judged


def _judge_range(
    status: RangeStatus, declared: Sequence[str], otherwise: Sequence[str]
) -> RangeJudgement:
    """Judge a range.

    Args:
        status: what the event log says of it.
        declared: the checks of which it needs a verdict. Of others only failures count.
        otherwise: in what it is proven otherwise than it is shown.
    """
    record = status.record
    problems = [check.summary for check in status.checks if check.failed]
    failed = bool(problems) or record.state is State.FAILED
    if record.state.in_target:
        problems += _gaps(status, declared)
    elif not problems:
        problems = [why_not_committed(record.state, record.why or record.error)]
    state = ProofState.NOT_PROVEN if problems else ProofState.PROVEN
    if record.state.in_target and otherwise:
        problems += otherwise
        state = combined([state, ProofState.OTHERWISE])
    if failed:
        state = ProofState.FAILED
    elif record.state is State.MISSING:
        state = ProofState.NOT_MOVED
    return RangeJudgement(state, tuple(problems), good=record.state.in_target and not failed)


def _gaps(status: RangeStatus, declared: Sequence[str]) -> Iterator[str]:
    """Say of a committed range which verdicts it lacks."""
    if newer := [check.name for check in status.checks if check.source_newer]:
        yield f"the source has changed since ({', '.join(newer)})"
    if missing := unchecked(declared, status):
        yield f"no verdict of {', '.join(missing)} about its rows as they are now"


def _declared_otherwise(
    status: RangeStatus, declared: str, asked: Mapping[str, str]
) -> Iterator[str]:
    if changed := "; ".join(changes(status.record.declared, declared)):
        yield f"proven by another declaration: {changed}; run it again"
    for check in status.checks:
        if check.asked is not None and check.asked != asked.get(check.name, check.asked):
            yield f"{check.name} was declared otherwise when it was checked; run it again"


def _replaced_since(status: RangeStatus, before: RangeStatus, table: TableRef) -> Iterator[str]:
    here, there = status.record.data_version, before.committed and before.committed.data_version
    if here and there and not DataVersion.parse(here).is_of(DataVersion.parse(there)):
        yield f"behind: {table} has had other rows committed since; run this hop again"


def unchecked(checks: Sequence[str], status: RangeStatus | TargetStatus) -> tuple[str, ...]:
    """Return those of the checks that have no standing verdict."""
    judged = {check.name for check in status.checks}
    return tuple(name for name in checks if name not in judged)


def why_not_committed(state: State, error: str | None) -> str:
    """Say why a range is not committed, e.g. `failed: value ... is outside of ...`."""
    if not error:
        error = "no run has moved it yet" if state is State.MISSING else "its run did not finish"
    return f"{state}: {error}"


WHO_ADDED = (
    "somebody has added this partition by hand; delete it in Dagster's UI: 'Delete partitions' in "
    "the menu of the target's asset"
)


def why_lacking(transfer: Transfer) -> str:
    """Say of a range that the transfer has no more what became of it, and what adds it again."""
    command = "run" if transfer.write.moves else "check"
    return (
        "no range has these keys any more: somebody has deleted its partition in Dagster, or "
        "renamed the transfer, or a run died while it divided it again; "
        f"ferry {command} {transfer.transfer} adds it again"
    )


def judge_table(
    transfer: Transfer, target: TableRef, statuses: Mapping[TableRef, TargetStatus]
) -> TableJudgement:
    """Judge a target of a transfer by its ranges and the verdicts about the whole table.

    The arguments are those of `judge_ranges`.
    """
    status, ranges = statuses[target], judge_ranges(transfer, target, statuses)
    state = combined([each.state for each in ranges.values()])
    if state is ProofState.NOT_MOVED and not status.lacking:
        return TableJudgement(state, (f"{target}: no run has moved it yet",), ranges)
    problems = [check.summary for check in status.checks if check.failed]
    problems += [f"{name}: {why_lacking(transfer)}" for name in status.lacking]
    problems += [f"{name}: no range of the transfer: {WHO_ADDED}" for name in status.strangers]
    if problems:
        state = ProofState.FAILED
    missing = unchecked(WHOLE_TABLE_CHECKS, status)
    if missing and all(each.record.state.in_target for each in status.ranges.values()):
        problems.append(f"no verdict of {', '.join(missing)} about it as it is now")
        state = combined([state, ProofState.NOT_PROVEN])
    return TableJudgement(state, tuple(f"{target} as a whole: {text}" for text in problems), ranges)


def departures(transfer: Transfer, target: TableRef, status: TargetStatus) -> tuple[str, ...]:
    """Say in what a target is not as the transfer's source, by declaration, though it is proven."""
    hop, said = transfer.hop_of(target), []
    if transfer.where:
        said.append(f"only rows where {one_line(transfer.where)}")
    if transfer.row_security == "apply":
        said.append("only rows that row-level security shows to the login")
    if transfer.mover:
        said.append(f"without rows that {transfer.mover} has marked as deleted")
    if transfer.only is not None:
        said.append(f"only the columns {listed(transfer.only)}")
    excluded = (*transfer.exclude, *(name for each in transfer.hops[:hop] for name in each.exclude))
    if excluded:
        said.append(f"not copied: {listed(excluded)}")
    if computed := [name for name, spec in transfer.columns.items() if spec.expression]:
        said.append(f"computed by an expression: {listed(computed)}")
    records = (each.record for each in status.ranges.values())
    return (*said, *changed_values([each for each in records if each.state.in_target], target))


def changed_values(records: Sequence[RangeRecord], target: TableRef | str) -> Iterator[str]:
    """Say which rows and values of committed ranges a target has otherwise than its source."""
    if rejected := sum(record.quarantined or 0 for record in records):
        yield f"{counted(rejected, 'row')} rejected, see {target}{SUFFIX}"
    for of_record, what in (
        (attrgetter("counts"), "changed by on_overflow"),
        (attrgetter("cast"), "that lost something by cast"),
    ):
        numbers: Counter[str] = Counter()
        for record in records:
            numbers.update(of_record(record))
        if numbers:
            counts = ", ".join(f"{number:,} of {column}" for column, number in numbers.items())
            yield f"values {what}: {counts}"
    for column in dict.fromkeys(name for record in records for name in record.not_filled):
        unfilled = [record.range for record in records if column in record.not_filled]
        names = ", ".join([*unfilled[:3], *(["..."] if len(unfilled) > 3 else [])])
        rest = "; the others keep their values" if len(unfilled) < len(records) else ""
        yield (
            f"{column!r} is NULL, or its default, in rows moved since it is no longer filled: in "
            f"{len(unfilled)} of {len(records)} ranges ({names}){rest}"
        )


def combined(states: Collection[ProofState]) -> ProofState:
    """Return the state of what consists of parts in these states."""
    if ProofState.FAILED in states:
        return ProofState.FAILED
    for state in (ProofState.NOT_MOVED, ProofState.PROVEN):
        if all(each is state for each in states):
            return state
    proven = all(each in (ProofState.PROVEN, ProofState.OTHERWISE) for each in states)
    return ProofState.OTHERWISE if proven else ProofState.NOT_PROVEN
