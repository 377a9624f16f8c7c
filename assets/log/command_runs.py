"""Dagster runs that a command executes in its own process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)

from tableferry.assets.declaring.names import CODE_LOCATION
from tableferry.assets.log.grouping import together


def carry_out(
    instance: dg.DagsterInstance,
    job: dg.JobDefinition,
    *,
    tags: Mapping[str, str],
    assets: Collection[dg.AssetKey] | None = None,
    run_config: Mapping[str, Any],
) -> dg.JobExecutionResult:
    """Create a run of a job, or of some of its assets, and execute it; the result has its failures.

    The run names the code location of the job. `JobDefinition.execute_in_process` names none:
    Dagster's Timeline would not show the run, nor could it be re-executed there.
    """
    location = RemoteRepositoryOrigin(
        RegisteredCodeLocationOrigin(CODE_LOCATION), SINGLETON_REPOSITORY_NAME
    )
    # Dagster logs an event for each planned asset and check
    with together(instance.event_log_storage):
        run = instance.create_run_for_job(
            job,
            run_config=run_config,
            tags={**job.run_tags, **tags},
            asset_selection=frozenset(assets) if assets is not None else None,
            remote_job_origin=RemoteJobOrigin(location, job.name),
        )
    return execute_run(InMemoryJob(job), run, instance)
