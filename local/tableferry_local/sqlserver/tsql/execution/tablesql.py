"""PostgreSQL's DDL for a T-SQL table: columns, constraints, indexes, and what we note of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot.tokenizer_core import Token

from tableferry_local.sqlserver.catalog.tables import (
    ObjectName,
    Table,
    TableColumn,
    pg_name,
    quoted,
)
from tableferry_local.sqlserver.errors import SqlError, unsupported
from tableferry_local.sqlserver.tsql.execution.state import State
from tableferry_local.sqlserver.tsql.syntax.columndefs import ColumnDef, KeyDef
from tableferry_local.sqlserver.tsql.syntax.parsing import parse_expression
from tableferry_local.sqlserver.tsql.translation.comparing import collation_kind, key
from tableferry_local.sqlserver.tsql.translation.conversions import assign
from tableferry_local.sqlserver.tsql.translation.scope import Scope, Source
from tableferry_local.sqlserver.tsql.translation.sources import table_values
from tableferry_local.sqlserver.types.sqltype import MAX, MISREADS, SqlType
from tableferry_local.sqlserver.types.typerules import family
from tableferry_local.sqlserver.types.value import Value, literal, pg_type

_RANGES = {
    "tinyint": "{0} BETWEEN 0 AND 255",
    "bit": "{0} BETWEEN 0 AND 1",
    "money": "{0} BETWEEN -922337203685477.5808 AND 922337203685477.5807",
    "smallmoney": "{0} BETWEEN -214748.3648 AND 214748.3647",
}


def check_names(kind: str, attnum: int) -> str:
    """The PostgreSQL name of a type's own CHECK constraint."""
    return f"ts_{kind}_{attnum}"


def type_check(name: str, kind: SqlType, attnum: int) -> str | None:
    """A constraint that keeps a column within its type, where PostgreSQL's type is wider.

    Args:
        name: the column, quoted.
    """
    length = kind.length
    if length is not None and length != MAX:
        if family(kind) == "binary":
            condition = f"octet_length({name}) <= {length}"
        else:
            condition = f"octet_length({name}) <= {length} OR sys.units({name}) <= {length}"
        return f"CONSTRAINT {check_names('len', attnum)} CHECK ({condition})"
    if kind.name in _RANGES:
        condition = _RANGES[kind.name].format(name)
        return f"CONSTRAINT {check_names('range', attnum)} CHECK ({condition})"
    return None


def column_scope(columns: list[TableColumn], table: ObjectName) -> Scope:
    """A scope in which an expression of the table's own definition is translated."""
    whole = Table(0, table, "U", tuple(columns), table.sql)
    return Scope(sources=[Source(table.name, table_values(whole))])


def column_sql(
    state: State, column: ColumnDef, number: int, known: list[TableColumn], table: ObjectName
) -> tuple[str, TableColumn]:
    """A column's definition.

    Args:
        number: its attnum.
        known: the columns before it, which a computed column may use.

    Raises:
        SqlError: its default or formula does not fit.
    """
    name = quoted(pg_name(column.name))
    if column.computed is not None:
        value = state.compiler().expression(
            parse_expression(column.computed), column_scope(known, table)
        )
        made = TableColumn(number, column.name, value.type, value.nullable, computed="computed")
        return f"{name} {pg_type(value.type)} GENERATED ALWAYS AS ({value.sql}) STORED", made
    kind = column.type
    if kind is None:
        raise unsupported(f"the type of column {column.name}")
    if column.collation is not None:
        collation_kind(column.collation)
    nullable = column.nullable is not False and column.identity is None
    # a value keeps the digits behind its scale with which a bulk load has misread it
    loose = kind.precision == 38 and state.database.endswith(MISREADS)
    parts = [name, "numeric" if loose else pg_type(kind)]
    if column.identity is not None:
        parts.append(_identity(column.identity, kind, column.name))
    if kind.name == "timestamp":
        parts.append("DEFAULT int8send(nextval('sys._dbts'))")
        nullable = False
    if column.default is not None:
        parts.append(f"DEFAULT {default_sql(state, column, kind, table)}")
    if not nullable:
        parts.append("NOT NULL")
    check = type_check(name, kind, number)
    if check:
        parts.append(check)
    made = TableColumn(
        number, column.name, kind, nullable, column.collation, column.identity is not None
    )
    return " ".join(parts), made


