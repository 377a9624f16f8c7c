"""The alerts of failed runs and checks, sent to a real HTTP listener."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.run_tags import (
    RANGE_END,
    RANGE_START,
)
from tableferry.assets.planning.servers import Servers
from tableferry.resources.postgres.server import PostgresServer
from tableferry.sensors.alerts import alert_sensors
from tableferry.sensors.sending import ALERTS
from tests.sensors.conftest import Listener

ORDERS = dg.AssetKey(["clickhouse", "w", "orders"])


def transfer(name: str) -> Transfer:
    hops = [f"clickhouse://w.{name}"]
    return Transfer(transfer=name, source="postgres://s.t", hops=hops, key="id")


failure_alert, check_alert = alert_sensors(transfers=[transfer("orders")], all_runs=True)


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
    assert "orders failed" in alert["title"]


def test_a_component_tells_of_its_own_transfers_and_of_no_password(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    bound = Servers({"shop": PostgresServer(host="db", password="no such")})
    ours, _ = alert_sensors("ours_", [transfer("orders")], bound)
    others, checks = alert_sensors("others_", [transfer("others")])
    ticks = [Ticks(instance, one) for one in (ours, others, checks)]
    for one in ticks:
        one.tick()
    result = failed_run(instance)
    assert checked_orders.execute_in_process(instance=instance).success
    found = [one.tick().dagster_run_reactions for one in ticks]
    assert [[reaction.error for reaction in of_tick] for of_tick in found] == [[None], [], []]
    (alert,) = listener.bodies
    assert result.run_id in alert["message"]
    assert "orders: clickhouse://w.orders range 1..5: *** luck" in alert["message"]


def test_a_hook_that_answers_with_an_error_is_seen_and_stops_no_later_alert(
    instance: dg.DagsterInstance, listener: Listener
) -> None:
    ticks = Ticks(instance)
    ticks.tick()
    listener.status = 500
    failed_run(instance)
    found = ticks.tick()
    assert listener.bodies, "it was tried"
    reactions = found.dagster_run_reactions
    assert [bool(one.error) for one in reactions] == [True]
    assert ALERTS in str(reactions[0].error)
    assert "500" in str(reactions[0].error)
    tried = len(listener.bodies)
    listener.status = 204
    second = failed_run(instance)
    ticks.tick()
    (told,) = listener.bodies[tried:]
    assert second.run_id in told["message"]


def test_a_hook_that_is_not_there_is_an_error_without_its_url(
    instance: dg.DagsterInstance, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALERTS, "json://127.0.0.1:1/secret-token")
    ticks = Ticks(instance)
    ticks.tick()
    failed_run(instance)
    (reaction,) = ticks.tick().dagster_run_reactions
    assert ALERTS in str(reaction.error)
    assert "secret-token" not in str(reaction.error)


def test_without_a_hook_the_failure_is_logged_only(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALERTS, raising=False)
    ticks = Ticks(instance)
    ticks.tick()
    failed_run(instance)
    (reaction,) = ticks.tick().dagster_run_reactions
    assert reaction.error is None


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
