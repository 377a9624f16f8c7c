"""Where a large range has changed is known by the segments of its keys, without another scan."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tableferry.pipelines.command.one import runner
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.digest.fingerprinting import SourceReading, fingerprints
from tableferry.resources.digest.stretches import changed_segments
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.resources.tables import TableRef
from tests.chance import chance
from tests.integration.conftest import Ferry
from tests.integration.moving.test_delta import figures, records
from tests.integration.support import looking
from tests.integration.support.beside import until
from tests.integration.support.crashing import Command
from tests.servers import own

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]

FIRST, SECOND = "-v4999:-5000..10000", "0000010000..0000025001"
ROWS = "SELECT id, name FROM {t} ORDER BY id"


def declared(ferry: Make, hops: str) -> Ferry:
    return ferry(
        hops,
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
        "INSERT INTO {t} SELECT n, 'name ' || n FROM generate_series(-5000, 24999) n",
        ranges="{bounds: [-5000, 10000, 25001]}",
        fingerprint="content",
        delta="always",
    )


def made(ferry: Make, hops: str) -> Ferry:
    one = declared(ferry, hops)
    assert one.run().good
    return one


def there(one: Ferry, system: str, schema: str, sql: str = ROWS) -> list[looking.Row]:
    return looking.ask(one.stack, system, sql.replace("{t}", f"{schema}.{one.table}"))


def damage(one: Ferry, system: str, schema: str, key: int) -> None:
    update = f"UPDATE {{t}} SET name = 'planted' WHERE id = {key}"
    if system == "clickhouse":
        update = f"ALTER TABLE {{t}} UPDATE name = 'planted' WHERE id = {key}"
        update += " SETTINGS mutations_sync = 2"
    looking.run(one.stack, system, update.replace("{t}", f"{schema}.{one.table}"))


@pytest.mark.parametrize("system", ["postgres", "sqlserver", "clickhouse"])
def test_only_changed_segments_are_compared(ferry: Make, copies: str, system: str) -> None:
    """And what others have done to the rest of the range is found all the same, by its proof."""
    schema = {"postgres": copies, "sqlserver": "dbo", "clickhouse": "warehouse"}[system]
    one = made(ferry, f"['{system}://{schema}.{{t}}']")
    one.source(
        "UPDATE {t} SET name = 'new' WHERE id IN (-5000, 7, 24999)",
        "DELETE FROM {t} WHERE id IN (-3000, 9999)",
        "DELETE FROM {t} WHERE id = 20000",
        "INSERT INTO {t} VALUES (25000, 'added')",
    )
    plan = {each.range: each for each in runner.plan(one.session, one.table).ranges}
    keys = {name: [part for part in plan[name].decision.changed] for name in (FIRST, SECOND)}
    for name, changed in ((FIRST, (-5000, -3000, 7, 9999)), (SECOND, (20000, 24999, 25000))):
        assert all(any(part.contains(key) for part in keys[name]) for key in changed)
        assert sum(int(str(part.upper)) - int(str(part.lower)) for part in keys[name]) < 500
    assert one.run().good
    assert there(one, system, schema) == one.rows(ROWS)
    assert figures(records(one)[FIRST]) == (14998, 0, 2, 2)
    assert figures(records(one)[SECOND]) == (15000, 1, 1, 1)

    damage(one, system, schema, 5000)
    one.source("UPDATE {t} SET name = 'newer' WHERE id = 7")
    assert one.run().good
    assert there(one, system, schema) == one.rows(ROWS)
    assert figures(records(one)[FIRST]) == (14998, 0, 2, 0)
    assert records(one)[FIRST].whole_because is None
    # what has become known of the segments is kept by runs that find nothing to do
    assert one.run().good
    one.source("UPDATE {t} SET name = 'newest' WHERE id = 7")
    assert {each.range for each in one.plan().ranges if each.decision.changed} == {FIRST}
    assert one.run().good
    assert figures(records(one)[FIRST]) == (14998, 0, 1, 0)


@pytest.mark.parametrize("system", ["postgres", "sqlserver"])
def test_random_changes_at_both_ends_are_followed(ferry: Make, copies: str, system: str) -> None:
    schema = {"postgres": copies, "sqlserver": "dbo"}[system]
    one = made(ferry, f"['{system}://{schema}.{{t}}']")
    numbers = chance("changes at both ends", system)
    for turn in range(4):
        first, second, third = (
            ", ".join(str(numbers.randrange(-6000, 26000)) for _ in range(numbers.randrange(1, 6)))
            for _ in range(3)
        )
        one.source(
            f"UPDATE {{t}} SET name = 'turn {turn}' WHERE id IN ({first})",
            f"DELETE FROM {{t}} WHERE id IN ({second})",
            f"INSERT INTO {{t}} SELECT id, 'new' FROM unnest(ARRAY[{third}]) AS new (id) "
            "ON CONFLICT DO NOTHING",
            # a row whose key changes its range
            f"UPDATE {{t}} SET id = {40000 + turn} WHERE id = (SELECT min(id) FROM {{t}})",
        )
        if numbers.random() < 0.5:
            # a run looks at a target where the source has changed
            lower, upper = numbers.choice([(-5000, 10000), (10000, 25000)])
            last = f"SELECT max(id) FROM {{t}} WHERE id < {upper}"
            one.source(f"UPDATE {{t}} SET name = 'last of {turn}' WHERE id = ({last})")
            damage(one, system, schema, numbers.randrange(lower, upper))
        view = one.run()
        assert view.good, view.errors
        assert there(one, system, schema) == one.rows(ROWS)
        assert runner.check(one.session, one.table, level="full_hash").good


def test_the_source_is_read_once_but_for_what_changed(
    ferry: Make, copies: str, tmp_path: Path
) -> None:
    """PostgreSQL counts the rows that are read of a table, when a connection ends."""
    one = declared(ferry, f"['postgres://{copies}.{{t}}']")
    counter = (
        "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) "
        "FROM pg_stat_all_tables WHERE relid = '{t}'::regclass"
    )
    command, rows = Command(tmp_path), 30_000

    def reads_of_a_run() -> int:
        ((before,),) = one.rows(counter)
        assert command.run("run", one.table) == 0

        def counted() -> int:
            ((first,),), _, ((second,),) = one.rows(counter), time.sleep(0.3), one.rows(counter)
            return int(second - before) if first == second else 0

        return int(until("reads of the source", counted, seconds=20))

    reads_of_a_run()
    nothing = reads_of_a_run()
    one.source("UPDATE {t} SET name = 'new' WHERE id IN (3, 11111)")
    # all rows of both tables are counted after a run that moves some
    assert rows <= nothing <= reads_of_a_run() < nothing + 1.5 * rows
    assert figures(records(one)[SECOND]) == (15000, 0, 1, 0)


def test_each_hop_of_a_chain_goes_by_the_segments_of_the_source(ferry: Make) -> None:
    one = made(ferry, "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']")
    one.source(
        "UPDATE {t} SET name = 'new' WHERE id IN (3, 4, 24000)", "DELETE FROM {t} WHERE id = 5"
    )
    planned = [each for each in runner.plan(one.session, one.table).ranges if each.decision.changed]
    assert [(each.hop, each.range) for each in planned] == [
        (hop, name) for hop in (1, 2) for name in (FIRST, SECOND)
    ]
    assert one.run().good
    assert there(one, "clickhouse", "warehouse") == one.rows(ROWS)
    for hop in (1, 2):
        assert figures(records(one, hop)[FIRST]) == (14999, 0, 2, 1)
        assert figures(records(one, hop)[SECOND]) == (15000, 0, 1, 0)


TYPES = {
    "postgres": ("smallint", "integer", "bigint", "numeric(20,0)"),
    "sqlserver": ("int", "bigint", "decimal(20,0)"),
    "clickhouse": ("Int16", "Int64", "UInt64", "Decimal(20, 0)"),
}


@pytest.mark.parametrize(
    ("system", "key"), [(system, key) for system, keys in TYPES.items() for key in keys]
)
def test_segments_take_nothing_from_a_fingerprint(
    system: str, key: str, pg_url: str, mssql_url: str, ch_url: str
) -> None:
    server: PostgresResource | SqlServerResource | ClickHouseResource = {
        "postgres": PostgresResource(url=pg_url),
        "sqlserver": SqlServerResource(url=mssql_url),
        "clickhouse": ClickHouseResource(url=ch_url),
    }[system]
    schema = {"postgres": "public", "sqlserver": "dbo", "clickhouse": "warehouse"}[system]
    table = TableRef(system, schema, own("segmented"))
    name = f"{schema}.{table.name}"
    lowest = 0 if key == "UInt64" else -15000
    digits = ", ".join(f"({digit})" for digit in range(10))
    places = ", ".join(f"(VALUES {digits}) d{power}(v)" for power in range(4))
    number = " + ".join(f"{10**power} * d{power}.v" for power in range(5))
    numbers = (
        f"SELECT n, n FROM (SELECT {number} + ({lowest}) AS n "
        f"FROM {places}, (VALUES (0), (1), (2)) d4(v)) numbers"
    )
    made = f"CREATE TABLE {name} (id {key} NOT NULL, v int)"
    if system == "clickhouse":
        made = f"CREATE TABLE {name} (id {key}, v Nullable(Int32)) ENGINE = MergeTree ORDER BY id"
        numbers = f"SELECT {lowest} + number, {lowest} + number FROM numbers(30000)"
    server.execute(f"DROP TABLE IF EXISTS {name}")
    server.execute(made)
    try:
        server.execute(f"INSERT INTO {name} {numbers}")
        plan = plan_copy(
            table, server.columns(table), TableRef("postgres", "public", "t"), key="id"
        )
        middle = KeyRange("integer", lowest, lowest + 20000)
        ranges = [
            KeyRange("integer", None, lowest),
            middle,
            KeyRange("integer", lowest + 20000, None),
        ]
        plain = fingerprints(SourceReading(server, plan), ranges)
        segmented = fingerprints(SourceReading(server, plan, segmented=True), ranges)
        assert segmented == plain
        assert [plain[each.name].rows for each in ranges] == [0, 20000, 10000]
        for each in ranges:
            assert segmented[each.name].source_figures == plain[each.name].source_figures
        assert [each.name for each in ranges if segmented[each.name].segments] == [middle.name]
        where = f"id IN ({lowest}, {lowest + 8192}, {lowest + 19999})"
        changing = f"UPDATE {name} SET v = NULL WHERE {where}"
        if system == "clickhouse":
            changing = (
                f"ALTER TABLE {name} UPDATE v = NULL WHERE {where} SETTINGS mutations_sync = 2"
            )
        server.execute(changing)
        now = fingerprints(SourceReading(server, plan, segmented=True), [middle])[middle.name]
        before = segmented[middle.name].segments
        changed = changed_segments(middle, before, now.segments)
        assert changed is not None and len(changed) == 3
        for part, at in zip(changed, (0, 8192, 19999), strict=True):
            assert part.contains(lowest + at)
    finally:
        server.execute(f"DROP TABLE {name}")
