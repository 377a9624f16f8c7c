"""Dagster as docker-compose.yml starts it: code server, webserver and daemon, each on its own host.

Commands, settings and host names are read from the files of the deployment.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import psycopg
import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.planning.transfer_plan import apply_growth, plan_transfer
from tableferry.assets.running.processes import PROCESS
from tableferry.pipelines.command.session import Session, open_session
from tableferry_local.process import free_port
from tests.integration.support.beside import until
from tests.integration.support.containers import (
    ROOT,
    SERVICES,
    Container,
    command,
    new_secrets,
    require_namespaces,
    settings,
)
from tests.integration.support.ferry_process import FORKED_RUNS
from tests.integration.support.webui import graphql
from tests.servers import Servers

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 2000


@dataclass
class Deployment:
    """The three containers, and one transfer of a table of its own."""

    start: Callable[[str], Container]
    """Starts a service by its name."""
    code_server: Container
    ui: str
    session: Session
    table: str
    source: str
    """URL of the source."""
    ports: dict[str, int]
    """Here, by those in the containers."""

    def run(self, arguments: list[str]) -> int:
        """Run a command in the environment of the containers; returns its exit code."""
        program, *others = arguments
        for there, here in self.ports.items():
            others = [one.replace(there, str(here)) for one in others]
        others = [one.replace("/opt/tableferry", str(ROOT / "docker")) for one in others]
        path = Path(sys.executable).with_name(program)
        return subprocess.run([path, *others], capture_output=True, check=False).returncode

    def launch(self, **tags: str) -> str:
        """Launch the transfer's job for all ranges from the UI; returns the run's id."""
        keys = self.session.instance.get_dynamic_partitions(
            self.session.transfer(self.table).partitions_name
        )
        ranges = {"asset_partition_range_start": keys[0], "asset_partition_range_end": keys[-1]}
        launched = graphql(
            self.ui,
            "mutation ($given: ExecutionParams!) {"
            " launchPipelineExecution(executionParams: $given) {"
            "  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }"
            "} }",
            given={
                "selector": {
                    "repositoryLocationName": "tableferry",
                    "repositoryName": "__repository__",
                    "pipelineName": ASSET_JOB,
                    "assetSelection": [
                        {"path": asset_key(hop.to).path}
                        for hop in self.session.transfer(self.table).hops
                    ],
                },
                "mode": "default",
                "executionMetadata": {
                    "tags": [
                        {"key": f"dagster/{name}", "value": value}
                        for name, value in (ranges | tags).items()
                    ]
                },
                "runConfigData": {},
            },
        )["launchPipelineExecution"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def ended(self, run_id: str) -> dg.DagsterRun:
        """The run, when it has ended."""

        def found() -> dg.DagsterRun | None:
            run = self.session.instance.get_run_by_id(run_id)
            return run if run is not None and run.is_finished else None

        run: dg.DagsterRun = until("the run's end", found, seconds=240)
        return run

    def said(self, run_id: str) -> str:
        """The messages of the run's events."""
        return "\n".join(one.message for one in self.session.instance.all_logs(run_id))

    @contextmanager
    def stuck(self, **tags: str) -> Iterator[str]:
        """A run that waits for a lock on the source, in the worker process that it names."""
        with psycopg.connect(self.source) as connection:
            connection.execute(f"LOCK TABLE {self.table} IN ACCESS EXCLUSIVE MODE")
            run_id = self.launch(**tags)
            until("the run's worker", lambda: self.process(run_id), seconds=240)
            yield run_id

    def process(self, run_id: str) -> str | None:
        """The run's worker: host, process id, start time."""
        run = self.session.instance.get_run_by_id(run_id)
        return run.tags.get(PROCESS) if run is not None else None


