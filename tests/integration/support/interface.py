"""Dagster's user interface without its pages: the GraphQL API on the real code location."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster_graphql.schema import create_schema

from tests.integration.conftest import Ferry
from tests.integration.support.dagster_process import Forked, fork_code_servers

AT_ONCE = "run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}\n"
"""The setting of dagster.yaml by which a run starts when it is asked for."""


@dataclass
class Interface:
    """Dagster's GraphQL API on the real code location, with the daemon's work done on demand."""

    process: WorkspaceProcessContext

    def ask(self, query: str, **variables: Any) -> Any:
        """The one field of the answer."""
        with partition_loading_context(dynamic_partitions_store=self.process.instance):
            result = asyncio.run(
                create_schema().execute_async(
                    query,
                    context_value=self.process.create_request_context(),
                    variable_values=variables,
                )
            )
        assert not result.errors, result.errors
        (answer,) = result.data.values()
        return answer

    def selector(self, job: str, *assets: str) -> dict[str, Any]:
        return {
            "repositoryLocationName": "tableferry",
            "repositoryName": "__repository__",
            "pipelineName": job,
            "assetSelection": [{"path": asset.split("/")} for asset in assets] or None,
        }

    def wait(self, run_id: str) -> dg.DagsterRunStatus:
        """How a run ended."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            run = self.process.instance.get_run_by_id(run_id)
            if run is not None and run.is_finished:
                return run.status
            time.sleep(0.2)
        raise AssertionError(f"run {run_id} did not end, it is {run and run.status}")

    def launch_backfill(self, assets: list[list[str]], ranges: list[str]) -> list[str]:
        """Have ranges of assets moved, as "Launch backfill" does; returns the runs."""
        launched = self.ask(
            """mutation($params: LaunchBackfillParams!) {
              launchPartitionBackfill(backfillParams: $params) {
                __typename ... on LaunchBackfillSuccess { backfillId }
                ... on PythonError { message }
              } }""",
            params={
                "assetSelection": [{"path": each} for each in assets],
                "partitionNames": ranges,
            },
        )
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        return self.backfill(launched["backfillId"])

    def reexecute(self, run_id: str, strategy: str) -> dg.DagsterRunStatus:
        """Run again what a run did (`ALL_STEPS`), or what it failed to do (`FROM_FAILURE`)."""
        again = self.ask(
            """mutation($params: ReexecutionParams!) {
              launchPipelineReexecution(reexecutionParams: $params) {
                __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
              } }""",
            params={"parentRunId": run_id, "strategy": strategy},
        )
        assert again["__typename"] == "LaunchRunSuccess", again
        return self.wait(again["run"]["runId"])

    def backfill(self, backfill_id: str) -> list[str]:
        """Do the daemon's part of a backfill; returns its runs."""
        logger = logging.getLogger("backfill")
        for _ in range(20):
            for error in execute_backfill_iteration(self.process, logger):
                assert error is None, error
            runs = self.process.instance.get_runs(
                dg.RunsFilter(tags={"dagster/backfill": backfill_id})
            )
            for run in runs:
                self.wait(run.run_id)
            found = self.process.instance.get_backfill(backfill_id)
            if found is not None and found.status.value != "REQUESTED":
                assert found.status.value.startswith("COMPLETED"), found.status
                return [run.run_id for run in runs]
        raise AssertionError("the backfill did not end")


@contextmanager
def served(
    make: Callable[[], Ferry], home: Path, settings: str = ""
) -> Iterator[tuple[Ferry, Interface]]:
    """A transfer on a Dagster instance without a queue: a run starts when it is asked for.

    Args:
        make: makes the transfer.
        home: where the instance is to be.
        settings: more lines of its dagster.yaml.
    """
    home.mkdir()
    (home / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\n{AT_ONCE}{settings}")
    one = make()
    with opened(one.session.instance) as api:
        yield one, api


@contextmanager
def opened(instance: dg.DagsterInstance) -> Iterator[Interface]:
    """The interface of an instance, whose settings start a run when it is asked for."""
    target = ModuleTarget(
        module_name="tableferry.pipelines.definitions",
        attribute=None,
        working_directory=None,
        location_name="tableferry",
    )
    with pytest.MonkeyPatch.context() as patch:
        code_servers = fork_code_servers(patch)
        with WorkspaceProcessContext(instance, target) as process:
            yield Interface(process)
    _end(code_servers)


def _end(code_servers: list[Forked]) -> None:
    """Wait for their end, before their storage goes: one that misses it never ends."""
    for one in code_servers:
        try:
            one.wait(60)
        except subprocess.TimeoutExpired:
            one.kill()
