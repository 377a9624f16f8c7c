"""Names and values that try to break out of their statements, on real servers: nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.registry import system
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tests.integration.support import looking
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

VICTIM = own("victim")

STATEMENTS = [
    f"DROP TABLE {VICTIM}",
    f"DELETE FROM {VICTIM} WHERE 1=1",
    f"INSERT INTO {VICTIM} VALUES (666)",
]
"""In what `public`, `dbo` and the URL's database have without a schema."""

BREAKS = [
    "'; {s}; --",
    "''; {s}; --",
    "\\'; {s}; --",
    '"; {s}; --',
    '""; {s}; --',
    "]; {s}; --",
    "`; {s}; --",
    "\\`; {s}; --",
    "$$; {s}; --",
    "*/ {s}; /*",
    "'); {s}; --",
    '" (a int); {s}; --',
    "x' OR '1'='1",
    "\nGO\n{s}\nGO\n",
    "\t\\N\n\\.\n{s};\n",
    "' UNION SELECT * FROM system.users --",
    "${{HOME}}",
    "%s %(x)s {{x}} $1 :x ?",
    "'||(SELECT 1)||'",
    "'+CHAR(39)+'",
    "<script>alert(1)</script>",
    "../../../etc/passwd",
    "; touch /tmp/x; $(touch /tmp/x) `touch /tmp/x`",
]
VALUES = [text.format(s=statement) for text in BREAKS for statement in STATEMENTS]
NAMES = [
    text.format(s=f"DROP TABLE {VICTIM}").replace("\n", " ").replace("\t", " ")
    for text in BREAKS
    if "passwd" not in text
]


@pytest.fixture
def servers(stack: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Servers]:
    """The servers, each with a table that the statements are after."""
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path / "transfers"))
    (tmp_path / "transfers").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    each(stack, f"CREATE TABLE {VICTIM} (id integer)", " ENGINE = MergeTree ORDER BY id")
    each(stack, f"INSERT INTO {VICTIM} VALUES (1), (2)")
    yield stack
    each(stack, f"DROP TABLE {VICTIM}")


def each(stack: Servers, statement: str, more: str = "") -> None:
    """Run a statement on all three."""
    looking.run(stack, "postgres", statement)
    looking.run(stack, "sqlserver", statement)
    looking.run(stack, "clickhouse", statement + more)


def victims(stack: Servers) -> list[object]:
    """What is left of them."""
    query = f"SELECT count(*), sum(id) FROM {VICTIM}"
    found: list[object] = [looking.ask_postgres(stack.postgres_url, query)]
    for resource in (
        SqlServerResource(url=stack.sqlserver_url),
        ClickHouseResource(url=stack.clickhouse_url),
    ):
        found.append([tuple(map(int, row)) for row in resource.query(query)])
    return found


UNHARMED = [[(2, 3)]] * 3


def ferry(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    found = CliRunner().invoke(main, list(arguments))
    assert found.exit_code in codes, found.output
    assert found.exception is None or isinstance(found.exception, SystemExit), found.output
    return found.output


def declare(tmp_path: Path, **document: object) -> None:
    path = tmp_path / "transfers" / "t.yaml"
    path.write_text(yaml.safe_dump({"transfer": "t", **document}), encoding="utf-8")


@pytest.mark.parametrize("wire", ["arrow", "text"])
def test_values_stay_values(
    request: pytest.FixtureRequest, servers: Servers, tmp_path: Path, wire: str
) -> None:
    if wire == "text":
        request.getfixturevalue("text_into_sqlserver")
    table = own(f"hostile_{wire}")
    with looking.postgres(servers.postgres_url) as connection:
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)".encode())
        with connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {table} VALUES (%s, %s)".encode(), list(enumerate(VALUES))
            )
        try:
            hops = [f"sqlserver://dbo.{table}", f"clickhouse://warehouse.{table}"]
            declare(
                tmp_path,
                source=f"postgres://public.{table}",
                hops=[{"to": to, "wire": wire} for to in hops],
                key="id",
                ranges={"count": 3},
                reconcile="full_hash",
            )
            ferry("run", "t")
            # damaged, so that values are in the comparison's statements and in what is shown
            clickhouse = ClickHouseResource(url=servers.clickhouse_url)
            clickhouse.execute(
                f"ALTER TABLE {table} UPDATE v = concat(v, '''') WHERE id % 5 = 0 "
                "SETTINGS mutations_sync = 2"
            )
            ferry("check", "t", codes=(1,))
            ferry("diff", "t", "--range", "1", codes=(1,))
            ferry("report", "t", "--format", "html", codes=(1,))
            ferry("run", "t", "--force")
            for resource in (SqlServerResource(url=servers.sqlserver_url), clickhouse):
                found = resource.query(f"SELECT id, v FROM {table} ORDER BY id")
                assert [tuple(row) for row in found] == list(enumerate(VALUES))
        finally:
            connection.execute(f"DROP TABLE {table}".encode())
    assert victims(servers) == UNHARMED


