"""Dagster runs that a command executes in its own process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import dagster as dg

from tableferry.assets.declaring.dagster_rules import CODE_LOCATION
from tableferry.assets.log.dagster_internals import (
    SINGLETON_REPOSITORY_NAME,
    InMemoryJob,
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
    create_execution_plan,
    execute_run,
    snapshot_from_execution_plan,
)
from tableferry.assets.log.grouping import together


class _SelectedJob(InMemoryJob):
    """A job that consists of what a run selects, so that Dagster need not build it again."""

    def get_subset(self, **_: object) -> InMemoryJob:
        return self


def carry_out(
    instance: dg.DagsterInstance,
    job: dg.JobDefinition,
    *,
    tags: Mapping[str, str],
    assets: Collection[dg.AssetKey] = (),
    checks: Collection[dg.AssetCheckKey] | None = None,
    run_config: Mapping[str, Any],
) -> dg.JobExecutionResult:
    """Create a run of a job and execute it; the result has its failures.

    The run names the code location of the job. `JobDefinition.execute_in_process` names none:
    Dagster's Timeline would not show the run, nor could it be re-executed there.

    Args:
        instance: where the run is recorded.
        job: the job, of the selected assets and checks alone; see `selected`.
        tags: of the run, besides those of the job.
        assets: the assets that the run materializes.
        checks: the checks that it executes; None for those of the assets.
        run_config: of the run.
    """
    run = _created(instance, job, tags, assets, checks, run_config)
    return execute_run(_SelectedJob(job), run, instance)


def record_failure(
    instance: dg.DagsterInstance,
    job: dg.JobDefinition,
    *,
    tags: Mapping[str, str],
    assets: Collection[dg.AssetKey],
    why: str,
) -> str:
    """Record a run that failed before it began; return its id."""
    run = _created(instance, job, tags, assets, None, {})
    instance.report_run_failed(run, why)
    return run.run_id


def _created(
    instance: dg.DagsterInstance,
    job: dg.JobDefinition,
    tags: Mapping[str, str],
    assets: Collection[dg.AssetKey],
    checks: Collection[dg.AssetCheckKey] | None,
    run_config: Mapping[str, Any],
) -> dg.DagsterRun:
    location = RemoteRepositoryOrigin(
        RegisteredCodeLocationOrigin(CODE_LOCATION), SINGLETON_REPOSITORY_NAME
    )
    tags = {**job.run_tags, **tags}
    plan = create_execution_plan(job, run_config=run_config, tags=tags)
    # Dagster logs an event for each planned asset and check
    with together(instance.event_log_storage):
        return instance.create_run(
            job_name=job.name,
            run_id=None,
            run_config=run_config,
            status=None,
            tags=tags,
            root_run_id=None,
            parent_run_id=None,
            step_keys_to_execute=plan.step_keys_to_execute,
            execution_plan_snapshot=snapshot_from_execution_plan(plan, job.get_job_snapshot_id()),
            job_snapshot=job.get_job_snapshot(),
            parent_job_snapshot=job.get_parent_job_snapshot(),
            asset_selection=frozenset(assets),
            asset_check_selection=None if checks is None else frozenset(checks),
            resolved_op_selection=None,
            op_selection=None,
            remote_job_origin=RemoteJobOrigin(location, job.name),
            job_code_origin=None,
            asset_graph=job.asset_layer.asset_graph,
        )


def selected(
    definitions: dg.Definitions,
    assets: Collection[dg.AssetKey] = (),
    checks: Collection[dg.AssetCheckKey] | None = None,
) -> dg.JobDefinition:
    """Build the job of all assets, with the selected assets and checks alone."""
    job = definitions.resolve_implicit_global_asset_job_def()
    if checks is None and {*assets} == {*job.asset_layer.executable_asset_keys}:
        return job
    return job.get_subset(
        asset_selection=frozenset(assets),
        asset_check_selection=None if checks is None else frozenset(checks),
    )
