"""What is in a target already is recorded without a move: `ferry adopt`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tableferry.assets.running import audit
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.session import open_session
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command
from tests.integration.support.crashing import Command, reopen

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text NOT NULL)",
    "INSERT INTO {t} SELECT g, 'A' FROM generate_series(1, 200) g",
)
FIRST, SECOND, OPEN = "..0000000101", "0000000101..0000000201", "0000000201.."
RANGES = "{rows: 100}"
SERVERS = ["postgres", "sqlserver", "clickhouse"]


def adopted(one: Ferry, *arguments: str) -> dict[str, Any]:
    """The document of `ferry adopt`."""
    output = command("adopt", one.table, "--json", *arguments, code=0).stdout
    return dict(json.loads(output))


def states(document: dict[str, Any], hop: int = 1) -> dict[str, str]:
    return {each["range"]: each["state"] for each in document["ranges"] if each["hop"] == hop}


def reasons(one: Ferry) -> dict[tuple[int, str], str]:
    return {(view.hop, view.range): str(view.reason) for view in one.plan().ranges}


@pytest.fixture
def lose_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Ferry], None]:
    """Give a transfer a new and empty event log."""

    def lose(one: Ferry) -> None:
        one.session.instance.dispose()
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "new home"))
        one.session = open_session()

    return lose


@pytest.mark.parametrize("system", SERVERS)
def test_values_that_the_transfer_changes_are_told_of_adopted_rows(
    ferry: Make, lose_log: Callable[[Ferry], None], schemas: dict[str, str], system: str
) -> None:
    small, price = "smallint", "decimal(9, 1)"
    if system == "clickhouse":
        small, price = "Int16", "Decimal(9, 1)"
    columns = {"n": {"type": small, "on_overflow": "clamp"}, "d": {"type": price, "cast": True}}
    one = ferry(
        f"['{system}://{schemas[system]}.{{t}}']",
        *TABLE,
        "ALTER TABLE {t} ADD n integer, ADD d numeric(9, 2) NOT NULL DEFAULT 1",
        "UPDATE {t} SET n = 99999, d = 1.25 WHERE id IN (10, 20, 150)",
        ranges=RANGES,
        columns=json.dumps(columns),
    )
    moved = one.run()
    assert moved.good, moved.errors
    told = [note for note in moved.notes if "values" in note]
    assert len(told) == 2
    lose_log(one)
    assert set(states(adopted(one)).values()) == {"adopted"}
    notes = json.loads(command("status", one.table, "--json", code=0).stdout)["notes"]
    assert [note for note in notes if "values" in note] == told


@pytest.mark.parametrize(
    ("system", "settings"),
    [
        ("postgres", {}),
        ("clickhouse", {}),
        ("files", {}),
        ("sqlserver", {"write": "upsert", "reconcile": "full_hash"}),
        ("clickhouse", {"write": "swap", "reconcile": "count"}),
    ],
)
def test_after_a_lost_log_only_what_differs_moves(
    ferry: Make,
    lose_log: Callable[[Ferry], None],
    schemas: dict[str, str],
    tmp_path: Path,
    system: str,
    settings: dict[str, str],
) -> None:
    target = (
        f"files://{tmp_path}/out/"
        if system == "files"
        else f"{system}://{schemas.get(system)}.{{t}}"
    )
    one = ferry(f"['{target}']", *TABLE, ranges=RANGES, **settings)
    assert one.run().good
    lose_log(one)
    one.source("UPDATE {t} SET name = 'B' WHERE id = 150")
    if settings.get("write") == "upsert":
        one.source("DELETE FROM {t} WHERE id = 7")  # the target keeps it

    expected = {FIRST: "equal", SECOND: "left", OPEN: "equal"}
    assert states(adopted(one, "--dry-run")) == expected
    assert (
        one.session.instance.get_dynamic_partitions(one.session.transfer(one.table).partitions_name)
        == []
    )

    document = adopted(one)
    assert states(document) == {FIRST: "adopted", SECOND: "left", OPEN: "adopted"}
    (left,) = [each for each in document["ranges"] if each["why_not"]]
    assert "checksum FAILED" in left["why_not"]
    assert "2 of 3 ranges adopted" in document["summary"]
    status = json.loads(command("status", one.table, "--json", code=0).stdout)
    assert [each["state"] for each in status["ranges"]] == ["adopted", "missing", "adopted"]
    assert status["ranges"][0]["checks"]["row_count"] is True

    whole = settings.get("write") == "swap"
    assert reasons(one) == {
        (1, FIRST): "swap" if whole else "unchanged",
        (1, SECOND): "missing",
        (1, OPEN): "swap" if whole else "unchanged",
    }
    run = one.run()
    assert run.good, run.errors
    assert one.moved(run) == ([FIRST, SECOND, OPEN] if whole else [SECOND])
    assert set(reasons(one).values()) == {"unchanged"}
    if not whole:
        report = command("report", one.table, code=0).stdout
        assert report.count("adopted: found equal in the target") == 2


@pytest.mark.parametrize("system", SERVERS)
def test_a_table_that_another_tool_filled_is_offered_and_adopted(
    ferry: Make, schemas: dict[str, str], system: str
) -> None:
    table = f"{schemas[system]}.{{t}}"
    one = ferry(f"['{system}://{table}']", *TABLE, ranges=RANGES)
    name = table.format(t=one.table)
    if system == "clickhouse":
        create = (
            f"CREATE TABLE {name} (id Nullable(Int32), name String) ENGINE = MergeTree ORDER BY ()"
        )
    else:
        text = "nvarchar(max)" if system == "sqlserver" else "text"
        create = f"CREATE TABLE {name} (id int, name {text})"
        if system == "postgres":
            looking.run(one.stack, system, f"CREATE SCHEMA IF NOT EXISTS {schemas[system]}")
    looking.run(one.stack, system, create)
    rows = ", ".join(f"({number}, 'A')" for number in range(1, 201))
    looking.run(one.stack, system, f"INSERT INTO {name} VALUES {rows}, (NULL, 'stray')")

    document = adopted(one)
    assert set(states(document).values()) == {"adopted"}, document
    assert any("1 row outside of all ranges" in note for note in document["notes"])
    assert set(reasons(one).values()) == {"unchanged"}
    assert "nothing to adopt" in adopted(one)["summary"]


def test_what_would_let_it_adopt_is_said(ferry: Make) -> None:
    hop = "['clickhouse://warehouse.{t}']"
    one = ferry(
        hop,
        "CREATE TABLE {t} (id bigint PRIMARY KEY, name text)",
        "INSERT INTO {t} SELECT i, 'A' FROM generate_series(1, 20) i",
    )
    looking.run(
        one.stack,
        "clickhouse",
        f"CREATE TABLE warehouse.{one.table} (id UInt64, name Nullable(String))"
        " ENGINE = MergeTree ORDER BY id",
    )
    looking.run(
        one.stack,
        "clickhouse",
        f"INSERT INTO warehouse.{one.table} SELECT number + 1, 'A' FROM numbers(20)",
    )
    declaration = "columns: {id: {type: UInt64}}"
    document = adopted(one)
    assert set(states(document).values()) == {"left"}
    assert all(declaration in each["why_not"] for each in document["ranges"])
    assert "a run would refuse the other 1" in document["summary"]
    assert declaration in document["summary"]
    refused = command("validate", one.table, code=2)
    assert declaration in refused.stdout
    ran = CliRunner().invoke(main, ["run", one.table])
    assert ran.exit_code == 1 and declaration in ran.stderr
    one.declare(hop, columns="{id: {type: UInt64}}")
    assert set(states(adopted(one)).values()) == {"adopted"}


def test_the_first_run_offers_it_and_moves(ferry: Make, lose_log: Callable[[Ferry], None]) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE, ranges=RANGES)
    name = f"warehouse.{one.table}"
    assert "does not exist" in command("adopt", one.table, code=2).output
    create = f"CREATE TABLE {name} (id Int32, name String) ENGINE = MergeTree ORDER BY id"
    looking.run(one.stack, "clickhouse", create)
    empty = command("run", one.table, code=0)
    assert "that no run" not in empty.output, "an empty table has nothing to adopt"
    lose_log(one)
    assert "has no range" in command("adopt", one.table, "--range", "x", code=2).output
    first = command("run", one.table, code=0)
    assert (
        f"{name} has 200 rows that no run of this instance has moved; `ferry adopt" in first.stderr
    )
    assert "that no run" not in command("run", one.table, "--force", code=0).output


def test_a_chain_is_adopted_hop_after_hop(ferry: Make, lose_log: Callable[[Ferry], None]) -> None:
    one = ferry("['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']", *TABLE, ranges=RANGES)
    assert one.run().good
    looking.run(one.stack, "sqlserver", f"UPDATE dbo.{one.table} SET name = 'damaged' WHERE id = 1")
    looking.run(
        one.stack,
        "clickhouse",
        f"ALTER TABLE warehouse.{one.table} DELETE WHERE id = 150 SETTINGS mutations_sync = 2",
    )
    lose_log(one)
    document = adopted(one)
    assert states(document, 1) == {FIRST: "left", SECOND: "adopted", OPEN: "adopted"}
    assert states(document, 2) == {FIRST: "left", SECOND: "left", OPEN: "adopted"}
    run = one.run()
    assert run.good, run.errors
    moved = {(view.hop, view.range) for view in run.ranges if view.state == "committed"}
    assert moved == {(1, FIRST), (2, FIRST), (2, SECOND)}


def test_a_source_that_changes_meanwhile_is_left(
    ferry: Make,
    lose_log: Callable[[Ferry], None],
    monkeypatch: pytest.MonkeyPatch,
    schemas: dict[str, str],
) -> None:

    hops = f"['postgres://{schemas['postgres']}.{{t}}']"
    one = ferry(hops)
    one.declare(hops, source=f"sqlserver://dbo.{one.table}", ranges=RANGES)
    create = (
        f"CREATE TABLE dbo.{one.table} (id int NOT NULL PRIMARY KEY, name nvarchar(10) NOT NULL)"
    )
    rows = ", ".join(f"({number}, 'A')" for number in range(1, 201))
    looking.run(one.stack, "sqlserver", f"{create}; INSERT INTO dbo.{one.table} VALUES {rows}")
    assert one.run().good
    lose_log(one)
    real = audit.reconcile

    def compared(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        looking.run(one.stack, "sqlserver", f"UPDATE dbo.{one.table} SET name = 'B' WHERE id = 150")
        return found

    monkeypatch.setattr(audit, "reconcile", compared)
    document = adopted(one)
    assert states(document) == {FIRST: "adopted", SECOND: "left", OPEN: "adopted"}


def test_ranges_whose_fingerprint_is_a_watermark_are_adopted(
    ferry: Make, lose_log: Callable[[Ferry], None]
) -> None:
    """Their record does not say that it is of the source's present state, so it needs a reason."""
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, at timestamp NOT NULL)",
        "INSERT INTO {t} SELECT g, timestamp '2024-01-01' + g * interval '1 hour' "
        "FROM generate_series(1, 200) g",
        ranges=RANGES,
        fingerprint="{watermark: at}",
    )
    assert one.run().good
    lose_log(one)
    assert {*states(adopted(one)).values()} == {"adopted"}
    assert {*reasons(one).values()} == {"unchanged"}


def test_killed_in_the_middle_it_leaves_what_the_next_command_goes_on_from(
    ferry: Make, lose_log: Callable[[Ferry], None], tmp_path: Path
) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *TABLE, ranges=RANGES)
    assert one.run().good
    lose_log(one)
    process = Command(tmp_path)
    code = process.run("adopt", one.table, TABLEFERRY_CRASH_AT="after_adopted_marker:2")
    assert code == -signal.SIGKILL, process.output
    reopen(one)
    before = reasons(one)
    assert set(before.values()) <= {"missing", "unchanged", "unchecked"}
    assert "missing" in before.values()
    document = adopted(one)
    assert document["ranges"]
    assert set(states(document).values()) == {"adopted"}
    assert set(reasons(one).values()) == {"unchanged"}
    assert one.moved(one.run()) == []
