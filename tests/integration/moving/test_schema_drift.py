"""Source or target have changed since the last run: what is refused, what is mended, what is left.

The source is PostgreSQL or SQL Server, the target SQL Server or ClickHouse, also as the second hop.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tableferry.assets.planning.resolve import Hop, resolve_hops
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.session import open_session
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry, table_name
from tests.integration.support import looking
from tests.servers import Servers

pytestmark = pytest.mark.integration

Rows = list[dict[str, Any]]

POLICIES = ("fail", "add_columns", "ignore_new")
SCHEMAS: dict[str, str] = {"postgres": "public", "sqlserver": "dbo", "clickhouse": "warehouse"}
ROUTES: dict[str, tuple[str, ...]] = {
    "into clickhouse": ("postgres", "clickhouse"),
    "into sqlserver": ("postgres", "sqlserver"),
    "out of sqlserver": ("sqlserver", "clickhouse"),
    "through sqlserver": ("postgres", "sqlserver", "clickhouse"),
}
COPY = {
    "sqlserver": "INSERT INTO {copy} SELECT * FROM {table}",
    "clickhouse": "ALTER TABLE {copy} ATTACH PARTITION ALL FROM {table}",
}
COLUMNS = {"id": "int NOT NULL PRIMARY KEY", "name": "varchar(20) NULL", "amount": "int NOT NULL"}
ROWS: Rows = [{"id": id, "name": f"name {id}", "amount": id * 10} for id in range(1, 21)]


@dataclass
class Moved:
    """A transfer over a route, all of whose ranges are committed."""

    ferry: Ferry
    route: tuple[str, ...]
    home: Path
    hops: tuple[Hop, ...] = ()
    notes: Sequence[str] = ()
    """The notes of the last run."""

    def first(self) -> None:
        """Move the table, and keep what there is then."""
        self.fill(COLUMNS, ROWS)
        assert self.run("fail") == []
        session = self.ferry.session
        self.hops = resolve_hops(session.transfer(self.ferry.table), session.servers)
        for hop in self.hops:
            self.copy(hop, hop.plan.target, kept(hop.plan.target))
        session.instance.dispose()
        shutil.copytree(self.home, self.home.with_name("kept"))

    def back(self) -> None:
        """Go back to what there was when the table was moved."""
        self.ferry.session.instance.dispose()
        shutil.rmtree(self.home)
        shutil.copytree(self.home.with_name("kept"), self.home)
        self.fill(COLUMNS, ROWS)
        for hop in self.hops:
            self.copy(hop, kept(hop.plan.target), hop.plan.target)

    def copy(self, hop: Hop, table: TableRef, copy: TableRef) -> None:
        """Put a copy of a hop's target in another table's place."""
        servers = self.ferry.session.servers
        self.drop(copy)
        servers.target(copy).prepare(replace(hop.plan, target=copy), hop.options)
        copied = COPY[copy.system_name].format(table=qualified(table), copy=qualified(copy))
        looking.run(self.ferry.stack, copy.system_name, copied)

    def drop(self, table: TableRef) -> None:
        """Drop a table."""
        looking.run(self.ferry.stack, table.system_name, f"DROP TABLE IF EXISTS {qualified(table)}")

    def run(self, policy: str, **settings: str) -> list[str]:
        """Run under a policy; returns the errors."""
        self.declare(policy, **settings)
        view = self.ferry.run()
        assert view.good is (not view.errors)
        self.notes = view.notes
        return view.errors

    def declare(self, policy: str, **settings: str) -> None:
        """Write the transfer's file."""
        hops = [f"'{system}://{SCHEMAS[system]}.{{t}}'" for system in self.route[1:]]
        source = f"{self.route[0]}://{SCHEMAS[self.route[0]]}.{self.ferry.table}"
        self.ferry.session.instance.dispose()
        self.ferry.declare(
            f"[{', '.join(hops)}]",
            source=source,
            on_schema_drift=policy,
            ranges="{count: 1}",
            **settings,
        )

    def execute(self, system: str, *statements: str) -> None:
        """Run statements on a server; `{t}` is the table."""
        for statement in statements:
            table = f"{SCHEMAS[system]}.{self.ferry.table}"
            looking.run(self.ferry.stack, system, statement.format(t=table))

    def fill(self, columns: Mapping[str, str], rows: Rows) -> None:
        """Put another table in the source's place."""
        definitions = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
        values = ", ".join(f"({', '.join(literal(row[name]) for name in columns)})" for row in rows)
        self.execute(
            self.route[0],
            "DROP TABLE IF EXISTS {t}",
            f"CREATE TABLE {{t}} ({definitions})",
            f"INSERT INTO {{t}} ({', '.join(columns)}) VALUES {values}",
        )

    def shown(self) -> list[Rows]:
        """What each target shows, by all the columns that it has."""
        found = []
        for system in self.route[1:]:
            server = self.ferry.session.servers.endpoints[system]
            names = [column.name for column in server.columns(self.table(system))]
            sql = f"SELECT {', '.join(names)} FROM {SCHEMAS[system]}.{self.ferry.table} ORDER BY id"
            found.append([dict(zip(names, row, strict=True)) for row in server.query(sql)])
        return found

    def table(self, system: str) -> TableRef:
        """The table on a server."""
        return TableRef(system, SCHEMAS[system], self.ferry.table)


