"""bpchar without a length, which holds a text of any length, with its trailing blanks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support import looking

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
LIST = {"postgres": "array_to_string(list, '|')", "clickhouse": "arrayStringConcat(list, '|')"}


def shown(one: Ferry, system: str, schema: str) -> list[tuple[Any, ...]]:
    sql = f"SELECT id, spec, own, {LIST.get(system, 'list')} FROM {schema}.{one.table}"
    return sorted(map(tuple, looking.ask(one.stack, system, sql)))


@pytest.mark.parametrize(
    ("system", "level", "settings"),
    [
        ("clickhouse", "count", {}),
        ("clickhouse", "checksum", {}),
        ("clickhouse", "full_hash", {}),
        ("clickhouse", "sample_hash", {}),
        ("postgres", "checksum", {}),
        ("postgres", "full_hash", {"columns": "{spec: {type: text}, own: {type: text}}"}),
        ("sqlserver", "checksum", {}),
        ("sqlserver", "checksum", {"columns": "{spec: {type: 'nvarchar(9)', on_overflow: clamp}}"}),
    ],
)
def test_all_of_it_is_moved_proven_and_looked_at(
    ferry: Make, copies: str, system: str, level: str, settings: dict[str, Any]
) -> None:
    schema = {"postgres": copies, "clickhouse": "warehouse"}.get(system, "dbo")
    item, kept = (
        ("bpchar[]", "ARRAY['abc1', 'abc2 ', NULL]") if system in LIST else ("bpchar", "'x '")
    )
    one = ferry(
        f"['{system}://{schema}.{{t}}']",
        f"CREATE DOMAIN {schema_of('{t}')} AS bpchar",
        f"CREATE TABLE {{t}} (id integer PRIMARY KEY, spec bpchar, own {schema_of('{t}')}, "
        f"list {item})",
        f"INSERT INTO {{t}} SELECT g, 'abc' || g, 'def' || g, {kept} FROM generate_series(1, 50) g",
        "UPDATE {t} SET spec = 'abc  ', own = '' WHERE id = 7",
        reconcile=level,
        **settings,
    )
    try:
        view = one.run()
        assert view.good, view.errors
        one.source(
            "UPDATE {t} SET spec = 'aCHANGED' WHERE id = 5",
            "UPDATE {t} SET own = 'dCHANGED' WHERE id = 6",
            # which is the same text to PostgreSQL
            "UPDATE {t} SET spec = 'abc9 ' WHERE id = 9",
        )
        view = one.run()
        assert view.good and one.moved(view), view.errors
        rows = {row[0]: row for row in shown(one, system, schema)}
        assert (rows[5][1], rows[6][2]) == ("aCHANGED", "dCHANGED")
        assert (rows[7][1], rows[9][1].rstrip()) == ("abc  ", "abc9")
        checked = runner.check(one.session, one.table)
        assert checked.good, checked.errors
        assert not one.moved(one.run())
    finally:
        one.source("DROP TABLE {t}", f"DROP DOMAIN {schema_of('{t}')}")


def schema_of(table: str) -> str:
    """The name of the test's domain."""
    return f"{table}_own"
