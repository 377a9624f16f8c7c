"""What fails its audit is never seen: readers keep the old rows, here and in later hops."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Differences
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.session import open_session
from tableferry.resources.contract.table_sql import qualified
from tests.integration.conftest import Ferry, by_range
from tests.integration.support import looking
from tests.integration.support.crashing import rows_of, staging_tables
from tests.integration.support.proxy import Corrupts

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
SCHEMAS = {"clickhouse": "warehouse", "sqlserver": "dbo"}
URLS = {"clickhouse": "TABLEFERRY_CLICKHOUSE_URL", "sqlserver": "TABLEFERRY_SQLSERVER_URL"}
MODES = ("replace", "append", "upsert", "swap")
LAST = "0000000101..0000002001"
NOT_NEGATIVE = (
    "[{type: expect_column_values_to_be_between, "
    "kwargs: {column: amount, min_value: 0, max_value: 1000}}]"
)


def moved(ferry: Make, hops: str, mode: str, **settings: str) -> Ferry:
    """A transfer of three ranges that are committed."""
    one = ferry(
        hops,
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
        "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 FROM generate_series(1, 200) g",
        ranges="{bounds: [101, 2001]}",
        **{"write": mode, **settings},
    )
    first = one.run()
    assert first.good, first.errors
    return one


def hop(system: str) -> str:
    return f"'{system}://{SCHEMAS[system]}.{{t}}'"


@contextmanager
def corrupted(one: Ferry, system: str) -> Iterator[Corrupts]:
    """Let the command reach a server through a wire that changes one letter of the new rows."""
    text, url = "utf-8", os.environ[URLS[system]]
    if system == "sqlserver":
        text, url = "utf-16-le", looking.unencrypted(url)
    with (
        Corrupts(url, "fresh 1".encode(text), "frosh 1".encode(text)) as proxy,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(URLS[system], proxy.url)
        one.session = open_session()
        yield proxy
    one.session = open_session()


def add_rows(one: Ferry) -> None:
    one.source("INSERT INTO {t} SELECT g, 'fresh ' || g, 1 FROM generate_series(1001, 1040) g")


@pytest.mark.invariant("I2")
@pytest.mark.parametrize("system", SCHEMAS)
@pytest.mark.parametrize("mode", MODES)
def test_rows_that_break_an_expectation_are_not_seen(ferry: Make, system: str, mode: str) -> None:
    one = moved(ferry, f"[{hop(system)}]", mode, expectations=NOT_NEGATIVE)
    old = rows_of(one, system)
    one.source("INSERT INTO {t} VALUES (1000, 'bad', -1)")

    failed = one.run()
    assert not failed.good
    assert "between" in str(by_range(failed)[LAST].error)
    assert rows_of(one, system) == old
    assert len(staging_tables(one, system)) == 1 + (mode == "swap"), "kept, besides the shadow"

    one.source("UPDATE {t} SET amount = 1 WHERE id = 1000")
    again = one.run()
    assert again.good, again.errors
    assert rows_of(one, system) == rows_of(one, "postgres")
    assert staging_tables(one, system) == [], "the next attempt has dropped what was kept"


@pytest.mark.invariant("I2")
@pytest.mark.parametrize("system", SCHEMAS)
@pytest.mark.parametrize("mode", ["replace", "swap"])
def test_rows_that_were_damaged_on_the_wire_are_not_seen(
    ferry: Make, system: str, mode: str
) -> None:
    """`append` and `upsert` stage a range as `replace` does."""
    one = moved(ferry, f"[{hop(system)}]", mode)
    old = rows_of(one, system)
    add_rows(one)

    with corrupted(one, system) as proxy:
        failed = one.run()
        assert proxy.changed
    assert not failed.good
    assert "checksum" in str(by_range(failed)[LAST].error)
    assert rows_of(one, system) == old

    ((shown, differences),) = runner.differences(one.session, one.table, LAST).items()
    assert "rejected" in shown
    assert differences.different and not differences.missing_in_target
    assert {one.column for one in differences.examples} == {"name"}
    assert differences.examples[0].source == "fresh 1001"
    assert differences.examples[0].target == "frosh 1001"
    (published,) = runner.differences(one.session, one.table, LAST, published=True).values()
    assert published.missing_in_target == 40 and not published.different

    assert len(runner.clean(one.session, [one.table])) == 1
    assert len(staging_tables(one, system)) == (mode == "swap")
    again = one.run()
    assert again.good, again.errors
    assert rows_of(one, system) == rows_of(one, "postgres")


def test_a_run_of_other_ranges_leaves_what_was_rejected(ferry: Make) -> None:
    one = moved(ferry, f"[{hop('clickhouse')}]", "replace", expectations=NOT_NEGATIVE)
    one.source("INSERT INTO {t} VALUES (1000, 'bad', -1)")
    assert not one.run().good
    kept = staging_tables(one, "clickhouse")
    other = one.run(ranges=["..0000000101"], force=True)
    assert by_range(other)["..0000000101"].state == "committed"
    assert staging_tables(one, "clickhouse") == kept


@pytest.mark.invariant("I13")
def test_damage_in_the_first_hop_reaches_no_later_one(ferry: Make) -> None:
    one = moved(ferry, f"[{hop('sqlserver')}, {hop('clickhouse')}]", "replace")
    old = rows_of(one, "sqlserver"), rows_of(one, "clickhouse")
    add_rows(one)
    with corrupted(one, "sqlserver"):
        assert not one.run().good
    assert (rows_of(one, "sqlserver"), rows_of(one, "clickhouse")) == old

    again = one.run()
    assert again.good, again.errors
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_a_check_that_does_not_block_lets_the_rows_through(ferry: Make) -> None:
    one = moved(
        ferry,
        f"[{hop('clickhouse')}]",
        "replace",
        expectations=NOT_NEGATIVE,
        checks="{expectations: {severity: warn, blocking: false}}",
    )
    one.source("INSERT INTO {t} VALUES (1000, 'odd', -1)")
    one.run()
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert staging_tables(one, "clickhouse") == []


def test_a_suite_file_is_run_on_each_range(ferry: Make) -> None:
    suite = {
        "name": "amounts",
        "expectations": [
            {
                "type": "expect_column_values_to_be_between",
                "kwargs": {"column": "amount", "min_value": 0.0, "strict_min": False},
                "severity": "critical",
                "meta": {"ticket": 7},
            }
        ],
        "meta": {"great_expectations_version": "1.24.1"},
    }
    one = moved(ferry, f"[{hop('clickhouse')}]", "replace")
    (one.folder / "amounts.json").write_text(json.dumps(suite))
    one.declare(
        f"[{hop('clickhouse')}]",
        ranges="{bounds: [101, 2001]}",
        expectations="{suite: amounts.json}",
    )
    old = rows_of(one, "clickhouse")
    one.source("INSERT INTO {t} VALUES (1000, 'bad', -1)")
    assert not one.run().good
    assert rows_of(one, "clickhouse") == old
    target = dg.AssetKey(["clickhouse", "warehouse", one.table])
    history = one.session.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(target, "expectations"), limit=10
    )
    evaluations = [check.evaluation for check in history if check.evaluation]
    (failed,) = [item for item in evaluations if item.partition == LAST]
    whole: Any = failed.metadata["great_expectations"].value
    (result,) = [item for item in whole["results"] if not item["success"]]
    assert result["expectation_config"]["meta"] == {"ticket": 7}
    assert result["result"]["unexpected_count"] == 1

    (one.folder / "amounts.json").write_text("{")
    refused = CliRunner().invoke(main, ["validate", one.table])
    assert refused.exit_code == 2 and "amounts.json:1: should be JSON" in refused.output


def test_a_table_that_is_partitioned_otherwise_keeps_its_rows_too(ferry: Make) -> None:
    foreign = f"{{{{to: {hop('clickhouse')}, partition_by: 'id % 3'}}}}"
    one = moved(ferry, f"[{foreign}]", "append")
    old = rows_of(one, "clickhouse")
    add_rows(one)
    with corrupted(one, "clickhouse"):
        assert not one.run().good
    assert rows_of(one, "clickhouse") == old
    again = one.run()
    assert again.good, again.errors
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_an_audit_whose_rows_cannot_be_shown_is_recorded_as_failed(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = moved(ferry, f"[{hop('clickhouse')}]", "replace")
    old = rows_of(one, "clickhouse")
    add_rows(one)

    def look(comparison: Comparison) -> Differences:
        staged = qualified(comparison.plan.target)
        away = f"{staged.removesuffix('`')}_away`"
        execute = one.session.servers.endpoints["clickhouse"].execute
        execute(f"RENAME TABLE {staged} TO {away}")
        try:
            return search(comparison)
        finally:
            execute(f"RENAME TABLE {away} TO {staged}")

    search = Comparison.search
    with corrupted(one, "clickhouse"), monkeypatch.context() as patch:
        patch.setattr(Comparison, "search", look)
        failed = one.run()
    assert not failed.good
    error = str(by_range(failed)[LAST].error)
    assert "checksum FAILED" in error and "which rows differ cannot be shown" in error
    assert rows_of(one, "clickhouse") == old
    assert not runner.status(one.session, one.table).good
    assert one.run().good
