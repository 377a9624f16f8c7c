"""`mover`: what PeerDB, Airbyte and Fivetran fill is compared as its readers see it.

Each table is made as the mover's documentation says, and its rows are written as the mover writes
them: a version of a row by itself, a deleted one with its mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

SOURCE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT i, 'n' || i FROM generate_series(1, 40) i",
)


@dataclass(frozen=True)
class Filled:
    """A table of a mover's, and how it writes a version of a row."""

    mover: str
    create: str
    insert: str
    """With the row's `id` and `note`, the `version`, in minutes, and `deleted`, 0 or 1."""
    title: str
    system: str = "clickhouse"
    hop: str = "clickhouse://warehouse.{t}"
    columns: str = "{}"

    def write(
        self, one: Ferry, row: int, note: str, version: int, *, deleted: bool = False
    ) -> None:
        values = {"id": row, "note": f"'{note}'", "version": version, "deleted": int(deleted)}
        if deleted:  # what is known of a deleted row is its key
            values["note"] = "NULL"
        looking.run(one.stack, self.system, self.insert.format(t=one.table, **values))


TABLES = {
    # https://docs.peerdb.io/bestpractices/clickhouse_datamodeling
    "peerdb": Filled(
        "peerdb",
        "CREATE TABLE warehouse.{t} (id Int32, note Nullable(String), "
        "_peerdb_synced_at DateTime64(9) DEFAULT now64(), _peerdb_is_deleted Int8, "
        "_peerdb_version Int64) ENGINE = ReplacingMergeTree(_peerdb_version) "
        "PRIMARY KEY id ORDER BY id",
        "INSERT INTO warehouse.{t} VALUES "
        "({id}, {note}, toDateTime('2026-01-01 00:00:00') + {version} * 60, {deleted}, {version})",
        "PeerDB",
    ),
    # https://docs.airbyte.com/integrations/destinations/clickhouse, append + deduped
    "airbyte": Filled(
        "airbyte",
        "CREATE TABLE warehouse.{t} (_airbyte_raw_id String, _airbyte_extracted_at DateTime64(3), "
        "_airbyte_meta String, _airbyte_generation_id UInt32, id Int64, note Nullable(String), "
        "_ab_cdc_updated_at Nullable(String), _ab_cdc_deleted_at Nullable(String)) "
        "ENGINE = ReplacingMergeTree(_airbyte_extracted_at) ORDER BY id",
        "INSERT INTO warehouse.{t} SELECT toString(generateUUIDv4()), "
        "toDateTime('2026-01-01 00:00:00') + {version} * 60, '{{}}', 0, {id}, {note}, "
        "'2026-01-01T00:00:00Z', if({deleted}, '2026-01-01T00:00:00Z', NULL)",
        "Airbyte",
        columns="{id: {type: Int64}}",
    ),
    # https://clickhouse.com/docs/integrations/fivetran/reference
    "fivetran": Filled(
        "fivetran",
        "CREATE TABLE warehouse.{t} (id Int32, note Nullable(String), "
        "_fivetran_synced DateTime64(9, 'UTC'), _fivetran_deleted Bool) "
        "ENGINE = ReplacingMergeTree(_fivetran_synced) ORDER BY id",
        "INSERT INTO warehouse.{t} VALUES "
        "({id}, {note}, toDateTime('2026-01-01 00:00:00') + {version} * 60, {deleted})",
        "Fivetran",
    ),
    # https://fivetran.com/docs/core-concepts/system-columns-and-tables: rows are updated in place
    "fivetran into PostgreSQL": Filled(
        "fivetran",
        "CREATE TABLE {t}_copy (id int PRIMARY KEY, note text, _fivetran_synced timestamptz, "
        "_fivetran_deleted boolean)",
        "INSERT INTO {t}_copy VALUES ({id}, {note}, "
        "timestamptz '2026-01-01 00:00:00+00' + {version} * interval '1 minute', '{deleted}') "
        "ON CONFLICT (id) DO UPDATE SET note = excluded.note, "
        "_fivetran_synced = excluded._fivetran_synced, "
        "_fivetran_deleted = excluded._fivetran_deleted",
        "Fivetran",
        system="postgres",
        hop="postgres://public.{t}_copy",
    ),
}


