"""PostgreSQL as a source whose table is truncated, rewritten or replaced under a run's snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tableferry.assets.running import audit, moving
from tableferry.pipelines.command.one import runner
from tableferry.resources.contract.snapshots import HeldSnapshot, SharedSnapshot
from tableferry.resources.errors import SourceMoved
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.postgres.snapshots import ExportedSnapshot
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support import looking

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
COPY = "['clickhouse://warehouse.{t}']"
FILL = "INSERT INTO {t} SELECT g, 'row ' || g FROM generate_series(1, 100) g"
TABLE = ("CREATE TABLE {t} (id int PRIMARY KEY, note text)", FILL)
PARTITIONED = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
    "CREATE TABLE {t}_low PARTITION OF {t} FOR VALUES FROM (0) TO (60)",
    "CREATE TABLE {t}_high PARTITION OF {t} FOR VALUES FROM (60) TO (200)",
    FILL,
)
VIEW = (
    "CREATE TABLE {t}_below (id int PRIMARY KEY, note text)",
    FILL.replace("{t}", "{t}_below"),
    "CREATE VIEW {t}_between AS SELECT * FROM {t}_below",
    "CREATE VIEW {t} AS SELECT id, upper(note) AS note FROM {t}_between",
)
HEIR = (*TABLE, "CREATE TABLE {t}_heir () INHERITS ({t})", "INSERT INTO {t}_heir VALUES (150, 'h')")

CHANGES = {
    "truncated": (
        TABLE,
        "BEGIN; TRUNCATE {t}; INSERT INTO {t} VALUES (7, 'new'), (77, 'new'); COMMIT",
    ),
    "rewritten": (TABLE, "ALTER TABLE {t} ALTER note TYPE text USING note || '!'"),
    "replaced": (
        TABLE,
        "BEGIN; CREATE TABLE {t}_new (LIKE {t} INCLUDING ALL); INSERT INTO {t}_new "
        "SELECT id, 'new ' || id FROM {t}; DROP TABLE {t}; "
        "ALTER TABLE {t}_new RENAME TO {t}; COMMIT",
    ),
    "columns exchanged": (
        (
            "CREATE TABLE {t} (id int PRIMARY KEY, note text, other text)",
            FILL,
            "UPDATE {t} SET other = 'o'",
        ),
        "BEGIN; ALTER TABLE {t} RENAME note TO x; ALTER TABLE {t} RENAME other TO note; "
        "ALTER TABLE {t} RENAME x TO other; COMMIT",
    ),
    "partition truncated": (
        PARTITIONED,
        "BEGIN; TRUNCATE {t}_low; INSERT INTO {t} VALUES (9, 'new'); COMMIT",
    ),
    "heir truncated": (HEIR, "TRUNCATE {t}_heir"),
    "truncated below a view": (VIEW, "TRUNCATE {t}_below"),
    "view replaced": (
        VIEW,
        "CREATE OR REPLACE VIEW {t}_between AS SELECT id, 'v' AS note FROM {t}_below",
    ),
}


def at_first(
    monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[], None]
) -> Callable[[], bool]:
    """Call `act` when a run is at a point for the first time; returns how to ask if it was."""
    seen: list[str] = []

    def reached(name: str) -> None:
        if name == point and not seen:
            seen.append(name)
            act()

    for module in (moving, audit):
        monkeypatch.setattr(module, "reached", reached)
    exported = ExportedSnapshot.of.__func__  # type: ignore[attr-defined]

    def of(cls: type[ExportedSnapshot], *arguments: Any) -> ExportedSnapshot:
        found: ExportedSnapshot = exported(cls, *arguments)
        reached("exported")
        return found

    monkeypatch.setattr(ExportedSnapshot, "of", classmethod(of))
    return lambda: bool(seen)


def copied(one: Ferry) -> list[tuple[Any, ...]]:
    clickhouse = one.session.servers.endpoints["clickhouse"]
    return clickhouse.query(f"SELECT id, note FROM warehouse.{one.table} ORDER BY id")


@pytest.fixture
def drop(stack: Any) -> Iterator[list[str]]:
    """Names of tables whose relatives go with them."""
    names: list[str] = []
    yield names
    for name in names:
        found = looking.ask_postgres(
            stack.postgres_url,
            f"SELECT relname, relkind::text FROM pg_class WHERE relname LIKE '{name}%' "
            "AND relkind IN ('r', 'p', 'v')",
        )
        for relation, kind in found:
            what = "VIEW" if kind == "v" else "TABLE"
            drop = f"DROP {what} IF EXISTS {relation} CASCADE"
            looking.ask_postgres(stack.postgres_url, drop)


@pytest.mark.parametrize("change", CHANGES)
def test_a_snapshot_knows_what_it_does_not_shield_from(
    ferry: Make, drop: list[str], change: str
) -> None:
    made, changing = CHANGES[change]
    one = ferry(COPY, *made)
    drop.append(one.table)
    server = one.session.servers.endpoints["postgres"]
    assert isinstance(server, PostgresServer)
    with server.snapshot(TableRef.parse(f"postgres://public.{one.table}")) as snapshot:
        snapshot.check()
        one.source(changing)
        with pytest.raises(SourceMoved, match=one.table):
            snapshot.check()


@pytest.mark.invariant("I5")
@pytest.mark.parametrize(
    ("change", "point"),
    [
        *(("truncated", point) for point in ("exported", "before_export", "before_audit")),
        ("replaced", "before_export"),
        ("truncated below a view", "before_export"),
    ],
)
def test_nothing_but_a_state_that_was_committed_arrives(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, drop: list[str], change: str, point: str
) -> None:
    made, changing = CHANGES[change]
    one = ferry(COPY, *made, ranges="{count: 2}")
    drop.append(one.table)
    happened = at_first(monkeypatch, point, lambda: one.source(changing))
    view = one.run()
    assert happened() and view.good, view.errors
    assert copied(one) == one.rows("SELECT id, note FROM {t} ORDER BY id")
    assert {planned.reason for planned in one.plan().ranges} == {"unchanged"}


def test_a_table_that_comes_and_goes_is_noticed(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, drop: list[str]
) -> None:
    """What is read between two renames is another table, though the first is back at the end."""
    one = ferry(COPY, *TABLE, ranges="{count: 2}", fingerprint="row_version", reconcile="count")
    drop.append(one.table)
    one.source(
        "CREATE TABLE {t}_other (LIKE {t} INCLUDING ALL)",
        "INSERT INTO {t}_other SELECT id, 'other' FROM {t}",
    )
    exchange = (
        "BEGIN; ALTER TABLE {t} RENAME TO {t}_x; ALTER TABLE {t}_other RENAME TO {t}; "
        "ALTER TABLE {t}_x RENAME TO {t}_other; COMMIT"
    )
    seen: list[str] = []

    def reached(name: str) -> None:
        if len(seen) < 2 and name == ("before_export", "after_load")[len(seen)]:
            one.source(exchange)
            seen.append(name)

    monkeypatch.setattr(moving, "reached", reached)
    view = one.run(profile="safe")
    assert view.good and len(seen) == 2, view.errors
    assert copied(one) == one.rows("SELECT id, note FROM {t} ORDER BY id")


def test_columns_of_the_old_table_are_not_taken_for_the_new_one_s(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, drop: list[str]
) -> None:
    one = ferry(COPY, *TABLE, ranges="{count: 2}")
    drop.append(one.table)
    replacing = (
        "BEGIN; DROP TABLE {t}; CREATE TABLE {t} (id int PRIMARY KEY, note int); "
        "INSERT INTO {t} SELECT g, g FROM generate_series(1, 100) g; COMMIT"
    )
    happened = at_first(monkeypatch, "before_export", lambda: one.source(replacing))
    view = one.run()
    assert happened() and not view.good
    assert all("'note' is not as planned any more" in error for error in view.errors)
    assert copied(one) == [], "nothing is visible"
    one.session.servers.endpoints["clickhouse"].execute(f"DROP TABLE warehouse.{one.table} SYNC")
    assert one.run().good
    assert [row[1] for row in copied(one)] == [*range(1, 101)]


def test_a_plan_is_of_the_tables_that_the_snapshot_shows(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, drop: list[str]
) -> None:
    one = ferry(COPY, *TABLE)
    drop.append(one.table)
    altered = False
    columns = PostgresServer.columns

    def looked_at(self: PostgresServer, table: TableRef) -> Any:
        nonlocal altered
        found = columns(self, table)
        if table.name == one.table and not altered:
            altered = True
            one.source("ALTER TABLE {t} ALTER note TYPE varchar(20), ADD more int")
        return found

    monkeypatch.setattr(PostgresServer, "columns", looked_at)
    assert one.run().good and altered
    clickhouse = one.session.servers.endpoints["clickhouse"]
    columns_there = clickhouse.columns(TableRef("clickhouse", "warehouse", one.table))
    assert [column.name for column in columns_there] == ["id", "note", "more"]


@pytest.mark.invariant("I5")
def test_a_swap_is_of_one_state(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, drop: list[str]
) -> None:
    one = ferry(COPY, *TABLE, ranges="{count: 2}", write="swap", parallel="{export: 1, load: 1}")
    drop.append(one.table)
    seen: list[str] = []

    def reached(name: str) -> None:
        seen.append(name)
        if name == "before_export" and seen.count(name) == 2:
            one.source(CHANGES["truncated"][1])

    monkeypatch.setattr(moving, "reached", reached)
    view = one.run()
    assert view.good, view.errors
    assert seen.count("before_export") > 3, "the first range was gathered again"
    assert copied(one) == [(7, "new"), (77, "new")]


def test_who_joins_a_snapshot_knows_what_it_shows(ferry: Make) -> None:
    one = ferry(COPY, *TABLE)
    server = one.session.servers.endpoints["postgres"]
    assert isinstance(server, PostgresServer)
    table = TableRef.parse(f"postgres://public.{one.table}")
    with server.snapshot(table) as held:
        held.check()
        one.source("TRUNCATE {t}")
        with server.snapshot(table, joined=str(held)) as joined:
            for snapshot in (held, joined):
                with pytest.raises(SourceMoved, match=one.table):
                    snapshot.check()
        with server.shared_snapshot(table, HeldSnapshot(str(held))) as shared:
            first, second = shared.name(), shared.name()
            assert second is not first and shared.moves == 1
            assert server.query(f"SELECT count(*) FROM public.{one.table}", snapshot=second) == [
                (0,)
            ]
    # what changes neither rows nor columns does not count
    with server.snapshot(table) as held:
        one.source(
            "ANALYZE {t}",
            "VACUUM {t}",
            "CREATE INDEX ON {t} (note)",
            FILL,
            "GRANT SELECT, INSERT ON {t} TO PUBLIC",
            "GRANT SELECT (id) ON {t} TO PUBLIC",
        )
        held.check()
    with server.shared_snapshot(table) as shared:
        assert isinstance(shared, SharedSnapshot)
        assert shared.name() is shared.name()


def test_a_check_is_not_fooled(ferry: Make, drop: list[str]) -> None:
    one = ferry(COPY, *TABLE)
    drop.append(one.table)
    assert one.run().good
    one.source(CHANGES["truncated"][1])
    found = runner.check(one.session, one.table).checks
    assert any(not one.verdict.passed for one in found if one.verdict.check == "checksum")
