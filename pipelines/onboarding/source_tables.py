"""Proposes transfers of many tables of a source: which are moved, where to, and why others are not.

`ferry init` and `ferry copy` write a file for each; `ferry refresh` writes them to a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tableferry.assets.declaring.many_tables import by_pattern, matching
from tableferry.assets.planning.servers import Servers
from tableferry.pipelines.onboarding.planning import Catalogs
from tableferry.pipelines.onboarding.proposal import (
    NO_SELECT,
    OURS,
    Proposal,
    propose,
    require_distinct,
)
from tableferry.resources.connecting.names import system_of, url_variable
from tableferry.resources.contract.catalog import Listed
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.errors import ConnectionFailed, InputError, TableferryError
from tableferry.resources.tables import TableRef
from tableferry.resources.words import counted, listed, one_line

Hops = tuple[TableRef, ...]
"""The targets of one transfer, in their order."""


def _undivided(table: TableRef, targets: Hops) -> Iterable[Hops]:
    return (targets,)


@dataclass(frozen=True)
class Wanted:
    """The tables of a source that are to be declared."""

    connection: str
    """The source's."""
    patterns: Sequence[str]
    """Shell patterns of `schema.table`, or of the table's name if without a dot."""
    exclude: Sequence[str]
    """Patterns of tables to leave out."""
    connections: Sequence[str]
    """The connections of the targets."""
    targets: Callable[[TableRef], Sequence[TableRef]]
    """Returns the targets of a table, in their order."""
    takes_view: Callable[[TableRef], bool]
    views_remedy: str
    """How a view is asked for."""
    key: Callable[[TableRef], str | None] = lambda table: None
    """Returns the column to cut a table by; None where it is to be chosen."""
    transfers: Callable[[TableRef, Hops], Iterable[Hops]] = _undivided
    """Returns the targets of each transfer of a table that is to be proposed."""
    takes_hidden: bool = False
    """Whether tables are moved of which row-level security hides rows."""
    place: Callable[[int | None], str] = lambda number: ""
    """Says where the patterns stand, or the pattern of a number: the beginning of a message."""


@dataclass(frozen=True)
class LeftOut:
    """A table that is not moved."""

    table: TableRef
    why: str
    targets: Hops = ()
    """The targets of the transfer that there is not; none if it has none at all."""


@dataclass
class Proposed:
    """The transfers that are proposed, and the tables that fit and are left out."""

    proposals: list[Proposal] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def propose_tables(servers: Servers, wanted: Wanted) -> Proposed:
    """Propose transfers of all tables that are wanted, by one look at the catalogs.

    Names of targets that are too long for their server are shortened. Columns that the login may
    not read, or that a target cannot hold, are left out.

    Args:
        servers: the servers of all connections.
        wanted: says which tables, and where to.

    Raises:
        InputError: a pattern fits no table, a server is not configured, the source has no catalog,
            or two tables have the same target.
        ConnectionFailed: a server does not answer.
    """
    _system_with_catalog(wanted.connection, wanted.place(None))
    _require_addresses(servers, [wanted.connection, *wanted.connections], wanted.place(None))
    proposed = Proposed()
    hops: dict[TableRef, Hops] = {}
    unreadable: dict[TableRef, tuple[str, ...] | None] = {}
    shortened: dict[TableRef, str] = {}
    for item in _matching(servers, wanted):
        table = item.table
        if why := _unfit(item, wanted):
            proposed.left_out.append(LeftOut(table, why))
            continue
        hops[table] = tuple(_fitting(target, shortened) for target in wanted.targets(table))
        unreadable[table] = item.unreadable
    for table, why in require_distinct(hops):
        proposed.left_out.append(LeftOut(table, why))
        del hops[table]
    transfers = [
        (table, targets) for table in hops for targets in wanted.transfers(table, hops[table])
    ]
    catalogs = Catalogs(servers, {table: hops[table] for table, _ in transfers})
    for table, targets in transfers:
        try:
            proposal = propose(table, targets, catalogs, wanted.key(table), unreadable[table])
        except ConnectionFailed:
            raise
        except TableferryError as error:
            proposed.left_out.append(LeftOut(table, reason(error, table, targets), targets))
        else:
            reasons = {target: shortened[target] for target in targets if target in shortened}
            proposed.proposals.append(replace(proposal, shortened=reasons))
    return proposed


