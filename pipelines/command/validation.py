"""Checks the declared transfers against the servers, without changing anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.yaml_lines import Location
from tableferry.assets.log.ledger import committed_schema
from tableferry.assets.planning.drift import misfits, new_columns, refusal
from tableferry.assets.planning.resolve import Hop, resolve_hops, with_wires
from tableferry.assets.planning.transfer_plan import require_cuts
from tableferry.checks.expectations import validate_suite
from tableferry.pipelines.command.session import Session
from tableferry.resources.columns.scan import decimal_types
from tableferry.resources.errors import (
    ColumnsRefused,
    ConnectionFailed,
    InputError,
    TableferryError,
    TypeRefused,
)
from tableferry.resources.ranges.key_kind import key_kind

Found = Iterator[tuple[Location, str]]


def validate(session: Session, names: Sequence[str] = ()) -> dict[str, list[str]]:
    """Problems per transfer, by file and line; an empty list means that the transfer can run.

    Args:
        session: where the transfers and servers are.
        names: these transfers only; all valid files when empty.

    Raises:
        InputError: a name is no transfer.
        ConnectionFailed: a server cannot be reached, so that nothing can be said.
    """
    chosen = [session.transfer(name) for name in names] or list(session.transfers.values())
    found: dict[str, list[str]] = {}
    for transfer in chosen:
        file = session.declared.files[transfer.transfer]
        problems = [file.problem(*one) for one in _problems(transfer, session)]
        found[transfer.transfer] = [
            str(problem) for problem in sorted(problems, key=lambda one: one.line)
        ]
    return found


def _problems(transfer: Transfer, session: Session) -> Found:
    servers = session.servers_of(transfer)
    try:
        hops = resolve_hops(transfer, servers)
    except ConnectionFailed:
        raise
    except ColumnsRefused as error:
        for name, message in error.problems.items():
            yield _column(transfer, name), message
        if isinstance(error, TypeRefused):
            yield from _decimals(transfer, session)
        return
    except TableferryError as error:
        for line in str(error).splitlines():
            yield _place(transfer, line), line
        return
    try:
        key_kind(hops[0].plan.key.source, transfer.source.system)
    except InputError as error:
        yield ("key",), str(error)
    else:
        try:
            require_cuts(transfer, hops[0])
        except InputError as error:
            yield ("ranges",), str(error)
    columns = [column.name for column in hops[0].plan.target_columns]
    for number, expectation in enumerate(transfer.suite):
        try:
            validate_suite([expectation], columns)
        except InputError as error:
            yield ("expectations", number), str(error)
    for hop in hops:
        try:
            with_wires(transfer, [hop], servers)
        except InputError as error:
            yield ("hops", hop.number - 1), str(error)
        for message in _differences(hop, transfer, session):
            yield ("hops", hop.number - 1), message


def _differences(hop: Hop, transfer: Transfer, session: Session) -> Iterator[str]:
    """Why the target as it is does not take what is planned; nothing if it is still to be made."""
    target, policy = hop.plan.target, transfer.on_schema_drift
    if hop.existing is None:
        return
    before = session.read(lambda log: committed_schema(log, hop.spec.to))
    drifted = refusal(hop.plan, hop.existing, before, policy)
    if drifted:
        yield drifted
    if not drifted and policy != "add_columns":
        lacking = new_columns(hop.plan, hop.existing)
        yield from (f"{target} lacks the column {column.name}" for column in lacking)
    yield from misfits(hop.plan, hop.existing)


def _column(transfer: Transfer, name: str) -> Location:
    """Where the file speaks of a column, by the name that it has in any of the tables."""
    for declared, column in transfer.columns.items():
        if name in (declared, column.rename):
            return ("columns", declared)
    if name == transfer.key:
        return ("key",)
    return ("exclude", name) if name in transfer.exclude else ("source",)


def _place(transfer: Transfer, message: str) -> Location:
    """The table that a message names: the later ones first, as they may be part of the source."""
    for number, hop in reversed(list(enumerate(transfer.hops))):
        if str(hop.to) in message:
            return ("hops", number)
    return ("source",)


def _decimals(transfer: Transfer, session: Session) -> Found:
    """What would hold the bare numeric columns, which have no scale of their own."""
    source = session.servers_of(transfer).endpoint(transfer.source)
    columns = [
        column
        for column in source.columns(transfer.source)
        if column.name not in transfer.columns and column.name not in transfer.exclude
    ]
    types = decimal_types(source, transfer.source, columns, transfer.hops[0].to.system)
    for name, fitting in types.items():
        yield (
            ("source",),
            f'columns: {{{name}: {{type: "{fitting.type}"}}}}: {fitting.held}',
        )
