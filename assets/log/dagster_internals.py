"""All names that Dagster keeps to itself, and what each is for; no other module imports one.

A release of Dagster may rename or change them without notice: what of it concerns Tableferry is
found here. Each is imported when it is first used, as the storages take a second to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagster._core.definitions.asset_checks.asset_check_evaluation import (
        AssetCheckEvaluationTargetMaterializationData,
    )
    from dagster._core.definitions.job_base import InMemoryJob
    from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME
    from dagster._core.execution.api import create_execution_plan, execute_run
    from dagster._core.instance.ref import InstanceRef
    from dagster._core.remote_origin import (
        RegisteredCodeLocationOrigin,
        RemoteJobOrigin,
        RemoteRepositoryOrigin,
    )
    from dagster._core.snap import snapshot_from_execution_plan
    from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
    from dagster._core.storage.event_log.polling_event_watcher import SqlPollingEventWatcher
    from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
    from dagster._core.storage.runs import SqlRunStorage
    from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
    from dagster._record import copy
    from dagster._serdes import ConfigurableClassData, deserialize_value

__all__ = [
    "SINGLETON_REPOSITORY_NAME",
    "AssetCheckEvaluationTargetMaterializationData",
    "ConfigurableClassData",
    "DagsterSqliteStorage",
    "InMemoryJob",
    "InstanceRef",
    "NoOpComputeLogManager",
    "RegisteredCodeLocationOrigin",
    "RemoteJobOrigin",
    "RemoteRepositoryOrigin",
    "SqlEventLogStorage",
    "SqlPollingEventWatcher",
    "SqlRunStorage",
    "SqliteEventLogStorage",
    "copy",
    "create_execution_plan",
    "deserialize_value",
    "execute_run",
    "snapshot_from_execution_plan",
]

_MODULES = {
    # what a logged verdict is about; Dagster fills it in only for the checks of an op's output
    "_core.definitions.asset_checks.asset_check_evaluation": (
        "AssetCheckEvaluationTargetMaterializationData",
    ),
    # a run in a command's process that names its code location, as `execute_in_process` does not
    "_core.definitions.job_base": ("InMemoryJob",),
    "_core.definitions.repository_definition": ("SINGLETON_REPOSITORY_NAME",),
    "_core.execution.api": ("create_execution_plan", "execute_run"),
    "_core.remote_origin": (
        "RegisteredCodeLocationOrigin",
        "RemoteJobOrigin",
        "RemoteRepositoryOrigin",
    ),
    "_core.snap": ("snapshot_from_execution_plan",),
    # the instance of a home whose runs print to the terminal
    "_core.instance.ref": ("InstanceRef",),
    "_core.storage.noop_compute_log_manager": ("NoOpComputeLogManager",),
    # storages in a database, which the ledger queries
    "_core.storage.event_log": ("SqlEventLogStorage", "SqliteEventLogStorage"),
    "_core.storage.runs": ("SqlRunStorage",),
    # what our storages are made of
    "_core.storage.event_log.polling_event_watcher": ("SqlPollingEventWatcher",),
    "_core.storage.sqlite_storage": ("DagsterSqliteStorage",),
    # how they are configured, and how events are stored
    "_serdes": ("ConfigurableClassData", "deserialize_value"),
    "_record": ("copy",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"dagster.{_MODULE_OF[name]}"), name)
