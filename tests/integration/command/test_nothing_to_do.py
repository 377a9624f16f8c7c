"""`ferry run --all` with nothing to do: what it asks, and what others change meanwhile."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tableferry.pipelines.command.many import fleet
from tableferry.pipelines.command.many.fleet import run_fleet
from tableferry.pipelines.command.one.finding import Selection
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.show.range_views import TransferOutcome
from tableferry.pipelines.command.show.watching import Watch
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.crashing import ask_clickhouse, reopen

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("digests_by_servers")]

TABLES = 12
DATA = 4
"""Queries of the rows of an unchanged table in two hops: growth, fingerprint, two counts."""
MOST_CATALOG = 50
"""Other statements: each of three catalogs is read twice, and a server may be probed."""


@pytest.fixture
def moves(ferry: Callable[..., Ferry]) -> Iterator[Ferry]:
    """A source of twelve tables, whose transfers in two hops have all been run."""
    chain = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
    moves = ferry(chain, "CREATE TABLE {t} (id integer PRIMARY KEY, name text)")
    (moves.folder / "t.yaml").unlink()
    for name in names(moves):
        moves.source(
            f"CREATE TABLE {name} (id integer PRIMARY KEY, name text)",
            f"INSERT INTO {name} SELECT g, 'name ' || g FROM generate_series(1, 20) g",
        )
        (moves.folder / f"{name}.yaml").write_text(
            f"transfer: {name}\nsource: postgres://public.{name}\nkey: id\n"
            f"hops: ['sqlserver://dbo.{name}', 'clickhouse://warehouse.{name}']\n"
            "on_schema_drift: add_columns\n"
        )
    reopen(moves)
    assert all(outcome.view.good and outcome.rows == 20 for outcome in run(moves, names(moves)))
    yield moves
    moves.source(*(f"DROP TABLE {name}" for name in names(moves)))


def names(moves: Ferry) -> list[str]:
    return [f"{moves.table}_{number:02}" for number in range(TABLES)]


def run(moves: Ferry, transfers: Sequence[str]) -> list[TransferOutcome]:
    return [*run_fleet(moves.session, transfers, Selection(), Watch(), 1)]


@contextmanager
def asked() -> Iterator[Counter[str]]:
    """Counts the statements that are sent meanwhile, by system."""
    counts: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for kind in (PostgresServer, SqlServerConnection, ClickHouseServer):
            for method in ("query", "execute"):
                patch.setattr(kind, method, counted(counts, kind, getattr(kind, method)))
        yield counts


def counted(counts: Counter[str], kind: type, ask: Callable[..., Any]) -> Callable[..., Any]:
    def counting(self: Any, sql: str, *arguments: Any, **options: Any) -> Any:
        # whether an idle connection still works
        counts[kind.__name__] += sql != "SELECT 1"
        return ask(self, sql, *arguments, **options)

    return counting


@pytest.mark.slow
def test_nothing_to_do(moves: Ferry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogs are asked as often for twelve tables as for three, and are believed only of what
    nobody changes meanwhile."""

    def statements(transfers: Sequence[str]) -> int:
        with asked() as counts:
            outcomes = run(moves, transfers)
        assert [outcome.view.transfer for outcome in outcomes] == transfers
        assert not any(outcome.rows or outcome.view.errors for outcome in outcomes)
        assert len(counts) == 3, "each server was asked"
        return counts.total()

    run(moves, names(moves))  # a first connection sets up its session
    few, many = statements(names(moves)[:3]), statements(names(moves))
    # a connection that is opened meanwhile sets up its session
    assert (many - few) // (TABLES - 3) == DATA
    assert few - 3 * DATA <= MOST_CATALOG

    first, added, *altered, deleted, replaced, truncated, last = names(moves)[:8]
    in_sqlserver, in_clickhouse = altered
    look = fleet._look

    def change() -> None:
        """Change tables when the catalogs have been read, and one transfer was looked at."""
        moves.source(
            f"INSERT INTO {added} VALUES (21, 'new')",
            f"TRUNCATE {truncated}",
            f"INSERT INTO {truncated} VALUES (1, 'another')",
            f"CREATE TABLE {replaced}_ AS SELECT id, upper(name) AS name FROM {replaced}",
            f"ALTER TABLE {replaced}_ ADD PRIMARY KEY (id)",
            f"DROP TABLE {replaced}",
            f"ALTER TABLE {replaced}_ RENAME TO {replaced}",
        )
        ask = functools.partial(looking.ask_sqlserver, moves.stack.sqlserver_url)
        ask(f"ALTER TABLE dbo.{in_sqlserver} DROP COLUMN name")
        ask(f"DELETE FROM dbo.{deleted} WHERE id > 18")
        ask_clickhouse(moves, f"ALTER TABLE warehouse.{in_clickhouse} DROP COLUMN name")
        # that of a table which was looked at before
        ask(f"ALTER TABLE dbo.{first} DROP COLUMN name")

    def look_and_change(
        session: Session, name: str, selection: Selection
    ) -> TransferOutcome | None:
        outcome = look(session, name, selection)
        if name == first:
            assert outcome is not None and outcome.view.good
            change()
        return outcome

    monkeypatch.setattr(fleet, "LOOKING", 1)
    monkeypatch.setattr(fleet, "_look", look_and_change)
    outcomes = {outcome.view.transfer: outcome for outcome in run(moves, names(moves)[:8])}
    moved = {name for name, outcome in outcomes.items() if outcome.rows}
    assert moved == {*names(moves)[:8]} - {last}
    for name, outcome in outcomes.items():
        assert outcome.view.good, outcome.view.errors
        rows = moves.rows(f"SELECT id, name FROM {name} ORDER BY id")
        assert ask_clickhouse(moves, f"SELECT id, name FROM warehouse.{name} ORDER BY id") == rows
        middle = f"SELECT id, name FROM dbo.{name} ORDER BY id"
        found = looking.ask_sqlserver(moves.stack.sqlserver_url, middle)
        assert [tuple(row) for row in found] == rows
