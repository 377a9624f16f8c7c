"""Ticks over many transfers: what they cost, and that they see what a look at each one sees."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sql

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.ranges import ranges_by_name
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.runs import TRANSFER
from tableferry.assets.log.states import State
from tableferry.assets.log.writer import Writer
from tableferry.assets.planning.ranges.growing import not_growing
from tableferry.assets.planning.servers import Servers as Bound
from tableferry.assets.planning.transfer_plan import apply_growth, plan_transfer
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry.sensors.failed_ranges import failed_ranges_sensor
from tableferry.sensors.new_ranges import first_ranges_sensor, new_ranges_sensor
from tests.integration.support import homes
from tests.integration.support.recording import Log
from tests.servers import Servers, own

PREFIX = own("many")
MANY, FEW = 12, 3


@pytest.fixture(scope="module")
def bound(stack: Servers) -> Bound:
    return Bound(
        {
            "postgres": PostgresResource(url=stack.postgres_url),
            "sqlserver": SqlServerResource(url=stack.sqlserver_url),
            "clickhouse": ClickHouseResource(url=stack.clickhouse_url),
        }
    )


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    with homes.local_temp(tmp_path_factory.mktemp("dagster")) as made:
        yield made


def transfer(name: str, source: str, **more: Any) -> Transfer:
    system = source.partition(":")[0]
    hops = [f"clickhouse://warehouse.{name}", f"postgres://public.{name}_copy"]
    declared = {"key": "id", "ranges": {"rows": 10}, **more}
    return Transfer.model_validate(
        {"transfer": name, "source": source, "hops": hops[system == "clickhouse" :], **declared}
    )


@pytest.fixture(scope="module")
def tables(bound: Bound) -> Iterator[list[Transfer]]:
    """Tables of 25 rows in PostgreSQL."""
    server, names = bound.endpoints["postgres"], [f"{PREFIX}_{number}" for number in range(MANY)]
    server.execute(
        "; ".join(
            f"CREATE TABLE public.{name} (id int PRIMARY KEY); "
            f"INSERT INTO public.{name} SELECT generate_series(1, 25)"
            for name in names
        )
    )
    yield [transfer(name, f"postgres://public.{name}") for name in names]
    server.execute("; ".join(f"DROP TABLE public.{name}" for name in names))


def writer_of(instance: dg.DagsterInstance, one: Transfer, hop: int) -> Writer:
    run = instance.add_run(dg.DagsterRun("any", status=dg.DagsterRunStatus.SUCCESS))
    return Writer(Log(instance, run.run_id), asset_key(one.hops[hop].to), one)


def commit(
    instance: dg.DagsterInstance, one: Transfer, hops: Sequence[int] = (0, 1), most: int = 99
) -> None:
    """Record ranges of hops as committed."""
    for hop in hops:
        writer = writer_of(instance, one, hop)
        for name in instance.get_dynamic_partitions(one.partitions_name)[:most]:
            writer.commit(RangeRecord(range=name, state=State.COMMITTED, data_version="a.b.c"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[str]]]:
    """The statements that the event log and the source are sent."""
    statements: dict[str, list[str]] = {"log": [], "source": []}
    original = PostgresServer.query

    def counting(self: Any, text: str, **options: Any) -> Any:
        statements["source"].append(text)
        return original(self, text, **options)

    def executed(_: Any, __: Any, text: str, *___: Any) -> None:
        statements["log"].append(text)

    monkeypatch.setattr(PostgresServer, "query", counting)
    sql.event.listen(sql.engine.Engine, "before_cursor_execute", executed)
    yield statements
    sql.event.remove(sql.engine.Engine, "before_cursor_execute", executed)


def tick(
    instance: dg.DagsterInstance, sensor: dg.SensorDefinition, cursor: str | None = None
) -> Any:
    definitions = dg.Definitions()
    with dg.build_sensor_context(instance, cursor=cursor, definitions=definitions) as context:
        return sensor.evaluate_tick(context)


def test_a_tick_sends_as_many_statements_for_many_transfers_as_for_few(
    instance: dg.DagsterInstance, tables: list[Transfer], bound: Bound, asked: dict[str, list[str]]
) -> None:
    by_name = {one.transfer: one for one in tables}
    cut = tick(instance, first_ranges_sensor(by_name, bound=bound))
    assert "has 4 key ranges now" in cut.skip_message
    for one in tables:
        commit(instance, one)
    counts: dict[int, list[dict[str, int]]] = {}
    for number in (FEW, MANY):
        some = dict(list(by_name.items())[:number])
        for sensor in (
            new_ranges_sensor(some, bound=bound),
            failed_ranges_sensor(some),
            first_ranges_sensor(some, bound=bound),
        ):
            asked["log"].clear()
            asked["source"].clear()
            found = tick(instance, sensor)
            assert not found.run_requests
            counts.setdefault(number, []).append({of: len(what) for of, what in asked.items()})
    assert counts[FEW] == counts[MANY]
    new, failed, first = counts[MANY]
    assert new["source"] == 2 and new["log"] <= 5
    assert failed["source"] == first["source"] == 0 and failed["log"] + first["log"] <= 5


def test_a_tick_over_many_sees_what_needs_a_look(
    instance: dg.DagsterInstance, tables: list[Transfer], bound: Bound
) -> None:
    grown, failed, untouched, later, not_begun, wiped, *others = tables
    by_name = {one.transfer: one for one in tables}
    gone = transfer(f"{PREFIX}_gone", f"postgres://public.{PREFIX}_gone")
    instance.add_dynamic_partitions(gone.partitions_name, ["..", "null"])
    commit(instance, gone)
    tick(instance, first_ranges_sensor(by_name, bound=bound))
    for one in (grown, failed, wiped, *others):
        commit(instance, one)
    commit(instance, later, hops=[0])
    commit(instance, later, hops=[1], most=1)
    commit(instance, not_begun, hops=[0])
    instance.wipe_assets([asset_key(wiped.hops[0].to)])
    bound.endpoints["postgres"].execute(f"INSERT INTO public.{grown.source.name} VALUES (1000)")
    found = tick(instance, new_ranges_sensor({**by_name, gone.transfer: gone}, bound=bound))
    requested = {request.tags[TRANSFER] for request in found.run_requests}
    assert requested == {one.transfer for one in (grown, untouched, later, wiped)}
    nothing = tick(instance, new_ranges_sensor({gone.transfer: gone}, bound=bound)).skip_message
    assert gone.source.name in nothing and "does not exist" in nothing
    first = instance.get_dynamic_partitions(failed.partitions_name)[0]
    writer_of(instance, failed, 1).progress(RangeRecord(range=first, state=State.FAILED, error="x"))
    seen = tick(instance, failed_ranges_sensor(by_name)).skip_message
    assert f"{failed.transfer}: 1 failed ranges" in seen
    assert seen.count("0 failed ranges") == 9


KEYS = {
    "postgres": {
        "int": ("bigint NOT NULL", "{n}"),
        "date": ("date NOT NULL", "date '2024-01-01' + {n}"),
        "text": ("text NOT NULL", "'k' || lpad('{n}', 6, '0')"),
        "null": ("int", "{n}"),
    },
    "sqlserver": {
        "int": ("bigint NOT NULL", "{n}"),
        "date": ("date NOT NULL", "DATEADD(day, {n}, '2024-01-01')"),
    },
    "clickhouse": {
        "int": ("Int64", "{n}"),
        "date": ("Date", "toDate('2024-01-01') + {n}"),
    },
}
SCHEMAS = {"postgres": "public", "sqlserver": "dbo", "clickhouse": "default"}


@pytest.mark.parametrize("system", SCHEMAS)
def test_growth_is_seen_as_the_plan_of_each_transfer_sees_it(
    instance: dg.DagsterInstance, bound: Bound, system: str
) -> None:
    """By integers, dates and texts, with a filter, declared bounds and blocks."""
    server = bound.endpoints[system]
    engine = " ENGINE = MergeTree ORDER BY tuple()" if system == "clickhouse" else ""
    transfers: dict[str, Transfer] = {}
    more: Mapping[str, Mapping[str, Any]] = {
        **{kind: {} for kind in KEYS[system]},
        "where": {"where": "id < 30"},
        "small": {"ranges": {"rows": 40}},
        "bounds": {"ranges": {"bounds": [10, 20]}},
        "broken": {"where": "no_such_column > 1"},
        **(
            {"blocks": {"key": None, "ranges": {"by": "ctid", "count": 2}}}
            if system == "postgres"
            else {}
        ),
    }
    for kind, settings in more.items():
        table = f"{PREFIX}_k_{kind}"
        transfers[kind] = transfer(table, f"{system}://{SCHEMAS[system]}.{table}", **settings)
        type_, value = KEYS[system].get(kind, KEYS[system]["int"])
        name = qualified(transfers[kind].source)
        server.execute(f"CREATE TABLE {name} (id {type_}){engine}")
        rows = ", ".join(f"({value.format(n=n)})" for n in range(1, 26))
        server.execute(f"INSERT INTO {name} VALUES {rows}")
    servers = {one.transfer: bound for one in transfers.values()}
    try:
        broken = transfers.pop("broken")
        for one in transfers.values():
            apply_growth(plan_transfer(one, bound, instance, purpose="cut"), bound, instance)
        instance.add_dynamic_partitions(broken.partitions_name, ["..0000000010", "0000000010.."])
        for new in (None, 27, 60, 61):
            for kind, one in transfers.items():
                value = KEYS[system].get(kind, KEYS[system]["int"])[1]
                if new is not None:
                    rows = ", ".join(f"({value.format(n=new + more)})" for more in range(20))
                    server.execute(f"INSERT INTO {qualified(one.source)} VALUES {rows}")
            partitions = [one.partitions_name for one in (*transfers.values(), broken)]
            by_name = ranges_by_name(instance, partitions)
            ranges = {name.removesuffix("_ranges"): known for name, known in by_name.items()}
            settled = not_growing([*transfers.values(), broken], servers, ranges)
            assert broken.transfer not in settled and not any(settled.values())
            for kind, one in transfers.items():
                plan = plan_transfer(one, bound, instance, purpose="cut")
                grows = bool(plan.growth.add or plan.growth.retire)
                assert (one.transfer not in settled) == grows, (new, kind)
                apply_growth(plan, bound, instance)
    finally:
        for kind in more:
            server.execute(f"DROP TABLE {SCHEMAS[system]}.{PREFIX}_k_{kind}")


def test_a_source_that_is_away_is_asked_once(
    instance: dg.DagsterInstance,
    tables: list[Transfer],
    bound: Bound,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = PostgresResource(url="postgresql://u:secret@127.0.0.1:1/db?connect_timeout=2")
    by_name = {one.transfer: one for one in tables}
    tick(instance, first_ranges_sensor(by_name, bound=bound))
    for one in tables:
        commit(instance, one)
    tried = [0]
    query = PostgresServer.query

    def counted(self: PostgresServer, text: str, **options: Any) -> Any:
        tried[0] += str(self.settings()) == str(away.settings())
        return query(self, text, **options)

    monkeypatch.setattr(PostgresServer, "query", counted)
    servers = Bound({**bound.endpoints, "postgres": away})
    cursor = json.dumps({"last": "", "tries": {tables[0].transfer: {"..5": [1, 9.0, False]}}})
    found = tick(instance, new_ranges_sensor(by_name, bound=servers), cursor)
    assert tried == [1] and found.skip_message.count("127.0.0.1:1") == 10
    assert json.loads(found.cursor)["tries"] == {tables[0].transfer: {"..5": [1, 9.0, False]}}
