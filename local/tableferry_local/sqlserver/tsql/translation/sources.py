"""FROM clauses: tables, views, system views, derived tables, joins."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tableferry_local.sqlserver.catalog.tables import ObjectName, Table, object_name
from tableferry_local.sqlserver.catalog.views import SYSTEM_VIEWS
from tableferry_local.sqlserver.errors import SqlError, unsupported
from tableferry_local.sqlserver.tsql.translation.comparing import collation_kind, unified
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.tsql.translation.scope import Scope, Source
from tableferry_local.sqlserver.types.value import Value, literal


def from_clause(
    compiler: Compiler, from_: exp.From | None, joins: list[exp.Join], scope: Scope
) -> str:
    """Translate FROM and its joins, if there are any, and add the sources to the scope."""
    if from_ is None:
        return ""
    sql = _item(compiler, from_.this, scope)
    for join in joins:
        sql = _join(compiler, sql, join, scope)
    return f" FROM {sql}"


def _join(compiler: Compiler, left: str, join: exp.Join, scope: Scope) -> str:
    before = len(scope.sources)
    right = _item(compiler, join.this, scope)
    side = (join.side or "").upper()
    if side == "LEFT":
        for source in scope.sources[before:]:
            source.nullable()
    elif side:
        raise unsupported(f"{side} JOIN")
    on = join.args.get("on")
    if on is None:
        return f"{left} CROSS JOIN {right}"
    return f"{left} {side} JOIN {right} ON {compiler.condition(on, scope)}"


def _item(compiler: Compiler, node: exp.Expr, scope: Scope) -> str:
    joins = node.args.get("joins") or []
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        sql = f"({_item(compiler, node.this, scope)})"
    elif isinstance(node, exp.Subquery):
        sql = _derived(compiler, node.this, node, scope)
    elif isinstance(node, exp.Values):
        sql = _values(compiler, node, scope)
    elif isinstance(node, exp.Table):
        sql = _table(compiler, node, scope)
    else:
        raise unsupported(type(node).__name__)
    for join in joins:
        sql = _join(compiler, sql, join, scope)
    return f"({sql})" if joins else sql


def table_parts(node: exp.Table) -> list[str]:
    """The parts of a table's name as written, `#` included."""
    parts = []
    for part in node.parts:
        name = part.name
        if isinstance(part, exp.Identifier):
            if part.args.get("temporary"):
                name = "#" + name
        elif isinstance(part, exp.Parameter):
            name = "@" + part.name
        parts.append(name)
    if node.args.get("catalog") and not node.args.get("db"):
        parts.insert(1, "")  # db..table
    return parts


def _table(compiler: Compiler, node: exp.Table, scope: Scope) -> str:
    if isinstance(node.this, exp.Anonymous):
        raise unsupported("a table-valued function")
    if node.args.get("pivots"):
        raise unsupported("PIVOT")
    parts = table_parts(node)
    if len(parts) == 1:
        common = scope.cte(parts[0])
        if common is not None:
            return _add(compiler, common.columns, node, parts[0], scope, common.pg_alias)
    view = system_view(parts)
    if view is not None:
        compiler.of_catalog = compiler.of_catalog is not False
        database = parts[-3] if len(parts) == 3 and parts[-3] else compiler.database
        columns = [
            Value(f'"{name}"', kind, True, name=name)
            for name, kind, _ in SYSTEM_VIEWS[view].columns
        ]
        call = f'sys."{SYSTEM_VIEWS[view].function}"({literal(database)})'
        return _add(compiler, columns, node, parts[-1], scope, call)
    compiler.of_catalog = False
    name = object_name(parts, compiler.database)
    table = compiler.catalog.get(name, ".".join(parts))
    _refuse_locks(node)
    return _add(compiler, table_values(table), node, name.name, scope, table.sql, table.name)


def system_view(parts: list[str]) -> tuple[str, str] | None:
    """The key of the system view that a name means, if it means one."""
    if len(parts) < 2:
        return None
    candidate = (parts[-2].lower(), parts[-1].lower())
    return candidate if candidate in SYSTEM_VIEWS else None


def table_values(table: Table) -> list[Value]:
    """The columns of a table, without an alias in front."""
    return [
        Value(
            column.sql,
            column.type,
            column.nullable,
            collation_kind(column.collation) if column.collation else None,
            identity=column.identity,
            computed=column.computed is not None,
            name=column.name,
        )
        for column in table.columns
    ]


def _refuse_locks(node: exp.Table) -> None:
    """Refuse the hints that lock; others do nothing."""
    for hint in node.args.get("hints") or []:
        for item in hint.expressions if isinstance(hint, exp.WithTableHint) else []:
            if item.name.upper() in ("TABLOCKX", "UPDLOCK", "XLOCK"):
                raise unsupported(f"the hint {item.name.upper()}")


def _add(
    compiler: Compiler,
    columns: list[Value],
    node: exp.Expr,
    exposed: str,
    scope: Scope,
    sql: str,
    table: ObjectName | None = None,
) -> str:
    pg_alias = compiler.alias()
    alias = node.args.get("alias")
    names = [column.name for column in alias.columns] if alias is not None else []
    renamed = [
        replace(
            column, sql=f"{pg_alias}.{column.sql}", name=names[n] if n < len(names) else column.name
        )
        for n, column in enumerate(columns)
    ]
    given = node.alias
    for source in scope.sources:
        if source.alias.lower() == (given or exposed).lower() and (given or source.table == table):
            raise SqlError(
                1011 if given else 1013,
                16,
                f"The correlation name '{given or exposed}' is specified "
                "multiple times in a FROM clause.",
            )
    scope.sources.append(Source(given or exposed, renamed, None if given else table, pg_alias))
    return f"{sql} AS {pg_alias}"


def _derived(compiler: Compiler, query_node: exp.Expr, node: exp.Expr, scope: Scope) -> str:
    # a derived table does not see its siblings, only the queries around
    return _add_query(
        compiler, query_node, node, scope, Scope(parent=scope.parent, ctes=scope.ctes)
    )


def _add_query(
    compiler: Compiler, query_node: exp.Expr, node: exp.Expr, scope: Scope, inner: Scope
) -> str:
    query = compiler.query(query_node, inner)
    columns = [
        replace(column, sql=f"c{n + 1}", is_null=False) for n, column in enumerate(query.columns)
    ]
    listed = ", ".join(f"c{n + 1}" for n in range(len(columns)))
    return _add(compiler, columns, node, "", scope, f"({query.sql})") + f"({listed})"


def _values(compiler: Compiler, node: exp.Values, scope: Scope) -> str:
    rows = [
        [compiler.expression(item, scope) for item in (row.expressions or [row])]
        for row in node.expressions
    ]
    columns = [unified([row[n] for row in rows]) for n in range(len(rows[0]))]
    listed = ", ".join(f"c{n + 1}" for n in range(len(columns)))
    lines = ", ".join(
        "(" + ", ".join(convert(v, c.type) for v, c in zip(row, columns, strict=True)) + ")"
        for row in rows
    )
    values = [replace(column, sql=f"c{n + 1}", nullable=True) for n, column in enumerate(columns)]
    return _add(compiler, values, node, "", scope, f"(VALUES {lines})") + f"({listed})"
