"""INSERT, UPDATE and DELETE: T-SQL clauses read, and PostgreSQL SQL made."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tableferry_local.sqlserver.catalog.tables import Table, TableColumn, object_name
from tableferry_local.sqlserver.errors import SqlError, unsupported
from tableferry_local.sqlserver.tsql.syntax.dmlparsing import Change, Insert
from tableferry_local.sqlserver.tsql.translation.conversions import assign
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.tsql.translation.query import Query
from tableferry_local.sqlserver.tsql.translation.scope import Scope, Source
from tableferry_local.sqlserver.tsql.translation.sources import from_clause, table_parts
from tableferry_local.sqlserver.types.value import Value, pg_type


def place(table: Table, column: TableColumn) -> str:
    """What error 2628 calls a column."""
    return f"'{table.name.full}', column '{column.name}'"


def writable(table: Table, name: str, *, update: bool = False) -> TableColumn:
    """The column, if it can be written.

    Raises:
        SqlError: 207, 271 or 8102.
    """
    column = table.column(name)
    if column.computed is not None:
        raise SqlError(
            271,
            16,
            f'The column "{column.name}" cannot be modified because it is either a computed '
            "column or is the result of a UNION operator.",
        )
    if update and column.identity:
        raise SqlError(8102, 16, f"Cannot update identity column '{column.name}'.")
    return column


def compile_insert(compiler: Compiler, insert: Insert, table: Table, identity_insert: bool) -> str:
    """Translate an INSERT.

    Args:
        identity_insert: whether SET IDENTITY_INSERT is on for this table.

    Raises:
        SqlError: it does not fit the table.
    """
    columns = insert_columns(insert, table, identity_insert)
    names = ", ".join(column.sql for column in columns)
    if insert.query is not None:
        body = converted(compiler, compiler.query(insert.query, None), table, columns)
    else:
        body = f"VALUES {_rows(compiler, insert.rows or [], table, columns)}"
    return f"INSERT INTO {table.sql} ({names}) {body}"


def insert_columns(insert: Insert, table: Table, identity_insert: bool) -> list[TableColumn]:
    """The columns that an INSERT gives values for.

    Raises:
        SqlError: 544, an identity column without IDENTITY_INSERT; 545, the other way round.
    """
    identity = next((column for column in table.columns if column.identity), None)
    if insert.columns is None:
        return [
            column
            for column in table.columns
            if column.computed is None and column.type.name != "timestamp" and (
                not column.identity or identity_insert
            )
        ]  # fmt: skip
    columns = [writable(table, name) for name in insert.columns]
    if identity is not None and identity in columns and not identity_insert:
        raise SqlError(
            544,
            16,
            f"Cannot insert explicit value for identity column in table "
            f"'{table.name.name}' when IDENTITY_INSERT is set to OFF.",
        )
    if identity_insert and identity is not None and identity not in columns:
        raise SqlError(
            545,
            16,
            f"Explicit value must be specified for identity column in table "
            f"'{table.name.name}' either when IDENTITY_INSERT is set to ON or when a "
            "replication user "
            "is inserting into a NOT FOR REPLICATION identity column.",
        )
    return columns


def _rows(
    compiler: Compiler,
    rows: list[list[exp.Expr | None]],
    table: Table,
    columns: list[TableColumn],
) -> str:
    scope, lines = Scope(), []
    for row in rows:
        if len(row) != len(columns):
            number = 110 if len(row) > len(columns) else 109
            raise SqlError(
                number,
                15,
                "There are "
                f"{'fewer' if number == 110 else 'more'} columns in the INSERT statement than "
                "values "
                "specified in the VALUES clause. The number of values in the VALUES clause "
                "must match "
                "the number of columns specified in the INSERT statement.",
            )
        items = []
        for node, column in zip(row, columns, strict=True):
            if node is None:
                items.append("DEFAULT")
                continue
            value = compiler.expression(node, scope)
            items.append(_stored(value, table, column))
        lines.append(f"({', '.join(items)})")
    return ", ".join(lines)


def _stored(value: Value, table: Table, column: TableColumn) -> str:
    if value.is_null:
        return f"NULL::{pg_type(column.type)}"
    return assign(value, column.type, place(table, column))


def converted(compiler: Compiler, query: Query, table: Table, columns: list[TableColumn]) -> str:
    """A query whose rows can be stored into the columns.

    Raises:
        SqlError: 120 or 121, the number of columns differs; 213 for a table without a list.
    """
    if len(query.columns) != len(columns):
        raise SqlError(
            121 if len(query.columns) > len(columns) else 120,
            15,
            "The select list for the INSERT "
            f"statement contains {'more' if len(query.columns) > len(columns) else 'fewer'} "
            "items than "
            "the insert list. The number of SELECT values must match the number of INSERT columns.",
        )
    name = compiler.alias()
    items = [
        _stored(replace(value, sql=f"{name}.c{n + 1}", is_null=False), table, column)
        for n, (value, column) in enumerate(zip(query.columns, columns, strict=True))
    ]
    if items == [f"{name}.c{n + 1}" for n in range(len(columns))]:
        return query.sql
    listed = ", ".join(f"c{n + 1}" for n in range(len(columns)))
    return f"SELECT {', '.join(items)} FROM ({query.sql}) AS {name}({listed})"


def compile_change(compiler: Compiler, change: Change) -> str:
    """Translate an UPDATE or DELETE.

    Raises:
        SqlError: it names something unknown.
    """
    select = change.select
    scope = Scope()
    from_sql = from_clause(
        compiler, select.args.get("from_"), select.args.get("joins") or [], scope
    )
    source, table = _target(compiler, change, scope)
    where = select.args.get("where")
    where_sql = f" WHERE {compiler.condition(where.this, scope)}" if where is not None else ""
    update = bool(change.assignments)
    sets = []
    for column_name, node in change.assignments:
        column = writable(table, column_name, update=True)
        sets.append((column, _stored(compiler.expression(node, scope), table, column)))
    for column in table.columns:
        if update and column.type.name == "timestamp":
            sets.append((column, "int8send(nextval('sys._dbts'))"))
    # by ctid, which a view has not, only where rows are found by others
    if not change.has_from or (not update and len(scope.sources) == 1):
        if not update:
            return f"DELETE FROM {table.sql} AS {source.pg_alias}{where_sql}"
        assigned = ", ".join(f"{column.sql} = {sql}" for column, sql in sets)
        return f"UPDATE {table.sql} AS {source.pg_alias} SET {assigned}{where_sql}"
    names = "".join(f", {sql} AS v{n}" for n, (_, sql) in enumerate(sets))
    inner = f"SELECT {source.pg_alias}.ctid AS id{names}{from_sql}{where_sql}"
    if not update:
        return f"DELETE FROM {table.sql} WHERE ctid IN ({inner})"
    assigned = ", ".join(f"{column.sql} = q.v{n}" for n, (column, _) in enumerate(sets))
    return f"UPDATE {table.sql} AS t SET {assigned} FROM ({inner}) AS q WHERE t.ctid = q.id"


def _target(compiler: Compiler, change: Change, scope: Scope) -> tuple[Source, Table]:
    parts = change.target
    wanted = object_name(parts, compiler.database)
    for source in scope.sources:
        alias_given = source.table is None
        if len(parts) == 1 and source.alias.lower() == parts[0].lower() and alias_given:
            name = _table_behind(change.select, parts[0], compiler.database)
            return source, compiler.catalog.get(name, parts[0])
        if source.table is not None and str(source.table.full).lower() == wanted.full.lower():
            return source, compiler.catalog.get(wanted, ".".join(parts))
    compiler.catalog.get(wanted, ".".join(parts))
    raise unsupported(f"changing {'.'.join(parts)} that its FROM clause does not name")


def _table_behind(select: exp.Select, alias: str, database: str):  # type: ignore[no-untyped-def]
    for table in select.find_all(exp.Table):
        if table.alias.lower() == alias.lower():
            return object_name(table_parts(table), database)
    raise SqlError(208, 16, f"Invalid object name '{alias}'.")
