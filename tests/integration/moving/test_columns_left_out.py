"""Columns that a transfer no longer fills: the source has lost them, or the declaration leaves them
out. What becomes of their values in the target, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry

pytestmark = pytest.mark.integration

SCHEMAS = {"sqlserver": "dbo", "clickhouse": "warehouse", "postgres": "copies"}
CHAIN = "['postgres://{copies}.{t}', 'clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, a text, b text, c int)",
    "INSERT INTO {t} SELECT i, 'a' || i, 'b' || i, i FROM generate_series(1, 40) i",
)
RANGES = "{bounds: [1, 21, 41]}"
LOST = "ALTER TABLE {t} DROP b"


def command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*arguments], catch_exceptions=False)
    return result.exit_code, result.stdout + result.stderr


def hop_into(system: str, copies: str) -> str:
    schema = copies if system == "postgres" else SCHEMAS[system]
    return f"['{system}://{schema}.{{t}}']"


def column(one: Ferry, name: str = "b", hop: int = -1) -> list[Any] | None:
    """The values of a column of a target, in the order of the key; None if it has none."""
    table = one.session.transfer(one.table).hops[hop].to
    server = one.session.servers.endpoints[table.connection]
    if name not in [each.name for each in server.columns(table)]:
        return None
    sql = f"SELECT {name} FROM {table.schema}.{table.name} ORDER BY id"
    return [value for (value,) in server.query(sql)]


BEFORE = [f"b{i}" for i in range(1, 41)]


def moved(view: Any) -> list[str]:
    return sorted({each.range for each in view.ranges if each.state == "committed"})


def notes_about(one: Ferry, name: str = "'b'") -> list[str]:
    return [note for note in runner.status(one.session, one.table).notes if name in note]


EXCLUDED, SUBSET, BY_HOP = {"exclude": "[b]"}, {"columns": "[id, a, c]"}, {"hop": "exclude"}


@pytest.mark.parametrize(
    ("system", "policy", "leaving"),
    [
        *((system, "drop", leaving) for system in SCHEMAS for leaving in (EXCLUDED, BY_HOP)),
        *(("clickhouse", policy, EXCLUDED) for policy in ("keep", "null")),
        ("clickhouse", "drop", SUBSET),
        ("postgres", "null", SUBSET),
    ],
)
def test_a_column_that_the_source_still_has_is_left_alone(
    ferry: Callable[..., Ferry], copies: str, system: str, policy: str, leaving: dict[str, str]
) -> None:
    hop = hop_into(system, copies)
    one = ferry(hop, *TABLE, ranges=RANGES)
    assert one.run().good
    settings = {} if leaving is BY_HOP else leaving
    if leaving is BY_HOP:
        hop = f"[{{{{to: {hop[1:-1]}, exclude: [b]}}}}]"
    one.declare(hop, ranges=RANGES, dropped_columns=policy, **settings)
    plan = one.plan()
    told = "the transfer leaves out 'b'"
    assert any(told in note for note in plan.notes), plan.notes
    assert not any("no longer has" in note or "DROP" in note for note in plan.notes), plan.notes
    assert command("validate", one.table)[0] == 0
    view = one.run()
    assert view.good, view.errors
    assert column(one) == BEFORE
    assert moved(view) == [], "nothing moves because of it"
    assert any(told in note for note in view.notes), view.notes
    assert not any("no longer has" in note for note in view.notes), view.notes
    assert notes_about(one) == []
    assert {range_.state for range_ in one.plan().ranges} == {"skip"}


@pytest.mark.parametrize("policy", ["keep", "drop"])
@pytest.mark.parametrize("leaving", ["both", "first", "second"])
def test_in_a_chain_too(
    ferry: Callable[..., Ferry], copies: str, leaving: str, policy: str
) -> None:
    first, second = f"postgres://{copies}.{{t}}", "clickhouse://warehouse.{t}"
    one = ferry(f"['{first}', '{second}']", *TABLE, ranges=RANGES, columns="{b: {rename: bb}}")
    assert one.run().good
    hops = {
        "both": f"['{first}', '{second}']",
        "first": f"[{{{{to: '{first}', exclude: [b]}}}}, '{second}']",
        "second": f"['{first}', {{{{to: '{second}', exclude: [b]}}}}]",
    }[leaving]
    settings = {"exclude": "[b]"} if leaving == "both" else {}
    if leaving == "second":
        settings = {"columns": "{b: {rename: bb}}"}
    one.declare(hops, ranges=RANGES, dropped_columns=policy, **settings)
    view = one.run()
    assert view.good, view.errors
    assert moved(view) == []
    for hop in (0, 1):
        assert column(one, "bb", hop) == BEFORE


@pytest.mark.parametrize("system", SCHEMAS)
def test_a_lost_column_alone_moves_nothing(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    hop = hop_into(system, copies)
    one = ferry(hop, *TABLE, ranges=RANGES, on_schema_drift="add_columns")
    assert one.run().good
    one.source(LOST)
    assert any("no longer has 'b'" in note for note in one.plan().notes)
    assert {range_.reason for range_ in one.plan().ranges} == {"fewer_columns"}
    view = one.run()
    assert view.good, view.errors
    assert moved(view) == []
    assert column(one) == BEFORE
    assert notes_about(one) == []
    assert command("report", one.table)[1].count("not filled") == 0
    # a row that changes later moves by itself, and the others keep their values
    one.source("UPDATE {t} SET a = 'x' WHERE id = 3", "INSERT INTO {t} VALUES (0, 'new', 0)")
    assert any("rows that move get NULL in 'b'" in note for note in one.plan().notes)
    view = one.run()
    assert view.good, view.errors
    values = column(one)
    assert values is not None
    assert values[0] is None, "the new row"
    assert values[1:] == BEFORE or (system == "clickhouse" and values.count(None) == 2)
    (told,) = notes_about(one)
    assert "in 2 of 4 ranges" in told if system == "clickhouse" else "in 1 of 4 ranges" in told
    assert {range_.state for range_ in one.plan().ranges} == {"skip"}


def test_a_killed_run_leaves_the_others_their_values(ferry: Callable[..., Ferry]) -> None:
    """The newest columns in the log are then those of the ranges that were recorded."""
    one = ferry(
        "['clickhouse://warehouse.{t}']", *TABLE, ranges=RANGES, on_schema_drift="add_columns"
    )
    assert one.run().good
    one.source(LOST)
    first = sorted({each.range for each in one.plan().ranges})[1]
    assert one.run(ranges=[first]).good
    view = one.run()
    assert view.good and moved(view) == []
    assert column(one) == BEFORE


def test_a_lost_column_of_a_chain_moves_nothing_in_later_hops(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    """Also where the later hop never had the column."""
    first, second = f"postgres://{copies}.{{t}}", "clickhouse://warehouse.{t}"
    hops = f"['{first}', {{{{to: '{second}', exclude: [b]}}}}]"
    one = ferry(hops, *TABLE, ranges=RANGES, on_schema_drift="add_columns")
    assert one.run().good
    one.source(LOST)
    one.declare(f"['{first}', '{second}']", ranges=RANGES, on_schema_drift="add_columns")
    assert {str(each.reason) for each in one.plan().ranges} == {"fewer_columns"}, "of both hops"
    view = one.run()
    assert view.good, view.errors
    assert moved(view) == []
    assert column(one, hop=0) == BEFORE


@pytest.mark.parametrize("system", SCHEMAS)
def test_a_computed_column_that_is_no_longer_declared_is_left_alone(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    hop = hop_into(system, copies)
    one = ferry(
        hop, *TABLE, ranges=RANGES, columns='{d: {expression: "upper(b)", type: {postgres: text}}}'
    )
    assert one.run().good
    one.declare(hop, ranges=RANGES, dropped_columns="drop")
    view = one.run()
    assert view.good, view.errors
    assert column(one, "d") == [value.upper() for value in BEFORE]


@pytest.mark.parametrize("system", SCHEMAS)
def test_a_column_that_was_kept_is_dropped_once_that_is_declared(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    hop = hop_into(system, copies)
    one = ferry(hop, *TABLE, ranges=RANGES, on_schema_drift="add_columns")
    assert one.run().good
    one.source(LOST)
    assert one.run().good and column(one) == BEFORE
    one.declare(hop, ranges=RANGES, dropped_columns="drop")
    assert any("DROP COLUMN" in note for note in one.plan().notes)
    one.source("UPDATE {t} SET a = 'x' WHERE id = 3")
    assert "DROP COLUMN" in command("run", one.table, "--dry-run")[1]
    assert one.run().good
    assert column(one) is None


def test_a_renamed_column_is_asked_about_first_under_fail(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE)
    assert one.run().good
    one.source("ALTER TABLE {t} RENAME b TO company")
    (error,) = one.run().errors
    assert "columns: {company: {was: b}}" in error
    assert error.index("was: b") < error.index("drop")
    (note,) = [note for note in one.plan().notes if "refused" in note]
    code, said = command("validate", one.table)
    assert code == 2 and "columns: {company: {was: b}}" in said and "was: b" in note


THEIRS = {"postgres": "text", "sqlserver": "nvarchar(40)", "clickhouse": "Nullable(String)"}


@pytest.mark.parametrize("write", ["replace", "swap", "upsert"])
@pytest.mark.parametrize("system", SCHEMAS)
def test_values_of_others_are_told_before_a_whole_range_loses_them(
    ferry: Callable[..., Ferry], copies: str, system: str, write: str
) -> None:
    if write == "swap" and system != "clickhouse":
        pytest.skip("refused: see test_recreated_tables")
    one = ferry(hop_into(system, copies), *TABLE, ranges=RANGES, delta="never", write=write)
    assert one.run().good
    target = one.session.transfer(one.table).hops[0].to
    server, name = one.session.servers.endpoints[system], f"{target.schema}.{target.name}"
    server.execute(
        f"ALTER TABLE {name} ADD {'' if system == 'sqlserver' else 'COLUMN '}"
        f"theirs {THEIRS[system]}"
    )
    if system == "clickhouse":
        settings = "WHERE 1 SETTINGS mutations_sync = 2"
        server.execute(f"ALTER TABLE {name} UPDATE theirs = 'x' {settings}")
    else:
        server.execute(f"UPDATE {name} SET theirs = 'x'")
    if write != "swap":
        assert one.plan().notes == [], "nothing is about to move"
    one.source("UPDATE {t} SET a = 'changed' WHERE id = 3")
    updates = write == "upsert" and system != "clickhouse"
    whole = "" if updates else ", and so all rows of a range that moves as a whole,"
    told = (
        f"{target}: column 'theirs' is not in the transfer: rows that are inserted{whole} get its "
        "default or NULL; the others keep their values"
    )
    assert told in one.plan().notes
    view = one.run()
    assert view.good and told in view.notes, (view.errors, view.notes)
    values = column(one, "theirs")
    assert values is not None
    moved_whole = 0 if updates else 40 if write == "swap" else 20
    assert values.count(None) == moved_whole and values.count("x") == 40 - moved_whole


def test_the_column_that_marks_rows_is_the_transfers_own(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    hop = hop_into("postgres", copies)
    settings = {"write": "upsert", "deletes": "{mark: gone_at}"}
    one = ferry(hop, *TABLE, ranges=RANGES, **settings)
    assert one.run().good
    one.source("UPDATE {t} SET a = 'changed' WHERE id = 3")
    assert not any("gone_at" in note for note in [*one.plan().notes, *one.run().notes])
