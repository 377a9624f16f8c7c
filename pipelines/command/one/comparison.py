"""Compares any two tables that a user names, with no transfer."""

from __future__ import annotations

import re
from dataclasses import replace

from tableferry.assets.planning.servers import Servers
from tableferry.checks.comparing.pairing import ComparisonScope, Pairing, pair
from tableferry.checks.comparing.tables import TableComparison, compare_tables
from tableferry.checks.levels import Level
from tableferry.checks.recheck import Recheck
from tableferry.resources.connecting.names import system_of, table_of
from tableferry.resources.contract.catalog import inspection_of
from tableferry.resources.contract.source import columns_of_rows
from tableferry.resources.errors import InputError, RowsHidden
from tableferry.resources.tables import TableRef

_QUERY = re.compile(r"(?P<connection>\w+):(?!//)\s*(?P<query>\S.*)", re.DOTALL)


def is_query(text: str) -> bool:
    """Whether a reference is a query behind the name of its connection."""
    return _QUERY.fullmatch(text.strip()) is not None


def compared_table(text: str) -> TableRef:
    """Read a reference to a table, or a query behind the name of its connection.

    Raises:
        InputError: it is neither, or the system of the connection runs no queries.
    """
    match = _QUERY.fullmatch(text.strip())
    if match is None:
        return table_of(text)
    connection = match["connection"].lower()
    system = system_of(connection)
    if system.by_path:
        raise InputError(f"{text!r}: {system.title} are compared by their names, not by a query")
    query = match["query"].rstrip().rstrip(";")
    return TableRef(system.name, "", "query", connection, query=query)


def reading_final(servers: Servers, *tables: TableRef) -> Servers:
    """Return the servers with the newest versions of the tables' rows, as FINAL shows them.

    Raises:
        InputError: all of them are queries.
    """
    versioned = [table for table in tables if not table.query]
    if not versioned:
        raise InputError("FINAL is asked for tables; in a query, write it where it belongs")
    return replace(servers, versioned=versioned)


def paired(servers: Servers, first: TableRef, second: TableRef, scope: ComparisonScope) -> Pairing:
    """Find how two tables are compared.

    Raises:
        RowsHidden: row-level security hides rows of one of them.
        InputError: they have nothing in common, or the scope names what is not there.
    """
    columns = []
    for table in (first, second):
        endpoint = servers.endpoint(table)
        if not table.query:
            why, _ = inspection_of(table.system).withheld_from(endpoint, table)
            if why:
                raise RowsHidden(f"{table}: {why}")
        columns.append(columns_of_rows(endpoint, table))
    pairing = pair(first, columns[0], second, columns[1], scope)
    unversioned = servers.unversioned(pairing.plan, servers.versioned)
    final = tuple(table for table, why in unversioned.items() if why is None)
    if unversioned and not final:
        raise InputError("; ".join(f"{table}: {why}" for table, why in unversioned.items()))
    return replace(pairing, plan=replace(pairing.plan, final=final))


def compare_pair(
    servers: Servers,
    pairing: Pairing,
    level: Level,
    *,
    ranges: int | None = None,
    recheck: Recheck | None = None,
) -> TableComparison:
    """Compare two tables; see `compare_tables`.

    Raises:
        InputError: rows are to be looked at again, and there is no key to find them by.
    """
    if recheck and not pairing.keyed:
        raise InputError("--recheck looks at rows, which need a key: --key COLUMNS")
    source = servers.endpoint(pairing.plan.source)
    target = servers.endpoint(pairing.plan.target)
    with source.read_beside(target):
        return compare_tables(pairing, source, target, level, ranges=ranges, recheck=recheck)
