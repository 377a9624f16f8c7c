"""`make demo` as a newcomer runs it, its result computed past the product."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pymssql
import pytest
from clickhouse_connect import get_client

from tableferry.resources.connecting.address import parse_url
from tableferry.resources.registry import system
from tableferry_local.stack import Stack
from tests.guide import DOCS, blocks
from tests.integration.support import pictures
from tests.integration.support.guide_shell import Shell

pytestmark = pytest.mark.integration

FIGURES = (
    "SELECT COUNT(*), SUM(CAST(distance AS {whole})), SUM(CAST(air_time AS {whole})), "
    "COUNT(dep_time), SUM(CAST(id AS {whole})) FROM {table}"
)
ROWS = 336_776
PICTURE = "first-minutes.svg"
FIRST_MINUTES = (
    "ferry run flights",
    "ferry check flights --level full_hash --range 4711",
    "ferry compare postgres://public.flights clickhouse://warehouse.flights",
)
"""What the README's picture shows after `make demo`."""
COLUMNS = 112
OURS = "test_demo.py types it"
"""Why no other test runs a block of the first page."""


def printed_by(environment: dict[str, str], module: str, *arguments: str) -> str:
    """Run a module that succeeds, and return what it printed."""
    ran = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], str]]:
    """The environment of a demo that has run, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    for parent in (folder, *folder.parents):
        if parent.name.startswith("pytest"):
            parent.chmod(0o711)  # PostgreSQL's user must get to its own folder inside
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TABLEFERRY_")
    }
    environment |= {
        "TABLEFERRY_LOCAL_STACK": str(folder / "stack"),
        "DAGSTER_HOME": str(folder / "dagster"),
    }
    try:
        yield environment, printed_by(environment, "tableferry.pipelines.command.demo")
    finally:
        Stack(folder / "stack").remove()


@pytest.mark.timeout(1300)
def test_the_flights_are_the_same_in_all_databases(demo: tuple[dict[str, str], str]) -> None:
    environment, printed = demo
    stack = Stack(environment["TABLEFERRY_LOCAL_STACK"])
    with psycopg.connect(stack.postgres_url) as postgres:
        sql = FIGURES.format(table="public.flights", whole="bigint")
        source = postgres.execute(sql).fetchone()
    assert source is not None and source[0] == ROWS
    expected = [int(figure) for figure in source]

    at = parse_url(system("sqlserver"), stack.sqlserver_url)
    with (
        pymssql.connect(
            server=at.host,
            port=str(at.port),
            user=at.user,
            password=str(at.password),
            database=at.database,
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(FIGURES.format(table="dbo.flights", whole="bigint"))
        assert [int(figure) for figure in cursor.fetchone()] == expected

    with get_client(dsn=stack.clickhouse_url) as clickhouse:
        for table in ("warehouse.flights", "warehouse.flights_direct"):
            figures = clickhouse.query(
                FIGURES.format(table=table, whole="Nullable(Int64)")
            ).result_rows[0]
            assert [int(figure) for figure in figures] == expected
    assert "flights in each database" in printed
    for heading in ("export", "load", "finalise", "reconcile", "rows/s", "checks"):
        assert heading in printed


@pytest.mark.timeout(1300)
def test_a_second_run_skips_every_range(demo: tuple[dict[str, str], str]) -> None:
    environment, _ = demo
    again = printed_by(environment, "tableferry.pipelines.cli", "run", "flights", "--json")
    document = json.loads(again)
    assert {one["state"] for one in document["ranges"]} == {"skipped_unchanged"}
    assert document["run_ids"] == [], "nothing to do starts no run"


@pytest.mark.slow
@pytest.mark.timeout(1300)
def test_the_demo_goes_on_as_the_guide_says(
    demo: tuple[dict[str, str], str], tmp_path: Path
) -> None:
    environment, _ = demo
    servers = Stack(environment["TABLEFERRY_LOCAL_STACK"]).environment()
    quiet = {"TABLEFERRY_QUIET": "1"}  # the guide shows what is printed, not how far a run is
    shell = Shell(tmp_path, {**environment, **servers, **quiet}, shared=False)
    for block in blocks("first-table.md"):
        if block.options.get("notest") != OURS:
            continue
        problem = shell.do(replace(block, options={}))
        assert not problem, problem
    assert "INSERT" in shell.printed[-1], "the statements of a run"
    assert "<html" in (tmp_path / "flights.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1300)
def test_the_picture_of_the_first_minutes_shows_what_is_printed(
    demo: tuple[dict[str, str], str], tmp_path: Path
) -> None:
    environment, printed = demo
    environment = environment | Stack(environment["TABLEFERRY_LOCAL_STACK"]).environment()
    environment |= {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    proof = printed[printed.index("flights in each database") : printed.index("After `eval")]
    steps = [("make demo", f"...\n{proof}")]
    steps.append(('eval "$(make -s env)"', ""))
    for command in FIRST_MINUTES:
        arguments = command.split()[1:]
        steps.append((command, printed_by(environment, "tableferry.pipelines.cli", *arguments)))
    svg = pictures.of_terminal(steps, title="The first minutes", columns=COLUMNS)
    path = pictures.folder_or(tmp_path) / PICTURE
    path.write_text(svg, encoding="utf-8")
    assert path.stat().st_size < 200_000
    there = (DOCS / "images" / PICTURE).read_text(encoding="utf-8")
    shown, now = (map(pictures.shape, pictures.lines_of(text)) for text in (there, svg))
    assert [*shown] == [*now], "what the README shows is what is printed: make screenshots"


def test_the_picture_of_the_first_minutes_has_the_commands_of_the_first_page() -> None:
    lines = pictures.lines_of((DOCS / "images" / PICTURE).read_text(encoding="utf-8"))
    shown = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    typed = [block for block in blocks("first-table.md") if block.language == "console"]
    told = [command for block in typed for command, _ in block.commands]
    assert shown == [command for command in told if command in shown]
    assert shown[:2] == told[:2] and [*FIRST_MINUTES] == shown[2:]


@pytest.mark.timeout(1300)
def test_no_password_is_anywhere_in_dagsters_memory(demo: tuple[dict[str, str], str]) -> None:
    environment, printed = demo
    passwords = json.loads(
        (Path(environment["TABLEFERRY_LOCAL_STACK"]) / "passwords.json").read_text()
    ).values()
    for path in Path(environment["DAGSTER_HOME"]).rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(password.encode() in content for password in passwords), path
    assert not any(password in printed for password in passwords)
