"""Judges many transfers by what the event log says of them; neither Dagster nor servers are needed.

A transfer is proven by the rules of its own report, but for what only servers can tell.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tableferry.assets.asset_keys import stored_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.sections import HopSpec
from tableferry.assets.declaring.transfer_files import TransferFolder
from tableferry.assets.log.check_records import CheckRecord
from tableferry.assets.log.queries import Log
from tableferry.assets.log.ranges import RangeStatus, TargetStatus, read_status
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.runs import failed_transfers
from tableferry.assets.log.states import State
from tableferry.assets.planning.resolve import checks_of
from tableferry.checks.verdict import CHECK_NAMES, Level
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.tables import TableRef
from tableferry.resources.words import counted

LEVEL_ORDER: tuple[Level, ...] = tuple(CHECK_NAMES)
"""From the weakest to the strictest."""
LEVELS_BY_CHECK = {check: level for level, check in CHECK_NAMES.items()}

MOST_RANGE_PROBLEMS = 3
"""Maximum ranges of a table whose problems are listed; the others are counted."""


class TransferState(StrEnum):
    """What is known of a transfer or a table, the worst first."""

    FAILED = "failed"
    """A range, a check or the last run failed."""
    NOT_PROVEN = "not proven"
    """Ranges or verdicts are missing, or the source has changed since."""
    NOT_MOVED = "not moved"
    PROVEN = "proven"
    """Every range is committed, and every declared check holds for its rows as they are."""


_ORDER = {outcome: place for place, outcome in enumerate(TransferState)}


@dataclass(frozen=True)
class TableEntry:
    """One target table of a transfer."""

    source: str
    target: str
    asset: str
    """The target's asset key, its parts joined by slashes."""
    outcome: TransferState
    ranges: int = 0
    committed: int = 0
    rows: int = 0
    """Rows of the committed ranges in the target."""
    proof: Level | None = None
    """The weakest of the levels at which the ranges are proven; None if a range is not."""
    proven_from: float | None = None
    """When the proof of the range was taken that was proven longest ago."""
    proven_to: float | None = None
    """When the newest proof of a range was taken."""
    read_at: float | None = None
    """Before this moment, runs have read every range at the source."""
    positions: tuple[str, ...] = ()
    """The distinct positions of the source (e.g. a WAL location) under which ranges were read, in
    the order of reading."""
    snapshot: str | None = None
    """The state of the source, shared with other tables, as of which all ranges are committed."""
    behind_ranges: int = 0
    """Ranges whose source had changed since the commit when they were last checked."""
    behind_rows: int = 0
    """Rows that the source had gained since the commit when the table was last counted."""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class TransferEntry:
    """One transfer, with its target tables in the order of the hops."""

    transfer: str
    source: str
    outcome: TransferState
    tables: tuple[TableEntry, ...]
    description: str = ""
    problems: tuple[str, ...] = ()
    """Why it is not proven; empty if it is."""

    @property
    def ranges(self) -> int:
        """The number of ranges, each counted once for all hops."""
        return max((table.ranges for table in self.tables), default=0)

    @property
    def committed(self) -> int:
        """The number of ranges that are committed in every target."""
        return min((table.committed for table in self.tables), default=0)

    @property
    def rows(self) -> int:
        """The rows in the last target."""
        return self.tables[-1].rows if self.tables else 0

    @property
    def proof(self) -> Level | None:
        """The weakest level of its tables; None if one of them has no proof."""
        levels = [table.proof for table in self.tables]
        proven = [level for level in levels if level]
        return min(proven, key=LEVEL_ORDER.index) if len(proven) == len(levels) > 0 else None

    @property
    def snapshot(self) -> str | None:
        """The state of the source as of which all of its tables are; None if they are not."""
        snapshots = {table.snapshot for table in self.tables}
        failed = self.outcome is TransferState.FAILED
        return snapshots.pop() if len(snapshots) == 1 and not failed else None

    @property
    def proven_from(self) -> float | None:
        """The oldest proof of a range; None if a table has no proof."""
        moments = [table.proven_from for table in self.tables if table.proven_from is not None]
        return min(moments) if self.proof and moments else None

    @property
    def behind(self) -> str:
        """How far the targets are known to be behind the source; empty if they are not."""
        ranges = max((table.behind_ranges for table in self.tables), default=0)
        rows = max((table.behind_rows for table in self.tables), default=0)
        return behind(ranges, rows)


