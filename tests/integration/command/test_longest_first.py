"""Transfers that have never run begin by the sizes of their sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tableferry.pipelines.command.many.fleet import run_fleet, sizes_of
from tableferry.pipelines.command.one.finding import Selection
from tableferry.pipelines.command.show.watching import Watch
from tableferry.resources.contract.catalog import TableSize
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import ask_clickhouse, ask_sqlserver, reopen

pytestmark = pytest.mark.integration

ROWS = {"a": 10, "b": 3_000, "d": 300_000}
"""`c` is a view, of which no catalog knows the size."""


class Order(Watch):
    """Keeps the order in which transfers begin."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, transfer: str) -> None:
        self.names.append(transfer)


@pytest.fixture
def fleet(ferry: Callable[..., Ferry]) -> Iterator[Ferry]:
    moves = ferry("['clickhouse://warehouse.{t}']", "CREATE TABLE {t} (id bigint)")
    (moves.folder / "t.yaml").unlink()
    for name in "abcd":
        (moves.folder / f"{name}.yaml").write_text(
            f"transfer: {name}\nsource: postgres://public.{moves.table}_{name}\nkey: id\n"
            f"hops: ['clickhouse://warehouse.{moves.table}_{name}']\n"
        )
    for name, rows in ROWS.items():
        values = f"SELECT g AS id FROM generate_series(1, {rows}) g"
        moves.source(f"CREATE TABLE {{t}}_{name} AS {values}")
    moves.source("ANALYZE {t}_b", "CREATE VIEW {t}_c AS SELECT * FROM {t}_a")
    reopen(moves)
    yield moves
    moves.source("DROP VIEW {t}_c", *(f"DROP TABLE {{t}}_{name}" for name in ROWS))


def test_tables_begin_by_their_size_and_a_view_in_between(fleet: Ferry) -> None:
    watch = Order()
    outcomes = [*run_fleet(fleet.session, [*"abcd"], Selection(), watch, 1)]
    assert all(outcome.view.good for outcome in outcomes)
    # what the view takes is the median of the others
    assert watch.names == ["d", "b", "c", "a"]
    transfers = fleet.session.transfers
    sizes = sizes_of([item.source for item in transfers.values()], fleet.session.servers)
    known = {table.name.rpartition("_")[2]: size for table, size in sizes.items()}
    assert set(known) == {"a", "b", "d"} and known["b"].rows == ROWS["b"]

    targets = [item.hops[0].to for item in transfers.values()]
    nowhere = TableRef.parse("clickhouse://warehouse.not_there")
    moved = sizes_of([*targets, nowhere], fleet.session.servers)
    assert {table: size.rows for table, size in moved.items()} == {
        table: ask_clickhouse(fleet, f"SELECT count() FROM warehouse.{table.name}")[0][0]
        for table in targets
    }


def test_sql_server_says_what_its_catalog_counts(fleet: Ferry) -> None:
    names = [f"{fleet.table}_full", f"{fleet.table}_empty"]
    for name in names:
        ask_sqlserver(fleet, f"CREATE TABLE dbo.{name} (id int NOT NULL)")
    try:
        ask_sqlserver(fleet, f"INSERT INTO dbo.{names[0]} SELECT 1 UNION ALL SELECT 2")
        counted = ask_sqlserver(
            fleet,
            "SELECT SUM(p.rows) FROM sys.partitions AS p INNER JOIN sys.objects AS o"
            f" ON o.object_id = p.object_id WHERE o.name = '{names[0]}'",
        )[0][0]
        tables = [TableRef.parse(f"sqlserver://dbo.{name}") for name in names]
        # a server whose catalog does not count says nothing
        expected = {tables[0]: TableSize(2)} if counted else {}
        assert sizes_of(tables, fleet.session.servers) == expected
    finally:
        for name in names:
            ask_sqlserver(fleet, f"DROP TABLE dbo.{name}")