def default_sql(state: State, column: ColumnDef, kind: SqlType, table: ObjectName) -> str:
    """A column's default as it is stored."""
    value = state.compiler().expression(parse_expression(column.default or []), Scope())
    return assign(value, kind, f"'{table.full}', column '{column.name}'")


def _identity(identity: tuple[int, int], kind: SqlType, name: str) -> str:
    if kind.name in ("decimal", "numeric") or family(kind) != "int" or kind.name == "bit":
        if kind.name in ("decimal", "numeric") and not kind.scale:
            raise unsupported("IDENTITY on decimal")
        raise SqlError(
            2749,
            16,
            f"Identity column '{name}' must be of data type int, bigint, smallint, tinyint, or "
            "decimal or numeric with a scale of 0, unencrypted, and constrained to be nonnullable.",
        )
    seed, step = identity
    low = f"MINVALUE {seed} " if step > 0 else f"MAXVALUE {seed} "
    return (
        f"GENERATED BY DEFAULT AS IDENTITY (START WITH {seed} INCREMENT BY {step} "
        f"{low if seed != 1 else ''})"
    )


def relation_note(name: ObjectName, kind: str = "U") -> str:
    """SQL that notes a new table, or view."""
    return (
        "INSERT INTO sys._relation (oid, pg_schema, name, kind) VALUES "
        f"({oid_sql(name)}, {literal(name.pg_schema)}, {literal(name.name)}, '{kind}')"
    )


def oid_sql(name: ObjectName) -> str:
    """SQL for the oid of a table that exists when it is evaluated."""
    return f"{literal(name.sql)}::regclass::oid"


def column_notes(name: ObjectName, columns: list[tuple[ColumnDef, TableColumn, str | None]]) -> str:
    """SQL that notes columns; the text is a default's or formula's."""
    rows = []
    for declared, made, text in columns:
        kind = made.type
        seed, step = declared.identity or (None, None)
        default = text if declared.default is not None else None
        default_name = None
        if default is not None:
            default_name = declared.default_name or _made_up("DF", name.name, declared.name)
        computed = f"({text})" if declared.computed is not None else None
        items = [
            made.name, kind.name, kind.length, kind.precision, kind.scale, made.nullable,
            made.collation, seed, step, computed, default_name, default,
        ]  # fmt: skip
        rows.append(f"({literal(pg_name(made.name))}, {', '.join(map(_literal, items))})")
    return (
        "INSERT INTO sys._column SELECT a.attrelid, a.attnum, v.name, v.type, v.length::int, "
        "v.precision::int, "
        "v.scale::int, v.nullable, v.collated, v.seed::bigint, v.step::bigint, v.computed, "
        "v.default_name, v.default_definition "
        f"FROM (VALUES {', '.join(rows)}) AS v(pg, name, type, length, precision, scale, "
        "nullable, collated, seed, step, "
        "computed, default_name, default_definition) JOIN pg_attribute a ON a.attname = v.pg "
        f"WHERE a.attrelid = {oid_sql(name)} AND a.attnum > 0"
    )


def _literal(value: object) -> str:
    if value is None:
        return "NULL::text"
    if isinstance(value, bool):
        return str(value).lower()
    return literal(str(value))


def _made_up(kind: str, table: str, part: str) -> str:
    import hashlib

    digest = hashlib.blake2b(f"{table}.{part}".encode(), digest_size=4).hexdigest().upper()
    return f"{kind}__{table[:9]}__{part[:5] + '__' if part else ''}{digest}"