@dataclass(frozen=True)
class Fleet:
    """Many transfers at one moment, failures first."""

    created_at: float
    transfers: tuple[TransferEntry, ...]
    invalid: Mapping[str, str] = field(default_factory=dict)
    """Files that declare no valid transfer, each with its first problem."""

    @property
    def passed(self) -> bool:
        """Whether there are transfers, all are proven and no file is invalid."""
        return bool(self.transfers) and not self.unproven and not self.invalid

    @property
    def unproven(self) -> list[TransferEntry]:
        return [entry for entry in self.transfers if entry.outcome is not TransferState.PROVEN]

    @property
    def totals(self) -> dict[str, int]:
        """Transfers by outcome, tables, ranges and rows; ranges and rows are counted once."""
        outcomes = Counter(entry.outcome for entry in self.transfers)
        return {
            "transfers": len(self.transfers),
            **{outcome.replace(" ", "_"): outcomes[outcome] for outcome in TransferState},
            "invalid_files": len(self.invalid),
            "tables": sum(len(entry.tables) for entry in self.transfers),
            "ranges": sum(entry.ranges for entry in self.transfers),
            "rows": sum(entry.rows for entry in self.transfers),
        }

    @property
    def as_of(self) -> list[str]:
        """The snapshots as of which all transfers from a connection are, a sentence each."""
        by_connection: dict[str, list[TransferEntry]] = {}
        for entry in self.transfers:
            by_connection.setdefault(entry.source.partition("://")[0], []).append(entry)
        sentences = []
        for connection, entries in by_connection.items():
            snapshot = entries[0].snapshot
            if snapshot and all(entry.snapshot == snapshot for entry in entries):
                tables = counted(sum(len(entry.tables) for entry in entries), "table")
                sentences.append(f"all {tables} from {connection} as of snapshot {snapshot}")
        return sentences

    @property
    def summary(self) -> str:
        """The totals in one line."""
        outcomes = Counter(entry.outcome for entry in self.transfers)
        parts = [
            f"{outcomes[outcome]:,} {outcome}" for outcome in TransferState if outcomes[outcome]
        ]
        if self.invalid:
            parts.append(counted(len(self.invalid), "invalid file"))
        totals = self.totals
        return (
            f"{counted(totals['transfers'], 'transfer')}: {', '.join(parts) or 'none declared'}; "
            f"{counted(totals['ranges'], 'range')}, {counted(totals['rows'], 'row')}"
        )


def fleet(log: Log, declared: TransferFolder, names: Sequence[str], *, whole: bool) -> Fleet:
    """Read the event log once, and judge the named transfers.

    Args:
        log: the event log.
        declared: the transfers of the folder.
        names: those to judge.
        whole: the fleet is the whole folder, so that its invalid files count.
    """
    transfers = [declared.transfer(name) for name in names]
    statuses, failed = read_status(log, transfers), failed_transfers(log, transfers)
    entries = [
        judge(transfer, statuses, failed=transfer.transfer in failed) for transfer in transfers
    ]
    entries.sort(key=lambda entry: (_ORDER[entry.outcome], entry.transfer))
    invalid = {file.path.name: str(file.problems[0]) for file in declared.invalid if whole}
    return Fleet(dt.datetime.now(dt.UTC).timestamp(), tuple(entries), invalid)


def judge(
    transfer: Transfer, statuses: Mapping[TableRef, TargetStatus], *, failed: bool
) -> TransferEntry:
    """Judge a transfer by its records and verdicts.

    Args:
        transfer: the transfer.
        statuses: what the event log says of its targets.
        failed: its last run failed, or was refused, without a success since.
    """
    name = transfer.transfer
    sources = [transfer.source, *(hop.to for hop in transfer.hops)]
    tables = tuple(
        _table(transfer, str(source), hop, statuses.get(hop.to, TargetStatus()))
        for source, hop in zip(sources, transfer.hops, strict=False)
    )
    problems = [problem for table in tables for problem in table.problems]
    outcome = min((table.outcome for table in tables), key=_ORDER.__getitem__)
    if failed:
        problem = f"its last run failed or was refused; ferry report {name} says why"
        # what failed in the tables says more
        problems.insert(len(problems) if outcome is TransferState.FAILED else 0, problem)
        outcome = TransferState.FAILED
    elif outcome is TransferState.NOT_MOVED and any(table.committed for table in tables):
        outcome = TransferState.NOT_PROVEN
    return TransferEntry(
        name, str(transfer.source), outcome, tables, transfer.description or "", tuple(problems)
    )


