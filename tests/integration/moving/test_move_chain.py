"""PostgreSQL to SQL Server to ClickHouse as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry, by_range

pytestmark = pytest.mark.integration

CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
    "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 FROM generate_series(1, 400) g",
)
SELECT = "SELECT id, name, amount FROM {t} ORDER BY id"
Make = Callable[..., Ferry]


def both(ferry: Ferry) -> list[list[tuple[Any, ...]]]:
    """The rows of SQL Server and of ClickHouse."""
    servers = ferry.session.servers
    query = "SELECT id, name, amount FROM {schema}.{t} ORDER BY id"
    return [
        [
            tuple(row)
            for row in servers.endpoints["sqlserver"].query(
                query.format(schema="dbo", t=ferry.table)
            )
        ],
        [
            tuple(row)
            for row in servers.endpoints["clickhouse"].query(
                query.format(schema="warehouse", t=ferry.table)
            )
        ],
    ]


def test_rows_cross_three_databases_and_follow_a_change(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 100}")
    view = one.run()
    assert view.good, view.errors
    assert both(one) == [one.rows(SELECT)] * 2
    again = one.run()
    assert again.good and one.moved(again) == []
    one.source(
        "UPDATE {t} SET name = '' WHERE id = 150",
        "UPDATE {t} SET name = NULL WHERE id = 151",
        "DELETE FROM {t} WHERE id = 152",
    )
    changed = one.run()
    assert changed.good, changed.errors
    assert len(one.moved(changed)) == 1
    assert both(one) == [one.rows(SELECT)] * 2
    counts = [
        sorted(one.materializations(*target).values())
        for target in (("sqlserver", "dbo"), ("clickhouse", "warehouse"))
    ]
    assert counts == [[1, 1, 1, 1, 2]] * 2


def test_one_hop_alone_needs_the_hop_before_it(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 200}")
    early = one.run(hop=2)
    assert not early.good
    assert "run hop 1 first" in early.errors[0]
    assert one.run(hop=1).good
    assert {view.state for view in one.plan().ranges if view.hop == 2} == {"run"}
    assert one.run(hop=2).good
    assert both(one) == [one.rows(SELECT)] * 2


@pytest.mark.invariant("I13", "I14")
def test_a_value_refused_in_the_first_hop_goes_no_further(ferry: Make) -> None:
    one = ferry(
        CHAIN,
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount double precision NOT NULL)",
        "INSERT INTO {t} SELECT g, 'x', g FROM generate_series(1, 100) g",
        "UPDATE {t} SET amount = 'NaN' WHERE id = 60",
        ranges="{rows: 25}",
    )
    view = one.run()
    failed = [row for row in view.ranges if row.state == "failed"]
    assert [(row.hop, row.range) for row in failed] == [(1, "0000000051..0000000076")]
    assert "'amount'" in str(failed[0].error) and "60" in str(failed[0].error)
    assert by_range(view, hop=2)["0000000051..0000000076"].state == "missing"
    assert all(len(rows) == 75 for rows in both(one))


@pytest.mark.parametrize("write", ["append", "upsert", "swap"])
def test_the_other_write_modes(ferry: Make, write: str) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 200}", write=write)
    first = one.run()
    assert first.good, first.errors
    assert both(one) == [one.rows(SELECT)] * 2
    one.source("INSERT INTO {t} VALUES (401, 'new', 0)")
    second = one.run()
    assert second.good, second.errors
    assert both(one) == [one.rows(SELECT)] * 2


def test_damage_to_the_middle_table_is_found_and_mended(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, ranges="{rows: 200}")
    assert one.run().good
    one.session.servers.endpoints["sqlserver"].execute(
        f"UPDATE dbo.{one.table} SET amount = amount + 0.01 WHERE id = 7"
    )
    bad = [
        check for check in runner.check(one.session, one.table).checks if not check.verdict.passed
    ]
    assert {(check.hop.number, check.range) for check in bad} == {
        (1, "..0000000201"),
        (2, "..0000000201"),
    }
    assert one.run().good
    assert both(one) == [one.rows(SELECT)] * 2


def test_names_and_values_that_need_care_cross_both_hops(ferry: Make) -> None:
    one = ferry(
        CHAIN,
        'CREATE TABLE {t} (id integer PRIMARY KEY, "order" text, "größe []`" varchar(20), '
        '"Two Words" timestamp)',
        "INSERT INTO {t} VALUES (1, E'tab\\tline\\nback\\\\slash', ' ', '0001-01-01'), "
        "(2, '', '😀', '9999-12-31 23:59:59.999999'), (3, NULL, '', NULL)",
        reconcile="full_hash",
    )
    view = one.run()
    assert view.good, view.errors
    servers = one.session.servers
    quoted = (
        'SELECT id, "order", "größe []`", CAST("Two Words" AS varchar(30)) '
        f"FROM dbo.{one.table} ORDER BY id"
    )
    assert [tuple(row)[:3] for row in servers.endpoints["sqlserver"].query(quoted)] == [
        (1, "tab\tline\nback\\slash", " "),
        (2, "", "😀"),
        (3, None, ""),
    ]


def test_a_server_that_goes_away_ends_in_one_line(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(CHAIN, *TABLE)
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", "mssql://reader:wrong@127.0.0.1:1/db?encrypt=no")
    one.declare(CHAIN)
    found = CliRunner().invoke(main, ["run", one.table])
    assert found.exit_code == 2
    (line,) = found.stderr.splitlines()
    assert line.startswith("ferry: ") and "127.0.0.1:1" in line
    assert "wrong" not in line
