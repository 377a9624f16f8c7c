"""SELECT @a = @a + column: assignments that build on what the row before has assigned.

SQL Server runs through the rows one by one; clients rely on it to put lists of names together.
"""

from __future__ import annotations

from sqlglot import exp

from tableferry_local.sqlserver.errors import ErrorContext
from tableferry_local.sqlserver.tsql.execution.evaluation import evaluate
from tableferry_local.sqlserver.tsql.execution.state import State, Variable
from tableferry_local.sqlserver.tsql.translation.queries import compile_query

LAST_ROW_ALONE = "_last_row_alone"
"""What the name of a database ends with in which the last row alone is assigned, as by Babelfish:
to see what clients make of it."""


def builds_on_itself(node: exp.Select, names: list[str]) -> bool:
    """Whether an assigned expression refers to an assigned variable."""
    return any(_mentions(item.expression, names) for item in node.expressions)


def accumulate(state: State, node: exp.Select, names: list[str]) -> None:
    """Assign row by row.

    What depends on a row but not on the variables is computed by one query; then, for every row,
    the expressions are evaluated with these parts as variables.
    """
    parts: list[exp.Expr] = []
    expressions = [
        _without_parts(item.expression.copy(), names, parts) for item in node.expressions
    ]
    query_node = node.copy()
    query_node.set("expressions", [part.copy() for part in parts] or [exp.Literal.number(1)])
    with state.statement(ErrorContext("SELECT")):
        compiler = state.compiler()
        query = compile_query(compiler, query_node, None)
        rows = state.link.rows(query.sql, state.values(compiler.params))
        if state.database.lower().endswith(LAST_ROW_ALONE):
            rows = rows[-1:]
    variables = state.frame.variables
    try:
        for row in rows:
            for number in range(len(parts)):
                variables[_part(number)] = Variable(query.columns[number].type, row[number])
            for name, expression in zip(names, expressions, strict=True):
                variable = state.variable(name)
                _, variable.value = evaluate(state, expression, variable.type)
    finally:
        for number in range(len(parts)):
            variables.pop(_part(number), None)


def _part(number: int) -> str:
    return f"@#part_{number}"


def _mentions(node: exp.Expr, names: list[str]) -> bool:
    wanted = {name.lower() for name in names}
    return any("@" + found.name.lower() in wanted for found in node.find_all(exp.Parameter))


def _without_parts(node: exp.Expr, names: list[str], parts: list[exp.Expr]) -> exp.Expr:
    """The expression with its largest parts that depend on the row alone taken out."""
    if not _mentions(node, names):
        if node.find(exp.Column, exp.Star) is None:
            return node
        parts.append(node.copy())
        return exp.Parameter(this=exp.Var(this=_part(len(parts) - 1)[1:]))
    for key, value in list(node.args.items()):
        if isinstance(value, exp.Expr):
            node.set(key, _without_parts(value, names, parts))
        elif isinstance(value, list):
            replaced = [
                _without_parts(item, names, parts) if isinstance(item, exp.Expr) else item
                for item in value
            ]
            node.set(key, replaced)
    return node
