"""What planning reads of the event log: out of Dagster's SQLite file at a glance, or from Dagster.

Nothing here imports Dagster as long as a `Glance` is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tableferry.assets.asset_keys import asset_key, stored_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.committed import Committed, WrittenColumns
from tableferry.assets.log.glance import Glance
from tableferry.assets.log.records import RangeRecord
from tableferry.checks.verdict import CHECK_NAMES
from tableferry.resources.tables import TableRef

if TYPE_CHECKING:
    import dagster as dg

Log: TypeAlias = "Glance | dg.DagsterInstance"


def partitions(log: Log, name: str) -> Sequence[str]:
    """The keys of dynamic partitions, in their order."""
    return log.partitions(name) if isinstance(log, Glance) else log.get_dynamic_partitions(name)


def newest_ids(log: Log, table: TableRef) -> Mapping[str, int]:
    """See `ledger.newest_ids`."""
    if isinstance(log, Glance):
        return log.newest_ids(stored_key(table))
    from tableferry.assets.log import ledger

    return ledger.newest_ids(log, asset_key(table))


def committed(
    log: Log,
    table: TableRef,
    checks: Sequence[str],
    *,
    declared: Sequence[str] = (CHECK_NAMES["count"],),
) -> dict[str, Committed]:
    """See `ledger.committed`."""
    if isinstance(log, Glance):
        return log.committed(stored_key(table), checks, declared)
    from tableferry.assets.log import ledger

    return ledger.committed(log, asset_key(table), checks, declared=declared)


def records(log: Log, table: TableRef, ranges: Iterable[str]) -> dict[str, RangeRecord]:
    """See `ledger.records`."""
    if isinstance(log, Glance):
        wanted = set(ranges)
        found = log.records(stored_key(table))
        return {name: one for name, one in found.items() if name in wanted}
    from tableferry.assets.log import ledger

    return ledger.records(log, asset_key(table), ranges)


def verdicts(log: Log, table: TableRef, checks: Sequence[str]) -> dict[str, dict[str, bool]]:
    """See `ledger.verdicts`."""
    if isinstance(log, Glance):
        return log.verdicts(stored_key(table), checks)
    from tableferry.assets.log import ledger

    return ledger.verdicts(log, asset_key(table), checks)


def committed_schema(log: Log, table: TableRef) -> WrittenColumns | None:
    """See `ledger.committed_schema`."""
    if isinstance(log, Glance):
        return log.committed_schema(stored_key(table))
    from tableferry.assets.log import ledger

    return ledger.committed_schema(log, asset_key(table))


def unanswered(log: Log, transfer: Transfer, tables: Sequence[TableRef]) -> bool:
    """Whether the newest run for one of these targets failed, whatever became of its ranges."""
    if isinstance(log, Glance):
        targets = [stored_key(hop.to) for hop in transfer.hops]
        wanted = [stored_key(table) for table in tables]
        return log.unanswered(transfer.transfer, frozenset(targets), wanted)
    from tableferry.assets.log import history

    return history.is_unanswered(log, transfer, [asset_key(table) for table in tables])