def _table(transfer: Transfer, source: str, hop: HopSpec, status: TargetStatus) -> TableEntry:
    target, asset = str(hop.to), "/".join(json.loads(stored_key(hop.to)))
    ranges = [*status.ranges.values()]
    if all(each.record.state is State.MISSING for each in ranges):
        problem = f"{target}: no run has moved it yet"
        return TableEntry(
            source, target, asset, TransferState.NOT_MOVED, len(ranges), problems=(problem,)
        )
    committed = [each.record for each in ranges if each.record.state.in_target]
    proofs = [_proof(each.checks) for each in ranges if each.record.state.in_target]
    proven = [proof for proof in proofs if proof is not None]
    all_committed, all_proven = len(committed) == len(ranges), len(proven) == len(ranges)
    checks = [check for each in ranges for check in each.checks]
    failed = any(each.record.state is State.FAILED for each in ranges) or any(
        check.failed for check in (*checks, *status.checks)
    )
    behind_ranges = [
        each
        for each in ranges
        if each.record.state.in_target and any(check.source_newer for check in each.checks)
    ]
    problems = (
        *_range_problems(transfer, target, ranges),
        *_table_problems(target, status.checks, all_committed=all_committed),
    )
    outcome = TransferState.NOT_PROVEN if problems else TransferState.PROVEN
    return TableEntry(
        source=source,
        target=target,
        asset=asset,
        outcome=TransferState.FAILED if failed else outcome,
        ranges=len(ranges),
        committed=len(committed),
        rows=sum(record.rows or 0 for record in committed),
        proof=min((level for level, _ in proven), key=LEVEL_ORDER.index) if all_proven else None,
        proven_from=min(at for _, at in proven) if all_proven else None,
        proven_to=max(at for _, at in proven) if all_proven else None,
        read_at=min(record.timestamp or 0 for record in committed) if all_committed else None,
        positions=_positions(committed),
        snapshot=_snapshot(committed) if all_committed else None,
        behind_ranges=len(behind_ranges),
        behind_rows=max((verdict.rows_since for verdict in status.checks), default=0),
        problems=problems,
    )


def _proof(verdicts: Sequence[CheckRecord]) -> tuple[Level, float] | None:
    """Return the strictest level at which a range is proven, and when it was.

    A range that differs at one level, from the committed rows or from a newer source, is not
    proven at another.
    """
    compared = [verdict for verdict in verdicts if verdict.name in LEVELS_BY_CHECK]
    if not all(verdict.passed for verdict in compared):
        return None
    proofs = [(LEVELS_BY_CHECK[verdict.name], verdict.at) for verdict in compared]
    return max(proofs, key=lambda proof: LEVEL_ORDER.index(proof[0]), default=None)


def _positions(records: Sequence[RangeRecord]) -> tuple[str, ...]:
    in_order = sorted(records, key=lambda record: record.timestamp or 0)
    return tuple(
        dict.fromkeys(record.source_position for record in in_order if record.source_position)
    )


def _snapshot(records: Sequence[RangeRecord]) -> str | None:
    snapshots = {record.source_snapshot for record in records}
    return snapshots.pop() if len(snapshots) == 1 else None


def _range_problems(
    transfer: Transfer, target: str, ranges: Sequence[RangeStatus]
) -> Iterator[str]:
    """Describe why ranges are not proven, those that failed first, and the rest in a count."""
    declared = checks_of(transfer)
    failures: list[str] = []
    gaps: list[str] = []
    for each in ranges:
        record, verdicts = each.record, each.checks
        summaries = [verdict.summary for verdict in verdicts if verdict.failed]
        if not record.state.in_target and not summaries:
            problem = record.why or record.error
            text = f"{record.range}: {record.state}{f': {problem}' if problem else ''}"
            (failures if record.state is State.FAILED else gaps).append(text)
        elif summaries:
            failures.append(f"{record.range}: {'; '.join(summaries)}")
        elif newer := [verdict.name for verdict in verdicts if verdict.source_newer]:
            checks = ", ".join(newer)
            gaps.append(f"{record.range}: the source has changed since ({checks})")
        elif missing := set(declared) - {verdict.name for verdict in verdicts}:
            checks = ", ".join(check for check in declared if check in missing)
            gaps.append(f"{record.range}: no verdict of {checks} about its rows as they are now")
    problems = [*failures, *gaps]
    yield from (f"{target} {problem}" for problem in problems[:MOST_RANGE_PROBLEMS])
    if rest := problems[MOST_RANGE_PROBLEMS:]:
        yield f"{target}: {counted(len(rest), 'more range')} not proven"


def _table_problems(
    target: str, verdicts: Sequence[CheckRecord], *, all_committed: bool
) -> Iterator[str]:
    for verdict in verdicts:
        if verdict.failed:
            yield f"{target} as a whole: {verdict.summary}"
    judged = {verdict.name for verdict in verdicts}
    missing = [check for check in WHOLE_TABLE_CHECKS if check not in judged]
    if missing and all_committed:
        yield f"{target} as a whole: no verdict of {', '.join(missing)} about it as it is now"


def behind(ranges: int, rows: int) -> str:
    """Describe how far a table is known to be behind its source; empty if it is not."""
    parts = [counted(ranges, "range")] * bool(ranges) + [counted(rows, "row")] * bool(rows)
    return ", ".join(parts)