def literal(value: object) -> str:
    """A value in the SQL of both sources."""
    return "NULL" if value is None else str(value) if isinstance(value, int) else f"'{value}'"


def kept(target: TableRef) -> TableRef:
    """The copy of a target as the first run left it."""
    return replace(target, name=f"{target.name}_kept")


@pytest.fixture(scope="module")
def firsts(stack: Servers) -> Iterator[dict[str, Moved]]:
    """The routes whose table was moved; each test goes back to that."""
    made: dict[str, Moved] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in stack.environment().items():
            patch.setenv(name, value)
        yield made
        for one in made.values():
            one.ferry.session.instance.dispose()
            one.drop(one.table(one.route[0]))


@pytest.fixture
def moved(
    firsts: dict[str, Moved],
    stack: Servers,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Moved:
    """The route that the test is parametrised with, with the table moved."""
    one = firsts.get(request.param)
    folder = one.ferry.folder if one else tmp_path_factory.mktemp("transfers")
    home = folder / "dagster"
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(folder))
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    if one is None:
        ferry = Ferry(stack, folder, table_name(), open_session())
        one = Moved(ferry, ROUTES[request.param], home)
        one.first()
        firsts[request.param] = one
    else:
        one.back()
    assert one.shown() == [ROWS] * len(one.hops)
    return one


def over(*routes: str) -> pytest.MarkDecorator:
    """The routes of a test."""
    return pytest.mark.parametrize("moved", routes, indirect=True)


routes = over(*ROUTES)
policies = pytest.mark.parametrize("policy", POLICIES)


@routes
@policies
def test_the_source_has_a_column_more(moved: Moved, policy: str) -> None:
    before = moved.shown()
    rows = [{**row, "name": f"{row['name']}!", "extra": f"more {row['id']}"} for row in ROWS]
    moved.fill({**COLUMNS, "extra": "varchar(9) NULL"}, rows)
    errors = moved.run(policy)
    if policy == "fail":
        assert "has a new column 'extra'" in errors[0]
        assert errors[0].count("on_schema_drift to add") == 1, "it is explained once"
        assert errors[0].count("lacks 'extra', too") == len(before) - 1
        assert moved.shown() == before
    else:
        assert errors == []
        if policy == "ignore_new":
            rows = [{name: row[name] for name in COLUMNS} for row in rows]
        assert moved.shown() == [rows] * len(before)


@routes
@policies
def test_the_source_has_a_column_less(moved: Moved, policy: str) -> None:
    before = moved.shown()
    moved.fill({name: COLUMNS[name] for name in ("id", "amount")}, ROWS)
    errors = moved.run(policy)
    if policy == "fail":
        assert "no longer has 'name'" in errors[0]
        assert moved.shown() == before
    else:
        assert errors == []
        assert moved.shown() == before, "what is gone moves nothing"


@over("into clickhouse", "through sqlserver")
def test_a_column_that_rows_are_moved_without_is_told(moved: Moved) -> None:
    changed = [{**row, "amount": row["amount"] + 1} for row in ROWS]
    moved.fill({name: COLUMNS[name] for name in ("id", "amount")}, changed)
    moved.declare("add_columns")
    assert any("rows that move get NULL in 'name'" in one for one in moved.ferry.plan().notes)
    moved.run("add_columns")
    assert any("rows that move get NULL in 'name'" in one for one in moved.notes)
    *_, last = moved.hops
    for _ in ("after the move", "after a run that finds nothing to do"):
        view = runner.status(moved.ferry.session, moved.ferry.table)
        (told,) = [one for one in view.notes if f"{last.plan.target}: 'name'" in one]
        assert "'name' is NULL, or its default" in told and "in 1 of 2 ranges" in told
        filled = [range_["not_filled"] for range_ in view.json()["ranges"]]
        assert filled[-2:] == [("name",), ()], "the open range has no rows"
        assert moved.run("add_columns") == []


@over("into clickhouse", "through sqlserver")
def test_a_column_renamed_at_the_source_is_not_emptied(moved: Moved) -> None:
    before = moved.shown()
    columns = {"id": COLUMNS["id"], "title": COLUMNS["name"], "amount": COLUMNS["amount"]}
    rows = [{**row, "title": row["name"]} for row in ROWS]
    moved.fill(columns, rows)
    moved.declare("add_columns")
    refused = "'name', which"
    assert any(refused in one and "refused" in one for one in moved.ferry.plan().notes)
    (error,) = moved.run("add_columns")
    assert refused in error and "columns: {title: {rename: name}}" in error
    assert moved.shown() == before
    assert moved.run("ignore_new", exclude="[title]") == [], "it is left out, and that is told"
    assert any("rows that move get NULL in 'name'" in one for one in moved.notes)
    assert moved.run("add_columns", columns="{title: {rename: name}}") == []
    assert moved.shown() == before


