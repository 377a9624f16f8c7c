"""What a server says of itself and its tables: names, sizes, structures, unique keys, health."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.looking_ahead import Question, answer
from tableferry.resources.contract.system import System
from tableferry.resources.contract.table_sql import alias_prefix, qualified
from tableferry.resources.errors import StatementFailed, TableferryError, TableMissing
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

Key = TypeVar("Key", bound=Hashable)

MOST_QUERIES = 100
"""The maximum queries of a statement; PostgreSQL locks each table and its indexes meanwhile."""
MOST_CHARACTERS = 60_000
"""The maximum length of a statement of several queries; ClickHouse parses 256 KiB at most."""


def ask_together(
    endpoint: Endpoint, queries: Mapping[Key, str]
) -> dict[Key, Any | StatementFailed]:
    """Run queries of at most one row and one column, many in a statement.

    A statement that fails is cut in halves, so that a query which the server refuses costs a few
    more statements, and no other query its answer.

    Args:
        endpoint: the server.
        queries: what follows SELECT in each query.

    Returns:
        The value of each query that has a row, or why it failed.

    Raises:
        TableferryError: the server cannot be asked now.
    """
    answers: dict[Key, Any | StatementFailed] = {}
    for page in _pages(queries):
        answers |= _asked(endpoint, queries, page)
    return answers


def _asked(
    endpoint: Endpoint, queries: Mapping[Key, str], keys: Sequence[Key]
) -> dict[Key, Any | StatementFailed]:
    selects = [f"SELECT {number}, {queries[key]}" for number, key in enumerate(keys)]
    try:
        rows = endpoint.query(" UNION ALL ".join(selects))
    except StatementFailed as error:
        if error.transient:
            raise
        if len(keys) == 1:
            return {keys[0]: error}
        middle = len(keys) // 2
        return {
            **_asked(endpoint, queries, keys[:middle]),
            **_asked(endpoint, queries, keys[middle:]),
        }
    return {keys[int(number)]: value for number, value in rows}


def _pages(queries: Mapping[Key, str]) -> Iterator[list[Key]]:
    page: list[Key] = []
    length = 0
    for key, query in queries.items():
        if page and (len(page) == MOST_QUERIES or length + len(query) > MOST_CHARACTERS):
            yield page
            page, length = [], 0
        page.append(key)
        length += len(query)
    if page:
        yield page


NOT_SHOWN = "not shown to this login"
"""Stands for a default that is there, and that the login may not see."""


@dataclass(frozen=True)
class Structure:
    """A table's keys, indexes and defaults; columns in the order in which they are declared."""

    primary_key: tuple[str, ...] = ()
    unique: frozenset[tuple[str, ...]] = frozenset()
    """The columns of other unique constraints and indexes."""
    indexes: frozenset[tuple[str, ...]] = frozenset()
    """The columns of indexes that are not unique."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The default of columns that have one, in the server's own words."""


def structure_of(
    indexes: Mapping[str, tuple[tuple[str, ...], bool, bool]], defaults: Mapping[str, str]
) -> Structure:
    """Sort a table's indexes by what they are.

    Args:
        indexes: by name, their columns, whether they are unique, and the primary key's.
        defaults: by column.
    """
    keys = [columns for columns, _, primary in indexes.values() if primary]
    others = [(columns, unique) for columns, unique, primary in indexes.values() if not primary]
    return Structure(
        keys[0] if keys else (),
        frozenset(columns for columns, unique in others if unique),
        frozenset(columns for columns, unique in others if not unique),
        dict(defaults),
    )


@dataclass(frozen=True)
class Listed:
    """A table or view in a catalog."""

    table: TableRef
    view: bool = False
    readable: bool = True
    """Whether the login may read it, or some of its columns."""
    hidden: str | None = None
    """Why row-level security hides some of its rows, if it does."""
    unreadable: tuple[str, ...] | None = None
    """The columns that the login may not read, if it may not read the table as a whole."""


@dataclass(frozen=True)
class TableSize:
    """The approximate size of a table."""

    rows: int
    bytes: int | None = None
    """None if the catalog does not say."""


@dataclass(frozen=True)
class Catalogued:
    """What a catalog says about a table besides its columns."""

    size: TableSize | None = None
    """None if the catalog does not say, as of a view."""
    leading: Sequence[str] = ()
    """See `Source.leading`."""
    blocks: int | None = None
    """See `Source.blocks`; None where the table cannot be cut by them."""
    no_blocks: str = ""
    """Why it cannot be cut by them, in a system whose tables have blocks."""


@dataclass(frozen=True)
class Described(Catalogued):
    """What is known of a table that could be moved; its rows are counted if need be."""

    size: TableSize = TableSize(0)
    columns: Sequence[Column] = ()


