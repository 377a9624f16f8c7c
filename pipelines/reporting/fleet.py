"""Many transfers by what the event log says of them; neither Dagster nor servers are needed."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tableferry.assets.asset_keys import stored_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder
from tableferry.assets.judging import ProofState, TableJudgement, combined, departures, judge_table
from tableferry.assets.log.check_records import CheckRecord
from tableferry.assets.log.queries import Log
from tableferry.assets.log.ranges import TargetStatus, read_status
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.runs import RunEnd, failed_transfers
from tableferry.checks.levels import ALL_LEVEL_CHECKS, CHECK_NAMES, Level
from tableferry.resources.tables import TableRef
from tableferry.resources.words import counted

LEVEL_ORDER: tuple[Level, ...] = tuple(CHECK_NAMES)
"""From the weakest to the strictest."""
LEVELS_BY_CHECK = {check: level for level, check in CHECK_NAMES.items()}

MOST_RANGE_PROBLEMS = 3
"""Maximum ranges of a table whose problems are listed; the others are counted."""

_ORDER = {state: place for place, state in enumerate(ProofState)}


@dataclass(frozen=True)
class TableEntry:
    """One target table of a transfer."""

    source: str
    target: str
    asset: str
    """The target's asset key, its parts joined by slashes."""
    outcome: ProofState
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
    departures: tuple[str, ...] = ()
    """In what it is not as the source, by declaration."""
    source_server: str | None = None
    target_server: str | None = None
    """Address, database and version of both servers, as the newest record that has them does."""


@dataclass(frozen=True)
class TransferEntry:
    """One transfer, with its target tables in the order of the hops."""

    transfer: str
    source: str
    outcome: ProofState
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
        failed = self.outcome is ProofState.FAILED
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
        return [entry for entry in self.transfers if entry.outcome is not ProofState.PROVEN]

    @property
    def departing(self) -> list[TableEntry]:
        """The tables that are not in all as their source."""
        return [table for entry in self.transfers for table in entry.tables if table.departures]

    @property
    def servers(self) -> dict[str, list[str]]:
        """Address, database and version of the servers, by connection."""
        found: dict[str, dict[str, None]] = {}
        for entry in self.transfers:
            for table in entry.tables:
                for name, server in (
                    (table.source, table.source_server),
                    (table.target, table.target_server),
                ):
                    if server:
                        found.setdefault(name.partition("://")[0], {})[server] = None
        return {name: [*servers] for name, servers in sorted(found.items())}

    @property
    def departing_sentence(self) -> str:
        """How many tables are not in all as their source; empty if none is."""
        number = len(self.departing)
        if not number:
            return ""
        are = "table is" if number == 1 else "tables are"
        return f"{number:,} {are} not in all as the source, by declaration"

    @property
    def totals(self) -> dict[str, int]:
        """Transfers by outcome, tables, ranges and rows; ranges and rows are counted once."""
        outcomes = Counter(entry.outcome for entry in self.transfers)
        return {
            "transfers": len(self.transfers),
            **{outcome.replace(" ", "_"): outcomes[outcome] for outcome in ProofState},
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
        parts = [f"{outcomes[outcome]:,} {outcome}" for outcome in ProofState if outcomes[outcome]]
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
        transfer_entry(transfer, statuses, failed=failed.get(transfer.transfer))
        for transfer in transfers
    ]
    entries.sort(key=lambda entry: (_ORDER[entry.outcome], entry.transfer))
    invalid = {file.path.name: str(file.problems[0]) for file in declared.invalid if whole}
    return Fleet(dt.datetime.now(dt.UTC).timestamp(), tuple(entries), invalid)


def transfer_entry(
    transfer: Transfer, statuses: Mapping[TableRef, TargetStatus], *, failed: RunEnd | None
) -> TransferEntry:
    """Judge a transfer, and say it with figures.

    Args:
        transfer: the transfer.
        statuses: what the event log says of its targets.
        failed: how its last run ended, if it failed, was refused or canceled, without a success
            since.
    """
    name = transfer.transfer
    tables = tuple(
        _table(transfer, source, hop.to, statuses)
        for source, hop in zip(transfer.tables, transfer.hops, strict=False)
    )
    problems = [problem for table in tables for problem in table.problems]
    state = combined([table.outcome for table in tables])
    if failed:
        ended = "was canceled" if failed == "canceled" else "failed or was refused"
        problem = f"its last run {ended}; ferry report {name} says why"
        # what failed in the tables says more
        problems.insert(len(problems) if state is ProofState.FAILED else 0, problem)
        state = combined([state, ProofState.FAILED])
    return TransferEntry(
        name, str(transfer.source), state, tables, transfer.description or "", tuple(problems)
    )


