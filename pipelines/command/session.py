"""The session of a command: the transfers, which of them it is about, servers and event log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder, load_transfers
from tableferry.assets.log.queries import Log, quiet
from tableferry.assets.planning.servers import Servers
from tableferry.assets.running.source_slots import sharing
from tableferry.pipelines import event_log, settings
from tableferry.pipelines.command.plugins import start_local_stack
from tableferry.resources.connecting.names import is_path
from tableferry.resources.errors import InputError
from tableferry.resources.words import those_there
from tableferry.sensors.sending import require_valid_variables

if TYPE_CHECKING:
    import dagster as dg

    from tableferry.pipelines.command.shell import Chosen


Answer = TypeVar("Answer")

LOOKED_AT_ONCE = 100
"""Transfers about whose tables the catalogs are read at once."""


@dataclass(frozen=True)
class Session:
    """The declared transfers, their servers, and the Dagster instance."""

    open_instance: Callable[[], dg.DagsterInstance]
    declared: TransferFolder
    servers: Servers
    resources: Mapping[str, object] | None = None
    """The servers as Dagster resources; None: built from the environment."""
    home: Path | None = None
    """The Dagster home, if its files may be read without Dagster."""

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        """The Dagster instance, opened on first use, which imports Dagster."""
        return self.open_instance()

    def ask_log(self, query: Callable[[Log], Answer]) -> Answer:
        """Query the event log, without importing Dagster while no run is active."""
        with self._files() as log:
            return query(log or self.instance)

    @property
    def quiet(self) -> bool:
        """Whether the event log can be read without Dagster, because no run is active."""
        with self._files() as log:
            return log is not None

    def _files(self) -> AbstractContextManager[Log | None]:
        return (quiet(self.home) if self.home else None) or nullcontext()

    def servers_of(self, transfer: Transfer) -> Servers:
        """Return the servers with the settings of a transfer."""
        beside = self.declared.namesakes.get(transfer.transfer, ())
        return replace(self.servers.serving(transfer), namesakes=beside)

    def looks(self, names: Sequence[str]) -> Iterator[tuple[Sequence[str], Session]]:
        """Yield batches of transfers, each with a session that reads the catalogs about all of its
        tables at once; see `Servers.looking_ahead`."""
        for start in range(0, len(names), LOOKED_AT_ONCE):
            batch = names[start : start + LOOKED_AT_ONCE]
            tables = chain.from_iterable(self.transfer(name).tables for name in batch)
            yield batch, replace(self, servers=self.servers.looking_ahead(tables))

    @property
    def transfers(self) -> dict[str, Transfer]:
        """The valid transfers, sorted by name."""
        return self.declared.transfers

    def transfer(self, name: str) -> Transfer:
        """Return a transfer by its name.

        Raises:
            InputError: the transfer does not exist, or its file is invalid.
        """
        return self.declared.transfer(name)

    def moving_transfer(self, name: str) -> Transfer:
        """Return a transfer by its name, for a command that plans or does moves.

        Raises:
            InputError: the transfer does not exist, its file is invalid, or it moves nothing.
        """
        transfer = self.transfer(name)
        if not transfer.write.moves:
            raise InputError(
                f"{name} has 'write: {transfer.write}', which moves nothing: `ferry check {name}` "
                "compares its tables"
            )
        return transfer


def open_session(
    *names: str, records: bool = True, queries: bool = True, warns: bool = True
) -> Session:
    """Read the transfer files, find the servers, and open the Dagster instance.

    Without configured servers, the local stack is started and used. Runs whose process has died
    are marked as failed, because they would keep the next run waiting for their pool slot. Invalid
    transfer files are left out.

    Args:
        names: the transfers that the command needs.
        records: whether the command writes to the event log, which is created if there is none.
        queries: whether the command queries servers.
        warns: name invalid files on stderr.

    Raises:
        InputError: a named transfer does not exist, or its file is invalid.
        TableferryError: the local stack does not start.
    """
    require_valid_variables(sends=False)
    declared = load_transfers(settings.transfers_folder())
    for name in names:
        declared.transfer(name)
    if warns:
        warn_of_invalid(declared)
    if queries:
        use_local_stack()
    open_instance = event_log.open_to_record if records else event_log.open_to_read
    shared = Servers(settings.servers(), sharing(lambda: session.instance))
    session = Session(open_instance, declared, shared, home=event_log.home_path())
    if not session.quiet:
        from tableferry.sensors.reaper import reap

        reap(session.instance)
    return session


def configured_servers() -> tuple[Servers, list[str]]:
    """Return the servers and the configured connections; without any, those of the local stack.

    Raises:
        TableferryError: the local stack does not start.
    """
    use_local_stack()
    return Servers(settings.servers(), sharing(event_log.open_to_record)), settings.configured()


def warn_of_invalid(declared: TransferFolder) -> None:
    """Name each invalid transfer file on stderr."""
    for file in declared.invalid:
        first, *more = file.problems
        rest = f" (and {len(more)} more: ferry validate)" if more else ""
        # the problem may be in the file of defaults
        name = "" if first.path == file.path else f"{file.path.name}: "
        click.echo(f"ferry: left out {name}{first}{rest}", err=True)


def use_local_stack() -> None:
    """Start the local stack and set its URLs in the environment, unless servers are configured.

    Raises:
        InputError: tableferry-local is not installed.
        TableferryError: the local stack does not start.
    """
    if any(not is_path(name) for name in settings.configured()):
        return
    os.environ.update(start_local_stack())


def select_transfers(session: Session, chosen: Chosen, *, moving: bool = False) -> list[str]:
    """Return the names of the transfers that a user chooses.

    With `moving`, transfers that move nothing are left out, unless they are named.

    Raises:
        InputError: not exactly one way of selection is used, or nothing matches.
    """
    tags = chosen.tags
    if sum((bool(chosen.names), bool(tags), chosen.all)) != 1:
        raise InputError("give transfer names, --tag or --all")
    if chosen.names:
        return list(dict.fromkeys(chosen.names))
    matches = [
        name
        for name, transfer in session.transfers.items()
        if all(_tagged(transfer.tags, tag) for tag in tags) and (transfer.write.moves or not moving)
    ]
    if not matches:
        if chosen.all:
            raise InputError(
                f"there is no valid transfer in {session.declared.path}: `ferry init` writes one, "
                "or name another folder by TABLEFERRY_TRANSFERS"
            )
        declared = session.transfers.values()
        known = sorted({f"{key}={value}" for item in declared for key, value in item.tags.items()})
        raise InputError(
            f"no transfer in {session.declared.path} has the tag {' and '.join(tags)}; "
            f"{those_there(tags[0], known, 'tag')}"
        )
    return matches


def invalid_files(session: Session, done: str, chosen: Chosen) -> list[str]:
    """Name the files that `--all` could not include."""
    if not chosen.all or not session.declared.invalid:
        return []
    files = ", ".join(file.path.name for file in session.declared.invalid)
    return [f"not {done}, because they are invalid: {files}"]


def _tagged(tags: dict[str, str], wanted: str) -> bool:
    key, equals, value = wanted.partition("=")
    return key in tags and (not equals or tags[key] == value)