@pytest.fixture(params=TABLES)
def filled(request: pytest.FixtureRequest) -> Filled:
    return TABLES[request.param]


@pytest.fixture
def pair(ferry: Callable[..., Ferry], filled: Filled) -> Iterator[Ferry]:
    """The pair, which is in step: with old versions, and with a row that was deleted since."""
    one = ferry(
        f"['{filled.hop}']",
        *SOURCE,
        write="none",
        mover=filled.mover,
        ranges="{bounds: [1, 11, 21]}",
        columns=filled.columns,
    )
    looking.run(one.stack, filled.system, filled.create.format(t=one.table))
    if filled.system == "clickhouse":
        looking.run(one.stack, "clickhouse", f"SYSTEM STOP MERGES warehouse.{one.table}")
    for row in range(1, 41):
        filled.write(one, row, f"n{row}", 1)
    filled.write(one, 5, "older", 0)
    if filled.system == "postgres":  # which has no versions
        filled.write(one, 5, "n5", 1)
    filled.write(one, 15, "n15", 2)
    filled.write(one, 50, "n50", 1)
    filled.write(one, 50, "n50", 2, deleted=True)
    yield one
    looking.run(
        one.stack, filled.system, f"DROP TABLE {filled.hop.format(t=one.table).partition('//')[2]}"
    )


def test_deleted_rows_old_versions_and_lag_are_no_damage(pair: Ferry, filled: Filled) -> None:
    name = pair.table
    assert command("validate").exit_code == 0
    in_step = runner.check(pair.session, name)
    assert in_step.good, in_step.errors

    pair.source("DELETE FROM {t} WHERE id = 7", "UPDATE {t} SET note = 'newer' WHERE id = 13")
    pair.source("INSERT INTO {t} VALUES (41, 'n41')")
    late = runner.check(pair.session, name)
    assert late.good and "the source is newer" in late.closing
    said = " ".join(check.summary() for check in late.checks if not check.verdict.passed)
    assert f"the newest row of {filled.title} is of 2026-01-01" in said, said
    assert not runner.check(pair.session, name, up_to_date=True).good

    filled.write(pair, 7, "n7", 3, deleted=True)
    filled.write(pair, 13, "newer", 3)
    filled.write(pair, 41, "n41", 3)
    caught_up = runner.check(pair.session, name, level="full_hash")
    assert caught_up.good and "newer" not in caught_up.closing, caught_up.closing

    filled.write(pair, 22, "wrong", 4)
    filled.write(pair, 23, "n23", 4, deleted=True)
    damaged = runner.check(pair.session, name)
    assert not damaged.good
    (range_name,) = {check.range for check in damaged.checks if check.failed and check.range}
    shown = command("diff", name, "--range", str(range_name)).stdout
    assert "1 row missing in target, 1 row differs: note" in shown, shown

    refused = command("repair", name)
    assert refused.exit_code == 2
    assert f"{filled.title} keeps its own columns and versions of rows there" in refused.stderr


def test_a_pair_that_nobody_is_declared_for_differs(pair: Ferry, filled: Filled) -> None:
    pair.declare(f"['{filled.hop}']", write="none", columns=filled.columns)
    assert not runner.check(pair.session, pair.table).good


def test_a_table_of_somebody_else_is_told(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *SOURCE, write="none", mover="fivetran")
    looking.run(
        one.stack,
        "sqlserver",
        f"CREATE TABLE dbo.{one.table} (id int NOT NULL PRIMARY KEY, note nvarchar(max))",
    )
    refused = command("check", one.table)
    assert refused.exit_code == 2
    assert "has neither _fivetran_synced nor _fivetran_deleted" in refused.stderr
    looking.run(one.stack, "sqlserver", f"DROP TABLE dbo.{one.table}")


@pytest.mark.parametrize(
    ("hops", "more", "expected"),
    [
        ("['sqlserver://dbo.{t}']", {}, "is for 'write: none'"),
        (
            "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']",
            {"write": "none"},
            "is for one hop",
        ),
    ],
)
def test_a_mover_is_of_one_table_that_is_only_compared(
    ferry: Callable[..., Ferry], hops: str, more: dict[str, str], expected: str
) -> None:
    ferry(hops, *SOURCE, mover="peerdb", **more)
    refused = command("validate")
    assert refused.exit_code == 2 and f"mover: {expected}" in refused.output
