"""CREATE, DROP and TRUNCATE; ALTER TABLE is in altertable.py."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from tableferry_local.sqlserver.catalog.bootstrap import create_database, schema_sql
from tableferry_local.sqlserver.catalog.tables import ObjectName, TableColumn, object_name, pg_name
from tableferry_local.sqlserver.errors import ErrorContext, SqlError, syntax_error, unsupported
from tableferry_local.sqlserver.tsql.execution.altertable import run_alter
from tableferry_local.sqlserver.tsql.execution.dropping import index_of, run_drop, run_truncate
from tableferry_local.sqlserver.tsql.execution.policies import create_policy
from tableferry_local.sqlserver.tsql.execution.run import Run
from tableferry_local.sqlserver.tsql.execution.tablesql import (
    column_notes,
    column_sql,
    definition_text,
    index_sql,
    not_null,
    relation_note,
    serial,
)
from tableferry_local.sqlserver.tsql.syntax.batch import Statement
from tableferry_local.sqlserver.tsql.syntax.clauses import matching, name_at, words
from tableferry_local.sqlserver.tsql.syntax.columndefs import (
    ColumnDef,
    KeyDef,
    TableItems,
    ordered_names,
    read_items,
)
from tableferry_local.sqlserver.tsql.syntax.parsing import parse_query, word


def run_ddl(run: Run, statement: Statement) -> None:
    """Run a CREATE, ALTER, DROP or TRUNCATE.

    Raises:
        SqlError: it cannot be done.
    """
    with run.state.statement(ErrorContext(statement.kind)):
        if statement.kind == "CREATE":
            run_create(run, statement)
        elif statement.kind == "ALTER":
            run_alter(run, statement)
        elif statement.kind == "DROP":
            run_drop(run, statement.tokens)
        else:
            run_truncate(run, statement.tokens)
    run.sink.done(None, f"{statement.kind} {word(statement.tokens[1])}")


def run_create(run: Run, statement: Statement) -> None:
    """Run a CREATE."""
    tokens = statement.tokens
    what = word(tokens[1])
    if what == "TABLE":
        parts, at = name_at(tokens, 2)
        create_table(run, object_name(parts, run.state.database), tokens[at:])
    elif what == "VIEW":
        _create_view(run, tokens)
    elif what == "SCHEMA":
        _create_schema(run, tokens)
    elif what == "DATABASE":
        if run.state.trancount:
            raise SqlError(
                226, 16, "CREATE DATABASE statement not allowed within multi-statement transaction."
            )
        create_database(run.state.link, tokens[2].text)
    elif what in ("UNIQUE", "CLUSTERED", "NONCLUSTERED", "INDEX"):
        _create_index(run, tokens)
    elif words(tokens[1:], 2) == ["SECURITY", "POLICY"]:
        create_policy(run, tokens)
    elif what in ("LOGIN", "USER"):
        return
    else:
        raise unsupported(f"CREATE {what}")


def require_free(run: Run, name: ObjectName) -> None:
    """Check that a name is not taken, and its schema there.

    Raises:
        SqlError: 2714 or 2760.
    """
    link = run.state.link
    schema = "SELECT FROM sys._schema WHERE pg_schema = $1"
    if name.pg_schema != "pg_temp" and not link.rows(schema, [name.pg_schema]):
        raise SqlError(
            2760,
            16,
            f'The specified schema name "{name.schema}" either does not exist or you do not '
            "have permission to use it.",
        )
    if link.rows("SELECT FROM pg_class WHERE oid = to_regclass($1)", [name.sql]):
        raise taken(name)


def taken(name: ObjectName) -> SqlError:
    """Error 2714."""
    return SqlError(2714, 16, f"There is already an object named '{name.name}' in the database.", 6)


def create_table(run: Run, name: ObjectName, tokens: Sequence[Token]) -> None:
    """Create a table from the tokens of its definition, parentheses and all.

    Raises:
        SqlError: 102, 2714, 2760 and what else a definition can do wrong.
    """
    if words(tokens, 1) != ["("]:
        raise syntax_error(name.name)
    items = read_items(tokens[1 : matching(tokens, 0)])
    names = [column.name.lower() for column in items.columns]
    twice = next((item for item in names if names.count(item) > 1), None)
    if twice:
        raise SqlError(
            2705,
            16,
            f"Column names in each table must be unique. Column name '{twice}' in table "
            f"'{name.name}' is specified more than once.",
        )
    require_free(run, name)
    if len([key for key in items.keys if key.kind == "PK"]) > 1:
        raise SqlError(
            8110, 16, f"Cannot add multiple PRIMARY KEY constraints to table '{name.name}'."
        )
    items.columns = not_null(items.columns, items.keys)
    run.state.link.run(";".join(table_statements(run, name, items)))


def table_statements(run: Run, name: ObjectName, items: TableItems) -> list[str]:
    """SQL that creates a table with all that belongs to it."""
    state = run.state
    known: list[TableColumn] = []
    noted: list[tuple[ColumnDef, TableColumn, str | None]] = []
    lines = []
    for number, column in enumerate(items.columns, 1):
        sql, made = column_sql(state, column, number, known, name)
        lines.append(sql)
        known.append(made)
        noted.append((column, made, definition_text(column)))
    temporary = "TEMPORARY " if name.pg_schema == "pg_temp" else ""
    statements = [
        f"CREATE {temporary}TABLE {name.sql} ({', '.join(lines)})",
        relation_note(name),
        column_notes(name, noted),
    ]
    statements += [index_sql(state, name, known, key, serial(run.state)) for key in items.keys]
    return statements


def _create_view(run: Run, tokens: Sequence[Token]) -> None:
    """A view that PostgreSQL lets change rows where SQL Server does: it is one plain query."""
    parts, at = name_at(tokens, 2)
    name = object_name(parts, run.state.database)
    names: list[str] = []
    if words(tokens[at : at + 1]) == ["("]:
        end = matching(tokens, at)
        names = [column for column, _ in ordered_names(tokens[at + 1 : end])]
        at = end + 1
    if words(tokens[at : at + 1]) != ["AS"]:
        raise syntax_error(name.name)
    compiler = run.state.compiler()
    query = compiler.query(parse_query(tokens[at + 1 :]), None)
    names = names or [value.name for value in query.columns]
    if len(names) != len(query.columns) or compiler.params:
        raise syntax_error(name.name)
    require_free(run, name)
    made = [
        TableColumn(number, shown, value.type, value.nullable, VIEWED.get(value.collation or ""))
        for number, (shown, value) in enumerate(zip(names, query.columns, strict=True), 1)
    ]
    listed = ", ".join(column.sql for column in made)
    run.state.link.run(
        f"CREATE VIEW {name.sql} ({listed}) AS {query.sql};{relation_note(name, 'V')};"
        + column_notes(name, [(ColumnDef(one.name, one.type), one, None) for one in made])
    )


VIEWED = {"bin": "Latin1_General_BIN2", "cs": "Latin1_General_CS_AS"}
"""What a view's column is noted with for the kind of its collation, of which no more is known."""


