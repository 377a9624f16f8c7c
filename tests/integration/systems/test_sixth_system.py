"""A system that is defined in this file alone, registered, and moved from as any other."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.session import open_session
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.connecting.resource import Scheme, ServerResource
from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.contract.digest_writer import Algorithm
from tableferry.resources.contract.endpoint import BATCH_ROWS, refuse_snapshot
from tableferry.resources.contract.fields import Field, Valued
from tableferry.resources.contract.source import Source
from tableferry.resources.contract.system import System
from tableferry.resources.digest.definition import NULL
from tableferry.resources.errors import InputError, TableMissing
from tableferry.resources.registry import registered, system
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Export, Refusal
from tableferry.resources.types.kinds import Float, Kind, Text, signed
from tableferry.resources.types.type_map import Column, ColumnType, TypeMap
from tests.integration.conftest import table_name
from tests.servers import Servers

pytestmark = pytest.mark.integration

KINDS: dict[str, Kind] = {"INTEGER": signed(64), "TEXT": Text(), "REAL": Float(64)}
ROWS = 1000


class SqliteDialect(Dialect):
    def exact_sum(self, number: str) -> str:
        return f"ferry_sum({number})"

    def constants(self, rows: Sequence[Sequence[str]], names: Sequence[str]) -> str:
        selects = (
            ", ".join(f"{value} AS {name}" for value, name in zip(row, names, strict=True))
            for row in rows
        )
        return f"(SELECT {' UNION ALL SELECT '.join(selects)})"


class SqliteDigest:
    VARIANTS = ("plain",)
    CONSTANTS: ClassVar = {
        "a large integer": ("INTEGER", "-9223372036854775807"),
        "a float": ("REAL", "0.1"),
        "a text": ("TEXT", "'ä€😀~,:'"),
        "NULL": ("TEXT", "NULL"),
    }

    def whole(self, field: Field, column: Column, x: str) -> str | None:
        return x if field.kind == "integer" else None

    def text(self, field: Field, column: Column, x: str) -> str:
        return f"ferry_bits({x})" if field.kind == "float" else f"CAST({x} AS text)"

    def framed(
        self, field: Field, column: Column, x: str, algorithm: Algorithm, variant: str
    ) -> str:
        value = self.text(field, column, x)
        return f"length(CAST({x} AS blob)) || ':' || {x}" if field.kind == "text" else value

    def sent_exactly(self, field: Field, column: Column) -> bool:
        return False

    def row(self, values: Sequence[Valued], algorithm: Algorithm, variant: str) -> str:
        forms = (self.framed(*value, algorithm, variant) for value in values)
        return " || ',' || ".join(f"coalesce({form}, '{NULL}')" for form in forms)

    def digest(self, row_text: str, algorithm: Algorithm, variant: str) -> str:
        return f"ferry_digest('{algorithm}', {row_text})"

    def exact_sum(self, field: Field, x: str) -> str:
        return f"ferry_sum({x})"


def digest(algorithm: str, text: str) -> int:
    first = hashlib.new(algorithm, text.encode(), usedforsecurity=False).digest()[:8]
    return int.from_bytes(first, "big", signed=True)


def bits(number: float | None) -> str | None:
    return None if number is None else str(struct.unpack(">q", struct.pack(">d", number))[0])


class Sum:
    def __init__(self) -> None:
        self.total = 0

    def step(self, number: int | None) -> None:
        self.total += number or 0

    def finalize(self) -> str:
        return str(self.total)


class SqliteResource(ServerResource):
    system_name: ClassVar[str] = "sqlite"

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(f"/{self.settings().database}")) as connection:
            connection.create_function("ferry_digest", 2, digest, deterministic=True)
            connection.create_function("ferry_bits", 1, bits, deterministic=True)
            connection.create_aggregate("ferry_sum", 1, Sum)  # type: ignore[arg-type]
            yield connection

    def ping(self) -> str:
        return sqlite3.sqlite_version

    def columns(self, table: TableRef) -> list[Column]:
        found = self.query(f"SELECT * FROM pragma_table_info('{table.name}')")
        if not found:
            raise TableMissing(f"{table} does not exist")
        return [Column(one[1], one[2], not one[3], primary_key=one[5] or None) for one in found]

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        refuse_snapshot(self.system, snapshot)
        with self._open() as connection:
            return connection.execute(sql).fetchall()

    def execute(self, sql: str) -> None:
        with self._open() as connection, connection:
            connection.execute(sql)

    @contextmanager
    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        refuse_snapshot(self.system, snapshot)
        with self._open() as connection:
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            table = pa.table({n: pa.array([r[i] for r in rows]) for i, n in enumerate(names)})
            yield table.to_reader(max_chunksize=batch_rows)


def read(declared: str) -> ColumnType:
    return ColumnType(declared, KINDS.get(declared))


def export(declared: str) -> Export | Refusal:
    kind = KINDS.get(declared)
    if kind is None:
        return Refusal("of a type we do not know")
    return Export(kind, "{}", None, None if isinstance(kind, Float) else "CAST({} AS text)")


SQLITE = System(
    name="sqlite",
    title="SQLite",
    resource=SqliteResource,
    schemes={"sqlite": Scheme(0)},
    database="main",
    dialect=SqliteDialect(),
    types=TypeMap(read=read, export=export),
    digest=SqliteDigest(),
    source=Source(),
)


@pytest.fixture
def transfer(
    stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, SqliteResource]]:
    """A declared transfer out of a SQLite file: its name, and the server."""
    name, file = table_name(), tmp_path / "shop.db"
    for variable, value in stack.environment().items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("TABLEFERRY_SQLITE_URL", f"sqlite://localhost{file}")
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path / "transfers"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    (tmp_path / "transfers").mkdir()
    (tmp_path / "transfers" / "t.yaml").write_text(
        f"transfer: {name}\nsource: sqlite://main.{name}\nhops: ['clickhouse://warehouse.{name}']\n"
        "key: id\nranges: {rows: 250}\nreconcile: full_hash\n",
        encoding="utf-8",
    )
    source = SqliteResource(url=f"sqlite://localhost{file}")
    with registered(SQLITE):
        source.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, name TEXT, weight REAL)")
        source.execute(
            f"INSERT INTO {name} WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
            f"LIMIT {ROWS}) SELECT i, CASE WHEN i % 7 THEN 'größe 😀 ' || i END, i / 3.0 FROM n"
        )
        yield name, source


def test_it_moves_is_checked_and_skipped(transfer: tuple[str, SqliteResource]) -> None:
    name, source = transfer
    done = CliRunner().invoke(main, ["run", name])
    assert done.exit_code == 0, done.output
    session = open_session()
    target = TableRef("clickhouse", "warehouse", name)
    query = "SELECT id, name, weight FROM {}.{} ORDER BY id"
    found = session.servers.endpoint(target).query(query.format("warehouse", name))
    assert [tuple(row) for row in found] == source.query(query.format("main", name))
    assert len(found) == ROWS
    again = runner.run(session, name)
    assert {one.state for one in again.ranges} == {"skipped_unchanged"}
    source.execute(f"UPDATE {name} SET weight = weight + 1 WHERE id = 300")
    changed = runner.run(session, name)
    assert [one.range for one in changed.ranges if one.state == "committed"] == [
        "0000000251..0000000501"
    ]
    session.servers.endpoint(target).execute(
        f"ALTER TABLE warehouse.{name} UPDATE name = 'damaged' WHERE id = 7 "
        "SETTINGS mutations_sync = 2"
    )
    checked = CliRunner().invoke(main, ["check", name, "--level", "checksum"])
    assert checked.exit_code == 1
    assert "..0000000251: checksum FAILED: 1 row differs: name" in checked.output


def test_it_refuses_by_name_what_it_cannot() -> None:
    with registered(SQLITE):
        key = Column("id", "INTEGER", nullable=False)
        own, other = TableRef("sqlite", "main", "t"), TableRef("postgres", "public", "t")
        with pytest.raises(InputError, match="sqlite cannot be a target of rows: there is no"):
            plan_copy(other, [Column("id", "bigint")], own, key="id")
        sink = replace(system("clickhouse"), name="sink", source=None)
        refused = pytest.raises(InputError, match="sink cannot be a source of rows")
        with registered(sink), refused:
            plan_copy(TableRef("sink", "a", "b"), [key], own, key="id")
    with pytest.raises(InputError, match="there is no system 'sqlite'; there are postgres, sql"):
        system("sqlite")
