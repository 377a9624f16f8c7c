"""What every command works with: the transfers, their servers, and Dagster's memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder, load_transfers
from tableferry.assets.log import sqlite_home
from tableferry.assets.log.asking import Log
from tableferry.assets.planning.resolve import Servers
from tableferry.pipelines import event_log
from tableferry.pipelines.command.plugins import start_local_stack
from tableferry.pipelines.settings import configured, servers, transfers_folder
from tableferry.resources.connecting.names import is_path

if TYPE_CHECKING:
    import dagster as dg

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Session:
    """The declared transfers, their servers, and the Dagster instance that remembers."""

    opened: Callable[[], dg.DagsterInstance]
    """Opens the instance."""
    declared: TransferFolder
    servers: Servers
    resources: Mapping[str, object] | None = None
    """The servers as Dagster's resources; None for those that the environment names."""
    home: Path | None = None
    """Of the instance, where its event log may be read without it."""

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        """The Dagster instance; Dagster is imported when it is first wanted."""
        return self.opened()

    def read(self, ask: Callable[[Log], Answer]) -> Answer:
        """What is found in the event log, without importing Dagster as long as no run goes on."""
        files = sqlite_home.quiet(self.home) if self.home else None
        with files or nullcontext() as opened:
            return ask(opened or self.instance)

    @property
    def quiet(self) -> bool:
        """Whether the event log can be read without Dagster, so that no run goes on."""
        files = sqlite_home.quiet(self.home) if self.home else None
        with files or nullcontext() as opened:
            return opened is not None

    def servers_of(self, transfer: Transfer) -> Servers:
        """The servers as a transfer wants to see them."""
        return self.servers.serving(transfer)

    @property
    def transfers(self) -> dict[str, Transfer]:
        """The valid transfers by name, in name order."""
        return self.declared.transfers

    def transfer(self, name: str) -> Transfer:
        """The transfer of that name.

        Raises:
            InputError: there is none, or what is wrong with its file.
        """
        return self.declared.transfer(name)


def open_session(
    *names: str, records: bool = True, asks: bool = True, tells_invalid: bool = True
) -> Session:
    """Read the transfer files, find the servers, open the Dagster instance.

    With no server named in the environment, the local stack is started and used. Runs
    whose process is gone are marked failed first: one that was killed would look alive, and keep
    the next one waiting for its pool slot.

    Invalid transfer files are left out.

    Args:
        names: the transfers that the command is about.
        records: the command records something: an event log is made if there is none.
        asks: the command asks servers.
        tells_invalid: name the invalid files on stderr.

    Raises:
        InputError: one of the named transfers does not exist, or its file is invalid.
        TableferryError: the local stack does not start.
    """
    declared = load_transfers(transfers_folder())
    for name in names:
        declared.transfer(name)
    if tells_invalid:
        tell_invalid(declared)
    if asks:
        use_local_stack()
    opened = event_log.open_to_record if records else event_log.open_to_read
    session = Session(opened, declared, _servers(), home=event_log.place())
    if not session.quiet:
        from tableferry.sensors.reaper import reap

        reap(session.instance)
    return session


def configured_servers() -> tuple[Servers, list[str]]:
    """The servers, and which of them the environment names; without any, the local stack's.

    Raises:
        TableferryError: the local stack does not start.
    """
    use_local_stack()
    return _servers(), configured()


def _servers() -> Servers:
    return Servers(servers())


def tell_invalid(declared: TransferFolder) -> None:
    """Name each invalid transfer file on stderr."""
    for file in declared.invalid:
        first, *more = file.problems
        rest = f" (and {len(more)} more: ferry validate)" if more else ""
        # what is wrong may stand in the defaults
        name = "" if first.path == file.path else f"{file.path.name}: "
        click.echo(f"ferry: left out {name}{first}{rest}", err=True)


def use_local_stack() -> None:
    """Point the environment at the local stack, unless it points at servers already.

    Raises:
        InputError: there is no local stack, because tableferry-local is not installed.
        TableferryError: it does not start.
    """
    if any(not is_path(name) for name in configured()):
        return
    os.environ.update(start_local_stack())
