"""SELECT ... INTO: a new table of a query's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tableferry_local.sqlserver.catalog import object_name
from tableferry_local.sqlserver.columndefs import ColumnDef, TableItems
from tableferry_local.sqlserver.errors import ErrorContext, SqlError
from tableferry_local.sqlserver.queries import compile_query
from tableferry_local.sqlserver.sources import table_parts

if TYPE_CHECKING:
    from tableferry_local.sqlserver.interpreter import Interpreter


def run_select_into(run: Interpreter, node: exp.Select) -> None:
    """Create the table and fill it.

    Raises:
        SqlError: 2714, 1038 and what a query can do wrong.
    """
    from tableferry_local.sqlserver.ddl import require_free, table_statements

    state = run.state
    with state.statement(ErrorContext("SELECT"), writes=True):
        name = object_name(table_parts(node.args["into"].this), state.database)
        compiler = state.compiler()
        query = compile_query(compiler, node, None)
        if any(not column.name for column in query.columns):
            raise SqlError(
                1038,
                15,
                "An object or column name is missing or empty. For SELECT INTO statements, verify "
                "each column has a name.",
            )
        require_free(run, name)
        identities = sum(column.identity for column in query.columns)
        items = TableItems(
            [
                ColumnDef(
                    column.name,
                    column.type,
                    column.nullable,
                    identity=(1, 1) if column.identity and identities == 1 else None,
                )
                for column in query.columns
            ]
        )
        statements = ";".join(table_statements(run, name, items))
        outside = not state.trancount
        if outside:
            state.link.run("BEGIN")
        try:
            state.link.run(statements)
            count = state.link.execute(
                f"INSERT INTO {name.sql} {query.sql}", state.values(compiler.params)
            )
        except BaseException:
            if outside and state.link.alive:
                state.link.run("ROLLBACK")
            raise
        if outside:
            state.link.run("COMMIT")
    run.done(count or 0, "SELECT INTO")
