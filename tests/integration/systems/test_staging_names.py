"""No name of a user gets to the tools that load a SQL Server, and none needs a second table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tableferry.assets.log.states import Reason
from tableferry.resources.contract.catalog import Use
from tableferry.resources.contract.markers import markers_of
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import InputError
from tableferry.resources.registry import registered, system
from tableferry.resources.sqlserver import target
from tableferry.resources.sqlserver.connection import (
    SqlServerConnection,
    close_pooled_connections,
)
from tableferry.resources.sqlserver.health import findings
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef, staging_prefix
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.servers import SQLSERVER, Servers, named, own

pytestmark = pytest.mark.integration

KEY, SECOND, WATERMARK = "Order ID", 'Line "no." [a]', "Updated 🚀 'at'"
PLAIN = ("CamelCase", 'say "it\'s"', "a]b", "[c]", "😀", "größe É", "c0")
COLUMNS = (KEY, SECOND, WATERMARK, "Time Of Day", "Price", *PLAIN)
FIRST_ROWS = (
    "SELECT g, g % 7, timestamp '2024-01-01' + g * interval '1 s', time '02:43:43.001781', g / 7.0"
)
STAGED = re.compile(r'"__ferry_[0-9a-f]{12}(_[0-9a-f]{12}){2}_rows"')


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that are created in SQL Server, whose catalog has none that is dropped since."""
    found: list[str] = []
    execute = SqlServerConnection.execute

    def watched(self: SqlServerConnection, sql: str) -> int:
        if match := re.match(r'CREATE TABLE "(?:[^"]|"")*"\.("(?:[^"]|"")*") \((.*)\)', sql):
            found.append(match[1])
            if STAGED.fullmatch(match[1]):
                columns = re.findall(r"(?:^|, )(\S+) \w+(?:\([\d,max]+\))?", match[2])
                assert columns == [f'"c{number}"' for number in range(len(columns))]
        return execute(self, sql)

    monkeypatch.setattr(SqlServerConnection, "execute", watched)
    return found


def declared(servers: Servers, schema: str) -> tuple[TableRef, TableRef, TableRef]:
    """The source, and both targets."""
    name = own('Order "Détails" it\'s [x] 🚀')
    middle = TableRef("sqlserver", schema, name)
    return TableRef("postgres", "public", name), middle, TableRef("clickhouse", "warehouse", name)


def rows(one: Ferry, table: TableRef) -> list[tuple[object, ...]]:
    """Keys, a plain column and the number of columns that hold anything, as a table has them."""
    key, second, text = (table.system.quote(name) for name in (KEY, SECOND, "😀"))
    return [
        tuple(row)
        for row in one.session.servers.endpoints[table.system_name].query(
            f"SELECT {key} AS k, {second} AS s, {text} AS t FROM {qualified(table)} ORDER BY 1"
        )
    ]


@pytest.fixture
def odd_schema(stack: Servers) -> Iterator[str]:
    """A schema that the driver would misread."""
    schema = own('Sales "x" [y]') if not named(SQLSERVER) else own("Sales [y]")
    looking.ask_sqlserver(stack.sqlserver_url, f"CREATE SCHEMA {system('sqlserver').quote(schema)}")
    yield schema
    looking.ask_sqlserver(stack.sqlserver_url, f"DROP SCHEMA {system('sqlserver').quote(schema)}")


@pytest.mark.parametrize("mode", ["replace", "append", "upsert", "swap"])
def test_odd_names_go_everywhere_by_one_table(
    ferry: Callable[..., Ferry],
    stack: Servers,
    odd_schema: str,
    created: list[str],
    mode: str,
) -> None:
    source, middle, last = declared(stack, odd_schema)
    types = ["bigint", "integer", "timestamp NOT NULL", "time", "numeric(12,2)"]
    types += ["text"] * len(PLAIN)
    columns = ", ".join(
        f"{system('postgres').quote(name)} {type_}"
        for name, type_ in zip(COLUMNS, types, strict=True)
    )
    keys = f"{system('postgres').quote(KEY)}, {system('postgres').quote(SECOND)}"
    texts = ", ".join(f"'{number} ' || g" for number in range(len(PLAIN)))
    hops = ", ".join(f'"{_yaml(str(table))}"' for table in (middle, last))
    settings = {"incremental": "true"} if mode == "upsert" else {}
    one = ferry(
        f"[{hops}]".replace("{", "{{").replace("}", "}}"),
        f"CREATE TABLE {qualified(source)} ({columns}, PRIMARY KEY ({keys}))",
        f"INSERT INTO {qualified(source)} {FIRST_ROWS}, {texts} FROM generate_series(1, 40) g",
        source=f'"{_yaml(str(source))}"',
        key=KEY,
        write=mode,
        ranges="{bounds: [21, 41]}",
        fingerprint=f'{{watermark: "{_yaml(WATERMARK)}"}}',
        **settings,
    )
    try:
        first = one.run()
        assert first.good, first.errors
        assert rows(one, middle) == rows(one, last) == [(g, g % 7, f"4 {g}") for g in range(1, 41)]
        # a row with a newer watermark; `append` adds rows and changes none
        text, mark, key = (system("postgres").quote(name) for name in ("😀", WATERMARK, KEY))
        one.source(
            f"INSERT INTO {qualified(source)} {FIRST_ROWS}, {texts} FROM generate_series(0, 0) g"
            if mode == "append"
            else f"UPDATE {qualified(source)} SET {text} = 'new', {mark} = '2024-02-01' "
            f"WHERE {key} = 7"
        )
        again = one.run()
        assert again.good, again.errors
        expected = {(7, 0, "new")} if mode != "append" else {(0, 0, "4 0")}
        for table in (middle, last):
            assert set(rows(one, table)) - {(g, g % 7, f"4 {g}") for g in range(1, 41)} == expected
        staged = [name for name in created if STAGED.fullmatch(name)]
        # the two ranges with rows, then the one that changed; a swap gathers all three each time
        own_ones = [name for name in staged if name.startswith(f'"{staging_prefix(middle)}')]
        assert len(own_ones) == (6 if mode == "swap" else 3)
        others = {name for name in created if name not in staged}
        assert len(others) == 2 + (mode == "swap"), "the target, its markers and its shadow"
    finally:
        one.source(f"DROP TABLE {qualified(source)}")
        endpoints = one.session.servers.endpoints
        for table in (middle, markers_of(middle)):
            endpoints["sqlserver"].execute(f"DROP TABLE IF EXISTS {qualified(table)}")
        endpoints["clickhouse"].execute(f"DROP TABLE IF EXISTS {qualified(last)}")


