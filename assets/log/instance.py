"""Dagster's instance, as a command opens it."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import yaml
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._serdes import ConfigurableClassData

from tableferry.assets.log.sqlite_home import (
    SHARED_STORAGE_CLASS,
    STORAGE_CLASS,
    STORAGE_MODULE,
)
from tableferry.resources.extras import require

POSTGRES_MODULE = "tableferry.assets.log.postgres_storage"
NO_OUTPUT = ConfigurableClassData(
    NoOpComputeLogManager.__module__, NoOpComputeLogManager.__name__, "{}\n"
)


def open_instance(home: Path) -> dg.DagsterInstance:
    """Open the instance of a home for a process that executes its runs itself.

    Where dagster.yaml names no storage, or Dagster's for PostgreSQL, our storage replaces it, on
    the same files or tables. The output of runs goes to the terminal unless dagster.yaml says
    otherwise; Dagster would start two processes per run to copy it from a file.

    Raises:
        DagsterInvalidConfigError: dagster.yaml is invalid.
        InputError: dagster.yaml names PostgreSQL, and the extra for it is not installed.
    """
    ref = InstanceRef.from_dir(str(home))
    defaults = InstanceRef.config_defaults(str(home))
    if ref.compute_logs_data == defaults["compute_logs"]:
        ref = ref._replace(compute_logs_data=NO_OUTPUT)
    storage = ref.storage_data
    named = storage and (storage.module_name, storage.class_name)
    if storage and storage.module_name in ("dagster_postgres", POSTGRES_MODULE):
        require("postgres-storage", f"the storage that {home / 'dagster.yaml'} names")
    if storage == defaults["storage"] or named == (STORAGE_MODULE, STORAGE_CLASS):
        ours = STORAGE_CLASS if named == (STORAGE_MODULE, STORAGE_CLASS) else SHARED_STORAGE_CLASS
        files = ConfigurableClassData(STORAGE_MODULE, ours, yaml.safe_dump({"base_dir": str(home)}))
        ref = ref._replace(storage_data=files)
    elif storage and named == ("dagster_postgres", "DagsterPostgresStorage"):
        tables = ConfigurableClassData(POSTGRES_MODULE, "Storage", storage.config_yaml)
        ref = ref._replace(storage_data=tables)
    return dg.DagsterInstance.from_ref(ref)
