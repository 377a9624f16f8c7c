"""Compares the schemas of two tables, or of many by a pattern, and shows what differs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tableferry.assets.declaring.many_tables import filled, fits, is_pattern
from tableferry.checks.comparing.pairing import ComparisonScope, matched
from tableferry.checks.comparing.schemas import (
    ONLY,
    SchemaDifference,
    SchemaPair,
    TableSchema,
    compare_schemas,
    declared_of,
)
from tableferry.pipelines.command.show.render import ListColumn, Listing, ListRow, shown
from tableferry.resources.connecting.names import table_of
from tableferry.resources.contract.markers import MARKERS
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import InputError, TableMissing
from tableferry.resources.tables import TableRef
from tableferry.resources.words import counted

if TYPE_CHECKING:
    from tableferry.assets.planning.servers import Servers

_FILLED = re.compile(r"\{(schema|table)\}")


def compared(
    servers: Servers, first: str, second: str, choice: ComparisonScope
) -> list[SchemaPair]:
    """Compare tables by what their catalogs declare, those that differ first.

    Args:
        servers: the servers of all connections.
        first: a table, or a pattern such as `postgres://sales.*`.
        second: a table, with `{schema}` and `{table}` for those of a pattern.
        choice: the columns to compare.

    Raises:
        InputError: a pattern fits no table, or both refer to different numbers of tables.
        TableMissing: a table that is named does not exist.
    """
    pattern = table_of(first)
    if not is_pattern(pattern):
        pairs = {pattern: table_of(second)}
        schemas = _declared(servers, [*pairs, *pairs.values()])
        for table in (*pairs, *pairs.values()):
            if table not in schemas:
                raise TableMissing(f"{table} does not exist")
        return [_pair(pattern, pairs[pattern], schemas, choice)]
    if not _FILLED.search(second):
        raise InputError(f"{first} is a pattern, so {second} should name its tables by {{table}}")
    if choice.mapped or choice.columns:
        raise InputError("--map and --columns are for one pair of tables")
    tables = [
        table
        for table in _listed(servers, pattern)
        if fits(table, f"{pattern.schema}.{pattern.name}")
    ]
    if not tables:
        raise InputError(f"{first} fits no table")
    pairs = {table: table_of(filled(second, table)) for table in tables}
    schemas = _declared(servers, [*pairs, *pairs.values()])
    compared = [_pair(table, other, schemas, ComparisonScope()) for table, other in pairs.items()]
    compared += [
        SchemaPair(None, table)
        for table in _listed(servers, table_of(second))
        if table not in pairs.values() and _named_by(table_of(second), table, pattern)
    ]
    return sorted(compared, key=lambda pair: pair.equal)


def _named_by(template: TableRef, table: TableRef, pattern: TableRef) -> bool:
    """Whether a template names a table for one that would fit a pattern."""
    names = {"schema": pattern.schema, "table": ""}
    for text, name in ((template.schema, table.schema), (template.name, table.name)):
        expression, known = "", set[str]()
        for number, part in enumerate(re.split(_FILLED, text)):
            placeholder = f"(?P={part})" if part in known else f"(?P<{part}>.+)"
            expression += placeholder if number % 2 else re.escape(part)
            known |= {part} if number % 2 else set()
        match = re.fullmatch(expression, name)
        if match is None:
            return False
        names |= match.groupdict()
    meant = replace(pattern, schema=names["schema"], name=names["table"] or pattern.name)
    return fits(meant, f"{pattern.schema}.{pattern.name}")


def _listed(servers: Servers, table: TableRef) -> list[TableRef]:
    listed = source_of(table.system).tables(servers.endpoint(table), table.connection)
    return [each.table for each in listed if not each.view and each.table.name != MARKERS]


def _declared(servers: Servers, tables: Sequence[TableRef]) -> dict[TableRef, TableSchema]:
    by_connection: dict[str, list[TableRef]] = {}
    for table in dict.fromkeys(tables):
        by_connection.setdefault(table.connection, []).append(table)
    schemas: dict[TableRef, TableSchema] = {}
    for each in by_connection.values():
        schemas |= declared_of(servers.endpoint(each[0]), each)
    return schemas


def _pair(
    first: TableRef, second: TableRef, schemas: dict[TableRef, TableSchema], choice: ComparisonScope
) -> SchemaPair:
    if first not in schemas or second not in schemas:
        return SchemaPair(
            first if first in schemas else None, second if second in schemas else None
        )
    sides = schemas[first], schemas[second]
    mine, theirs = ([column.name for column in side.columns] for side in sides)
    names = matched(first, mine, second, theirs, choice)
    differences = compare_schemas(*sides, names)
    kept = [
        each
        for each in differences
        if each.column not in choice.exclude
        and (not choice.columns or each.column in choice.columns)
    ]
    return SchemaPair(first, second, tuple(kept))


def outcome(pair: SchemaPair) -> str:
    """Say in a line how two tables differ."""
    if pair.first is None or pair.second is None:
        return "only in A" if pair.second is None else "only in B"
    if pair.equal:
        return "same"
    return "; ".join(map(_line, pair.differences))


def _line(difference: SchemaDifference) -> str:
    where = " ".join(part for part in (difference.what, difference.column) if part)
    if ONLY in (difference.first, difference.second) or difference.what == "column":
        return f"{where} only in {'A' if difference.first else 'B'}"
    says = f" ({difference.says})" if difference.says else ""
    return f"{where}: {difference.first or 'none'} -> {difference.second or 'none'}{says}"


def show(out: Console, pairs: Sequence[SchemaPair]) -> None:
    """Print a line per pair, or per difference of a single one."""
    if len(pairs) == 1 and pairs[0].first and pairs[0].second:
        (pair,) = pairs
        out.print(f"A  {pair.first}\nB  {pair.second}", markup=False, soft_wrap=True)
        for difference in pair.differences:
            out.print(_line(difference), markup=False, soft_wrap=True)
        if pair.equal:
            out.print("same")
        return
    rows = [
        ListRow(
            [shown(str(pair.first or "-")), shown(str(pair.second or "-")), shown(outcome(pair))]
        )
        for pair in pairs
    ]
    columns = [ListColumn("A"), ListColumn("B"), ListColumn("differences", sentence=True)]
    out.print(Listing(columns, rows), soft_wrap=True)
    out.print(_total(pairs))


def _total(pairs: Sequence[SchemaPair]) -> str:
    differ = sum(not pair.equal for pair in pairs)
    return f"{counted(len(pairs), 'pair')}: {differ} different, {len(pairs) - differ} the same"


def document(pairs: Sequence[SchemaPair]) -> dict[str, Any]:
    """The comparison as JSON."""
    return {
        "ok": all(pair.equal for pair in pairs),
        "says": _total(pairs),
        "pairs": [
            {
                "a": str(pair.first) if pair.first else None,
                "b": str(pair.second) if pair.second else None,
                "ok": pair.equal,
                "differences": [
                    {
                        "what": each.what,
                        "column": each.column,
                        "a": each.first,
                        "b": each.second,
                        "says": each.says,
                    }
                    for each in pair.differences
                ],
            }
            for pair in pairs
        ],
    }


def page(pairs: Sequence[SchemaPair]) -> str:
    """The comparison as one page."""
    from tableferry.pipelines.reporting.html import page as template

    rows = [(str(pair.first or ""), str(pair.second or ""), outcome(pair)) for pair in pairs]
    return template("schemas.html.j2").render(
        total=_total(pairs), equal=all(pair.equal for pair in pairs), rows=rows
    )