@pytest.fixture(scope="module")
def deployment(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    require_namespaces()
    folder = tmp_path_factory.mktemp("dagster")
    table, database = (f"{name}_{uuid.uuid4().hex[:8]}" for name in ("moved", "dagster"))
    with psycopg.connect(stack.postgres_url, autocommit=True) as admin:
        admin.execute(
            f"CREATE TABLE {table} AS SELECT id, md5(id::text) AS name"
            f" FROM generate_series(1, {ROWS}) AS id"
        )
        admin.execute(f"CREATE DATABASE {database}")
        try:
            yield from deployed(stack, folder, table, database)
        finally:
            admin.execute(f"DROP DATABASE {database} WITH (FORCE)")
            admin.execute(f"DROP TABLE {table}")


def deployed(stack: Servers, folder: Path, table: str, database: str) -> Iterator[Deployment]:
    home, transfers = folder / "home", folder / "transfers"
    home.mkdir()
    transfers.mkdir()
    (transfers / "t.yaml").write_text(
        f"transfer: {table}\nsource: postgres://public.{table}\n"
        f"hops: [clickhouse://warehouse.{table}]\nkey: id\nranges: {{count: 4}}\n"
    )
    shutil.copy(ROOT / "docker/dagster.yaml", home)
    grpc, web = free_port(), free_port()
    workspace = (ROOT / "docker/workspace.yaml").read_text()
    workspace = workspace.replace("host: code-server", "host: 127.0.0.1")
    (folder / "workspace.yaml").write_text(workspace.replace("port: 4000", f"port: {grpc}"))
    (folder / "env").mkdir()  # Dagster would take up an .env of its working folder
    secrets, storage = new_secrets(folder / "env"), urlsplit(stack.postgres_url)
    ours = stack.environment() | {
        "TABLEFERRY_TRANSFERS": str(transfers),
        "DAGSTER_HOME": str(home),
        "DAGSTER_POSTGRES_HOST": storage.hostname or "",
        "DAGSTER_POSTGRES_PORT": str(storage.port),
        "DAGSTER_POSTGRES_USER": storage.username or "",
        "DAGSTER_POSTGRES_PASSWORD": storage.password or "",
        "DAGSTER_POSTGRES_DB": database,
    }
    started: list[Container] = []

    def start(service: str) -> Container:
        needed = settings(service, secrets, {})
        arguments = command(
            service,
            ("0.0.0.0", "127.0.0.1"),
            ("4000", str(grpc)),
            ("3000", str(web)),
            ("/opt/tableferry/workspace.yaml", str(folder / "workspace.yaml")),
        )
        environment = {name: ours.get(name, "") for name in needed}
        # a busy machine takes longer than Dagster's minute for a process to come up
        environment |= {"DAGSTER_HOME": str(home), "DAGSTER_GRPC_TIMEOUT_SECONDS": "300"}
        environment |= FORKED_RUNS
        container = Container(
            uuid.uuid4().hex[:12], arguments, environment, folder / f"{service}.log"
        )
        started.append(container)
        if service != "daemon":
            port = grpc if service == "code-server" else web
            until(service, lambda: listens(container, port), seconds=240)
        return container

    with pytest.MonkeyPatch.context() as patch:
        for name, value in ours.items():
            patch.setenv(name, value)
        session = open_session()
        transfer = session.transfer(table)
        plan = plan_transfer(transfer, session.servers, session.instance, purpose="cut")
        apply_growth(plan, session.servers, session.instance)
        try:
            code_server = start("code-server")
            start("webserver")
            start("daemon")
            ui = f"http://127.0.0.1:{web}"
            ports = {"4000": grpc, "3000": web, "4001": free_port()}
            yield Deployment(start, code_server, ui, session, table, stack.postgres_url, ports)
        finally:
            for container in started:
                container.kill()
            session.servers.endpoints["clickhouse"].execute(
                f"DROP TABLE IF EXISTS warehouse.{table}"
            )
            session.instance.dispose()


def listens(container: Container, port: int) -> bool:
    assert container.running, container.log.read_text()
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_run_from_the_ui_moves_the_table_and_shows_what_it_prints(deployment: Deployment) -> None:
    run = deployment.ended(deployment.launch())
    assert run.status is dg.DagsterRunStatus.SUCCESS, deployment.said(run.run_id)
    servers = deployment.session.servers
    moved = servers.endpoints["clickhouse"].query(
        f"SELECT count(*) FROM warehouse.{deployment.table}"
    )
    assert moved == [(ROWS,)]

    captured = deployment.session.instance.all_logs(
        run.run_id, of_type=dg.DagsterEventType.LOGS_CAPTURED
    )
    assert captured
    assert captured[0].dagster_event is not None
    data: Any = captured[0].dagster_event.event_specific_data
    logs = graphql(
        deployment.ui,
        "query ($key: [String!]!) { capturedLogs(logKey: $key) { stdout stderr } }",
        key=[run.run_id, "compute_logs", data.file_key],
    )["capturedLogs"]
    assert "STEP_SUCCESS" in logs["stderr"], "the webserver reads what the code server wrote"


REAP = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import dagster as dg
from tableferry.sensors.reaper import reap
print(reap(dg.DagsterInstance.get()))
"""


def test_the_reaper_of_a_recreated_container_ends_the_runs_of_the_old_one(
    deployment: Deployment, tmp_path: Path
) -> None:
    with deployment.stuck() as run_id:
        first = deployment.process(run_id)
        second = deployment.code_server.beside([sys.executable, "-c", REAP], tmp_path / "log")
        assert second.splitlines()[-1] == "[]", "the run lives, in a container of the same name"
        deployment.code_server.kill()
        run = deployment.session.instance.get_run_by_id(run_id)
        assert run is not None and run.status is dg.DagsterRunStatus.STARTED
        deployment.code_server = deployment.start("code-server")
        assert deployment.ended(run_id).status is dg.DagsterRunStatus.FAILURE
    assert "is gone" in deployment.said(run_id)

    again = deployment.ended(deployment.launch())
    assert again.status is dg.DagsterRunStatus.SUCCESS, "its pool slot is free"
    assert str(deployment.process(again.run_id)).split(":")[0] != str(first).split(":")[0]


def test_a_run_that_takes_too_long_is_ended(deployment: Deployment) -> None:
    with deployment.stuck(max_runtime="5") as run_id:
        number = str(deployment.process(run_id)).split(":")[1]
        worker = deployment.code_server.process(int(number))
        assert deployment.ended(run_id).status is dg.DagsterRunStatus.FAILURE
    assert "maximum runtime of 5 seconds" in deployment.said(run_id)
    until("the worker's end", lambda: worker not in deployment.code_server.processes())


@pytest.mark.parametrize("service", ["code-server", "webserver", "daemon"])
def test_the_health_checks_tell_who_is_there(deployment: Deployment, service: str) -> None:
    kind, *check = SERVICES[service]["healthcheck"]["test"]
    assert kind == "CMD"
    assert deployment.run(check) == 0
    if service == "code-server":
        assert deployment.run([one.replace("4000", "4001") for one in check]) != 0
