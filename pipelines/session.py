"""What every command works with: the transfers, their servers, and Dagster's memory."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from assets.journey import Servers
from assets.manifest import Transfer, load_transfers
from pipelines.settings import CLICKHOUSE_URL, POSTGRES_URL, SQLSERVER_URL, URLS, transfers_folder
from resources.clickhouse import ClickHouseResource
from resources.errors import InputError
from resources.postgres import PostgresResource
from resources.sqlserver import SqlServerResource
from sensors.reaper import reap

DAGSTER_HOME = "DAGSTER_HOME"
DEFAULT_HOME = ".dagster_home"


@dataclass(frozen=True)
class Session:
    """The declared transfers, their servers, and the Dagster instance that remembers."""

    instance: dg.DagsterInstance
    transfers: dict[str, Transfer]
    servers: Servers

    def transfer(self, name: str) -> Transfer:
        """The transfer of that name.

        Raises:
            InputError: there is none.
        """
        if name not in self.transfers:
            raise InputError(
                f"there is no transfer {name!r} in {transfers_folder()}; "
                f"there are {', '.join(self.transfers) or 'none'}"
            )
        return self.transfers[name]


def open_session() -> Session:
    """Read the transfer files, find the servers, open the Dagster instance.

    With none of the `TABLEFERRY_*_URL` variables set, the local stack is started and used. Runs
    whose process is gone are marked failed first: one that was killed would look alive, and keep
    the next one waiting for its pool slot.

    Raises:
        InputError: a transfer file is wrong.
        TableferryError: the local stack does not start.
    """
    transfers = load_transfers(transfers_folder())
    use_local_stack()
    instance = open_instance()
    reap(instance)
    return Session(
        instance,
        transfers,
        Servers(
            PostgresResource(url=os.environ.get(POSTGRES_URL)),
            SqlServerResource(url=os.environ.get(SQLSERVER_URL)),
            ClickHouseResource(url=os.environ.get(CLICKHOUSE_URL)),
        ),
    )


def use_local_stack() -> None:
    """Point the environment at the local stack, unless it points at servers already."""
    if any(os.environ.get(variable) for variable in URLS):
        return
    from local.stack import Stack

    stack = Stack()
    stack.up()
    os.environ.update(stack.environment())


def open_instance() -> dg.DagsterInstance:
    """The instance in `DAGSTER_HOME`, or in `.dagster_home` here, made on first use."""
    home = Path(os.environ.get(DAGSTER_HOME) or DEFAULT_HOME).absolute()
    home.mkdir(parents=True, exist_ok=True)
    config = home / "dagster.yaml"
    if not config.exists():
        shutil.copyfile(Path(__file__).parent / "dagster.yaml", config)
    os.environ[DAGSTER_HOME] = str(home)
    return dg.DagsterInstance.get()