def listed_tables(servers: Servers, connection: str, place: str = "") -> list[Listed]:
    """List the tables and views of a source, without Tableferry's own, by one query.

    Raises:
        InputError: the server's address is not set, or it has no catalog.
        ConnectionFailed: the server does not answer.
    """
    system = _system_with_catalog(connection, place)
    _require_addresses(servers, [connection], place)
    return [
        item
        for item in source_of(system).tables(servers.endpoints[connection], connection)
        if not item.table.name.startswith(OURS)
    ]


def reason(error: TableferryError, table: TableRef, targets: Sequence[TableRef]) -> str:
    """Return what an error says about a table on one line, without the names of its tables."""
    why = " ".join(str(error).split())
    for own in (table, *targets):
        why = why.removeprefix(f"{own}: ").removeprefix(f"{own} ")
    return why


def reviews(proposals: Mapping[str, Proposal]) -> Iterator[str]:
    """Describe what was decided that only a user can judge: by decision, not by table.

    Args:
        proposals: by the names that a user knows them by.
    """
    columns: dict[str, list[str]] = {}
    for name, proposal in proposals.items():
        for decision in proposal.decisions:
            review = f"{decision.why}; {decision.taken}"
            columns.setdefault(review, []).append(f"{name}.{decision.column}")
        for target, why in proposal.shortened.items():
            yield f"review {name}: {target}, {one_line(why)}"
    for review, names in columns.items():
        yield f"review {counted(len(names), 'column')}, {listed(names)}: {one_line(review)}"


def by_reason(reasons: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Group names by why they are what they are.

    Args:
        reasons: names, each with a reason.
    """
    grouped: dict[str, list[str]] = {}
    for name, why in reasons:
        grouped.setdefault(why, []).append(name)
    return grouped


def _system_with_catalog(connection: str, place: str) -> System:
    system = system_of(connection)
    if system.by_path:
        raise InputError(
            f"{place}{system.name} has no catalog of tables that could be listed; write a transfer "
            'file for each: its source is a folder, such as source: "files://landing/orders/"'
        )
    return system


def _require_addresses(servers: Servers, connections: Iterable[str], place: str) -> None:
    for name in dict.fromkeys(connections):
        if name not in servers.endpoints or not servers.endpoints[name].has_address:
            raise InputError(f"{place}{url_variable(name)} is not set; {name}:// needs it")


def _matching(servers: Servers, wanted: Wanted) -> list[Listed]:
    items = listed_tables(servers, wanted.connection, wanted.place(None))
    tables = [item.table for item in items]
    fitting = by_pattern(tables, wanted.patterns)
    for number, pattern in enumerate(wanted.patterns):
        if not fitting[pattern]:
            schemas = ", ".join(dict.fromkeys(table.schema for table in tables)) or "none"
            raise InputError(
                f"{wanted.place(number)}{pattern!r} fits none of {len(tables)} tables; a pattern "
                f"is schema.table, and the schemas are {schemas}"
            )
    chosen = set(matching(tables, wanted.patterns, wanted.exclude))
    return [item for item in items if item.table in chosen]


def _unfit(item: Listed, wanted: Wanted) -> str:
    """Why a table cannot be moved, or not without being asked for."""
    if item.view and not wanted.takes_view(item.table):
        return f"a view; {wanted.views_remedy}"
    if not item.readable:
        return NO_SELECT
    return "" if wanted.takes_hidden else item.hidden or ""


def _fitting(target: TableRef, shortened: dict[TableRef, str]) -> TableRef:
    """Shorten the name of a target that is too long, and note why."""
    dialect = target.system.dialect
    why = dialect.unfit_table(target.schema, target.name)
    name = dialect.fitting_table(target.schema, target.name) if why else target.name
    if name == target.name or target.system.by_path:
        return target
    fitting = replace(target, name=name)
    shortened[fitting] = f"shortened from {target}: {why}"
    return fitting
