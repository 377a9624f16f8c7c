"""Checks the declared transfers against the servers, without changing anything."""

from __future__ import annotations

from collections.abc import Sequence

from assets.journey import resolve_hops
from assets.manifest import Transfer
from checks.expectations import validate_suite
from pipelines.session import Session
from resources.errors import ConnectionFailed, TableferryError, TableMissing, TypeRefused
from resources.keykind import key_kind
from resources.types import compatible, decimal_types


def validate(session: Session, names: Sequence[str] = ()) -> dict[str, list[str]]:
    """Problems per transfer, in words; an empty list means that the transfer can run.

    Args:
        session: where the transfers and servers are.
        names: these transfers only; all when empty.

    Raises:
        InputError: a name is no transfer.
        ConnectionFailed: a server cannot be reached, so that nothing can be said.
    """
    chosen = [session.transfer(name) for name in names] or list(session.transfers.values())
    found: dict[str, list[str]] = {}
    for transfer in chosen:
        problems: list[str] = []
        try:
            hops = resolve_hops(transfer, session.servers)
            key_kind(hops[0].plan.key.source, transfer.source.system)
            if transfer.suite:
                columns = [column.name for column in hops[0].plan.target_columns]
                validate_suite(transfer.suite, columns)
        except ConnectionFailed:
            raise
        except TypeRefused as error:
            found[transfer.transfer] = [*str(error).split("; "), *_decimals(transfer, session)]
            continue
        except TableferryError as error:
            found[transfer.transfer] = str(error).splitlines()
            continue
        for hop in hops:
            endpoint = session.servers.endpoint(hop.plan.target.system)
            endpoint.ping()
            try:
                actual = {column.name: column for column in endpoint.columns(hop.plan.target)}
            except TableMissing:
                continue
            for planned in hop.plan.target_columns:
                if planned.name not in actual:
                    problems.append(f"{hop.plan.target} lacks the column {planned.name}")
                elif reason := compatible(hop.plan.target.system, planned, actual[planned.name]):
                    problems.append(f"{hop.plan.target}: column {planned.name!r} {reason}")
        found[transfer.transfer] = problems
    return found


def _decimals(transfer: Transfer, session: Session) -> list[str]:
    """What would hold the bare numeric columns, which have no scale of their own."""
    source = session.servers.endpoint(transfer.source.system)
    columns = [
        column
        for column in source.columns(transfer.source)
        if column.name not in transfer.columns and column.name not in transfer.exclude
    ]
    types = decimal_types(source, transfer.source, columns, transfer.hops[0].to.system)
    return [
        f"all values of {name!r} now fit into {declared}: columns: {{{name}: {{type: "
        f'"{declared}"}}}}'
        for name, declared in types.items()
    ]
