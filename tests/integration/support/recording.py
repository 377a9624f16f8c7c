"""What a run's op writes its events to, without a run that executes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.events import (
    AssetObservationData,
    DagsterEvent,
    DagsterEventType,
    StepMaterializationData,
)


@dataclass(frozen=True)
class Log:
    """What a run's op writes its events to."""

    instance: dg.DagsterInstance
    run_id: str

    def log_event(self, event: Any) -> None:
        kind, data = DagsterEventType.ASSET_CHECK_EVALUATION, event
        if isinstance(event, dg.AssetMaterialization):
            kind, data = DagsterEventType.ASSET_MATERIALIZATION, StepMaterializationData(event)
        elif isinstance(event, dg.AssetObservation):
            kind, data = DagsterEventType.ASSET_OBSERVATION, AssetObservationData(event)
        found = DagsterEvent(kind.value, "another", event_specific_data=data)
        self.instance.report_dagster_event(found, self.run_id)
