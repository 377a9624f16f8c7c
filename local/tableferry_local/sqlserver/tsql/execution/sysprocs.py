"""The system procedures that drivers and programs call."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tableferry_local.sqlserver.catalog.tables import object_name, pg_name, quoted
from tableferry_local.sqlserver.errors import ErrorContext, SqlError, unsupported
from tableferry_local.sqlserver.tsql.execution.applocks import getapplock, releaseapplock
from tableferry_local.sqlserver.tsql.execution.arguments import Argument, bound
from tableferry_local.sqlserver.tsql.execution.describe import describe
from tableferry_local.sqlserver.tsql.execution.run import Run, run_text
from tableferry_local.sqlserver.tsql.execution.state import Variable
from tableferry_local.sqlserver.tsql.syntax.clauses import name_at
from tableferry_local.sqlserver.tsql.syntax.parsing import tokenize
from tableferry_local.sqlserver.types.sqltype import MAX, SYSTEM_TYPES, ResultColumn, SqlType
from tableferry_local.sqlserver.types.typerules import INT, SYSNAME, as_decimal, family, parse_type
from tableferry_local.sqlserver.types.value import literal

Procedure = Callable[[Run, list[Argument]], int]
_TEXT = SqlType("nvarchar", MAX)


def _rename(run: Run, arguments: list[Argument]) -> int:
    given = bound(arguments, "@objname", "@newname", "@objtype")
    old, new = given["@objname"] or "", given["@newname"] or ""
    kind = (given["@objtype"] or "").upper()
    parts, _ = name_at(tokenize(old), 0)
    state = run.state
    with state.statement(ErrorContext("ALTER")):
        if kind == "COLUMN":
            _rename_column(run, parts, new)
        elif kind not in ("", "OBJECT"):
            raise unsupported(f"sp_rename of {kind}")
        else:
            name = object_name(parts, state.database)
            table = state.catalog.find(name)
            if table is None:
                raise SqlError(
                    15225,
                    11,
                    f"No item by the name of '{old}' could be found in the current database "
                    f"'{state.database}', given that @itemtype was input as '{kind or '(null)'}'.",
                )
            free = object_name([name.database, name.schema, new], state.database)
            if pg_name(new) != pg_name(name.name):
                if state.catalog.find(free) is not None:
                    raise SqlError(
                        15335,
                        11,
                        f"Error: The new name '{new}' is already in use as a object name and would "
                        "cause a duplicate that is not permitted."
                    )  # fmt: skip
                state.link.run(f"ALTER TABLE {table.sql} RENAME TO {quoted(pg_name(new))}")
            state.link.run(
                f"UPDATE sys._relation SET name = {literal(new)} WHERE oid = {table.oid}::oid"
            )
    run.sink.info(
        15477,
        "Caution: Changing any part of an object name could break scripts and stored procedures.",
    )
    run.sink.done(None, "EXECUTE")
    return 0


def _rename_column(run: Run, parts: list[str], new: str) -> None:
    state = run.state
    table = state.catalog.get(object_name(parts[:-1], state.database), ".".join(parts[:-1]))
    column = table.column(parts[-1])
    if new.lower() in table.by_name and new.lower() != column.name.lower():
        raise SqlError(
            15335,
            11,
            f"Error: The new name '{new}' is already in use as a COLUMN name and would cause a "
            "duplicate that is not permitted.",
        )
    if pg_name(new) != pg_name(column.name):
        state.link.run(
            f"ALTER TABLE {table.sql} RENAME COLUMN {column.sql} TO {quoted(pg_name(new))}"
        )
    state.link.run(
        f"UPDATE sys._column SET name = {literal(new)} WHERE oid = {table.oid}::oid AND attnum "
        f"= {column.attnum}"
    )


def _query(text: str, *names: str) -> Procedure:
    """A procedure that is one T-SQL query of its arguments, as variables."""

    def procedure(run: Run, arguments: list[Argument]) -> int:
        given = bound(arguments, *names)
        variables = {name: Variable(_TEXT, given[name]) for name in names}
        return run_text(run, text, variables)

    return procedure


def _read(text: str) -> dict[str, Procedure]:
    found: dict[str, Procedure] = {}
    query = ""
    for paragraph in re.split(r"^-- procedure ", text, flags=re.M)[1:]:
        head, _, body = paragraph.partition("\n")
        name, *parameters = head.split()
        # an empty paragraph is the same query under another name
        query = body.strip() or query
        found[name] = _query(query, *parameters)
    return found


def _table_collations(run: Run, arguments: list[Argument]) -> int:
    given = bound(arguments, "@object")
    parts, _ = name_at(tokenize((given["@object"] or "").lstrip(".")), 0)
    table = run.state.catalog.get(object_name(parts, run.state.database), given["@object"])
    run.sink.columns(
        [
            ResultColumn("colid", INT, False),
            ResultColumn("name", SYSNAME),
            ResultColumn("tds_collation_100", SqlType("binary", 5)),
            ResultColumn("collation_100", SYSNAME),
        ]
    )
    rows: list[list[str | None]] = []
    for column in table.columns:
        text = column.type.is_text and column.type.name != "xml"
        name = column.collation or "SQL_Latin1_General_CP1_CI_AS"
        rows.append(
            [
                str(column.attnum),
                column.name,
                "\\x0904d00034" if text else None,
                name if text else None,
            ]
        )
    run.sink.values(rows)
    run.sink.done(len(rows), "SELECT")
    return 0


_DESCRIBED = [
    ("is_hidden", "bit"), ("column_ordinal", "int"), ("name", "sysname"),
    ("is_nullable", "bit"), ("system_type_id", "int"), ("max_length", "smallint"),
    ("precision", "tinyint"), ("scale", "tinyint"), ("collation_name", "sysname"),
    ("user_type_id", "int"), ("user_type_database", "sysname"), ("user_type_schema", "sysname"),
    ("user_type_name", "sysname"), ("xml_collection_id", "int"),
    ("xml_collection_database", "sysname"), ("xml_collection_schema", "sysname"),
    ("xml_collection_name", "sysname"), ("is_xml_document", "bit"),
    ("is_case_sensitive", "bit"), ("is_fixed_length_clr_type", "bit"),
    ("source_server", "sysname"), ("source_database", "sysname"), ("source_schema", "sysname"),
    ("source_table", "sysname"), ("source_column", "sysname"), ("is_identity_column", "bit"),
    ("is_part_of_unique_key", "bit"), ("is_updateable", "bit"), ("is_computed_column", "bit"),
    ("is_sparse_column_set", "bit"), ("ordinal_in_order_by_list", "smallint"),
    ("order_by_list_length", "smallint"), ("order_by_is_descending", "smallint"),
    ("tds_type_id", "int"), ("tds_length", "int"), ("tds_collation_id", "int"),
    ("tds_collation_sort_id", "tinyint"),
]  # fmt: skip
_TDS_TYPES = {
    "bit": 104, "tinyint": 38, "smallint": 38, "int": 38, "bigint": 38, "decimal": 106,
    "numeric": 108, "money": 110, "smallmoney": 110, "float": 109, "real": 109, "date": 40,
    "time": 41, "datetime2": 42, "datetimeoffset": 43, "datetime": 111, "smalldatetime": 111,
    "char": 175, "varchar": 167, "nchar": 239, "nvarchar": 231, "text": 35, "ntext": 99,
    "image": 34, "binary": 173, "varbinary": 165, "uniqueidentifier": 36, "xml": 241,
    "timestamp": 173,
}  # fmt: skip


def sizes(kind: SqlType) -> tuple[int, int, int]:
    """max_length in bytes, precision and scale, as sys.columns tells them."""
    _, length, precision, scale = SYSTEM_TYPES.get(kind.name, (0, -1, 0, 0))
    if kind.length is not None:
        length = kind.length * (2 if kind.is_unicode and kind.length > 0 else 1)
    if kind.name in ("decimal", "numeric"):
        precision, scale = as_decimal(kind)
        length = 5 if precision <= 9 else 9 if precision <= 19 else 13 if precision <= 28 else 17
    elif family(kind) == "date" and kind.scale is not None:
        scale = kind.scale
        small = 0 if scale > 4 else 1 if scale > 2 else 2
        base, width = {"time": (5, 8), "datetime2": (8, 19), "datetimeoffset": (10, 26)}[kind.name]
        length, precision = base - small, width + (scale + 1 if scale else 0)
    return length, precision, scale


def _describe(run: Run, arguments: list[Argument]) -> int:
    given = bound(arguments, "@tsql", "@params", "@browse_information_mode")
    columns = describe(run.state, given["@tsql"] or "", given["@params"] or "")
    run.sink.columns([ResultColumn(name, parse_type(kind)) for name, kind in _DESCRIBED])
    rows: list[list[str | None]] = []
    for number, column in enumerate(columns, 1):
        kind = column.type
        length, precision, scale = sizes(kind)
        type_id = SYSTEM_TYPES.get(kind.name, (98, 0, 0, 0))[0]
        text = kind.is_text and kind.name != "xml"
        known: dict[str, object] = {
            "is_hidden": 0,
            "column_ordinal": number,
            "name": column.name or None,
            "is_nullable": int(column.nullable),
            "system_type_id": type_id,
            "system_type_name": str(kind),
            "max_length": length,
            "precision": precision,
            "scale": scale,
            "collation_name": "SQL_Latin1_General_CP1_CI_AS" if text else None,
            "is_xml_document": 0,
            "is_case_sensitive": 0,
            "is_fixed_length_clr_type": 0,
            "is_identity_column": int(column.identity),
            "is_updateable": int(not column.computed and not column.identity),
            "is_computed_column": int(column.computed),
            "is_sparse_column_set": 0,
            "tds_type_id": _TDS_TYPES.get(kind.name, 98),
            "tds_length": length if length >= 0 else 65535,
            "tds_collation_id": 13632521 if text else None,
            "tds_collation_sort_id": 52 if text else None,
        }
        rows.append(
            [None if known.get(name) is None else str(known[name]) for name, _ in _DESCRIBED]
        )
    run.sink.values(rows)
    run.sink.done(len(rows), "SELECT")
    return 0


def _nothing(run: Run, arguments: list[Argument]) -> int:
    return 0


SYSTEM_PROCEDURES: dict[str, Procedure] = {
    "sp_rename": _rename,
    "sp_getapplock": getapplock,
    "sp_releaseapplock": releaseapplock,
    "sp_describe_first_result_set": _describe,
    "sp_tablecollations_100": _table_collations,
    "sp_tablecollations_90": _table_collations,
    "sp_tablecollations": _table_collations,
    **_read(Path(__file__).with_name("procedures.sql").read_text()),
    "sp_reset_connection": _nothing,
}
