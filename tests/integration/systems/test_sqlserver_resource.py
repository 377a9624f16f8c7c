"""SQL Server's resource, and what its tables and columns are said to be."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from mssql_python import ddbc_bindings

from tableferry.resources.errors import ConnectionFailed, StatementFailed, TableMissing
from tableferry.resources.sqlserver.resource import SqlServerResource
from tests.integration.support import looking
from tests.integration.support.target_bench import NEW, REPLACE, Bench, SqlServerBench

pytestmark = pytest.mark.integration


@pytest.fixture
def bench(mssql_url: str) -> Iterator[Bench]:
    with SqlServerBench(mssql_url, f"t_{uuid.uuid4().hex[:8]}") as bench:
        yield bench


DECLARED = {
    "int": ("int", "int"),
    "n": ("nvarchar(17)", "nvarchar(17)"),
    "v": ("varchar(max)", "varchar(max)"),
    "c": ("nchar(3)", "nchar(3)"),
    "d": ("decimal(38,10)", "decimal(38,10)"),
    "m": ("money", "money"),
    "t": ("datetime2(3)", "datetime2(3)"),
    "o": ("datetimeoffset(7)", "datetimeoffset(7)"),
    "time": ("time(0)", "time(0)"),
    "u": ("uniqueidentifier", "uniqueidentifier"),
    "b": ("varbinary(8)", "varbinary(8)"),
    "f": ("float", "float"),
    "r": ("real", "real"),
    "x": ("xml", "xml"),
}


def test_columns_as_declared(bench: Bench, second_digits: int) -> None:
    lines = ", ".join(f"[{name}] {declared} NULL" for name, (declared, _) in DECLARED.items())
    bench.ask(
        f"CREATE TABLE dbo.{bench.table.name} ({lines}, a int NOT NULL, z int IDENTITY NOT NULL, "
        "twice AS a * 2, PRIMARY KEY (z, a))"
    )
    columns = {column.name: column for column in bench.target.resource.columns(bench.table)}
    assert {name: columns[name].type for name in DECLARED} == {
        name: expected.replace("(7)", f"({second_digits})")
        for name, (_, expected) in DECLARED.items()
    }
    assert all(columns[name].nullable for name in DECLARED)
    assert (columns["z"].identity, columns["z"].primary_key, columns["z"].nullable) == (
        True,
        1,
        False,
    )
    assert (columns["a"].primary_key, columns["twice"].generated) == (2, True)
    assert not columns["a"].generated


def test_missing_table(bench: Bench) -> None:
    with pytest.raises(TableMissing, match="does not exist"):
        bench.target.resource.columns(bench.table)


def test_wrong_password(mssql_url: str) -> None:
    resource = SqlServerResource(url=mssql_url, password="wrong}; password")
    if looking.lets_anybody_in(mssql_url):
        pytest.skip("the server lets this user in with any password")
    user = re.escape(str(resource.settings().user))
    with pytest.raises(ConnectionFailed, match=f"login of user '{user}' refused") as caught:
        resource.ping()
    assert "wrong" not in str(caught.value)


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    resource = SqlServerResource(url="mssql://reader:secret@127.0.0.1:1/db?encrypt=no")
    with pytest.raises(ConnectionFailed, match=r"sqlserver at 127\.0\.0\.1:1") as caught:
        resource.ping()
    assert "secret" not in str(caught.value)


def test_certificate_is_verified_unless_said_otherwise(mssql_url: str) -> None:
    resource = SqlServerResource(url=mssql_url, trust_server_certificate=False)
    with pytest.raises(ConnectionFailed, match="certificate"):
        resource.ping()


def test_read_arrow_streams_and_translates(bench: Bench) -> None:
    bench.target.prepare(bench.plan, REPLACE)
    bench.load(NEW)
    resource = bench.target.resource
    query = f"SELECT id, note FROM dbo.{bench.table.name} ORDER BY id"
    with resource.read_arrow(query, batch_rows=3) as reader:
        batches = list(reader)
    assert [batch.num_rows for batch in batches] == [3, 1]
    assert pa.Table.from_batches(batches).to_pydict() == {
        "id": [row[0] for row in NEW],
        "note": [row[1] for row in NEW],
    }
    with (
        pytest.raises(StatementFailed, match="nowhere"),
        resource.read_arrow("SELECT * FROM dbo.nowhere") as reader,
    ):
        reader.read_all()


def test_an_error_after_rows_is_raised(mssql_url: str) -> None:
    server = SqlServerResource(url=mssql_url)
    with server.connection() as connection, pytest.raises(StatementFailed, match="by zero"):
        connection.query("SELECT 1 / n FROM (VALUES (1), (0)) AS numbers(n)")
    with server.connection() as connection, pytest.raises(StatementFailed, match="nowhere"):
        connection.execute("SELECT 1; DROP TABLE dbo.nowhere")


def test_no_messages_are_gathered(mssql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[object] = []

    def noting(fetch: Callable[..., int]) -> Callable[..., int]:
        def fetched(*arguments: object) -> int:
            gathered.extend([arguments] if arguments[-1] is not None else [])
            return fetch(*arguments)

        return fetched

    for name in ("DDBCSQLFetchAll", "DDBCSQLFetchArrowBatch"):
        monkeypatch.setattr(ddbc_bindings, name, noting(getattr(ddbc_bindings, name)))
    monkeypatch.setattr(
        ddbc_bindings, "DDBCSQLGetAllDiagRecords", lambda handle: gathered.append(handle) or []
    )
    server = SqlServerResource(url=mssql_url)
    with server.read_arrow("SELECT 1 AS one") as reader:
        assert reader.read_all().to_pydict() == {"one": [1]}
    with server.connection() as connection:
        connection.execute("SET NOCOUNT ON; SET NOCOUNT OFF")
        assert connection.query("SET NOCOUNT ON; SELECT 1") == [(1,)]
        assert not gathered
        with connection.raw.cursor() as cursor:  # which shows what is left out
            cursor.execute("SELECT 1", use_prepare=False).fetchall()
            assert len(gathered) == 1
            cursor.nextset()
        assert len(gathered) == 2
