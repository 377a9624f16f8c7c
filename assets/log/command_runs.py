"""Runs that a command carries out in its own process, as Dagster's pages know them."""

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
    """Create a run of a job and execute it here; what fails is in the result.

    The run names the code location that holds the job. `JobDefinition.execute_in_process` names
    none, and such runs are neither on the Timeline nor can they be executed again from there.

    Args:
        instance: where the run is recorded.
        job: the job.
        tags: of the run, besides those of the job.
        assets: the assets of the job that the run materializes; None for all.
        run_config: of the run.
    """
    location = RemoteRepositoryOrigin(
        RegisteredCodeLocationOrigin(CODE_LOCATION), SINGLETON_REPOSITORY_NAME
    )
    # an event for each asset and each check says that the run plans it
    with together(instance.event_log_storage):
        run = instance.create_run_for_job(
            job,
            run_config=run_config,
            tags={**job.run_tags, **tags},
            asset_selection=frozenset(assets) if assets is not None else None,
            remote_job_origin=RemoteJobOrigin(location, job.name),
        )
    return execute_run(InMemoryJob(job), run, instance)
