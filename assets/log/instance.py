"""Dagster's instance, as a command opens it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.sql import get_alembic_config
from dagster._serdes import ConfigurableClassData

from tableferry.assets.log import config_schemas
from tableferry.assets.log.sqlite import keep_open
from tableferry.assets.log.statements import make_once
from tableferry.assets.log.together import store_together

NO_OUTPUT = ConfigurableClassData(
    NoOpComputeLogManager.__module__, NoOpComputeLogManager.__name__, "{}\n"
)


def open_instance(home: Path) -> dg.DagsterInstance:
    """The instance of a home, for a process that does all of its work by itself.

    What a command's runs print goes to its terminal, unless the home's dagster.yaml says where.
    Dagster would start two processes per run that copy it from a file.

    Raises:
        DagsterInvalidConfigError: dagster.yaml is wrong.
    """
    keep_open()
    store_together()
    make_once()
    config_schemas.remember()
    ref = InstanceRef.from_dir(str(home))
    if ref.compute_logs_data == InstanceRef.config_defaults(str(home))["compute_logs"]:
        ref = ref._replace(compute_logs_data=NO_OUTPUT)
    return dg.DagsterInstance.from_ref(ref)


def revisions(storage: Any) -> tuple[str | None, str | None]:
    """The revision of a storage's tables, and that which the installed Dagster wants.

    Args:
        storage: one of an instance's storages.
    """
    from alembic.script import ScriptDirectory

    found, newest = storage.alembic_version() or (None, None)
    place = inspect.getfile(type(storage))
    if (Path(place).parent / "alembic").is_dir():
        # in SQLite's storages, the newest is not looked for: see `assets.log.sqlite`
        newest = ScriptDirectory.from_config(get_alembic_config(place)).get_current_head()
    return found, newest
