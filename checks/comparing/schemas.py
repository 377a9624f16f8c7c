"""Compares what two catalogs declare of tables: columns, types, keys, defaults and indexes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tableferry.resources.columns.conversions import holds
from tableferry.resources.contract.catalog import NOT_SHOWN, Structure
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.looking_ahead import groups
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.keys.range import ROW
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Refusal
from tableferry.resources.types.kinds import Kind
from tableferry.resources.types.type_map import Column

ONLY = "only"
"""What is said of a table or column that the other side does not have."""


@dataclass(frozen=True)
class TableSchema:
    """What a catalog declares of a table."""

    table: TableRef
    columns: Sequence[Column]
    structure: Structure | None = None
    """None if the system's tables have no unique keys, so that none are missed."""


@dataclass(frozen=True)
class SchemaDifference:
    """One thing that two catalogs declare otherwise."""

    what: str
    """`column`, `type`, `nullability`, `default`, `primary key`, `unique key` or `index`."""
    column: str
    """The first table's name of the column, or the columns of a key or an index."""
    first: str
    """What the first table declares; '' if nothing."""
    second: str
    says: str = ""
    """What that means for values."""


@dataclass(frozen=True)
class SchemaPair:
    """Two tables, and what is declared otherwise of them."""

    first: TableRef | None
    """None if only the other side has such a table."""
    second: TableRef | None
    differences: tuple[SchemaDifference, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether both are there and nothing differs."""
        return self.first is not None and self.second is not None and not self.differences


def compare_schemas(
    first: TableSchema, second: TableSchema, names: Mapping[str, str]
) -> tuple[SchemaDifference, ...]:
    """Compare what is declared of two tables.

    Types are the same if a transfer would make one of the other, or if each holds all values of the
    other. What a system cannot declare is not missed there.

    Args:
        first: a table.
        second: the other one.
        names: the second table's columns by those of the first.
    """
    mine = {column.name: column for column in first.columns}
    theirs = {column.name: column for column in second.columns}
    differences = [
        SchemaDifference("column", name, mine[name].type, "") for name in mine if name not in names
    ]
    paired = set(names.values())
    differences += [
        SchemaDifference("column", name, "", theirs[name].type)
        for name in theirs
        if name not in paired
    ]
    systems = first.table.system, second.table.system
    for name, other in names.items():
        differences += _columns(systems, mine[name], theirs[other])
    if first.structure and second.structure:
        differences += _structures(first.structure, second.structure, names)
    return tuple(differences)


def _columns(
    systems: tuple[System, System], first: Column, second: Column
) -> Iterator[SchemaDifference]:
    says = _type_difference(systems, first, second)
    if says:
        yield SchemaDifference("type", first.name, first.type, second.type, says)
    if first.nullable != second.nullable and _may_be_null(systems, first, second):
        words = ["NULL" if column.nullable else "NOT NULL" for column in (first, second)]
        yield SchemaDifference("nullability", first.name, *words)


def _may_be_null(systems: tuple[System, System], first: Column, second: Column) -> bool:
    """Whether both types can be declared with NULL."""
    slots = [
        system.types.slot(system.types.plain(column.type), "")
        for system, column in zip(systems, (first, second), strict=True)
    ]
    return all(slot is None or slot.nullable for slot in slots)


def _type_difference(systems: tuple[System, System], first: Column, second: Column) -> str:
    """Say how the values of two types differ; '' if they do not."""
    if systems[0] == systems[1] and (first.own_type or first.type) == (
        second.own_type or second.type
    ):
        return ""
    kinds = [_kind(*pair) for pair in zip(systems, (first, second), strict=True)]
    if kinds[0] is None or kinds[1] is None:
        return "only a text can represent one of them"
    if _moves_to(*systems, first, second) or _moves_to(*systems[::-1], second, first):
        return ""
    forth, back = holds(kinds[1], kinds[0]), holds(kinds[0], kinds[1])
    if forth and back:
        return ""
    if forth:
        return "B holds more values than A"
    if back:
        return "B cannot hold all values of A"
    same = type(kinds[0]) is type(kinds[1])
    return "each holds values that the other cannot" if same else "values of another kind"


def _kind(system: System, column: Column) -> Kind | None:
    export = system.types.export(column.type)
    return None if isinstance(export, Refusal) else export.kind


def _moves_to(source: System, target: System, column: Column, other: Column) -> bool:
    """Whether a transfer would declare the other column for this one."""
    kind = _kind(source, column)
    return kind is not None and target.types.default(kind) == target.types.plain(other.type)


def _structures(
    first: Structure, second: Structure, names: Mapping[str, str]
) -> Iterator[SchemaDifference]:
    keys = _named(first.primary_key, names), _folded(second.primary_key)
    if keys[0] != keys[1]:
        listed = ", ".join(first.primary_key), ", ".join(second.primary_key)
        yield SchemaDifference("primary key", "", *listed)
    yield from _sets("unique key", first.unique, second.unique, names)
    yield from _sets("index", first.indexes, second.indexes, names)
    theirs = {name.casefold(): default for name, default in second.defaults.items()}
    for name, other in names.items():
        mine, their = first.defaults.get(name, ""), theirs.get(other.casefold(), "")
        if NOT_SHOWN in (mine, their) or _plain(mine) != _plain(their):
            yield SchemaDifference("default", name, mine, their)


def _sets(
    what: str,
    first: Iterable[tuple[str, ...]],
    second: Iterable[tuple[str, ...]],
    names: Mapping[str, str],
) -> Iterator[SchemaDifference]:
    mine = {_named(columns, names): ", ".join(columns) for columns in first}
    theirs = {_folded(columns): ", ".join(columns) for columns in second}
    for key in sorted(mine.keys() - theirs.keys()):
        yield SchemaDifference(what, mine[key], ONLY, "")
    for key in sorted(theirs.keys() - mine.keys()):
        yield SchemaDifference(what, theirs[key], "", ONLY)


def _named(columns: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    return _folded(names.get(name, name) for name in columns)


def _folded(columns: Iterable[str]) -> tuple[str, ...]:
    """Names of columns, which a catalog may spell in lower case."""
    return tuple(name.casefold() for name in columns)


_CAST = re.compile(r"::[\w .\"]+(\(\d+(,\d+)?\))?")
_T_SQL_CAST = re.compile(r"CAST\((.*) AS [\w() ,]+\)", re.IGNORECASE)
_NOW = {"now()", "getdate()", "current_timestamp", "sysdatetime()", "clock_timestamp()"}


def _plain(default: str) -> str:
    """A default without the parentheses, casts and prefixes that a server adds to it."""
    text = _CAST.sub("", default).strip()
    while (cast := _T_SQL_CAST.fullmatch(text)) or (text[:1] == "(" and text[-1:] == ")"):
        text = (cast[1] if cast else text[1:-1]).strip()
    text = re.sub(r"^N'", "'", text)
    if text.casefold() in _NOW:
        return "now"
    return {"true": "1", "false": "0", "null": ""}.get(text.casefold(), text)


def declared_of(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, TableSchema]:
    """Read what a server's catalog declares of tables, by a constant number of queries per schema.

    Tables that do not exist are missing.
    """
    schemas: dict[TableRef, TableSchema] = {}
    for here in groups(tables):
        source = source_of(here[0].system)
        columns = source.columns_of(endpoint, here)
        known = [table for table in here if table in columns]
        structures = source.structures(endpoint, known) if known else None
        for table in known:
            added = {source.file_key, ROW} if source.file_key else set()
            own = [column for column in columns[table] if column.name not in added]
            schemas[table] = TableSchema(table, own, structures.get(table) if structures else None)
    return schemas
