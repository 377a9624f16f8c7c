"""`ferry run --consistent`: tables that are written to together arrive as of one moment."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from tableferry.pipelines.cli import main
from tableferry.pipelines.command.many.consistent import consistency
from tableferry.pipelines.command.one import runner, running
from tableferry.pipelines.command.one.finding import Selection
from tableferry.resources.errors import SetLost
from tests.integration.conftest import Ferry
from tests.integration.support.beside import beside
from tests.integration.support.crashing import Command, ask_clickhouse, ask_sqlserver, reopen

pytestmark = pytest.mark.integration

ROWS = 200
COPIES = ("b", "c")
PARENT = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, version integer NOT NULL)",
    f"INSERT INTO {{t}} SELECT g, 0 FROM generate_series(1, {ROWS}) g",
)


def ferry_command(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def family(ferry: Callable[..., Ferry]) -> Iterator[Ferry]:
    """A parent and its child, which two further transfers copy, the child over two hops."""
    settings = {"parallel": "{runs: 2}", "ranges": "{count: 2}"}
    moves = ferry("['clickhouse://warehouse.{t}']", *PARENT, **settings)
    child = f"{moves.table}_child"
    moves.source(
        f"CREATE TABLE {child} (id integer PRIMARY KEY REFERENCES {{t}}, version integer NOT NULL)",
        f"INSERT INTO {child} SELECT * FROM {{t}}",
    )
    hops = {name: f"clickhouse://warehouse.{child}_{name}" for name in COPIES}
    hops["a_child"] = f"sqlserver://dbo.{child}, clickhouse://warehouse.{child}"
    for name, tables in hops.items():
        (moves.folder / f"{name}.yaml").write_text(
            f"transfer: {name}\nsource: postgres://public.{child}\nkey: id\nhops: [{tables}]\n"
        )
    reopen(moves)
    yield moves
    moves.source(f"DROP TABLE {child} CASCADE")


@pytest.fixture
def writer(family: Ferry) -> Iterator[None]:
    """Inserts a parent with its child, and updates another pair, in each of many transactions."""
    numbers = itertools.count(ROWS + 1)
    with psycopg.connect(family.stack.postgres_url) as connection:

        def write() -> None:
            number = next(numbers)
            connection.execute(f"INSERT INTO {family.table} VALUES ({number}, 0)")
            connection.execute(f"INSERT INTO {family.table}_child VALUES ({number}, 0)")
            for table in (family.table, f"{family.table}_child"):
                connection.execute(f"UPDATE {table} SET version = version + 1 WHERE id = 1")
            connection.commit()

        with beside(write, 0.005):
            yield


def copies(family: Ferry) -> list[tuple[object, ...]]:
    """The figures of every target, which are the same of tables in one state."""
    figures = "SELECT count(*), max(id), sum(version) FROM"
    child = f"{family.table}_child"
    tables = [family.table, child, *(f"{child}_{name}" for name in COPIES)]
    found = [ask_clickhouse(family, f"{figures} warehouse.{table}")[0] for table in tables]
    return [*found, ask_sqlserver(family, f"{figures} dbo.{child}")[0]]


def wait_for(command: Command, text: str) -> None:
    began = time.monotonic()
    while text not in command.output:
        assert command.running and time.monotonic() - began < 120, command.output
        time.sleep(0.02)


def snapshots(*transfers: str) -> set[str | None]:
    """The snapshots that the event log has of all ranges of transfers."""
    return {
        range_["source_snapshot"]
        for transfer in transfers
        for range_ in json.loads(ferry_command("status", transfer, "--json").stdout)["ranges"]
    }


@pytest.mark.slow
@pytest.mark.usefixtures("writer")
def test_tables_arrive_in_one_state_also_after_a_kill(family: Ferry, tmp_path: Path) -> None:
    command = Command(tmp_path)
    pid = command.start("run", "--all", "--consistent", "--jobs", "2")
    wait_for(command, "1 of 4: ")
    os.kill(pid, signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL
    assert command.run("run", "--all", "--consistent", "--jobs", "2") == 0, command.output
    figures = copies(family)
    assert len(set(figures)) == 1, figures
    told = re.search(r"postgres: all tables are as of snapshot (\S+ of [^,]+)", command.output)
    assert told is not None, command.output
    assert snapshots(family.table, "a_child", *COPIES) == {told[1]}
    sentence = f"all 5 tables from postgres as of snapshot {told[1]}"
    assert json.loads(ferry_command("status", "--json").stdout)["as_of"] == [sentence]
    assert f"One state of the source: {sentence}." in ferry_command("report", "--all").stdout
    assert told[1] in ferry_command("report", "b").stdout
    assert ferry_command("run", "b").exit_code == 0
    assert json.loads(ferry_command("status", "--json").stdout)["as_of"] == []


def test_a_lost_snapshot_ends_the_set(family: Ferry, tmp_path: Path) -> None:
    command = Command(tmp_path)
    command.start("run", "--all", "--consistent", "--jobs", "1")
    wait_for(command, "1 of 4: ")
    told = re.search(r"reading as of snapshot ((\w+)-(\w+)-1 of [^,]+)", command.output)
    assert told is not None, command.output
    holder = f"{int(told[2], 16)}/{int(told[3], 16)}"
    family.rows(
        f"SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE virtualxid = '{holder}'"
    )
    assert command.wait() == 1
    assert re.search(r"ferry: postgres: the snapshot \S+ has ended.*; not run: ", command.output)
    finished = re.findall(r"of 4: (\S+): ok", command.output)
    assert finished and snapshots(*finished) == {told[1]}
    unfinished = {family.table, "a_child", *COPIES} - {*finished}
    assert snapshots(*unfinished) == set(), "they were not begun"
    assert command.run("run", "--all", "--consistent", "--jobs", "1") == 0, command.output
    assert len(snapshots(family.table, "a_child", *COPIES)) == 1
    assert snapshots(*finished) != {told[1]}


def test_what_cannot_be_read_in_the_state_is_refused(family: Ferry) -> None:
    with consistency(family.session, [family.table, "b"]) as state:
        held = Selection(held=state.held)
        family.source("TRUNCATE {t} CASCADE")
        for name in ("b", family.table):
            with pytest.raises(SetLost, match=r"truncated.* as of snapshot .* run the set again"):
                running.run_selected(family.session, name, held)
    foreign = f"{family.table}_foreign"
    family.source(
        f"CREATE FOREIGN DATA WRAPPER {foreign}",
        f"CREATE SERVER {foreign} FOREIGN DATA WRAPPER {foreign}",
        f"CREATE FOREIGN TABLE {foreign} (id integer) SERVER {foreign}",
        f"CREATE VIEW {foreign}_v AS SELECT id FROM {foreign} UNION SELECT id FROM {{t}}",
    )
    file = family.folder / "c.yaml"
    file.write_text(file.read_text().replace(f"{family.table}_child\n", f"{foreign}_v\n"))
    elsewhere = ferry_command("run", "b", "c", "--consistent")
    family.source(f"DROP FOREIGN DATA WRAPPER {foreign} CASCADE")
    assert elsewhere.exit_code == 2
    expected = f"c: postgres://public.{foreign}_v reads the foreign table public.{foreign}"
    assert expected in elsewhere.stderr
    for source in ("clickhouse://warehouse", "sqlserver://dbo"):
        name = source.partition(":")[0]
        (family.folder / f"{name}.yaml").write_text(
            f"transfer: from_{name}\nsource: {source}.x\nkey: id\n"
            f"hops: ['postgres://public.from_{name}']\n"
        )
    refused = ferry_command("run", "--all", "--consistent")
    assert refused.exit_code == 2, refused.output
    assert "ClickHouse has no snapshot that several sessions can read" in refused.stderr
    assert "1 transfer from sqlserver would need one: from_sqlserver" in refused.stderr
    assert "CREATE DATABASE ... AS SNAPSHOT OF" in refused.stderr
    assert ferry_command("run", "b", "--consistent", "--failed").exit_code == 2
    assert snapshots("b", family.table) == set(), "nothing was begun"


def test_what_another_run_has_read_later_is_set_back(family: Ferry) -> None:
    figures = f"SELECT count(*), sum(version) FROM warehouse.{family.table}_child_b"
    with consistency(family.session, ["b"]) as state:
        family.source("UPDATE {t}_child SET version = 9", "DELETE FROM {t}_child WHERE id > 100")
        assert runner.run(family.session, "b").good
        assert ask_clickhouse(family, figures) == [(100, 900)]
        held = Selection(held=state.held)
        view = running.run_selected(family.session, "b", held)
    assert ask_clickhouse(family, figures) == [(ROWS, 0)]
    assert view.good and any("a later state than that of the set" in note for note in view.notes)


def test_a_fingerprint_that_misses_changes_proves_no_state(family: Ferry) -> None:
    file = family.folder / "b.yaml"
    file.write_text(file.read_text() + "fingerprint: none\n")
    assert ferry_command("run", "b", "--consistent", "--jobs", "1").exit_code == 0
    assert None not in snapshots("b"), "all rows were read"
    unchanged = ferry_command("run", "b", "--consistent", "--jobs", "1")
    assert "only as far as their fingerprints see changes" in unchanged.stdout
    assert snapshots("b") == {None}
