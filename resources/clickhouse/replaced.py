"""What REPLACE PARTITION has replaced, which servers before 26.6 bring back when they restart.

There the replaced parts are marked so in memory alone, until a thread of the server removes their
files, up to minutes later; a server that is killed or stopped before that shows both, the old rows
and the new (https://github.com/ClickHouse/ClickHouse/issues/107605). Newer ones leave an empty part
on disk that covers them, as DROP PARTITION does everywhere.

DROP PARTITION ends with removing the files of all parts that nobody reads any more, also where
there is no such partition. So nothing needs to be set on the table, and that thread is not waited
for.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from tableferry.resources.clickhouse.ddl import range_hash, range_number
from tableferry.resources.clickhouse.dialect import literal
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.connecting.waiting import limit, watched
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import StatementFailed
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef

COVERED_SINCE = (26, 6)
"""The first version that remembers on disk what was replaced."""

NO_RANGE = range_number("none")
"""The number of a range that there never is; rows that others insert have 0."""

LONGEST_PAUSE = 1.0
"""Seconds between two looks for what is still read."""

LEFT_SQL = """
SELECT sum(arrayCount(old -> NOT arrayExists(
    new -> new.1 <= old.1 AND old.2 <= new.2, shown), gone))
FROM (
    SELECT groupArrayIf((min_block_number, max_block_number), _state = 'Active') AS shown,
        groupArrayIf((min_block_number, max_block_number),
            _state IN ('Outdated', 'Deleting', 'DeleteOnDestroy')) AS gone
    FROM system.parts WHERE database = {schema} AND table = {name} AND {partitions}
        AND NOT match(engine, '^(Replicated|Shared)')
    GROUP BY partition_id
)
"""
"""Counts parts whose files are there, and that no part that is shown covers, as merged ones do."""


def require_sight(resource: ClickHouseServer, table: TableRef) -> None:
    """Have the server refuse, naming the privilege, if it does not show what was replaced."""
    facts = resource.settings().facts
    facts.known("parts are seen", lambda: _left(resource, table, "0") == 0)


def let_go_ranges(
    resource: ClickHouseServer, table: TableRef, ranges: Collection[KeyRange]
) -> None:
    """See `let_go`."""
    numbers = ", ".join(literal(str(range_hash(key_range))) for key_range in ranges)
    let_go(resource, table, f"partition_id IN ({numbers})", f"ID '{NO_RANGE}'")


def let_go(resource: ClickHouseServer, table: TableRef, partitions: str, absent: str) -> None:
    """Wait until a restart of the server cannot bring back what was replaced.

    Args:
        resource: the server.
        table: the table.
        partitions: the condition that a row of `system.parts` is of one of its partitions.
        absent: a partition that the table never has.

    Raises:
        StatementFailed: queries have read the replaced rows for as long as may be waited.
    """
    pause, ends = 0.02, time.monotonic() + limit()
    with watched(resource.settings().address, lambda: [_waits(table)]):
        while left := _left(resource, table, partitions):
            resource.execute(f"ALTER TABLE {qualified(table)} DROP PARTITION {absent}")
            if not (left := _left(resource, table, partitions)):
                return
            if time.monotonic() > ends:
                raise StatementFailed(
                    "clickhouse",
                    f"{_waits(table)}: {left} parts. End these queries (system.processes), or use "
                    f"ClickHouse {'.'.join(map(str, COVERED_SINCE))} or newer",
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def may_come_back(resource: ClickHouseServer) -> bool:
    """Whether a restart may show replaced rows again that were not let go."""
    return resource.version() < COVERED_SINCE


def _left(resource: ClickHouseServer, table: TableRef, partitions: str) -> int:
    if not may_come_back(resource):
        return 0
    schema, name = literal(table.schema), literal(table.name)
    sql = LEFT_SQL.format(schema=schema, name=name, partitions=partitions)
    return int(resource.query(sql)[0][0] or 0)


def _waits(table: TableRef) -> str:
    return (
        f"{table}: queries still read rows that have been replaced, which would come back if this "
        "version of ClickHouse restarted before they have ended"
    )
