"""What every command works with: the transfers, their servers, and Dagster's memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tableferry.assets.declaring.dagster_rules import accepted_before
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder, load_transfers
from tableferry.assets.log.glance import Glance, Unseen, glance
from tableferry.assets.log.reading import Log
from tableferry.assets.planning.resolve import Servers
from tableferry.pipelines import event_log
from tableferry.pipelines.command import known
from tableferry.pipelines.command.garbage import look_as_usual
from tableferry.pipelines.command.plugins import start_local_stack
from tableferry.pipelines.settings import configured, servers, transfers_folder
from tableferry.resources.connections import is_path

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
    """Of the instance, where its event log may be looked at without it."""
    accept: Callable[[], None] = lambda: None
    """Has Dagster accept what the files declare, before anything is recorded: `open_session`."""

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        """The Dagster instance; Dagster is imported when it is first wanted."""
        return self.opened()

    @contextmanager
    def glance(self) -> Iterator[Glance | None]:
        """The event log as its file has it; None if Dagster has to be asked."""
        opened = glance(self.home) if self.home else None
        with opened or nullcontext() as connection:
            yield Glance(connection) if connection else None

    def read(self, ask: Callable[[Log], Answer]) -> Answer:
        """What is found in the event log: at a glance if it can be, or else by Dagster.

        Args:
            ask: changes nothing; it is asked again if the file is not as expected.
        """
        with suppress(Unseen), self.glance() as seen:
            if seen is not None:
                return ask(seen)
        return ask(self.instance)

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
    *names: str,
    records: bool = True,
    asks: bool = True,
    tells_invalid: bool = True,
    accepts_later: bool = False,
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
        accepts_later: what Dagster has to be asked of the files, the command has it asked by
            `Session.accept`, which raises what is raised here; until then it takes them as valid.

    Raises:
        InputError: one of the named transfers does not exist, or its file is invalid.
        TableferryError: the local stack does not start.
    """
    look_as_usual()
    folder = transfers_folder()
    of_files = known.key(folder)
    declared, accepted = _declared(folder, of_files, accepts_later=accepts_later)
    told: list[str] = []

    def check(found: TransferFolder) -> None:
        for name in names:
            found.transfer(name)
        if tells_invalid:
            tell_invalid(found, told)
        told[:] = invalid_lines(found)

    def remember() -> None:
        if accepted and event_log.exists():
            known.remember(event_log.place(), of_files, declared, told)

    def opened() -> dg.DagsterInstance:
        instance = event_log.open_to_record() if records else event_log.open_to_read()
        remember()
        return instance

    def accept() -> None:
        nonlocal accepted, declared
        if not accepted:
            declared = load_transfers(folder)
            check(declared)
            accepted = True
            remember()

    check(declared)
    if asks:
        use_local_stack()
    remember()
    session = Session(opened, declared, _servers(), home=event_log.place(), accept=accept)
    with session.glance() as seen:
        if seen is None:
            from tableferry.sensors.reaper import reap

            reap(session.instance)
    return session


def _declared(
    folder: Path, of_files: str | None, *, accepts_later: bool
) -> tuple[TransferFolder, bool]:
    """The transfers of a folder, and whether Dagster accepts them.

    What it has accepted of these files it is not asked again.
    """
    seen = known.recall(event_log.place(), of_files)
    before = set(seen.transfers) if seen and not seen.told else None
    if accepts_later or before is not None:
        with accepted_before():
            declared = load_transfers(folder)
        accepted = set(declared.transfers) == before
        if accepted or accepts_later:
            return declared, accepted
    return load_transfers(folder), True


def configured_servers() -> tuple[Servers, list[str]]:
    """The servers, and which of them the environment names; without any, the local stack's.

    Raises:
        TableferryError: the local stack does not start.
    """
    use_local_stack()
    return _servers(), configured()


def _servers() -> Servers:
    return Servers(servers())


def tell_invalid(declared: TransferFolder, told: Collection[str] = ()) -> None:
    """Name each invalid transfer file on stderr, unless it was told before."""
    for line in invalid_lines(declared):
        if line not in told:
            click.echo(line, err=True)


def invalid_lines(declared: TransferFolder) -> Iterator[str]:
    """What there is to say of each invalid transfer file."""
    for file in declared.invalid:
        first, *more = file.problems
        rest = f" (and {len(more)} more: ferry validate)" if more else ""
        # what is wrong may stand in the defaults
        name = "" if first.path == file.path else f"{file.path.name}: "
        yield f"ferry: left out {name}{first}{rest}"


def use_local_stack() -> None:
    """Point the environment at the local stack, unless it points at servers already.

    Raises:
        InputError: there is no local stack, because tableferry-local is not installed.
        TableferryError: it does not start.
    """
    if any(not is_path(name) for name in configured()):
        return
    os.environ.update(start_local_stack())
