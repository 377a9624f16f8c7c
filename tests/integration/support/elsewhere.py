"""An event log storage that can be asked by Dagster's API alone, as one behind a service is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster._core.storage.event_log import EventLogStorage, SqliteEventLogStorage
from dagster._serdes import ConfigurableClass, ConfigurableClassData

SETTINGS = """
telemetry: {{enabled: false}}
event_log_storage:
  module: tests.integration.support.elsewhere
  class: EventLogElsewhere
  config: {{base_dir: {folder}}}
"""
"""dagster.yaml of a home whose events are elsewhere."""


def _delegated(name: str) -> Any:
    of_kind = getattr(EventLogStorage, name)
    if isinstance(of_kind, property):
        return property(lambda self: getattr(self.inner, name))
    return lambda self, *values, **named: getattr(self.inner, name)(*values, **named)


def _delegating(base: Any) -> Any:
    methods = {name: _delegated(name) for name in EventLogStorage.__abstractmethods__}
    return type("Delegating", (base,), methods)


class EventLogElsewhere(_delegating(EventLogStorage), ConfigurableClass):  # type: ignore[misc]
    """Passes each question on to a storage that nobody sees."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self.inner = SqliteEventLogStorage(base_dir)
        self._inst_data = inst_data
        super().__init__()

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> Any:
        return {"base_dir": str}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> EventLogElsewhere:
        return cls(inst_data=inst_data, **config_value)

    def register_instance(self, instance: dg.DagsterInstance) -> None:
        super().register_instance(instance)
        self.inner.register_instance(instance)
