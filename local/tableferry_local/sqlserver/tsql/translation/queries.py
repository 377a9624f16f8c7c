"""T-SQL queries to PostgreSQL SQL: SELECT, UNION ALL, common table expressions."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tableferry_local.sqlserver.errors import SqlError, syntax_error, unsupported
from tableferry_local.sqlserver.tsql.translation.comparing import key, order_item, unified
from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.tsql.translation.query import Query
from tableferry_local.sqlserver.tsql.translation.scope import Scope, Source
from tableferry_local.sqlserver.tsql.translation.sources import from_clause
from tableferry_local.sqlserver.types.typerules import BIGINT
from tableferry_local.sqlserver.types.value import Value


def compile_query(compiler: Compiler, node: exp.Expr, outer: Scope | None) -> Query:
    """Translate a query.

    Args:
        compiler: collects parameters.
        node: a SELECT, a set operation, or one of them in parentheses.
        outer: the query around it, whose columns it may use.

    Raises:
        SqlError: it names something unknown, or is T-SQL that we lack.
    """
    scope = Scope(parent=outer)
    with_ = node.args.get("with_")
    prefix = _common_tables(compiler, with_, scope) if with_ is not None else ""
    if isinstance(node, exp.Subquery):
        query = _subquery_chain(compiler, node, scope)
    elif isinstance(node, exp.SetOperation):
        query = _set_operation(compiler, node, scope)
    elif isinstance(node, exp.Select):
        query = _select(compiler, node, scope)
    else:
        raise syntax_error(node.name or type(node).__name__.upper())
    query.sql = prefix + query.sql
    return query


def _subquery_chain(compiler: Compiler, node: exp.Subquery, scope: Scope) -> Query:
    query = compile_query(compiler, node.this, scope)
    if node.args.get("order") or node.args.get("limit") or node.args.get("offset"):
        return _ordered_outside(compiler, node, query, scope)
    return replace(query, sql=f"({query.sql})")


def _common_tables(compiler: Compiler, with_: exp.With, scope: Scope) -> str:
    parts, recursive = [], False
    for cte in with_.expressions:
        name, pg_alias = cte.alias, compiler.alias()
        columns = [column.name for column in cte.args["alias"].columns]
        body = cte.this
        if isinstance(body, exp.Union) and _mentions(body, name):
            # the anchor tells the types; T-SQL has no word RECURSIVE
            recursive = True
            anchor = compile_query(compiler, body.this, scope)
            scope.ctes[name.lower()] = _cte_source(name, pg_alias, anchor.columns, columns)
        query = compile_query(compiler, body, scope)
        scope.ctes[name.lower()] = _cte_source(name, pg_alias, query.columns, columns)
        listed = ", ".join(f"c{n + 1}" for n in range(len(query.columns)))
        parts.append(f"{pg_alias}({listed}) AS ({query.sql})")
    return f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(parts)} "


def _mentions(node: exp.Expr, name: str) -> bool:
    return any(table.name.lower() == name.lower() for table in node.find_all(exp.Table))


def _cte_source(name: str, pg_alias: str, columns: list[Value], names: list[str]) -> Source:
    if names and len(names) != len(columns):
        raise SqlError(
            8158, 15, f"'{name}' has more columns than were specified in the column list."
        )
    return Source(
        name,
        [
            replace(
                column,
                sql=f"c{n + 1}",
                name=names[n] if names else column.name,
                is_null=False,
                constant=None,
            )
            for n, column in enumerate(columns)
        ],
        pg_alias=pg_alias,
    )


def _select(compiler: Compiler, node: exp.Select, scope: Scope) -> Query:
    if node.args.get("for_"):
        raise unsupported("FOR XML or FOR JSON")
    from_ = node.args.get("from_")
    from_sql = from_clause(compiler, from_, node.args.get("joins") or [], scope)
    where = node.args.get("where")
    where_sql = f" WHERE {compiler.condition(where.this, scope)}" if where is not None else ""
    group_sql, groups = _group_by(compiler, node.args.get("group"), scope)
    scope.groups = groups
    columns = projections(compiler, node.expressions, scope)
    having = node.args.get("having")
    having_sql = f" HAVING {compiler.condition(having.this, scope)}" if having is not None else ""
    items = ", ".join(f"{column.sql} AS c{n + 1}" for n, column in enumerate(columns))
    distinct = node.args.get("distinct") is not None
    head = "SELECT "
    if distinct:
        keys = [key(column) for column in columns]
        if keys == [column.sql for column in columns]:
            head = "SELECT DISTINCT "
        else:
            head = f"SELECT DISTINCT ON ({', '.join(keys)}) "
    sql = f"{head}{items}{from_sql}{where_sql}{group_sql}{having_sql}"
    query = Query(sql, [_output(column) for column in columns])
    if distinct:
        return _ordered_outside(compiler, node, query, scope, columns)
    order_sql = _order_by(compiler, node.args.get("order"), columns, scope)
    query.sql = sql + order_sql + _limits(compiler, node, scope)
    return query


def _output(column: Value) -> Value:
    # NULL leaves the query as an int, like in SQL Server
    return replace(column, constant=None)


def projections(compiler: Compiler, items: list[exp.Expr], scope: Scope) -> list[Value]:
    columns: list[Value] = []
    for item in items:
        if isinstance(item, exp.Star):
            if not scope.sources:
                raise SqlError(263, 16, "Must specify table to select from.")
            columns += [
                _grouped(column, scope) for source in scope.sources for column in source.columns
            ]
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            parts = [part.name for part in item.parts[:-1]]
            source = scope.source(parts)
            if source is None:
                raise SqlError(
                    107,
                    15,
                    f"The column prefix '{'.'.join(parts)}' does not match with a table "
                    "name or alias name used in the query.",
                )
            columns += [_grouped(column, scope) for column in source.columns]
        elif isinstance(item, exp.Alias):
            value = compiler.expression(item.this, scope)
            columns.append(replace(_typed(value), name=item.alias))
        else:
            value = compiler.expression(item, scope)
            named = value.name if isinstance(item, exp.Column) else ""
            columns.append(replace(_typed(value), name=named))
    return columns


def _grouped(column: Value, scope: Scope) -> Value:
    return replace(column, sql=scope.groups.get(column.sql, column.sql))


def _typed(value: Value) -> Value:
    return replace(value, sql=convert(value, value.type)) if value.is_null else value


def _group_by(
    compiler: Compiler, group: exp.Group | None, scope: Scope
) -> tuple[str, dict[str, str]]:
    if group is None:
        return "", {}
    keys, groups = [], {}
    for item in group.expressions:
        value = compiler.expression(item, scope)
        keys.append(key(value))
        if keys[-1] != value.sql:
            # rows that differ in case only are one group, and any of their values stands for it
            if value.type.is_text:
                groups[value.sql] = f'min({value.sql} COLLATE "C")'
            else:
                groups[value.sql] = f"(array_agg({value.sql} ORDER BY {keys[-1]}))[1]"
    return f" GROUP BY {', '.join(keys)}", groups


def _order_by(
    compiler: Compiler, order: exp.Order | None, columns: list[Value], scope: Scope
) -> str:
    if order is None:
        return ""
    return " ORDER BY " + ", ".join(
        order_item(_order_value(compiler, item, columns, scope), bool(item.args.get("desc")))
        for item in order.expressions
    )


def _order_value(compiler: Compiler, item: exp.Expr, columns: list[Value], scope: Scope) -> Value:
    node = item.this
    if isinstance(node, exp.Literal) and not node.is_string:
        position = int(node.this)
        if not 1 <= position <= len(columns):
            raise SqlError(
                108,
                15,
                f"The ORDER BY position number {position} is out of range of the number of "
                "items in the select list.",
            )
        return columns[position - 1]
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        for column in columns:
            if column.name.lower() == node.name.lower():
                return column
    if (
        isinstance(node, exp.Subquery)
        and isinstance(node.this, exp.Select)
        and not node.this.args.get("from_")
    ):
        # ORDER BY (SELECT NULL): no order wanted
        return Value("(1)", BIGINT, False)
    return compiler.expression(node, scope)


def _ordered_outside(
    compiler: Compiler,
    node: exp.Expr,
    query: Query,
    scope: Scope,
    inner: list[Value] | None = None,
) -> Query:
    """ORDER BY, TOP and OFFSET around a query whose own columns are all that they may use."""
    order = node.args.get("order")
    if order is None and not node.args.get("limit") and not node.args.get("offset"):
        return query
    name = compiler.alias()
    columns = [replace(column, sql=f"{name}.c{n + 1}") for n, column in enumerate(query.columns)]
    order_sql = ""
    if order is not None:
        items = []
        for item in order.expressions:
            if inner is not None:
                value = _order_value(compiler, item, inner, scope)
                match = next((n for n, c in enumerate(inner) if c.sql == value.sql), None)
                if match is None:
                    raise SqlError(
                        145,
                        15,
                        "ORDER BY items must appear in the select list if SELECT DISTINCT "
                        "is specified.",
                    )
                value = columns[match]
            else:
                value = _order_value(compiler, item, columns, scope)
            items.append(order_item(value, bool(item.args.get("desc"))))
        order_sql = " ORDER BY " + ", ".join(items)
    listed = ", ".join(f"c{n + 1}" for n in range(len(columns)))
    limits = _limits(compiler, node, scope)
    sql = f"SELECT {listed} FROM ({query.sql}) AS {name}({listed}){order_sql}{limits}"
    return Query(sql, query.columns)


def _limits(compiler: Compiler, node: exp.Expr, scope: Scope) -> str:
    limit = node.args.get("limit")
    if node.args.get("offset") or (limit is not None and limit.args.get("limit_options")):
        raise unsupported("TOP ... PERCENT or WITH TIES, or OFFSET")
    if limit is None:
        return ""
    return f" LIMIT {_count(compiler, limit.expression, scope)}"


def _count(compiler: Compiler, node: exp.Expr, scope: Scope) -> str:
    return f"({convert(compiler.expression(node, scope), BIGINT)})"


def _set_operation(compiler: Compiler, node: exp.SetOperation, scope: Scope) -> Query:
    if not isinstance(node, exp.Union) or node.args.get("distinct"):
        raise unsupported("UNION without ALL, INTERSECT or EXCEPT")
    left = compile_query(compiler, node.this, scope)
    right = compile_query(compiler, node.expression, scope)
    if len(left.columns) != len(right.columns):
        raise SqlError(
            205,
            16,
            "All queries combined using a UNION, INTERSECT or EXCEPT operator must have an "
            "equal number of expressions in their target lists.",
        )
    results = [
        replace(unified([a, b]), name=a.name)
        for a, b in zip(left.columns, right.columns, strict=True)
    ]
    sides = [_as_types(compiler, side, results) for side in (left, right)]
    sql = f"({sides[0]}) UNION ALL ({sides[1]})"
    return _ordered_outside(compiler, node, Query(sql, results), scope)


def _as_types(compiler: Compiler, query: Query, wanted: list[Value]) -> str:
    if all(
        column.type == result.type for column, result in zip(query.columns, wanted, strict=True)
    ):
        return query.sql
    name = compiler.alias()
    items = [
        convert(replace(column, sql=f"{name}.c{n + 1}"), result.type) + f" AS c{n + 1}"
        for n, (column, result) in enumerate(zip(query.columns, wanted, strict=True))
    ]
    listed = ", ".join(f"c{n + 1}" for n in range(len(wanted)))
    return f"SELECT {', '.join(items)} FROM ({query.sql}) AS {name}({listed})"
