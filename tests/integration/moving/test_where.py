"""A row filter: what it lets through is the table, for planning, moving, proving and the report."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tableferry.checks.levels import Level
from tableferry.pipelines.command.one import runner
from tableferry.resources.errors import InputError
from tests.integration.conftest import Ferry
from tests.integration.support import looking

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text, made date NOT NULL)",
    "INSERT INTO {t} SELECT g, 'row ' || g, date '2019-12-01' + g FROM generate_series(1, 100) g",
)
WHERE = "\"made >= '2020-01-01' AND name LIKE '%row%' -- 'of this year\""
"""The rows from id 31 on."""
CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
DIRECT = "['clickhouse://warehouse.{t}']"


def keys(one: Ferry) -> list[int]:
    rows = looking.ask_clickhouse(
        one.stack.clickhouse_url, f"SELECT id FROM warehouse.{one.table} ORDER BY id"
    )
    return [int(key) for (key,) in rows]


def failed(one: Ferry, level: Level | None = None) -> set[str]:
    found = runner.check(one.session, one.table, level=level)
    assert "total_rows" in {check.verdict.check for check in found.checks}
    return {check.verdict.check for check in found.checks if check.failed}


def test_only_the_rows_of_a_filter_are_moved_and_proven(ferry: Make) -> None:
    one = ferry(CHAIN, *TABLE, where=WHERE, ranges="{rows: 25}")
    first = one.run()
    assert first.good, first.errors
    assert keys(one) == list(range(31, 101))
    assert sum(view.rows for view in first.ranges if view.hop == 2) == 70
    assert len({view.range for view in first.ranges}) == 4, "cut by the rows that there are"
    for level in ("checksum", "sample_hash", "full_hash"):
        assert not failed(one, level)

    one.source("UPDATE {t} SET name = 'row, changed' WHERE id = 5")
    assert not one.run().run_ids, "a row that is filtered out has changed"
    one.source(
        "UPDATE {t} SET made = '2019-01-01' WHERE id = 60",
        "UPDATE {t} SET made = '2021-01-01' WHERE id = 5",
    )
    again = one.run()
    assert again.good and len(one.moved(again)) == 2
    assert keys(one) == [5, *(key for key in range(31, 101) if key != 60)]


def test_a_row_beyond_the_filter_is_a_damage(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, where=WHERE, ranges="{rows: 50}")
    assert one.run().good
    target = one.session.servers.endpoints["clickhouse"]
    target.execute(f"INSERT INTO warehouse.{one.table} VALUES (7, 'row 7', '2019-12-08')")
    assert failed(one) >= {"row_count", "checksum", "total_rows"}
    first = one.plan().ranges[0].range
    (found,) = runner.differences(one.session, one.table, first).values()
    assert [example.key for example in found.examples] == ["7"]
    assert one.run().good
    assert keys(one) == list(range(31, 101))


def test_another_filter_moves_the_ranges_again(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE, where="id <= 20", fingerprint="none", ranges="{count: 2}")
    assert one.run().good
    one.declare(DIRECT, where="id <= 10", fingerprint="none", ranges="{count: 2}")
    again = one.run()
    assert again.good, again.errors
    assert keys(one) == list(range(1, 11))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nothing = 1", 'column "nothing" does not exist'),
        ("id =", "syntax error"),
        ("1 = 1) OR (1 = 1", "parentheses do not match"),
    ],
)
def test_what_is_no_condition_is_refused_by_name(ferry: Make, where: str, said: str) -> None:
    one = ferry(DIRECT, *TABLE, where=f'"{where}"')
    with pytest.raises(InputError, match="where: ") as caught:
        one.run()
    assert said in str(caught.value)
    assert one.table in str(caught.value) and where in str(caught.value)


@pytest.mark.parametrize("system", ["postgres", "sqlserver"])
def test_what_ends_the_query_that_it_is_asked_in_writes_nothing(ferry: Make, system: str) -> None:
    one = ferry(DIRECT, *TABLE)
    table = {"postgres": "public", "sqlserver": "dbo"}[system] + f".{one.table}"
    server = one.session.servers.endpoints[system]
    if system == "sqlserver":
        server.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        server.execute(f"INSERT INTO {table} VALUES (1)")
    (before,) = server.query(f"SELECT COUNT(*) FROM {table}")
    try:
        for end in (
            "1 = 1); DELETE FROM {t}; SELECT 1 WHERE (1 = 1",
            "1 = 1) DELETE FROM {t} WHERE (1 = 1",
        ):
            where = end.format(t=table)
            one.declare(DIRECT, source=f"{system}://{table}", where=f'"{where}"')
            with pytest.raises(InputError, match=r"where: .* is not a valid condition"):
                one.plan()
            assert server.query(f"SELECT COUNT(*) FROM {table}") == [before], where
    finally:
        if system == "sqlserver":
            server.execute(f"DROP TABLE {table}")


@pytest.mark.parametrize("wire", ["arrow", "text"])
def test_the_filter_is_in_the_words_of_its_source(ferry: Make, wire: str) -> None:
    hop = f"[{{{{to: 'clickhouse://warehouse.{{t}}', wire: {wire}}}}}]"
    one = ferry(hop)
    source = f"dbo.{one.table}"
    server = one.session.servers.endpoints["sqlserver"]
    server.execute(f"CREATE TABLE {source} (id int PRIMARY KEY, name nvarchar(9), made date)")
    try:
        rows = ", ".join(f"({n}, N'row {n}', '2024-0{1 + n % 3}-01')" for n in range(30))
        server.execute(f"INSERT INTO {source} VALUES {rows}")
        one.declare(
            hop,
            source=f"sqlserver://{source}",
            where="\"DATEPART(month, made) = 2 AND name <> N'x%'\"",
            ranges="{count: 3}",
        )
        view = one.run()
        assert view.good, view.errors
        assert keys(one) == list(range(1, 30, 3))
    finally:
        server.execute(f"DROP TABLE {source}")


def test_a_view_that_computes_is_a_source(ferry: Make) -> None:
    one = ferry(DIRECT, *TABLE)
    view = f"{one.table}_v"
    one.source(
        f"CREATE VIEW {view} AS SELECT id, upper(name) AS name, made + 1 AS day FROM {{t}} "
        "WHERE id > 90"
    )
    try:
        one.declare(DIRECT, source=f"postgres://public.{view}", ranges="{count: 2}")
        assert one.run().good
        assert keys(one) == list(range(91, 101))
        assert not failed(one)
        assert not one.run().run_ids
    finally:
        one.source(f"DROP VIEW {view}")
