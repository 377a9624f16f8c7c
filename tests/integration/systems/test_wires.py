"""Wires that are believed only after a probe, on real servers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pydantic import PrivateAttr

from tableferry.assets.planning.wires import chosen_wire
from tableferry.pipelines.cli import main
from tableferry.resources.artifacts import BYTES
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.connecting.resource import parse_url
from tableferry.resources.contract.copy_plan import CopyPlan, WireFormat
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import InputError
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.registry import system
from tableferry.resources.sqlserver import tsv_text
from tableferry.resources.sqlserver.bcp_tool import find_tool
from tableferry.resources.sqlserver.ddl import STATEMENTS
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.sqlserver.trial import REHEARSALS
from tableferry.resources.tables import TableRef, staging_prefix
from tableferry.resources.types.type_map import Column
from tableferry.resources.wires.exports import wrong_loads, wrong_values
from tests.servers import SQLSERVER, named

pytestmark = pytest.mark.usefixtures("nothing_known")

needs_bcp = pytest.mark.skipif(
    shutil.which("freebcp") is None and shutil.which("bcp") is None,
    reason="neither freebcp (Debian package freetds-bin) nor bcp is installed",
)


@pytest.fixture
def sqlserver(mssql_url: str) -> SqlServerResource:
    return SqlServerResource(url=mssql_url)


def plan_of(source: str, types: tuple[str, ...], target: str = "clickhouse") -> CopyPlan:
    key = Column("id", "int" if source == "sqlserver" else "integer", nullable=False)
    columns = [key, *(Column(f"c{number}", one) for number, one in enumerate(types))]
    into = TableRef(target, "dbo", "t")
    # a release without the long calendar has values to refuse
    return plan_copy(TableRef(source, "s", "t"), columns, into, key="id", target_version="26.7")


@pytest.mark.parametrize("wire", ["arrow", pytest.param("text", marks=needs_bcp)])
def test_sqlserver_is_exact(sqlserver: SqlServerResource, wire: WireFormat) -> None:
    found = wrong_values(
        sqlserver, wire, plan_of("sqlserver", tuple(source_of(system("sqlserver")).examples))
    )
    assert [str(one) for one in found] == []


@pytest.mark.parametrize("target", ["clickhouse", "sqlserver"])
def test_postgres_is_exact(pg_url: str, target: str) -> None:
    plan = plan_of("postgres", tuple(source_of(system("postgres")).examples), target)
    found = wrong_values(PostgresResource(url=pg_url), "text", plan)
    assert [str(one) for one in found] == []


def put_before_bcp(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shell script run in its place: `$TOOL` is the tool."""
    tool = find_tool()
    path = folder / f"{tool.kind}-wrapper"
    path.write_text(f"#!/bin/sh\nTOOL={tool.path}\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("TABLEFERRY_BCP", str(path))


@pytest.fixture
def lone_backslash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Babelfish made of a backslash: it came out unescaped."""
    script = rf"""[ "$2" = in ] && exec $TOOL "$@"
        sql="$1" to="$3" rows={tmp_path}/rows; shift 3
        $TOOL "$sql" queryout $rows "$@" && sed 's/\\x5C/\\/g' $rows > "$to" """
    put_before_bcp(tmp_path, script, monkeypatch)


@pytest.fixture
def rounded_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Babelfish made of a limit with seven decimals: a value beyond it passed."""
    monkeypatch.setattr(tsv_text, "_outside", lambda name, low, high: f"{name} IS NULL AND 1 = 0")


class Shifting(SqlServerResource):
    """A driver that shifts the texts that it reads, and says what it was asked."""

    _asked: list[str] = PrivateAttr(default_factory=list)

    @contextmanager
    def read_arrow(self, sql: str, **how: Any) -> Iterator[Iterator[pa.RecordBatch]]:
        self._asked.append(sql)
        with super().read_arrow(sql, **how) as batches:
            yield map(shifted, batches)


def shifted(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns: list[Any] = [
        pa.array([value and value + "!" for value in column.to_pylist()], column.type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@pytest.fixture
def shifting(mssql_url: str) -> Shifting:
    return Shifting(url=mssql_url)


@needs_bcp
@pytest.mark.usefixtures("lone_backslash")
def test_an_unescaped_backslash_is_noticed(sqlserver: SqlServerResource) -> None:
    found = wrong_values(sqlserver, "text", plan_of("sqlserver", ("int", "nvarchar(40)")))
    said = [str(one) for one in found]
    assert r"nvarchar(40): a backslash before a letter: should be '\\n', but '\n' arrived" in said
    assert all(one.startswith("nvarchar(40): ") for one in said)


@needs_bcp
@pytest.mark.usefixtures("rounded_limit")
def test_a_value_that_should_be_refused_is_noticed(sqlserver: SqlServerResource) -> None:
    found = wrong_values(sqlserver, "text", plan_of("sqlserver", ("datetime2(3)", "int")))
    said = [str(one) for one in found]
    expected = "datetime2(3): 2300-01-01 00:00:00.000: should be a refusal, but 'the value' arrived"
    assert expected in said


@needs_bcp
@pytest.mark.usefixtures("lone_backslash")
def test_a_wire_that_is_wrong_is_refused_and_auto_takes_the_other(
    sqlserver: SqlServerResource,
) -> None:
    plan = plan_of("sqlserver", ("nvarchar(40)",))
    with pytest.raises(InputError) as refused:
        chosen_wire("text", plan, sqlserver, sqlserver)
    said = str(refused.value)
    assert said.startswith(f"cannot use the wire format text out of {sqlserver.settings()}: nvarc")
    assert "a lone backslash" in said
    assert chosen_wire("auto", plan, sqlserver, sqlserver).wire == "arrow"
    # columns of other types are none the worse for it
    others = plan_of("sqlserver", ("int", "datetime2(3)"))
    assert chosen_wire("text", others, sqlserver, sqlserver).wire == "text"


@needs_bcp
def test_auto_takes_text_where_arrow_is_wrong(shifting: Shifting) -> None:
    plan = plan_of("sqlserver", ("nvarchar(40)",))
    assert chosen_wire("auto", plan, shifting, shifting).wire == "text"
    with pytest.raises(InputError, match="cannot use the wire format arrow out of sqlserver at "):
        chosen_wire("arrow", plan, shifting, shifting)


@needs_bcp
@pytest.mark.usefixtures("lone_backslash")
def test_auto_names_both_where_both_are_wrong(shifting: Shifting) -> None:
    plan = plan_of("sqlserver", ("nvarchar(40)",))
    with pytest.raises(
        InputError, match=r"format arrow out of .*; and cannot use the wire format t"
    ):
        chosen_wire("auto", plan, shifting, shifting)


def into(target: str = "sqlserver", *types: str) -> CopyPlan:
    """A hop of PostgreSQL's columns into a schema that is there."""
    columns = [Column("id", "integer", False)]
    columns += [Column(f"c{number}", one) for number, one in enumerate(types)]
    schema = "dbo" if target == "sqlserver" else "s"
    return plan_copy(
        TableRef("postgres", "s", "t"), columns, TableRef(target, schema, "t"), key="id"
    )


@pytest.fixture
def postgres(pg_url: str) -> PostgresResource:
    return PostgresResource(url=pg_url)


@needs_bcp
@pytest.mark.usefixtures("text_into_sqlserver")
def test_text_gets_into_sqlserver_exactly_once_asked_and_leaves_nothing(
    postgres: PostgresResource,
    sqlserver: SqlServerResource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = into("sqlserver", *source_of(system("postgres")).examples)
    put_before_bcp(tmp_path, f'echo >> {tmp_path}/asked; exec $TOOL "$@"', monkeypatch)
    for _ in range(2):
        assert [str(one) for one in wrong_loads(postgres, sqlserver, "text", plan)] == []
    assert (tmp_path / "asked").read_text() == "\n"
    table = replace(plan.target, name=f"probe {os.getpid() % REHEARSALS}")
    assert sqlserver.query(STATEMENTS.tables_like(table, staging_prefix(table))) == []


@needs_bcp
def test_a_server_that_takes_no_bulk_load_is_refused_for_text(
    postgres: PostgresResource,
    sqlserver: SqlServerResource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What freebcp says of Babelfish, which wants an end that it does not send."""
    said = "Trying to read more data than available in BCP request."
    script = f'read password; printf "Msg 33557097, Level 16, State 1\n\t{said}\n" >&2'
    put_before_bcp(tmp_path, script, monkeypatch)
    with pytest.raises(InputError) as refused:
        chosen_wire("text", into(), postgres, sqlserver, moving=True)
    text = str(refused.value)
    assert text.startswith(f"cannot use the wire format text into {sqlserver.settings()}: ")
    assert said in text
    assert chosen_wire("auto", into(), postgres, sqlserver, moving=True).wire == "arrow"
    assert chosen_wire("text", into("clickhouse"), postgres, sqlserver, moving=True).wire == "text"
    assert chosen_wire("text", into(), postgres, sqlserver).wire == "text", "a plan loads nothing"


@needs_bcp
@pytest.mark.usefixtures("text_into_sqlserver")
def test_a_value_that_does_not_arrive_is_named(
    postgres: PostgresResource,
    sqlserver: SqlServerResource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end that each text gets on its way is there twice."""
    script = rf"""table="$1" rows={tmp_path}/rows; sed 's/\.~/..~/g' "$3" > $rows; shift 3
        exec $TOOL "$table" in $rows "$@" """
    put_before_bcp(tmp_path, script, monkeypatch)
    plan = into("sqlserver", "text")
    with pytest.raises(
        InputError, match=r"text into .*: an empty text: should be '', but '\.' arrived"
    ):
        chosen_wire("text", plan, postgres, sqlserver, moving=True)
    found = [str(one) for one in wrong_loads(postgres, sqlserver, "text", plan)]
    assert "text: trailing blanks: should be 'a  ', but 'a  .' arrived" in found
    assert wrong_loads(postgres, sqlserver, "text", into("sqlserver", "bigint", "date")) == ()


@needs_bcp
def test_what_cannot_be_tried_is_not_wrong_and_is_tried_again(
    postgres: PostgresResource,
    sqlserver: SqlServerResource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(BYTES, str(1 << 60))
    assert wrong_loads(postgres, sqlserver, "text", into()) == ()
    monkeypatch.delenv(BYTES)
    put_before_bcp(tmp_path, 'read password; echo "no bulk load today" >&2; exit 1', monkeypatch)
    with pytest.raises(InputError, match="no bulk load today"):
        wrong_loads(postgres, sqlserver, "text", into())


def test_a_server_is_probed_once(shifting: Shifting) -> None:
    for _ in range(3):
        assert wrong_values(shifting, "arrow", plan_of("sqlserver", ("int", "date"))) == ()
    assert len(shifting._asked) == 1


@pytest.fixture
def configured(
    pg_url: str, mssql_url: str, ch_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """The environment of `ferry`; yields the passwords in it."""
    urls = {"POSTGRES": pg_url, "SQLSERVER": mssql_url, "CLICKHOUSE": ch_url}
    systems: tuple[str, ...] = ("postgres", "sqlserver", "clickhouse")
    for name, url in urls.items():
        monkeypatch.setenv(f"TABLEFERRY_{name}_URL", url)
    settings = [parse_url(system(one), urls[one.upper()]) for one in systems]
    yield [one.password for one in settings if one.password]


def test_the_doctor_lists_servers_and_wires(configured: list[str]) -> None:
    done = CliRunner().invoke(main, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert [server["name"] for server in found["servers"]] == [
        "postgres",
        "sqlserver",
        "clickhouse",
    ]
    assert all(server["reachable"] and server["version"] for server in found["servers"])
    wires_of = {server["name"]: server["wires"] for server in found["servers"]}
    assert [(one["wire"], one["to"]) for one in wires_of["sqlserver"]] == [
        ("arrow", "postgres"),
        ("arrow", "clickhouse"),
        ("text", "clickhouse"),
        ("arrow", "files"),
    ]
    plain = CliRunner().invoke(main, ["doctor"])
    assert plain.exit_code == 0
    exact, without = plain.stdout.count("exact"), plain.stdout.count("not available")
    assert exact + without == 6
    if not named(SQLSERVER):
        assert without == 2 * (shutil.which("freebcp") is None)
    assert not any(secret in done.output + plain.output for secret in configured)


@needs_bcp
@pytest.mark.usefixtures("configured", "lone_backslash")
def test_the_doctor_ends_with_1_if_a_wire_is_wrong() -> None:
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 1
    assert "kinds of values come out wrong" in done.stdout
    assert "nvarchar(40): a backslash before a letter" in done.stdout
    assert "1 of 3 servers have problems: sqlserver" in done.stderr


@needs_bcp
@pytest.mark.usefixtures("configured")
def test_the_doctor_shows_a_wire_that_gets_nothing_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_before_bcp(
        tmp_path, '[ "$2" = in ] && exec echo "Msg 1, Level 16" >&2; exec $TOOL "$@"', monkeypatch
    )
    done = CliRunner().invoke(main, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    wires_of = {one["name"]: one["wires"] for one in json.loads(done.stdout)["servers"]}
    (found,) = [one for one in wires_of["postgres"] if one["to"] == "sqlserver"]
    assert found["ok"] and found["wire"] == "text" and "Msg 1, Level 16" in found["unavailable"]


@pytest.mark.usefixtures("configured")
def test_the_doctor_ends_with_1_if_a_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", "mssql://sa:s3cret@127.0.0.1:1/none")
    done = CliRunner().invoke(main, ["doctor", "--json"])
    assert done.exit_code == 1
    server = json.loads(done.stdout)["servers"][1]
    assert (server["reachable"], server["ok"]) == (False, False)
    assert "connection refused" in server["error"]
    assert "s3cret" not in done.output
