"""What a run has recorded, event by event, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg

from tableferry.assets.log.records import DATA_VERSION, STATE, VERSION
from tableferry.resources.words import iso_time

_KINDS = {
    dg.DagsterEventType.ASSET_OBSERVATION,
    dg.DagsterEventType.ASSET_MATERIALIZATION,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION,
}
_SHOWN = {
    "rows": "dagster/partition_row_count",
    **{name: name for name in ("bytes", "moving_seconds", "attempts", "error")},
}
"""Figures of a state, and their names in its metadata."""


def trail(instance: dg.DagsterInstance, run_id: str) -> Iterator[dict[str, Any]]:
    """Yield the states that ranges came to in a run, and the verdicts about them, in order.

    Each has `at`, `run_id`, `target`, `range`, and either `state`, with the figures that were
    recorded with it, or `check` and `passed`.
    """
    for entry in instance.all_logs(run_id, of_type=_KINDS):
        event = entry.get_dagster_event()
        line: dict[str, Any] = {"at": iso_time(entry.timestamp), "run_id": run_id}
        if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            check = event.asset_check_evaluation_data
            yield line | {
                "target": "/".join(check.asset_key.path),
                "range": check.partition,
                "check": check.check_name,
                "passed": check.passed,
            }
            continue
        data: Any = event.event_specific_data
        of_asset = getattr(data, "materialization", None) or data.asset_observation
        if STATE not in of_asset.tags:  # such as the note that a run has created a table
            continue
        metadata = of_asset.metadata
        shown = {name: metadata[key].value for name, key in _SHOWN.items() if key in metadata}
        yield line | {
            "target": "/".join(of_asset.asset_key.path),
            "range": of_asset.partition,
            "state": of_asset.tags[STATE],
            "data_version": of_asset.tags.get(DATA_VERSION) or of_asset.tags.get(VERSION),
            **shown,
        }