def index_sql(
    state: State, name: ObjectName, columns: list[TableColumn], definition: KeyDef, serial: int
) -> str:
    """SQL that creates an index and notes it.

    Args:
        serial: a number that makes the PostgreSQL name unique.

    Raises:
        SqlError: 1911, there is no such column.
    """
    by_name = {column.name.lower(): column for column in columns}
    items, numbers, directions = [], [], []
    for column_name, descending in definition.columns:
        column = _named(by_name, column_name)
        collation = collation_kind(column.collation) if column.collation else None
        expression = key(Value(column.sql, column.type, collation=collation))
        shown = expression if expression == column.sql else f"({expression})"
        items.append(shown + (" DESC" if descending else ""))
        numbers.append(column.attnum)
        directions.append(descending)
    unique = definition.unique if definition.kind == "IX" else True
    pg_index = f"ix_{serial}"
    # T-SQL's UNIQUE finds two NULLs equal
    distinct = " NULLS NOT DISTINCT" if unique else ""
    shown = definition.name or _made_up(definition.kind, name.name, "")
    clustered = definition.clustered
    if clustered is None:
        clustered = definition.kind == "PK"
    schema = "" if name.pg_schema == "pg_temp" else f"{quoted(name.pg_schema)}."
    return (
        f"CREATE {'UNIQUE ' if unique else ''}INDEX {pg_index} ON {name.sql} ({', '.join(items)})"
        f"{distinct};"
        "INSERT INTO sys._index SELECT c.oid, x.indrelid, "
        f"{literal(shown)}, {literal(definition.kind)}, {str(unique).lower()}, "
        f"{str(clustered).lower()}, "
        f"ARRAY{numbers}::int[], ARRAY{str(directions).lower()}::boolean[] "
        "FROM pg_class c JOIN pg_index x ON x.indexrelid = c.oid WHERE c.oid = "
        f"{literal((schema or 'pg_temp.') + pg_index)}::regclass"
    )


def _named(by_name: dict[str, TableColumn], name: str) -> TableColumn:
    found = by_name.get(name.lower())
    if found is None:
        raise SqlError(
            1911, 16, f"Column name '{name}' does not exist in the target table or view."
        )
    return found


def not_null(columns: list[ColumnDef], keys: list[KeyDef]) -> list[ColumnDef]:
    """The columns, with those of the primary key made NOT NULL."""
    primary = {name.lower() for item in keys if item.kind == "PK" for name, _ in item.columns}
    return [
        replace(column, nullable=False) if column.name.lower() in primary else column
        for column in columns
    ]


def definition_text(column: ColumnDef) -> str | None:
    """The text of a column's default or formula, as the catalog shows it."""
    if column.default is not None:
        return text_of(column.default)
    return text_of(column.computed) if column.computed is not None else None


def text_of(tokens: Sequence[Token]) -> str:
    """Tokens as text again."""
    parts = []
    for token in tokens:
        kind = token.token_type.name
        if kind == "STRING":
            parts.append("'" + token.text.replace("'", "''") + "'")
        elif kind == "NATIONAL_STRING":
            parts.append("N'" + token.text.replace("'", "''") + "'")
        elif kind == "IDENTIFIER":
            parts.append("[" + token.text.replace("]", "]]") + "]")
        elif kind == "HEX_STRING":
            parts.append("0x" + token.text)
        else:
            parts.append(token.text)
    text = " ".join(parts)
    for sign in ("( ", " (", " )", " ,", " .", ". ", "@ ", "# "):
        text = text.replace(sign, sign.strip())
    return text


def serial(state: State) -> int:
    """A number for an index name: T-SQL's are unique per table, PostgreSQL's per schema."""
    return int(state.link.rows("SELECT nextval('sys._index_names')")[0][0] or 0)
