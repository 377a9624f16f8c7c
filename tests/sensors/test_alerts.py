"""The alerts of failed runs and checks, sent to a real HTTP listener."""

from __future__ import annotations

import time
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    ScheduleInstigatorData,
    TickData,
    TickStatus,
)
from dagster._utils.error import SerializableErrorInfo

from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.runs import RANGE_END, RANGE_START, TRANSFER
from tableferry.assets.planning.servers import Servers
from tableferry.resources.postgres.server import PostgresServer
from tableferry.sensors import alerts, missed
from tableferry.sensors.alerts import alert_sensors
from tableferry.sensors.sending import ALERTS
from tests.sensors.conftest import Listener

ORDERS = dg.AssetKey(["clickhouse", "w", "orders"])


def transfer(name: str) -> Transfer:
    hops = [f"clickhouse://w.{name}"]
    return Transfer(transfer=name, source="postgres://s.t", hops=hops, key="id")


failure_alert, check_alert, missed_alert = alert_sensors(
    transfers=[transfer("orders")], all_runs=True
)


@dg.asset(key=ORDERS)
def orders() -> None:
    raise dg.Failure("orders: clickhouse://w.orders range 1..5: no such luck", allow_retries=False)


@dg.op
def checking(context) -> None:  # type: ignore[no-untyped-def]
    """As a run with a check that warns only: it failed at first, then once more for a range."""
    for name, passed in (("1..5", False), ("1..5", True), ("5..9", False), (None, False)):
        context.log_event(
            dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey(["clickhouse", "w", "orders"]),
                check_name="expectations",
                passed=passed,
                partition=name,
                severity=dg.AssetCheckSeverity.WARN,
                description=f"price < 0 in {name}",
            )
        )
    context.log_event(
        dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(["clickhouse", "w", "orders"]),
            check_name="checksum",
            passed=False,
            partition="1..5",
            severity=dg.AssetCheckSeverity.WARN,
            description="the source is newer",
            metadata={"source_newer": True},
        )
    )
    for missing in (2, 0):
        context.log_event(
            dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey(["clickhouse", "w", "orders"]),
                check_name="no_stray_rows" if missing else "total_rows",
                passed=False,
                severity=dg.AssetCheckSeverity.WARN,
                description="rows differ",
                metadata={"ranges_not_committed": missing},
            )
        )


@dg.job
def checked_orders() -> None:
    checking()


DEFINITIONS = dg.Definitions([orders], jobs=[checked_orders])


def failed_run(instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return DEFINITIONS.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=[ORDERS],
        raise_on_error=False,
        tags={RANGE_START: "1..5", RANGE_END: "5..9"},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )


class Ticks:
    """The sensor as the daemon evaluates it."""

    def __init__(
        self, instance: dg.DagsterInstance, sensor: dg.SensorDefinition = failure_alert
    ) -> None:
        self._instance, self._sensor, self.cursor = instance, sensor, None
        self._repository = dg.Definitions.merge(
            DEFINITIONS, dg.Definitions(sensors=[sensor])
        ).get_repository_def()

    def tick(self) -> Any:
        found = self._sensor.evaluate_tick(
            dg.build_sensor_context(
                self._instance,
                cursor=self.cursor,
                repository_def=self._repository,
                sensor_name=self._sensor.name,
            )
        )
        self.cursor = found.cursor
        return found


