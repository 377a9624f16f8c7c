"""`fingerprint: auto` reads contents of ClickHouse only where parts have changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tableferry.assets.planning.ranges.boundaries import KeyStatistics
from tableferry.assets.planning.ranges.cutting import plan_ranges
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.contract.fingerprint import SourceFingerprint
from tableferry.resources.digest.fingerprinting import SourceReading, fingerprints
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tests.integration.support.planning import plan_of
from tests.servers import own

T, OTHER = (f"default.{own(name)}" for name in ("parts", "parts_other"))
TABLE = TableRef("clickhouse", *T.split("."))
RANGES: list[KeyRange] = [*plan_ranges(KeyStatistics(0), {"bounds": [100, 200]}, "integer")]
FIRST, SECOND, THIRD = (key_range.name for key_range in RANGES)
ALL = {FIRST, SECOND, THIRD}
COLUMNS = "(id Int64, a String, d UInt32 DEFAULT 7)"
SETTINGS = "SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1"
ROWS = "SELECT number, 'text ' || toString(number), number % 9 FROM numbers({})"
WAIT = " SETTINGS mutations_sync = 2"

UNCHANGED: frozenset[str] = frozenset()
STEPS: list[tuple[str, str, set[str] | frozenset[str]]] = [
    ("nothing", "SELECT 1", UNCHANGED),
    ("new rows", f"INSERT INTO {T} VALUES (1000, 'new', 1)", {THIRD}),
    ("a row more in a range", f"INSERT INTO {T} VALUES (150, 'again', 1)", {SECOND}),
    ("a merge", f"OPTIMIZE TABLE {T} FINAL", ALL),
    ("a mutation", f"ALTER TABLE {T} UPDATE a = 'x' WHERE id = 150{WAIT}", ALL),
    ("a mutation of nothing", f"ALTER TABLE {T} UPDATE a = 'x' WHERE id = -1{WAIT}", UNCHANGED),
    ("a deleted row", f"DELETE FROM {T} WHERE id = 151", ALL),
    ("a column that is not copied", f"ALTER TABLE {T} ADD COLUMN later String", ALL),
    ("a dropped column", f"ALTER TABLE {T} DROP COLUMN later{WAIT}", ALL),
    ("detached", f"ALTER TABLE {T} DETACH PARTITION tuple()", ALL),
    ("attached", f"ALTER TABLE {T} ATTACH PARTITION tuple()", ALL),
    ("a copy by its name", f"EXCHANGE TABLES {T} AND {OTHER}", ALL),
    ("replaced", f"ALTER TABLE {T} REPLACE PARTITION tuple() FROM {OTHER}", ALL),
    ("emptied", f"TRUNCATE TABLE {T}", ALL),
    ("filled again", f"INSERT INTO {T} {ROWS.format(250)}", ALL),
]
"""What happens to a table, and the ranges whose contents are read then, at most."""

UNTOLD = {
    "an unfinished mutation": (
        f"SYSTEM STOP MERGES {T}; "
        f"ALTER TABLE {T} UPDATE a = 'y' WHERE id = 120 SETTINGS mutations_sync = 0",
        f"SYSTEM START MERGES {T}",
    ),
    "a patch part": (f"UPDATE {T} SET a = 'z' WHERE id = 121", f"OPTIMIZE TABLE {T} FINAL"),
    "a default that no part has": (
        f"ALTER TABLE {T} ADD COLUMN r UInt64 DEFAULT rand64()",
        f"ALTER TABLE {T} DROP COLUMN r{WAIT}",
    ),
    "a computed column": (
        f"ALTER TABLE {T} ADD COLUMN r UInt64 ALIAS rand64()",
        f"ALTER TABLE {T} DROP COLUMN r{WAIT}",
    ),
}
"""What makes values differ that no part tells of, and what ends it."""


@pytest.fixture
def source(ch_url: str) -> Iterator[ClickHouseResource]:
    resource = ClickHouseResource(url=ch_url)
    for table in (T, OTHER):
        resource.execute(f"DROP TABLE IF EXISTS {table}")
        resource.execute(
            f"CREATE TABLE {table} {COLUMNS} ENGINE = MergeTree ORDER BY id {SETTINGS}"
        )
        # several parts, as inserts leave them
        for start, end in ((0, 100), (100, 200), (200, 250)):
            resource.execute(
                f"INSERT INTO {table} SELECT * FROM ({ROWS.format(end)}) WHERE number >= {start}"
            )
    yield resource
    for table in (T, OTHER):
        resource.execute(f"DROP TABLE IF EXISTS {table}")


def read(
    source: ClickHouseResource,
    recorded: dict[str, SourceFingerprint] | None = None,
    method: str = "auto",
    where: str | None = None,
) -> dict[str, SourceFingerprint]:
    extra = {column.name for column in source.columns(TABLE)} & {"later"}
    plan = replace(plan_of(source, TABLE, exclude=extra), where=where)
    return fingerprints(SourceReading(source, plan), RANGES, method, recorded=recorded)


def by_content(fingerprints: dict[str, SourceFingerprint]) -> set[str]:
    return {name for name, one in fingerprints.items() if one.found_by == "content"}


def test_contents_are_read_where_parts_changed(source: ClickHouseResource) -> None:
    before = read(source)
    assert by_content(before) == ALL
    for what, statement, changed in STEPS:
        source.execute(statement)
        found = read(source, before)
        assert found == read(source, method="content"), what
        assert by_content(found) <= changed, what
        before = found
    assert by_content(read(source, before)) == set()


def test_contents_are_read_where_parts_do_not_tell(source: ClickHouseResource) -> None:
    before = read(source)
    for what, (statements, end) in UNTOLD.items():
        for statement in statements.split("; "):
            try:
                source.execute(statement)
            except StatementFailed as error:
                pytest.skip(f"an older release: {error}")
        found = read(source, before)
        assert by_content(found) == ALL, what
        assert not any(one.row_versions for one in found.values()), what
        assert by_content(read(source, found)) == ALL, what
        source.execute(end)
        source.execute(f"ALTER TABLE {T} UPDATE a = a WHERE id = -1{WAIT}")
        before = read(source, found)
        assert before == read(source, method="content"), what


def test_a_filter_that_chooses_other_rows_is_seen(source: ClickHouseResource) -> None:
    """The number of rows, and the parts that they are in, stay the same."""
    source.execute(f"TRUNCATE TABLE {OTHER}")
    source.execute(f"INSERT INTO {OTHER} (id, a) VALUES (101, ''), (150, '')")
    where = f"id IN (SELECT id FROM {OTHER})"
    before = read(source, where=where)
    assert before[SECOND].rows == 2 and by_content(read(source, before, where=where)) == set()
    source.execute(f"TRUNCATE TABLE {OTHER}")
    source.execute(f"INSERT INTO {OTHER} (id, a) VALUES (102, ''), (150, '')")
    found = read(source, before, where=where)
    assert by_content(found) == {SECOND} and found[SECOND] != before[SECOND]


def test_merges_are_no_changes_that_anybody_declares(source: ClickHouseResource) -> None:
    with pytest.raises(InputError, match="would take each merge of clickhouse for a change"):
        read(source, method="row_version")