def listed(endpoint: Endpoint, connection: str) -> list[Listed]:
    """List the tables and views in INFORMATION_SCHEMA, which the login may read."""
    rows = endpoint.query(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES "
        "WHERE TABLE_SCHEMA NOT IN ('INFORMATION_SCHEMA', 'information_schema', 'sys') "
        "ORDER BY TABLE_SCHEMA, TABLE_NAME"
    )
    return [
        Listed(TableRef(endpoint.system_name, schema, name, connection), "VIEW" in type_.upper())
        for schema, name, type_ in rows
    ]


def all_counted(
    endpoint: Endpoint, tables: Iterable[TableRef]
) -> dict[TableRef, TableSize | StatementFailed]:
    """Return the sizes of many tables by counting their rows, or why one cannot be counted."""
    count = endpoint.system.dialect.count
    queries = {table: f"{count} FROM {qualified(table)}" for table in tables}
    return {
        table: rows if isinstance(rows, StatementFailed) else TableSize(int(rows))
        for table, rows in ask_together(endpoint, queries).items()
    }


def described(
    endpoint: Endpoint,
    tables: Sequence[TableRef],
    columns: Mapping[TableRef, Sequence[Column]],
    entries: Mapping[TableRef, Catalogued],
) -> dict[TableRef, Described | TableferryError]:
    """Put together what a catalog says; tables of which it has no size are counted."""
    known = {table: entries.get(table, Catalogued()) for table in tables if table in columns}
    counts = all_counted(endpoint, [table for table in known if known[table].size is None])
    answers: dict[TableRef, Described | TableferryError] = {}
    for table in tables:
        if table not in known:
            answers[table] = TableMissing(f"{table} has no columns")
            continue
        entry = known[table]
        size = entry.size or counts[table]
        answers[table] = (
            size
            if isinstance(size, StatementFailed)
            else Described(size, entry.leading, entry.blocks, entry.no_blocks, columns[table])
        )
    return answers


BUCKETS = 1000
"""A cut is wrong by at most 0.1 % of the rows: a tenth of a range if there are 100."""


def numbered_quantiles(
    endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, where: str
) -> tuple[int, Sequence[object]]:
    """Return `Source.quantiles` by numbering the rows in key order."""
    sql = endpoint.system.dialect
    name = qualified(table)
    key = sql.key_value(endpoint.system.quote(column.name), column, kind)
    rows = int(endpoint.query(f"SELECT {sql.count} FROM {name} WHERE {where}")[0][0])
    if not rows:
        return 0, ()
    # the first row, and the last row of each bucket; without the cast, T-SQL reads a literal of
    # more than 32 bits as a decimal, and divides it with a fraction
    total = f"CAST({rows} AS bigint)"
    prefix = alias_prefix(key, where)
    at, k = f"{prefix}at", f"{prefix}k"
    results = endpoint.query(
        f"SELECT {k} FROM (SELECT {key} AS {k}, ROW_NUMBER() OVER (ORDER BY {key}) AS {at}"
        f" FROM {name} WHERE {where}) AS {prefix}rows"
        f" WHERE {at} = 1 OR {at} * {BUCKETS} / {total} > ({at} - 1) * {BUCKETS} / {total}"
        f" ORDER BY {at}"
    )
    values = [row[0] for row in results]
    return rows, values if rows > BUCKETS else values[:1] + values


Withheld = tuple[str | None, Sequence[str]]
"""Why rows of a table are withheld, if some are, and which columns."""

State = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The result of one check of a server."""

    subject: str
    """E.g. `TLS`, `privileges`, `disk`."""
    state: State
    """`problem`: something will fail; `warning`: it may; `note`: good to know, or unknown."""
    says: str
    do: tuple[str, ...] = ()
    """Remedies: statements to run, or a sentence."""


@dataclass(frozen=True)
class Use:
    """The tables that the declared transfers use on a server."""

    reads: Sequence[TableRef] = ()
    writes: Sequence[TableRef] = ()


@dataclass(frozen=True)
class Inspection:
    """How a system inspects its servers and tables."""

    health: Callable[[Any, Use], Iterator[Finding]] = lambda resource, use: iter(())
    """Checks a server that can be reached, for `ferry doctor`."""
    unique_by: Callable[[Any, TableRef, Sequence[str]], str | None] = lambda *_: None
    """Returns the name of a constraint or index that makes some columns of a table unique; None if
    there is none."""
    withheld: Question[Withheld] = lambda endpoint, tables: {}
    """Says of tables of one schema by which row-level security, and with which remedies, a login
    cannot read or write all rows, and which columns it may not read; tables of which neither is
    known may be missing."""
    refused: Callable[[Any, TableRef], str | None] = lambda *_: None
    """Says why a table can be neither read nor written, whatever is declared; None if it can."""

    def withheld_from(self, endpoint: Any, table: TableRef) -> Withheld:
        """Return what `withheld` says of a table."""
        return answer(endpoint, self.withheld, table) or (None, ())


def inspection_of(system: System) -> Inspection:
    """Return how a system inspects its servers; by default it does not."""
    return system.inspection if isinstance(system.inspection, Inspection) else Inspection()