REFUSED = {
    "dropped, though the target needs it": ({"amount": None}, "no longer has 'amount'"),
    "retyped": ({"amount": "varchar(20) NOT NULL"}, "column 'amount': is"),
    "nullable": ({"amount": "int NULL"}, "column 'amount': is NOT NULL, but the source allows"),
}


@routes
@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_what_no_policy_mends(moved: Moved, change: dict[str, str | None], message: str) -> None:
    before = moved.shown()
    columns = {name: type_ for name, type_ in {**COLUMNS, **change}.items() if type_ is not None}
    moved.fill(columns, [{**row, "name": "changed"} for row in ROWS])
    for policy in POLICIES:
        assert message in moved.run(policy)[0]
        assert moved.shown() == before, "nothing moved"


@over("through sqlserver")
def test_the_source_has_a_narrower_column(moved: Moved) -> None:
    rows = [{**row, "name": row["name"][:5]} for row in ROWS]
    moved.fill({**COLUMNS, "name": "varchar(5) NOT NULL"}, rows)
    assert moved.run("fail") == []
    assert moved.shown() == [rows] * len(moved.route[1:])


CHANGES: dict[str, dict[str, str]] = {
    "dropped": {
        "sqlserver": "ALTER TABLE {t} DROP COLUMN name",
        "clickhouse": "ALTER TABLE {t} DROP COLUMN name",
    },
    "added": {
        "sqlserver": "ALTER TABLE {t} ADD extra int NULL",
        "clickhouse": "ALTER TABLE {t} ADD COLUMN extra Nullable(Int32)",
    },
    "retyped": {
        "sqlserver": "ALTER TABLE {t} ALTER COLUMN amount smallint",
        "clickhouse": "ALTER TABLE {t} MODIFY COLUMN amount Int16",
    },
    "not null": {
        # Babelfish has no NOT NULL in ALTER COLUMN
        "sqlserver": "ALTER TABLE {t} DROP COLUMN name; "
        "ALTER TABLE {t} ADD name nvarchar(20) NOT NULL DEFAULT ''",
        "clickhouse": "ALTER TABLE {t} MODIFY COLUMN name String DEFAULT ''",
    },
}


@over("into sqlserver", "out of sqlserver", "through sqlserver")
@policies
def test_the_target_has_lost_a_column(moved: Moved, policy: str) -> None:
    system = moved.route[-1]
    moved.execute(system, CHANGES["dropped"][system])
    before = moved.shown()
    errors = moved.run(policy)
    if policy == "fail":
        assert "has lost the column 'name'" in errors[0] and "on_schema_drift" in errors[0]
        assert moved.shown() == before
    else:
        assert errors == []
        *_, last = moved.shown()
        if policy == "add_columns":
            assert last == ROWS, "the column is back, with its values"
        else:
            assert last == [{"id": row["id"], "amount": row["amount"]} for row in ROWS]


@over("into sqlserver", "through sqlserver")
def test_the_target_has_a_column_of_somebody_else(moved: Moved) -> None:
    system = moved.route[-1]
    moved.execute(system, CHANGES["added"][system])
    changed = {**ROWS[0], "name": "changed"}
    moved.fill(COLUMNS, [changed, *ROWS[1:]])
    for policy in POLICIES:
        assert moved.run(policy) == []
        *_, last = moved.shown()
        assert last == [{**row, "extra": None} for row in [changed, *ROWS[1:]]]


@over("into sqlserver", "out of sqlserver", "through sqlserver")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("retyped", "column 'amount': is"),
        ("not null", "column 'name': is NOT NULL, but the source allows NULL"),
    ],
)
def test_a_target_that_no_longer_holds_the_values(moved: Moved, change: str, message: str) -> None:
    system = moved.route[-1]
    moved.execute(system, CHANGES[change][system])
    before = moved.shown()
    moved.fill(COLUMNS, [{**row, "name": "changed"} for row in ROWS])
    for policy in POLICIES:
        assert message in moved.run(policy)[0]
        assert moved.shown()[-1] == before[-1]


@over("into sqlserver")
def test_a_column_of_somebody_else_that_must_not_be_null(moved: Moved) -> None:
    """ClickHouse has a default for every column."""
    moved.execute("sqlserver", "TRUNCATE TABLE {t}", "ALTER TABLE {t} ADD extra int NOT NULL")
    for policy in POLICIES:
        assert "must not be NULL: 'extra'" in moved.run(policy)[0]
    assert moved.shown() == [[]]
