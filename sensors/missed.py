"""The sensor that alerts about what did not happen: failed ticks, a growing queue, stale tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from time import time
from typing import Any

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import check_schedule_name, schedule_name
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.history import first_line
from tableferry.resources.words import counted, duration
from tableferry.sensors.sending import Alert, tell

INTERVAL_SECONDS = 60
SENSORS = ("first_ranges", "new_ranges", "failed_ranges", "reaper", "failure_alert", "check_alert")
TICKS = 3
"""The newest ticks of each schedule and sensor that are looked at."""
AGAIN_SECONDS = 900.0
"""How long it is quiet about a reason of failed ticks, and how long a queue may grow."""
MANY_QUEUED = 10
"""Fewer queued runs are nothing to talk about."""
LOOK_SECONDS = 600.0
"""How often it is asked which tables are stale."""


def missed_sensor(
    prefix: str,
    transfers: Collection[Transfer],
    safe: Callable[[str], str],
    status: dg.DefaultSensorStatus,
) -> dg.SensorDefinition:
    """Build the sensor.

    Args:
        prefix: a prefix of the sensors' names.
        transfers: the transfers whose schedules and tables to watch.
        safe: strikes passwords out of a text.
        status: whether it runs by itself.
    """
    watched = {f"{prefix}{name}" for name in SENSORS}
    for transfer in transfers:
        watched |= {schedule_name(transfer.transfer), check_schedule_name(transfer.transfer)}

    @dg.sensor(
        name=f"{prefix}missed_alert",
        minimum_interval_seconds=INTERVAL_SECONDS,
        description="Alerts about failed ticks, a queue that grows, and tables that are stale.",
        default_status=status,
    )
    def missed(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        kept, instance, now = _parse(context.cursor), context.instance, time()
        kept.setdefault("since", now)
        looks = (
            _failed_ticks(instance, watched, safe, kept, now),
            _growing_queue(instance, kept, now),
            _stale_tables(instance, transfers, kept, now),
        )
        told = [tell(context, alert) for look in looks for alert in look]
        said = "; ".join(text for text, _ in told) or "nothing is missing"
        again = any(again for _, again in told)
        cursor = context.cursor if again else json.dumps(kept)
        return dg.SensorResult(skip_reason=dg.SkipReason(said), cursor=cursor)

    return missed


def _failed_ticks(
    instance: dg.DagsterInstance,
    watched: Collection[str],
    safe: Callable[[str], str],
    kept: dict[str, Any],
    now: float,
) -> Iterator[Alert]:
    """Yield an alert for each reason for which ticks have failed since it was told."""
    told: dict[str, float] = kept.setdefault("ticks", {})
    failed: dict[str, dict[str, float]] = {}
    states = {
        state.selector_id: state
        for state in instance.all_instigator_state()
        if state.instigator_name in watched
    }
    for selector, ticks in _newest_ticks(instance, states).items():
        for tick in ticks:
            ended = tick.end_timestamp or tick.timestamp
            if tick.status.value == "FAILURE" and ended > kept["since"]:
                reason = safe(first_line(tick.error)) if tick.error else "no reason is recorded"
                names = failed.setdefault(reason, {})
                name = states[selector].instigator_name
                names[name] = max(ended, names.get(name, 0.0))
    for reason, names in failed.items():
        before = told.get(reason, 0.0)
        late = sorted(name for name, ended in names.items() if ended > before)
        if late and now - before >= AGAIN_SECONDS:
            told[reason] = now
            which = f"the tick of {late[0]}"
            if len(late) > 1:
                which = f"{counted(len(late), 'tick')} of schedules and sensors"
            text = f"{which} failed: {reason}"
            lines = [f"{name}: nothing was launched: {reason}" for name in late]
            yield Alert("tick_failed", text, ", ".join(late), errors=lines)
    for reason in [reason for reason, at in told.items() if now - at > 86_400]:
        del told[reason]


def _newest_ticks(
    instance: dg.DagsterInstance, states: Mapping[str, Any]
) -> Mapping[str, Sequence[Any]]:
    storage = instance.schedule_storage
    if storage is not None and storage.supports_batch_queries:
        return storage.get_batch_ticks([*states], limit=TICKS) if states else {}
    return {
        selector: instance.get_ticks(state.instigator_origin_id, selector, limit=TICKS)
        for selector, state in states.items()
    }


def _growing_queue(
    instance: dg.DagsterInstance, kept: dict[str, Any], now: float
) -> Iterator[Alert]:
    """Yield an alert if many runs are queued, more than a quarter of an hour ago."""
    queued = instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    since, before = kept.setdefault("queue", [now, queued])
    if now - since < AGAIN_SECONDS:
        return
    kept["queue"] = [now, queued]
    if queued >= MANY_QUEUED and queued > before:
        ago = duration(now - since)
        text = f"the queue grows: {counted(queued, 'run')} wait, {before:,} {ago} ago"
        yield Alert("queue_grows", text, "the queue")


def _stale_tables(
    instance: dg.DagsterInstance,
    transfers: Collection[Transfer],
    kept: dict[str, Any],
    now: float,
) -> Iterator[Alert]:
    """Yield one alert about the tables that have become stale since it was asked last."""
    if now - kept.get("looked", 0.0) < LOOK_SECONDS:
        return
    kept["looked"] = now
    told: list[str] = kept.get("stale", [])
    fresh_for: dict[dg.AssetKey, timedelta] = {
        asset_key(hop.to): transfer.fresh_for
        for transfer in transfers
        for hop in transfer.hops
        if transfer.fresh_for is not None and transfer.write.moves
    }
    stale: dict[str, str] = {}
    for record in instance.get_asset_records([*fresh_for]) if fresh_for else ():
        newest, key = record.asset_entry.last_materialization, record.asset_entry.asset_key
        # what was never moved is new, not stale
        if newest is not None and (age := now - newest.timestamp) > fresh_for[key].total_seconds():
            limit = duration(fresh_for[key].total_seconds())
            table = key.to_user_string()
            stale[table] = f"{table}: proven {duration(age)} ago, and fresh for {limit}"
    kept["stale"] = sorted(stale)
    if new := sorted(stale.keys() - set(told)):
        which = f"{new[0]} is" if len(new) == 1 else f"{counted(len(new), 'table')} are"
        text = f"{which} stale: {stale[new[0]]}"
        yield Alert("table_stale", text, ", ".join(new), errors=[stale[table] for table in new])


def _parse(cursor: str | None) -> dict[str, Any]:
    """Read a cursor; one that another version wrote counts as none."""
    try:
        kept = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}
