"""`ferry run --recreate` makes targets anew in a shadow, which replaces them when it is proven."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.beside import beside
from tests.integration.support.crashing import Command, crash, reopen, staging_tables

pytestmark = pytest.mark.integration

SCHEMAS = {"sqlserver": "dbo", "clickhouse": "warehouse", "postgres": "copies"}
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, code int NOT NULL)",
    "INSERT INTO {t} SELECT i, i FROM generate_series(1, 30) i",
)
RETYPED = "ALTER TABLE {t} ALTER code TYPE text USING 'c' || code"


def codes(one: Ferry, system: str, schema: str) -> set[str]:
    """The codes that a target shows."""
    server = one.session.servers.endpoints[system]
    return {str(code) for (code,) in server.query(f"SELECT code FROM {schema}.{one.table}")}


OLD, NEW = ({f"{prefix}{i}" for i in range(1, 31)} for prefix in ("", "c"))


@pytest.mark.parametrize("system", SCHEMAS)
def test_a_type_that_cannot_be_altered_is_moved_into_a_new_table(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    schema = copies if system == "postgres" else SCHEMAS[system]
    one = ferry(f"['{system}://{schema}.{{t}}']", *TABLE, ranges="{bounds: [10, 20]}")
    assert one.run().good
    one.source(RETYPED)
    refused = one.run()
    assert "`ferry run --recreate`" in "".join(refused.errors)
    assert codes(one, system, schema) == OLD
    anew = one.run(recreate=True)
    assert anew.good, anew.errors
    assert codes(one, system, schema) == NEW
    assert {range_.state for range_ in one.plan().ranges} == {"skip"}, "the file says the same"
    assert one.run().good


def test_a_chain_is_made_anew_hop_after_hop(ferry: Callable[..., Ferry]) -> None:
    one = ferry(CHAIN, *TABLE)
    assert one.run().good
    one.source(RETYPED)
    anew = one.run(recreate=True)
    assert anew.good, anew.errors
    assert codes(one, "sqlserver", "dbo") == codes(one, "clickhouse", "warehouse") == NEW
    assert {range_.state for range_ in one.plan().ranges} == {"skip"}


def test_another_sorting_key_and_engine_are_applied(ferry: Callable[..., Ferry]) -> None:
    hop = "['clickhouse://warehouse.{t}']"
    one = ferry(hop, *TABLE)
    assert one.run().good
    changed = (
        "[{{to: 'clickhouse://warehouse.{t}', order_by: [code, id],"
        " engine: ReplacingMergeTree, partition_by: 'intDiv(id, 10)'}}]"
    )
    one.declare(changed)
    assert one.run().good, "as it was, with a note"
    assert any("--recreate" in note for note in one.plan().notes), one.plan().notes
    anew = one.run(recreate=True)
    assert anew.good, anew.errors
    ((engine, sorting, partition),) = looking.ask_clickhouse(
        one.stack.clickhouse_url,
        "SELECT engine, sorting_key, partition_key FROM system.tables"
        f" WHERE database = 'warehouse' AND name = '{one.table}'",
    )
    assert (engine, sorting, partition) == ("ReplacingMergeTree", "code, id", "intDiv(id, 10)")
    assert not any("--recreate" in note for note in one.plan().notes)


@pytest.mark.parametrize("point", ["after_audit", "after_shadowed", "before_swap", "after_swap"])
def test_readers_see_the_old_table_or_the_new_one(
    ferry: Callable[..., Ferry], tmp_path: Path, point: str
) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{bounds: [10, 20]}")
    assert one.run().good
    one.source(RETYPED)
    seen: list[set[str]] = []

    def read() -> None:
        for system, schema in (("sqlserver", "dbo"), ("clickhouse", "warehouse")):
            seen.append(codes(one, system, schema))

    with beside(read):
        crash(Command(tmp_path), one.table, point, "--recreate")
        reopen(one)
        anew = one.run(recreate=True)
    assert anew.good, anew.errors
    assert all(codes in (OLD, NEW) for codes in seen)
    assert codes(one, "sqlserver", "dbo") == codes(one, "clickhouse", "warehouse") == NEW
    for system in ("sqlserver", "clickhouse"):
        assert staging_tables(one, system) == []


def test_what_it_is_not_for(ferry: Callable[..., Ferry]) -> None:
    one = ferry(CHAIN, *TABLE)
    arguments = ["run", one.table, "--recreate", "--failed"]
    refused = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert refused.exit_code == 2 and "whole tables" in refused.stderr
    assert one.run().good
    shown = CliRunner().invoke(main, ["run", one.table, "--recreate", "--dry-run"])
    assert shown.exit_code == 0 and "__ferry_shadow" in shown.stdout, shown.output