def _table(
    transfer: Transfer,
    source: TableRef,
    target: TableRef,
    statuses: Mapping[TableRef, TargetStatus],
) -> TableEntry:
    judged, status = judge_table(transfer, target, statuses), statuses[target]
    committed = [each for each in status.ranges.values() if each.record.state.in_target]
    records = [each.record for each in committed]
    proven = [proof for each in committed if (proof := _proof(each.checks)) is not None]
    all_committed = len(committed) == len(status.ranges) > 0
    all_proven = len(proven) == len(status.ranges) > 0
    return TableEntry(
        source=str(source),
        target=str(target),
        asset="/".join(json.loads(stored_key(target))),
        outcome=judged.state,
        ranges=len(status.ranges),
        committed=len(committed),
        rows=sum(record.rows or 0 for record in records),
        proof=min((level for level, _ in proven), key=LEVEL_ORDER.index) if all_proven else None,
        proven_from=min(at for _, at in proven) if all_proven else None,
        proven_to=max(at for _, at in proven) if all_proven else None,
        read_at=min(record.timestamp or 0 for record in records) if all_committed else None,
        positions=_positions(records),
        snapshot=_snapshot(records) if all_committed else None,
        behind_ranges=sum(any(check.source_newer for check in each.checks) for each in committed),
        behind_rows=max((check.rows_since for check in status.checks), default=0),
        problems=(*_range_problems(target, judged), *judged.problems),
        departures=departures(transfer, target, status),
        source_server=_newest_of(records, "source_server"),
        target_server=_newest_of(records, "target_server"),
    )


def _range_problems(target: TableRef, judged: TableJudgement) -> Iterator[str]:
    """Say why ranges are not proven, a line each of the first, and count the rest."""
    lines = [
        f"{target} {name}: {'; '.join(each.problems)}" for name, each in judged.unproven.items()
    ]
    yield from lines[:MOST_RANGE_PROBLEMS]
    if rest := lines[MOST_RANGE_PROBLEMS:]:
        yield f"{target}: {counted(len(rest), 'more range')} not proven"


def _proof(verdicts: Sequence[CheckRecord]) -> tuple[Level, float] | None:
    """Return the strictest level at which a range is proven, and when it was.

    A range that differs at one level, from the committed rows or from a newer source, is not
    proven at another.
    """
    compared = [verdict for verdict in verdicts if verdict.name in ALL_LEVEL_CHECKS]
    if not all(verdict.passed for verdict in compared):
        return None
    proofs = [
        (LEVELS_BY_CHECK[verdict.name], verdict.at)
        for verdict in compared
        if verdict.name in LEVELS_BY_CHECK
    ]
    return max(proofs, key=lambda proof: LEVEL_ORDER.index(proof[0]), default=None)


def _newest_of(records: Sequence[RangeRecord], field_name: str) -> str | None:
    newest_first = sorted(records, key=lambda record: -(record.timestamp or 0))
    return next(filter(None, (getattr(record, field_name) for record in newest_first)), None)


def _positions(records: Sequence[RangeRecord]) -> tuple[str, ...]:
    in_order = sorted(records, key=lambda record: record.timestamp or 0)
    return tuple(
        dict.fromkeys(record.source_position for record in in_order if record.source_position)
    )


def _snapshot(records: Sequence[RangeRecord]) -> str | None:
    snapshots = {record.source_snapshot for record in records}
    return snapshots.pop() if len(snapshots) == 1 else None


def behind(ranges: int, rows: int) -> str:
    """Describe how far a table is known to be behind its source; empty if it is not."""
    parts = [counted(ranges, "range")] * bool(ranges) + [counted(rows, "row")] * bool(rows)
    return ", ".join(parts)
