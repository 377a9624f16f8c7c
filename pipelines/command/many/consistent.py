"""`ferry run --consistent`: all tables of a set are read in one state of their source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.servers import require_servers
from tableferry.pipelines.command.session import Session
from tableferry.resources.contract.snapshots import HeldSnapshot, SetSnapshot
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import InputError, SnapshotLost
from tableferry.resources.tables import TableRef
from tableferry.resources.words import counted, listed


@dataclass(frozen=True)
class Consistency:
    """The snapshots that a set of transfers reads; none if the set need not be consistent."""

    snapshots: Mapping[str, SetSnapshot] = field(default_factory=dict)
    """By name of the source's connection."""
    blind: Sequence[str] = ()
    """The transfers whose fingerprints do not see every change."""

    @property
    def held(self) -> dict[str, HeldSnapshot]:
        """The snapshots that the transfers join, by name of the source's connection."""
        return {connection: snapshot.held for connection, snapshot in self.snapshots.items()}

    def lost(self) -> Iterator[str]:
        """Say which snapshots cannot be joined any more."""
        for connection, snapshot in self.snapshots.items():
            try:
                snapshot.check()
            except SnapshotLost as error:
                yield f"{connection}: {error}"

    def not_run(self, lost: Sequence[str], names: Sequence[str]) -> list[str]:
        """Say what the loss of snapshots has kept from running, and what to do."""
        rest = f"; not run: {listed(names)}" if names else ""
        remedy = "what is committed is recorded as of it; a new run takes a new snapshot for all"
        return [f"{line}{rest}; {remedy}" for line in lost]

    def beginning(self) -> Iterator[str]:
        """Name the snapshot of each connection, before anything is read."""
        for connection, held in self.held.items():
            yield f"{connection}: reading as of snapshot {_named(held)}"

    def lines(self, *, complete: bool) -> Iterator[str]:
        """Name each connection's snapshot.

        Args:
            complete: whether all transfers have succeeded.
        """
        which = "all tables are" if complete and not self.blind else "what was proven is"
        for connection, held in self.held.items():
            yield f"{connection}: {which} as of snapshot {_named(held)}"
        if self.blind:
            yield (
                "unchanged ranges of these transfers are so only as far as their fingerprints see "
                f"changes (--force moves them): {listed(self.blind)}"
            )

    def document(self) -> dict[str, Any]:
        """Return what `--json` says of it."""
        snapshots = {
            connection: {"snapshot": held.state, "position": held.position}
            for connection, held in self.held.items()
        }
        return {"snapshots": snapshots} if snapshots else {}


@contextmanager
def consistency(session: Session, names: Sequence[str]) -> Iterator[Consistency]:
    """Hold one snapshot of each source connection of the named transfers.

    Raises:
        InputError: a source has no snapshot that several sessions can read, or is not part of it.
        ConnectionFailed: a server cannot be reached.
    """
    transfers = [session.transfer(name) for name in names]
    _require_snapshots(transfers)
    by_connection: dict[str, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        require_servers(transfer, session.servers)
        by_connection[transfer.source.connection].append(transfer)
    with ExitStack() as holding:
        snapshots: dict[str, SetSnapshot] = {}
        for connection, group in by_connection.items():
            sending = source_of(group[0].source.system)
            endpoint = session.servers.endpoint(group[0].source)
            _require_inside(group, sending.outside_snapshots(endpoint, _sources(group)))
            endpoint = session.servers.endpoint(group[0].source)  # a small pool is known by now
            snapshots[connection] = holding.enter_context(sending.set_snapshot(endpoint))
        blind = [item.transfer for item in transfers if not item.sees_all_changes]
        yield Consistency(snapshots, blind)


def _sources(transfers: Sequence[Transfer]) -> list[TableRef]:
    return [transfer.source for transfer in transfers]


def _require_inside(transfers: Sequence[Transfer], outside: Mapping[TableRef, str]) -> None:
    """Refuse transfers whose source is not read in the state of the snapshot.

    Raises:
        InputError: names them, and says why.
    """
    refused = [
        f"--consistent: {transfer.transfer}: {transfer.source} {outside[transfer.source]}, which "
        "no snapshot of this server shows; move it without --consistent, or from its own server"
        for transfer in transfers
        if transfer.source in outside
    ]
    if refused:
        raise InputError("\n".join(refused))


def _named(held: HeldSnapshot) -> str:
    return f"{held.state}{f', position {held.position}' if held.position else ''}"


def _require_snapshots(transfers: Sequence[Transfer]) -> None:
    """Refuse transfers whose source cannot be read in one state by several sessions.

    Raises:
        InputError: names the transfers, and says what to do.
    """
    without: dict[str, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        if not source_of(transfer.source.system).snapshots:
            without[transfer.source.connection].append(transfer)
    problems = []
    for connection, refused in without.items():
        system = refused[0].source.system
        problems.append(
            f"--consistent: {system.title} has no snapshot that several sessions can read, and "
            f"{counted(len(refused), 'transfer')} from {connection} would need one: "
            f"{listed([item.transfer for item in refused])}; move them without --consistent from "
            f"{source_of(system).instead_of_snapshot}"
        )
    if problems:
        raise InputError("\n".join(problems))