def _yaml(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@pytest.mark.skipif(bool(named(SQLSERVER)), reason="only the stand-in can be made to misinform")
def test_a_server_that_misinforms_the_driver_is_refused_before_rows_move(
    ferry: Callable[..., Ferry], stack: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Babelfish does, which tells it of a table's last column alone."""
    database = f"{own('told')}_last_row_alone"
    admin = SqlServerResource(url=stack.sqlserver_url)
    admin.execute(f"CREATE DATABASE {database}")
    wrong = stack.sqlserver_url.replace("/tableferry?", f"/{database}?")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_MISINFORMED", wrong)
    one = ferry(
        "[{{to: 'misinformed://dbo.{t}', wire: arrow}}]",
        "CREATE TABLE {t} (id integer PRIMARY KEY, x integer)",
        "INSERT INTO {t} SELECT g, -g FROM generate_series(1, 9) g",
        reconcile="count",
    )
    server = SqlServerResource(url=wrong)
    told = f"cannot use the wire format arrow into {server.settings()}: "
    assert {planned.decision.reason for planned in one.plan().ranges} == {Reason.MISSING}
    with pytest.raises(InputError) as refused:
        one.run()
    assert told in str(refused.value)
    assert "declare 'wire: text', which loads by bcp" in str(refused.value)
    # so is a run of which Dagster is the first to hear
    result = one.launch(raise_on_error=False)
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert told in str(failure.event_specific_data)
    assert server.query("SELECT name FROM sys.tables") == []
    use = Use(writes=[TableRef("sqlserver", "dbo", one.table)])
    (found,) = [finding for finding in findings(server, use) if finding.subject == "bulk copy"]
    assert found.state == "problem" and "wrong columns of a table" in found.says
    # bcp asks the server otherwise
    one.declare("['misinformed://dbo.{t}']")
    view = one.run()
    assert view.good, view.errors
    assert server.query(f"SELECT SUM(id), SUM(x) FROM {one.table}") == [(45, -45)]
    server.execute(f"DROP TABLE {one.table}")
    close_pooled_connections()
    admin.execute(f"DROP DATABASE {database}")


@pytest.mark.skipif(bool(named(SQLSERVER)), reason="only the stand-in can be made to misread")
def test_a_decimal_that_a_server_gets_wrong_is_refused_by_name(
    ferry: Callable[..., Ferry], stack: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Babelfish does, which reads on behind the last of 38 digits."""
    database = f"{own('told')}_misreads_38_digits"
    admin = SqlServerResource(url=stack.sqlserver_url)
    admin.execute(f"CREATE DATABASE {database}")
    wrong = stack.sqlserver_url.replace("/tableferry?", f"/{database}?")
    monkeypatch.setenv("TABLEFERRY_CONNECTION_MISREADING", wrong)
    server, nines = SqlServerResource(url=wrong), "9" * 28 + "." + "9" * 10
    one = ferry(
        "[{{to: 'misreading://dbo.{t}', wire: arrow}}]",
        "CREATE TABLE {t} (id integer PRIMARY KEY, x numeric(38,10), y numeric(37,10))",
        f"INSERT INTO {{t}} SELECT g, -{nines[1:]}, {nines[1:]} FROM generate_series(1, 9) g",
        reconcile="count",
    )
    try:
        view = one.run()
        assert view.good, view.errors
        one.source(f"INSERT INTO {{t}} VALUES (10, NULL, 0), (11, -{nines}, 0)")
        refused = one.run()
        told = f"column 'x', key 11: value '-{nines}' has 38 digits, of which this server"
        assert not refused.good and told in refused.errors[0]
        assert server.query(f"SELECT COUNT(*) FROM {one.table}") == [(9,)]
        use = Use(writes=[TableRef("sqlserver", "dbo", one.table)])
        (said,) = [each for each in findings(server, use) if each.subject == "bulk copy"]
        assert said.state == "note" and "38 digits" in said.says
        one.declare("[{{to: '{t}', wire: arrow}}]".replace("'{t}'", "'sqlserver://dbo.{t}'"))
        view = one.run()
        assert view.good, view.errors
        # if the trial were wrong: the client's digest is one of what the server has
        monkeypatch.setattr(target, "takes_38_digits", lambda _: True)
        client = replace(system("sqlserver"), slow_digests=("collation", "nvarchar"))
        with registered(client):
            one.declare("[{{to: 'misreading://dbo.{t}', wire: arrow}}]", reconcile="checksum")
            view = one.run(force=True)
        assert not view.good and "checksum" in view.errors[0], view.errors
    finally:
        server.execute(f"DROP TABLE IF EXISTS {one.table}")
        close_pooled_connections()
        admin.execute(f"DROP DATABASE {database}")
