"""What a failed swap leaves is no copy of a target that has been altered since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tableferry.assets.planning.resolve import resolve_hops
from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.crashing import Command, crash, reopen

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
SCHEMAS = {"sqlserver": "dbo", "clickhouse": "warehouse", "postgres": ""}
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, old text, small smallint)",
    "INSERT INTO {t} SELECT i, 'o' || i, i FROM generate_series(1, 30) i",
)
RANGES = "{bounds: [1, 11, 21]}"
DRIFTS = {
    "adds": ({"on_schema_drift": "add_columns"}, "ALTER TABLE {t} ADD more int DEFAULT 7"),
    "widens": ({"on_schema_drift": "evolve"}, "ALTER TABLE {t} ALTER small TYPE int"),
    "renames": ({"columns": "{fresh: {was: old}}"}, "ALTER TABLE {t} RENAME old TO fresh"),
}
GIVEN = {
    "an index": "CREATE INDEX given_{name} ON {t} (small)",
    "a check": "ALTER TABLE {t} ADD CONSTRAINT given CHECK (small > 0)",
    "a default": "ALTER TABLE {t} ALTER small SET DEFAULT 5",
}
HAS = {
    "an index": "SELECT count(*) FROM pg_indexes WHERE schemaname || '.' || tablename = '{t}'"
    " AND indexdef LIKE '%(small)'",
    "a check": "SELECT count(*) FROM pg_constraint WHERE conrelid = '{t}'::regclass"
    " AND contype = 'c'",
    "a default": "SELECT count(*) FROM pg_attrdef WHERE adrelid = '{t}'::regclass",
}


def half_swapped(ferry: Make, hop: str, tmp_path: Path, ranges: int = 1) -> Ferry:
    """A transfer whose run was killed: its target, and a shadow with the first of four ranges."""
    one = ferry(hop, *TABLE, write="swap", ranges=RANGES)
    assert one.run().good
    one.source("UPDATE {t} SET old = old || 'x'")
    crash(Command(tmp_path), one.table, f"after_shadowed:{ranges}")
    reopen(one)
    return one


@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("system", SCHEMAS)
def test_a_target_that_is_altered_since(
    ferry: Make, copies: str, tmp_path: Path, system: str, drift: str
) -> None:
    hop = f"['{system}://{SCHEMAS[system] or copies}.{{t}}']"
    one = half_swapped(ferry, hop, tmp_path)
    settings, statement = DRIFTS[drift]
    one.source(statement)
    one.declare(hop, write="swap", ranges=RANGES, **settings)
    view = one.run()
    assert view.good, view.errors
    table = one.session.transfer(one.table).hops[0].to
    server = one.session.servers.endpoint(table)
    columns = {"adds": "id, old, small, more", "widens": "id, old, small", "renames": "id, fresh"}
    select = f"SELECT {columns[drift]} FROM {{}} ORDER BY id"
    rows = server.query(select.format(f"{SCHEMAS[system] or copies}.{one.table}"))
    assert rows == one.rows(select.format("{t}"))
    assert one.run().good and {each.state for each in one.plan().ranges} == {"skip"}


@pytest.mark.parametrize("given", GIVEN)
def test_what_a_postgres_target_is_given_since(
    ferry: Make, copies: str, tmp_path: Path, given: str
) -> None:
    one = half_swapped(ferry, f"['postgres://{copies}.{{t}}']", tmp_path)
    table = f"{copies}.{one.table}"
    looking.ask_postgres(one.stack.postgres_url, GIVEN[given].format(t=table, name=one.table))
    view = one.run()
    assert view.good, view.errors
    assert one.rows(HAS[given].format(t=table)) == [(1,)]


def test_what_somebody_has_changed_in_a_shadow_is_gathered_again(
    ferry: Make, copies: str, tmp_path: Path
) -> None:
    one = half_swapped(ferry, f"['postgres://{copies}.{{t}}']", tmp_path, ranges=2)
    (hop,) = resolve_hops(one.session.transfer(one.table), one.session.servers)
    shadow = hop.written_plan.target
    server = one.session.servers.endpoint(shadow)
    server.execute(f'UPDATE {shadow.schema}."{shadow.name}" SET small = -1')
    assert "checksum FAILED" in str(one.run().errors)
    view = one.run()
    assert view.good, view.errors


@pytest.mark.parametrize("point", ["after_shadowed:2", "before_swap", "after_swap", "after_event"])
def test_what_on_overflow_changed_is_told_after_a_kill(
    ferry: Make, copies: str, tmp_path: Path, point: str
) -> None:
    narrow = "{small: {type: smallint, on_overflow: clamp}}"
    hop = f"['postgres://{copies}.{{t}}']"
    one = ferry(
        hop,
        TABLE[0].replace("smallint", "int"),
        *TABLE[1:],
        "UPDATE {t} SET small = 99999 WHERE id IN (5, 15, 25)",
        write="swap",
        ranges=RANGES,
        columns=narrow,
    )
    first = one.run()
    told = f"postgres://{copies}.{one.table}: values changed by on_overflow: 3 of small"
    assert told in first.notes
    one.source("UPDATE {t} SET old = old || 'x'")
    one.session.instance.dispose()
    crash(Command(tmp_path), one.table, point)
    reopen(one)
    view = one.run()
    assert view.good and told in view.notes, view.notes
    assert told in runner.status(one.session, one.table).notes


@pytest.mark.parametrize("system", SCHEMAS)
def test_a_shadow_of_the_target_as_it_is_goes_on(
    ferry: Make, copies: str, tmp_path: Path, system: str
) -> None:
    one = half_swapped(ferry, f"['{system}://{SCHEMAS[system] or copies}.{{t}}']", tmp_path)
    planned = {each.reason for each in one.plan().ranges}
    assert "shadowed" in planned, planned
    table = one.session.transfer(one.table).hops[0].to
    one.session.servers.endpoint(table).execute(
        f"ALTER TABLE {SCHEMAS[system] or copies}.{one.table} "
        f"ADD {'' if system == 'sqlserver' else 'COLUMN '}theirs int"
    )
    if system != "sqlserver":
        assert "shadowed" not in {each.reason for each in one.plan().ranges}
