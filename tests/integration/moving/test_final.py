"""`final: true`: a table that keeps several versions of a row is read as its readers read it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]

REPLACING = (
    "CREATE TABLE {t} (id Int32, note Nullable(String), v UInt32, gone UInt8 DEFAULT 0) "
    "ENGINE = ReplacingMergeTree(v, gone) ORDER BY id"
)
CHAIN = "['postgres://{copies}.{{t}}', 'clickhouse://warehouse.{{t}}_next']"


@dataclass
class Versions:
    """A table of ClickHouse that keeps several versions of a row, unmerged."""

    url: str
    table: str

    def run(self, *statements: str) -> None:
        for statement in statements:
            looking.clickhouse(self.url).command(statement.format(t=self.table))

    def ask(self, sql: str, **more: str) -> list[tuple[object, ...]]:
        return looking.ask_clickhouse(self.url, sql.format(t=self.table, **more))

    def newest(self) -> list[tuple[object, ...]]:
        return self.ask("SELECT id, note FROM {t} FINAL ORDER BY id")

    def write(self, row: int, note: str, version: int, *, gone: bool = False) -> None:
        self.run(f"INSERT INTO {{t}} VALUES ({row}, '{note}', {version}, {int(gone)})")


@pytest.fixture
def versions(ferry: Make, copies: str) -> Iterator[tuple[Ferry, Versions]]:
    """A transfer of such a table into PostgreSQL, and on into ClickHouse."""
    one = ferry("['postgres://public.{t}_unused']")
    table = Versions(one.stack.clickhouse_url, f"warehouse.{one.table}")
    table.run(REPLACING, "SYSTEM STOP MERGES {t}")
    table.run("INSERT INTO {t} SELECT number, concat('n', toString(number)), 1, 0 FROM numbers(40)")
    table.write(3, "newer", 2)
    table.write(3, "older", 0)
    table.write(25, "gone", 2, gone=True)
    one.declare(
        CHAIN.format(copies=copies),
        source=f"clickhouse://{table.table}",
        columns="[id, note]",
        ranges="{bounds: [10, 20, 30]}",
        final="true",
    )
    yield one, table
    for name in (table.table, f"{table.table}_next"):
        table.run(f"DROP TABLE IF EXISTS {name} SYNC")


def test_a_chain_gets_the_newest_versions_and_says_so(
    versions: tuple[Ferry, Versions], copies: str
) -> None:
    one, table = versions
    first = one.run()
    assert first.good, first.errors
    newest = table.newest()
    assert len(newest) == 39 and (3, "newer") in newest
    assert one.rows(f"SELECT id, note FROM {copies}.{{t}} ORDER BY id") == newest
    assert table.ask("SELECT id, note FROM {t}_next ORDER BY id") == newest
    checked = runner.check(one.session, one.table, level="full_hash")
    assert checked.good, checked.errors
    of_first = [each for each in checked.checks if each.hop.number == 1 and each.range]
    said = f"with FINAL of clickhouse://{table.table}"
    assert of_first and all(said in each.summary() for each in of_first)
    assert all(each.verdict.metadata["final"] for each in of_first)
    assert not any("FINAL" in each.summary() for each in checked.checks if each.hop.number == 2)

    # a merge is no change; a version is one, of its range alone, in both hops
    table.run("SYSTEM START MERGES {t}", "OPTIMIZE TABLE {t} FINAL", "SYSTEM STOP MERGES {t}")
    assert one.moved(one.run()) == []
    table.write(15, "late", 2)
    table.write(16, "stale", 0)
    second = one.run()
    assert second.good and len(one.moved(second)) == 1, second.errors
    table.write(15, "", 3, gone=True)
    third = one.run()
    assert third.good and len(one.moved(third)) == 1
    assert table.ask("SELECT id, note FROM {t}_next ORDER BY id") == table.newest()
    assert (15,) not in table.ask("SELECT id FROM {t}_next")


def test_without_it_all_versions_are_rows(versions: tuple[Ferry, Versions], copies: str) -> None:
    one, table = versions
    with_final = one.run()
    assert with_final.good
    hops = f"['postgres://{copies}.{{t}}']"
    more = {"columns": "[id, note]", "ranges": "{bounds: [10, 20, 30]}"}
    one.declare(hops, source=f"clickhouse://{table.table}", **more)
    plan = one.plan()
    assert {each.decision.reason for each in plan.ranges} == {"settings_changed"}
    every = one.run()
    assert every.good, every.errors
    assert one.rows(f"SELECT count(*) FROM {copies}.{{t}}") == [(43,)]
    # now a merge is a change, of the ranges that had several versions
    table.run("SYSTEM START MERGES {t}", "OPTIMIZE TABLE {t} FINAL")
    assert len(one.moved(one.run())) == 2


def test_a_random_history_is_followed(versions: tuple[Ferry, Versions], copies: str) -> None:
    one, table = versions
    chance = random.Random(7)
    table.run("SYSTEM START MERGES {t}")
    version = 10
    for _ in range(4):
        for _ in range(chance.randrange(1, 6)):
            version += 1
            row, stale = chance.randrange(-3, 45), chance.random() < 0.3
            gone = chance.random() < 0.3
            table.write(row, f"v{version}", 0 if stale else version, gone=gone and not stale)
        if chance.random() < 0.5:
            table.run("OPTIMIZE TABLE {t} FINAL")
        done = one.run()
        assert done.good, done.errors
        assert one.rows(f"SELECT id, note FROM {copies}.{{t}} ORDER BY id") == table.newest()
        assert table.ask("SELECT id, note FROM {t}_next ORDER BY id") == table.newest()


def test_a_compared_table_is_read_so_too(ferry: Make) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
        "INSERT INTO {t} SELECT g, 'n' || g FROM generate_series(0, 39) g",
        write="none",
        final="true",
        expectations="[{type: expect_table_row_count_to_be_between, kwargs: {max_value: 20}}]",
        ranges="{bounds: [0, 20, 40]}",
    )
    table = Versions(one.stack.clickhouse_url, f"warehouse.{one.table}")
    table.run(REPLACING, "SYSTEM STOP MERGES {t}")
    try:
        table.run(
            "INSERT INTO {t} (id, note, v) "
            "SELECT number, concat('n', toString(number)), 1 FROM numbers(40)"
        )
        table.write(3, "older", 0)
        table.write(50, "", 1, gone=True)
        checked = runner.check(one.session, one.table)
        assert checked.good, checked.errors
        rows_of_target = [each for each in checked.checks if each.verdict.check != "schema"]
        assert all("with FINAL of" in each.summary() for each in rows_of_target)
        both = (f"postgres://public.{one.table}", f"clickhouse://{table.table}")
        assert command("compare", *both, "--final").exit_code == 0
        plain = command("compare", *both)
        assert plain.exit_code == 1 and "2 rows only in B" in plain.stdout, plain.stdout
        said = command("compare", *both, "--final", "--json").stdout
        assert "B is read with FINAL" in said
        query = f"clickhouse:SELECT id, note FROM {table.table}"
        refused = command("compare", both[0], query, "--final", "--key", "id")
        assert refused.exit_code == 2 and "its engine keeps no versions" not in refused.output
        table.write(5, "wrong", 2)
        damaged = runner.check(one.session, one.table)
        assert not damaged.good
        (name,) = {each.range for each in damaged.checks if each.failed and each.range}
        shown = command("diff", one.table, "--range", str(name)).stdout
        assert "1 row differs: note" in shown and "with FINAL" in shown, shown
        refused = command("repair", one.table)
        assert refused.exit_code == 2 and "keeps several versions of a row" in refused.stderr
    finally:
        table.run("DROP TABLE {t} SYNC")


@pytest.mark.parametrize(
    ("hops", "more", "expected"),
    [
        ("['clickhouse://warehouse.{t}']", {}, "PostgreSQL keeps one version of a row"),
        (
            "['clickhouse://warehouse.{t}']",
            {"write": "none"},
            "its engine keeps no versions of rows",
        ),
        ("['clickhouse://warehouse.{t}']", {"write": "none", "mover": "peerdb"}, "leave it out"),
    ],
)
def test_where_nothing_has_versions_it_is_refused(
    ferry: Make, hops: str, more: dict[str, str], expected: str
) -> None:
    one = ferry(hops, "CREATE TABLE {t} (id int PRIMARY KEY, note text)", final="true", **more)
    table = Versions(one.stack.clickhouse_url, f"warehouse.{one.table}")
    table.run("CREATE TABLE {t} (id Int32, note Nullable(String)) ORDER BY id")
    try:
        refused = command("validate")
        assert refused.exit_code == 2 and expected in refused.output, refused.output
        compared = command(
            "compare", "--final", f"postgres://public.{one.table}", f"clickhouse://{table.table}"
        )
        assert compared.exit_code == 2 and "keeps no versions of rows" in compared.output
    finally:
        table.run("DROP TABLE {t} SYNC")


def test_versions_in_several_partitions_are_one_row(ferry: Make, copies: str) -> None:
    """Ranges are cut by the column that chooses the partition, which an update has changed."""
    one = ferry("['postgres://public.{t}_unused']")
    table = Versions(one.stack.clickhouse_url, f"warehouse.{one.table}")
    table.run(
        "CREATE TABLE {t} (id Int32, day Date, v UInt32) ENGINE = ReplacingMergeTree(v) "
        "PARTITION BY toYYYYMM(day) ORDER BY id",
        "INSERT INTO {t} VALUES (1, '2026-01-05', 1), (2, '2026-01-06', 1)",
        "INSERT INTO {t} VALUES (1, '2026-02-05', 2)",
    )
    try:
        one.declare(
            f"['postgres://{copies}.{{t}}']",
            source=f"clickhouse://{table.table}",
            key="day",
            ranges="{bounds: ['2026-01-01', '2026-02-01', '2026-03-01']}",
            final="true",
        )
        done = one.run()
        assert done.good, done.errors
        shown = one.rows(f"SELECT id, day::text FROM {copies}.{{t}} ORDER BY id")
        assert shown == [(1, "2026-02-05"), (2, "2026-01-06")]
    finally:
        table.run("DROP TABLE {t} SYNC")