def test_names_stay_names(servers: Servers, tmp_path: Path) -> None:
    """All as columns of one table, whose own name and schema are some of them."""
    for number in range(0, len(NAMES) - 1, 7):
        tag = own(f"h{number}")
        schema, name = f"{tag} {NAMES[number]}"[:60], f"{tag} {NAMES[number + 1]}"[:60]
        columns = [f"{index} {one}"[:60] for index, one in enumerate(NAMES)]
        source = TableRef("postgres", schema, name)
        targets = TableRef("sqlserver", "dbo", name), TableRef("clickhouse", schema, name)
        database = system("clickhouse").quote(schema)
        clickhouse = ClickHouseResource(url=servers.clickhouse_url)
        sqlserver = SqlServerResource(url=servers.sqlserver_url)
        with looking.postgres(servers.postgres_url) as connection:
            try:
                connection.execute(f"CREATE SCHEMA {system('postgres').quote(schema)}".encode())
                clickhouse.execute(f"CREATE DATABASE {database}")
                listed = ", ".join(f"{system('postgres').quote(one)} text" for one in columns)
                connection.execute(f"CREATE TABLE {qualified(source)} (id int, {listed})".encode())
                filled = ", ".join(f"'{index}'" for index in range(len(columns)))
                connection.execute(
                    f"INSERT INTO {qualified(source)} SELECT g, {filled} "
                    "FROM generate_series(1, 9) g".encode()
                )
                declare(
                    tmp_path,
                    source=str(source),
                    hops=[str(one) for one in targets],
                    key="id",
                    write="swap" if number else "replace",
                )
                ferry("run", "t")
                ferry("check", "t", "--level", "full_hash")
                for resource, table in ((sqlserver, targets[0]), (clickhouse, targets[1])):
                    assert resource.query(f"SELECT count(*) FROM {qualified(table)}") == [(9,)]
            finally:
                connection.execute(
                    f"DROP SCHEMA IF EXISTS {system('postgres').quote(schema)} CASCADE".encode()
                )
                clickhouse.execute(f"DROP DATABASE IF EXISTS {database}")
                sqlserver.execute(f"DROP TABLE IF EXISTS {qualified(targets[0])}")
        assert victims(servers) == UNHARMED


SETTINGS: dict[str, Callable[[str], dict[str, object]]] = {
    "type": lambda text: {"columns": {"v": {"type": f"nvarchar(9){text}"}}},
    "type alone": lambda text: {"columns": {"v": {"type": text}}},
    "column": lambda text: {"columns": {text: {"rename": "w"}}},
    "exclude": lambda text: {"exclude": [text]},
    "key": lambda text: {"key": text},
    "bounds": lambda text: {"ranges": {"bounds": [1, text]}},
    "watermark": lambda text: {"watermark": text},
    "figures": lambda text: {"figures": [text]},
    "transfer": lambda text: {"transfer": text},
    "level": lambda text: {"reconcile": text},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_that_are_not_sql_run_none(servers: Servers, tmp_path: Path, setting: str) -> None:
    """Each is refused, by a message, or taken for a name."""
    table = own("hostile_settings")
    with looking.postgres(servers.postgres_url) as connection:
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)".encode())
        try:
            for text in NAMES[::5]:
                given = {
                    "source": f"postgres://public.{table}",
                    "hops": [f"sqlserver://dbo.{table}"],
                    "key": "id",
                    **SETTINGS[setting](text),
                }
                declare(tmp_path, **given)
                said = ferry("run", "t", codes=(1, 2))
                assert "Traceback" not in said
        finally:
            connection.execute(f"DROP TABLE {table}".encode())
            looking.run(servers, "sqlserver", f"DROP TABLE IF EXISTS {table}")
    assert victims(servers) == UNHARMED


@pytest.mark.parametrize("option", ["--range", "--hop"])
def test_arguments_run_nothing(servers: Servers, tmp_path: Path, option: str) -> None:
    declare(
        tmp_path,
        source=f"postgres://public.{VICTIM}",
        hops=[f"clickhouse://warehouse.{VICTIM}_copy"],
        key="id",
    )
    for text in NAMES[::4]:
        ferry("run", "t", option, text, codes=(1, 2))
    assert victims(servers) == UNHARMED