def test_a_failed_run_is_told_once_with_what_and_why(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    ticks = Ticks(instance)
    ticks.tick()
    assert listener.bodies == [], "nothing failed yet"
    result = failed_run(instance)
    ticks.tick()
    ticks.tick()
    (alert,) = listener.bodies
    lines = alert["message"].splitlines()
    assert lines[0] == "orders: clickhouse://w.orders range 1..5: no such luck"
    assert lines[1] == f"https://dagster.example.com/runs/{result.run_id}"
    assert alert["title"] == f"Tableferry: orders failed: {lines[0]}"


def test_a_component_tells_of_its_own_transfers_and_of_no_password(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    bound = Servers({"shop": PostgresServer(host="db", password="no such")})
    ours, *_ = alert_sensors("ours_", [transfer("orders")], bound)
    others, checks, _ = alert_sensors("others_", [transfer("others")])
    ticks = [Ticks(instance, one) for one in (ours, others, checks)]
    for one in ticks:
        one.tick()
    result = failed_run(instance)
    assert checked_orders.execute_in_process(instance=instance).success
    for one in ticks:
        one.tick()
    (alert,) = listener.bodies
    assert result.run_id in alert["message"]
    assert "orders: clickhouse://w.orders range 1..5: *** luck" in alert["message"]


@pytest.mark.parametrize("selected", [True, False])
def test_a_run_of_a_transfer_that_is_gone_has_the_name_of_its_tag(
    instance: dg.DagsterInstance, listener: Listener, selected: bool
) -> None:
    ticks = Ticks(instance)
    ticks.tick()
    run = instance.add_run(
        dg.DagsterRun(
            ASSET_JOB,
            tags={TRANSFER: "gone"},
            asset_selection=frozenset([dg.AssetKey("gone")]) if selected else None,
        )
    )
    instance.report_run_failed(run, "its code location is not there")
    ticks.tick()
    (alert,) = listener.bodies
    assert alert["title"] == "Tableferry: gone failed: its code location is not there"


def test_runs_that_fail_for_one_reason_are_one_alert_and_no_flood(
    instance: dg.DagsterInstance, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, why: str) -> None:
        run = instance.add_run(dg.DagsterRun(ASSET_JOB, tags={TRANSFER: name}))
        instance.report_run_failed(run, why)

    clock = [1_000_000.0]
    monkeypatch.setattr(alerts, "time", lambda: clock[0])
    ticks = Ticks(instance)
    ticks.tick()
    for number in range(30):
        fail(f"t{number}", f"t{number}: clickhouse://w.t{number} range {number}..9: it is away")
    fail("other", "other: no such table")
    ticks.tick()
    away, other = listener.bodies
    assert away["title"].startswith("Tableferry: 30 runs failed: t0: clickhouse://w.t0 range 0..9")
    assert len(away["message"].splitlines()) == 21, "the first of them, and how many more"
    assert other["title"] == "Tableferry: other failed: other: no such table"
    clock[0] += 60
    fail("t5", "t5: clickhouse://w.t5 range 5..9: it is away")
    fail("t6", "t6: clickhouse://w.t6 range 6..9: it is away")
    ticks.tick()
    assert len(listener.bodies) == 2, "that was told a minute ago"
    clock[0] += 600
    ticks.tick()
    ticks.tick()
    *_, later = listener.bodies
    assert len(listener.bodies) == 3 and later["title"].startswith("Tableferry: 2 runs failed: t5")


def test_what_dagster_failed_has_a_reason_too(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    @dg.asset(key=ORDERS)
    def broken() -> None:
        raise MemoryError

    ticks = Ticks(instance)
    ticks.tick()
    dg.materialize([broken], instance=instance, raise_on_error=False)
    ticks.tick()
    (alert,) = listener.bodies
    assert alert["title"] == "Tableferry: __ephemeral_asset_job__ failed: MemoryError"


@pytest.mark.parametrize(
    ("said", "told"), [("\n  \nit is away\n", "it is away"), (" ", "no reason is recorded")]
)
def test_a_reason_may_begin_with_blank_lines(
    instance: dg.DagsterInstance, listener: Listener, said: str, told: str
) -> None:
    @dg.asset(key=ORDERS)
    def broken() -> None:
        raise dg.Failure(said)

    ticks = Ticks(instance)
    ticks.tick()
    dg.materialize([broken], instance=instance, raise_on_error=False)
    ticks.tick()
    (alert,) = listener.bodies
    assert alert["title"] == f"Tableferry: __ephemeral_asset_job__ failed: {told}"


def test_an_alert_that_nobody_took_is_sent_again(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    ticks = Ticks(instance)
    ticks.tick()
    listener.status = 500
    first = failed_run(instance)
    found = ticks.tick()
    assert listener.bodies, "it was tried"
    assert f"{ALERTS}: service 1 (json) does not take the alert" in found.skip_message
    assert "500" in found.skip_message
    tried = len(listener.bodies)
    listener.status = 204
    second = failed_run(instance)
    ticks.tick()
    ticks.tick()
    (told,) = listener.bodies[tried:]
    assert first.run_id[:8] in told["message"] and second.run_id[:8] in told["message"]


def test_an_alert_that_one_of_two_took_is_not_sent_again(
    instance: dg.DagsterInstance, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALERTS, f"json://127.0.0.1:1/secret-token {listener.url}")
    ticks = Ticks(instance)
    ticks.tick()
    failed_run(instance)
    said = ticks.tick().skip_message
    assert f"{ALERTS}: service 1 (json)" in said and "secret-token" not in said
    ticks.tick()
    assert len(listener.bodies) == 1


def test_without_a_service_the_failure_is_logged_only(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALERTS, raising=False)
    ticks = Ticks(instance)
    ticks.tick()
    failed_run(instance)
    assert "no such luck" in ticks.tick().skip_message


def test_a_check_that_does_not_block_is_told_too(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    ticks = Ticks(instance, check_alert)
    ticks.tick()
    assert checked_orders.execute_in_process(
        instance=instance,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    ).success
    ticks.tick()
    (alert,) = listener.bodies
    assert alert["type"] == "warning" and "checked_orders succeeded, but" in alert["title"]
    assert alert["message"].splitlines()[:2] == [
        "clickhouse/w/orders 5..9: expectations failed: price < 0 in 5..9",
        "clickhouse/w/orders (whole table): total_rows failed: rows differ",
    ], "the last verdict of each range, and of tables that lack none; no summary, no newer source"


def failed_tick(instance: dg.DagsterInstance, name: str, why: str | None, at: float) -> None:
    """What Dagster stores of a tick of a schedule that failed, or did nothing."""
    origin = RemoteInstigatorOrigin(
        RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "repository"), name
    )
    selector = origin.get_selector().get_id()
    if instance.get_instigator_state(origin.get_id(), selector) is None:
        running = InstigatorStatus.RUNNING
        instance.add_instigator_state(
            InstigatorState(
                origin, InstigatorType.SCHEDULE, running, ScheduleInstigatorData("* * * * *")
            )
        )
    cause = why and SerializableErrorInfo(
        f"tableferry.resources.errors.ConnectionFailed: {why}\n", [], "ConnectionFailed"
    )
    error = cause and SerializableErrorInfo(
        "dagster._core.errors.ScheduleExecutionError: x\n", [], "ScheduleExecutionError", cause
    )
    status = TickStatus.FAILURE if why else TickStatus.SKIPPED
    instance.create_tick(
        TickData(
            origin.get_id(),
            name,
            InstigatorType.SCHEDULE,
            status,
            at,
            selector_id=selector,
            error=error,
            end_timestamp=at,
        )
    )


def test_failed_ticks_are_told_by_reason_once_and_again_later(
    instance: dg.DagsterInstance, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1_000_000.0]
    monkeypatch.setattr(missed, "time", lambda: clock[0])
    watch = alert_sensors(transfers=[transfer(f"t{n}") for n in range(20)])[-1]
    ticks = Ticks(instance, watch)
    failed_tick(instance, "t3_schedule", "it was away long ago", clock[0] - 60)
    assert ticks.tick().skip_message == "nothing is missing"
    for number in range(17):
        failed_tick(instance, f"t{number}_schedule", "cannot connect to clickhouse", clock[0] + 1)
    failed_tick(instance, "t18_check_schedule", "no such table", clock[0] + 1)
    failed_tick(instance, "t19_schedule", None, clock[0] + 1)
    failed_tick(instance, "somebody_elses", "not ours", clock[0] + 1)
    clock[0] += 60
    ticks.tick()
    ticks.tick()
    titles = sorted(body["title"] for body in listener.bodies)
    assert titles == [
        "Tableferry: 17 ticks of schedules and sensors failed: cannot connect to clickhouse",
        "Tableferry: the tick of t18_check_schedule failed: no such table",
    ]
    failed_tick(instance, "t3_schedule", "cannot connect to clickhouse", clock[0] + 30)
    clock[0] += 60
    ticks.tick()
    assert len(listener.bodies) == 2, "that was told a minute ago"
    clock[0] += 900
    ticks.tick()
    *_, again = listener.bodies
    assert (
        again["title"] == "Tableferry: the tick of t3_schedule failed: cannot connect to clickhouse"
    )
    assert "nothing was launched" in again["message"]
    assert len(listener.bodies) == 3


def test_what_was_missed_is_told_again_if_nobody_took_it(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    watch = alert_sensors(transfers=[transfer("t1")])[-1]
    ticks = Ticks(instance, watch)
    ticks.tick()
    failed_tick(instance, "t1_schedule", "no such table", time.time() + 1)
    listener.status = 500
    assert f"{ALERTS}: service 1 (json) does not take the alert" in ticks.tick().skip_message
    tried = len(listener.bodies)
    listener.status = 204
    ticks.tick()
    ticks.tick()
    (told,) = listener.bodies[tried:]
    assert told["title"] == "Tableferry: the tick of t1_schedule failed: no such table"


def test_a_queue_that_grows_is_told(
    instance: dg.DagsterInstance, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1_000_000.0]
    monkeypatch.setattr(missed, "time", lambda: clock[0])
    location = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "repository")
    ticks = Ticks(instance, missed_alert)

    def queue(number: int) -> None:
        for _ in range(number):
            instance.add_run(
                dg.DagsterRun(
                    ASSET_JOB,
                    status=dg.DagsterRunStatus.QUEUED,
                    remote_job_origin=RemoteJobOrigin(location, ASSET_JOB),
                )
            )

    for number, told in ((9, 0), (8, 1), (0, 1)):
        queue(number)
        ticks.tick()
        clock[0] += 901
        ticks.tick()
        assert len(listener.bodies) == told
    (alert,) = listener.bodies
    assert alert["title"] == "Tableferry: the queue grows: 17 runs wait, 9 15 min ago"


def test_a_table_that_is_stale_is_told_once_until_it_is_fresh(
    instance: dg.DagsterInstance, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [time.time()]
    monkeypatch.setattr(missed, "time", lambda: clock[0])
    late = transfer("orders").model_copy(update={"freshness": "36h"})
    watch = alert_sensors(transfers=[late, transfer("never_stale")])[-1]
    ticks = Ticks(instance, watch)
    ticks.tick()
    assert listener.bodies == [], "it was never moved"
    instance.report_runless_asset_event(dg.AssetMaterialization(ORDERS))
    for hours, told in ((35, 0), (2, 1), (1, 1)):
        clock[0] += hours * 3600
        ticks.tick()
        assert len(listener.bodies) == told
    (alert,) = listener.bodies
    assert alert["title"].startswith("Tableferry: clickhouse/w/orders is stale: ")
    assert "proven 37.0 h ago, and fresh for 36.0 h" in alert["message"]