def _create_index(run: Run, tokens: Sequence[Token]) -> None:
    key = KeyDef("IX", [], unique=False)
    at = 1
    while word(tokens[at]) != "INDEX":
        here = word(tokens[at])
        if here == "UNIQUE":
            key.unique = True
        elif here in ("CLUSTERED", "NONCLUSTERED"):
            key.clustered = here == "CLUSTERED"
        else:
            raise unsupported(f"CREATE {here} INDEX")
        at += 1
    names, at = name_at(tokens, at + 1)
    key.name = names[-1]
    if words(tokens[at : at + 1]) != ["ON"]:
        raise syntax_error(tokens[at].text if at < len(tokens) else "INDEX")
    parts, at = name_at(tokens, at + 1)
    end = matching(tokens, at)
    key.columns = ordered_names(tokens[at + 1 : end])
    if len(tokens) > end + 1:
        raise unsupported(f"CREATE INDEX ... {word(tokens[end + 1])}")
    table = run.state.catalog.get(object_name(parts, run.state.database), ".".join(parts))
    if index_of(run, table, key.name):
        raise SqlError(
            1913,
            16,
            f"The operation failed because an index or statistics with name '{key.name}' already "
            f"exists on table '{'.'.join(parts)}'.",
        )
    run.state.link.run(
        index_sql(run.state, table.name, list(table.columns), key, serial(run.state))
    )


def _create_schema(run: Run, tokens: Sequence[Token]) -> None:
    state = run.state
    name = tokens[2].text
    pg_schema = pg_name(f"{state.database}.{name}")
    if state.link.rows("SELECT FROM sys._schema WHERE pg_schema = $1", [pg_schema]):
        raise SqlError(2714, 16, f"There is already an object named '{name}' in the database.", 6)
    state.link.run(schema_sql(state.database, name))
