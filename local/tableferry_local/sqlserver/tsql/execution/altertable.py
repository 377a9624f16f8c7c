"""ALTER TABLE: ADD, DROP and ALTER COLUMN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot.tokenizer_core import Token

from tableferry_local.sqlserver.catalog.tables import Table, TableColumn, object_name
from tableferry_local.sqlserver.errors import SqlError, syntax_error, unsupported
from tableferry_local.sqlserver.tsql.execution.run import Run
from tableferry_local.sqlserver.tsql.execution.tablesql import (
    check_names,
    column_notes,
    column_sql,
    default_sql,
    definition_text,
    index_sql,
    serial,
    text_of,
    type_check,
)
from tableferry_local.sqlserver.tsql.syntax.batch import Statement
from tableferry_local.sqlserver.tsql.syntax.clauses import name_at, split, words
from tableferry_local.sqlserver.tsql.syntax.columndefs import ColumnDef, TableItems, read_items
from tableferry_local.sqlserver.tsql.syntax.parsing import word
from tableferry_local.sqlserver.tsql.translation.conversions import assign
from tableferry_local.sqlserver.tsql.translation.dml import place
from tableferry_local.sqlserver.types.value import Value, literal, pg_type


def run_alter(run: Run, statement: Statement) -> None:
    """Run an ALTER.

    Raises:
        SqlError: it cannot be done, or we lack it.
    """
    tokens = statement.tokens
    what = word(tokens[1])
    if what == "DATABASE":
        return
    if what != "TABLE":
        raise unsupported(f"ALTER {what}")
    parts, at = name_at(tokens, 2)
    table = run.state.catalog.find(object_name(parts, run.state.database))
    if table is None:
        raise SqlError(
            4902,
            16,
            f'Cannot find the object "{".".join(parts)}" because it does not exist or you do not '
            "have permissions.",
        )
    action = word(tokens[at]) if at < len(tokens) else ""
    if action == "ADD":
        _add(run, table, tokens[at + 1 :])
    elif action == "DROP":
        _drop(run, table, tokens[at + 1 :])
    elif action == "ALTER":
        _alter_column(run, table, tokens[at + 1 :])
    else:
        raise unsupported(f"ALTER TABLE ... {action}")


def _add(run: Run, table: Table, tokens: Sequence[Token]) -> None:
    state, name = run.state, table.name
    items = read_items(tokens)
    known = list(table.columns)
    statements = []
    noted = []
    number = max((column.attnum for column in known), default=0)
    for column in items.columns:
        number = _next_attnum(run, table, number)
        if column.name.lower() in table.by_name:
            raise SqlError(
                2705,
                16,
                "Column names in each table must be unique. Column name "
                f"'{column.name}' in table '{name.name}' is specified more than once.",
            )
        late = (
            column.default is not None and column.nullable is not False and not column.with_values
        )
        sql, made = column_sql(
            state, replace(column, default=None) if late else column, number, known, name
        )
        statements.append(f"ALTER TABLE {table.sql} ADD COLUMN {sql}")
        if late and column.type is not None:
            # rows that are there keep NULL unless WITH VALUES is said
            default = default_sql(state, column, column.type, name)
            statements.append(
                f"ALTER TABLE {table.sql} ALTER COLUMN {made.sql} SET DEFAULT {default}"
            )
        known.append(made)
        noted.append((column, made, definition_text(column)))
    if noted:
        statements.append(column_notes(name, noted))
    _check_primary(items, table)
    statements += [index_sql(state, name, known, item, serial(state)) for item in items.keys]
    for column_name, expression, constraint in items.defaults:
        target = table.column(column_name)
        declared = ColumnDef(target.name, target.type, default=expression, default_name=constraint)
        default = default_sql(state, declared, target.type, name)
        shown = constraint or f"DF__{name.name[:9]}__{target.name[:5]}__{target.attnum:08X}"
        statements.append(
            f"ALTER TABLE {table.sql} ALTER COLUMN {target.sql} SET DEFAULT {default}"
        )
        statements.append(
            f"UPDATE sys._column SET default_name = {literal(shown)}, default_definition = "
            f"{literal(text_of(expression))} "
            f"WHERE oid = {table.oid}::oid AND attnum = {target.attnum}"
        )
    state.link.run(";".join(statements))


def _next_attnum(run: Run, table: Table, number: int) -> int:
    rows = run.state.link.rows(
        "SELECT greatest(max(attnum), $2::int) + 1 FROM pg_attribute WHERE attrelid = $1",
        [str(table.oid), str(number)],
    )
    return int(rows[0][0] or 0)


def _check_primary(items: TableItems, table: Table) -> None:
    for item in items.keys:
        for name, _ in item.columns:
            column = table.by_name.get(name.lower())
            if item.kind == "PK" and column is not None and column.nullable:
                raise SqlError(
                    8111,
                    16,
                    f"Cannot define PRIMARY KEY constraint on nullable column in table "
                    f"'{table.name.name}'.",
                )


def _drop(run: Run, table: Table, tokens: Sequence[Token]) -> None:
    kind = "CONSTRAINT"
    for part in split(tokens):
        at = 0
        if words(part, 1) in (["COLUMN"], ["CONSTRAINT"]):
            kind, at = word(part[0]), 1
        optional = words(part[at:], 2) == ["IF", "EXISTS"]
        at += 2 if optional else 0
        name = name_at(part, at)[0][-1]
        if kind == "COLUMN":
            _drop_column(run, table, name, optional)
        else:
            _drop_constraint(run, table, name, optional)


def _drop_column(run: Run, table: Table, name: str, optional: bool) -> None:
    column = table.by_name.get(name.lower())
    if column is None:
        if optional:
            return
        raise SqlError(
            4924,
            16,
            f"ALTER TABLE DROP COLUMN failed because column '{name}' does not exist in table "
            f"'{table.name.name}'.",
        )
    users = run.state.link.rows(
        "SELECT name FROM sys._index WHERE relation = $1 AND $2::int = ANY (attnums) "
        "UNION ALL SELECT default_name FROM sys._column WHERE oid = $1 AND attnum = $2::int "
        "AND default_name IS NOT NULL",
        [str(table.oid), str(column.attnum)],
    )
    if users:
        raise SqlError(5074, 16, f"The object '{users[0][0]}' is dependent on column '{name}'.")
    run.state.link.run(
        f"DELETE FROM sys._column WHERE oid = {table.oid}::oid AND attnum = {column.attnum};"
        f"ALTER TABLE {table.sql} DROP COLUMN {column.sql}"
    )


def _drop_constraint(run: Run, table: Table, name: str, optional: bool) -> None:
    link, wanted = run.state.link, [str(table.oid), name.lower()]
    rows = link.rows(
        "SELECT oid::regclass::text FROM sys._index WHERE relation = $1 AND lower(name) = $2 "
        "AND kind <> 'IX'",
        wanted,
    )
    if rows:
        link.run(
            f"DELETE FROM sys._index WHERE oid = {literal(str(rows[0][0]))}::regclass; DROP "
            f"INDEX {rows[0][0]}"
        )
        return
    column = next(
        (c for c in table.columns if (c.default_name or "").lower() == name.lower()), None
    )
    if column is not None:
        link.run(
            f"ALTER TABLE {table.sql} ALTER COLUMN {column.sql} DROP DEFAULT; UPDATE "
            "sys._column SET default_name = NULL, "
            f"default_definition = NULL WHERE oid = {table.oid}::oid AND attnum = {column.attnum}"
        )
        return
    if not optional:
        raise SqlError(3728, 16, f"'{name}' is not a constraint.")


def _indexes(run: Run, table: Table, column: TableColumn) -> list[str]:
    rows = run.state.link.rows(
        "SELECT name FROM sys._index WHERE relation = $1 AND $2::int = ANY (attnums)",
        [str(table.oid), str(column.attnum)],
    )
    return [str(name) for (name,) in rows]


def _alter_column(run: Run, table: Table, tokens: Sequence[Token]) -> None:
    if words(tokens, 1) != ["COLUMN"]:
        raise syntax_error(tokens[0].text if tokens else "ALTER")
    items = read_items(tokens[1:])
    declared = items.columns[0]
    old = table.by_name.get(declared.name.lower())
    if old is None:
        raise SqlError(
            4924,
            16,
            f"ALTER TABLE ALTER COLUMN failed because column '{declared.name}' does not exist in "
            f"table '{table.name.name}'.",
        )
    kind = declared.type
    if kind is None or old.computed is not None:
        raise SqlError(4928, 16, f"Cannot alter column '{declared.name}' because it is 'COMPUTED'.")
    if kind.name != old.type.name and (users := _indexes(run, table, old)):
        raise SqlError(5074, 16, f"The object '{users[0]}' is dependent on column '{old.name}'.")
    nullable = declared.nullable is not False
    column, sql = old.sql, table.sql
    default = run.state.link.rows(
        "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = $1 AND adnum = $2",
        [str(table.oid), str(old.attnum)],
    )
    steps = [
        f"ALTER TABLE {sql} DROP CONSTRAINT IF EXISTS {check_names('len', old.attnum)}",
        f"ALTER TABLE {sql} DROP CONSTRAINT IF EXISTS {check_names('range', old.attnum)}",
    ]
    if kind != old.type:
        using = assign(Value(column, old.type), kind, place(table, old))
        if default and not old.identity:
            steps.append(f"ALTER TABLE {sql} ALTER COLUMN {column} DROP DEFAULT")
        steps.append(f"ALTER TABLE {sql} ALTER COLUMN {column} TYPE {pg_type(kind)} USING {using}")
        if default and not old.identity:
            steps.append(f"ALTER TABLE {sql} ALTER COLUMN {column} SET DEFAULT {default[0][0]}")
    if not old.identity:
        steps.append(
            f"ALTER TABLE {sql} ALTER COLUMN {column} {'DROP' if nullable else 'SET'} NOT NULL"
        )
    check = type_check(column, kind, old.attnum)
    if check:
        steps.append(f"ALTER TABLE {sql} ADD {check}")
    shown = [kind.name, kind.length, kind.precision, kind.scale]
    values = ["NULL" if item is None else literal(str(item)) for item in shown]
    collation = declared.collation or (old.collation if kind.is_text else None)
    steps.append(
        f"UPDATE sys._column SET type = {values[0]}, length = {values[1]}::int, precision = "
        f"{values[2]}::int, "
        f"scale = {values[3]}::int, nullable = {str(nullable and not old.identity).lower()}, "
        f"collated = {'NULL' if collation is None else literal(collation)} "
        f"WHERE oid = {table.oid}::oid AND attnum = {old.attnum}"
    )
    run.state.link.run(";".join(steps))
