"""The system procedures that drivers and programs call."""

from __future__ import annotations

from collections.abc import Callable

from tableferry_local.sqlserver.catalog.tables import object_name, pg_name, quoted
from tableferry_local.sqlserver.errors import ErrorContext, SqlError, unsupported
from tableferry_local.sqlserver.tsql.execution.arguments import Argument, bound
from tableferry_local.sqlserver.tsql.execution.run import Run, run_text
from tableferry_local.sqlserver.tsql.syntax.clauses import name_at
from tableferry_local.sqlserver.tsql.syntax.parsing import tokenize
from tableferry_local.sqlserver.types.sqltype import SYSTEM_TYPES, ResultColumn, SqlType
from tableferry_local.sqlserver.types.typerules import INT, SMALLINT, SYSNAME
from tableferry_local.sqlserver.types.value import literal

Procedure = Callable[[Run, list[Argument]], int]


def _rename(run: Run, arguments: list[Argument]) -> int:
    given = bound(arguments, "@objname", "@newname", "@objtype")
    old, new = given["@objname"] or "", given["@newname"] or ""
    kind = (given["@objtype"] or "").upper()
    parts, _ = name_at(tokenize(old), 0)
    state = run.state
    with state.statement(ErrorContext("ALTER")):
        if kind == "COLUMN":
            _rename_column(run, old, parts, new)
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


def _rename_column(run: Run, old: str, parts: list[str], new: str) -> None:
    state = run.state
    table = state.catalog.find(object_name(parts[:-1], state.database)) if parts[1:] else None
    column = table.by_name.get(parts[-1].lower()) if table is not None else None
    if table is None or column is None:
        raise SqlError(
            15248,
            11,
            "Either the parameter @objname is ambiguous or the claimed @objtype (COLUMN) is wrong.",
        )
    if new.lower() in table.by_name:
        raise SqlError(
            15335,
            11,
            f"Error: The new name '{new}' is already in use as a COLUMN name and would cause a "
            "duplicate that is not permitted.",
        )
    state.link.run(
        f"ALTER TABLE {table.sql} RENAME COLUMN {column.sql} TO {quoted(pg_name(new))}; "
        f"UPDATE sys._column SET name = {literal(new)} "
        f"WHERE oid = {table.oid}::oid AND attnum = {column.attnum}"
    )


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
    for chunk in run.state.link.stream(_COLLATIONS, [str(table.oid)], often=True):
        run.sink.rows(chunk)
    run.sink.done(len(table.columns), "SELECT")
    return 0


_COLLATIONS = r"""
    SELECT attnum, name, CASE WHEN of_text THEN '\x0904d00034'::bytea END,
        CASE WHEN of_text THEN COALESCE(collated, 'SQL_Latin1_General_CP1_CI_AS') END
    FROM sys._column, LATERAL (SELECT type ~ '(char|text)$') AS kind(of_text)
    WHERE oid = $1::oid ORDER BY attnum
"""


class _Described:
    """A sink that keeps the columns of the first result."""

    def __init__(self) -> None:
        self.found: list[ResultColumn] | None = None

    def columns(self, cols: list[ResultColumn]) -> None:
        self.found = self.found if self.found is not None else cols

    def rows(self, chunk: object) -> None:
        """FMTONLY sends none."""

    def done(self, rowcount: int | None, command: str) -> None:
        """Nothing is reported."""

    def info(self, number: int, message: str, severity: int = 0) -> None:
        """Nothing is reported."""

    def error(self, error: SqlError) -> None:
        raise error

    def database(self, new: str, old: str) -> None:
        """Nothing is reported."""


def _describe(run: Run, arguments: list[Argument]) -> int:
    text = bound(arguments, "@tsql")["@tsql"] or ""
    sink, described = run.sink, _Described()
    fmtonly = run.state.fmtonly
    run.sink, run.state.fmtonly = described, True
    try:
        run_text(run, text)
    finally:
        run.sink, run.state.fmtonly = sink, fmtonly
    run.sink.columns(
        [
            ResultColumn("is_hidden", SqlType("bit")),
            ResultColumn("column_ordinal", INT),
            ResultColumn("name", SYSNAME),
            ResultColumn("is_nullable", SqlType("bit")),
            ResultColumn("system_type_id", INT),
            ResultColumn("system_type_name", SqlType("nvarchar", 256)),
            ResultColumn("max_length", SMALLINT),
            ResultColumn("precision", SqlType("tinyint")),
            ResultColumn("scale", SqlType("tinyint")),
        ]
    )
    listed = described.found or []
    if listed:
        rows = ", ".join(_description(at, column) for at, column in enumerate(listed, start=1))
        for chunk in run.state.link.stream(
            "SELECT 0::smallint, d.at::int, d.name::text, d.nulls::smallint, d.id::int, "
            "d.type::text, d.length::smallint, d.digits::smallint, d.scale::smallint "
            f"FROM (VALUES {rows}) AS d(at, name, nulls, id, type, length, digits, scale)",
            [],
        ):
            run.sink.rows(chunk)
    run.sink.done(len(listed), "SELECT")
    return 0


def _description(ordinal: int, column: ResultColumn) -> str:
    """The values of a column's description, in parentheses."""
    kind = column.type
    number, length, digits, scale = SYSTEM_TYPES[kind.name]
    if kind.length is not None:
        length = kind.length * (2 if kind.is_unicode and kind.length > 0 else 1)
    digits, scale = kind.precision or digits, scale if kind.scale is None else kind.scale
    texts = f"{literal(column.name)}, {int(column.nullable)}, {number}, {literal(str(kind))}"
    return f"({ordinal}, {texts}, {length}, {digits}, {scale})"


GRANTED, GRANTED_AFTER_WAIT, TIMED_OUT, CANCELLED, DEADLOCK, INVALID = 0, 1, -1, -2, -3, -999
_SHARED = {"shared", "intentshared"}
_EXCLUSIVE = {"exclusive", "update", "intentexclusive"}


def _getapplock(run: Run, arguments: list[Argument]) -> int:
    """Take an application lock; returns what sp_getapplock documents.

    Session locks of PostgreSQL serve both owners, because PostgreSQL cannot release a
    transaction's lock early; those of a transaction are released when it ends.
    """
    state = run.state
    given = bound(arguments, "@resource", "@lockmode", "@lockowner", "@locktimeout", "@dbprincipal")
    resource, mode = given["@resource"] or "", (given["@lockmode"] or "").lower()
    owner = (given["@lockowner"] or "transaction").lower()
    wait = int(given["@locktimeout"] if given["@locktimeout"] is not None else state.lock_timeout)
    if mode not in _SHARED | _EXCLUSIVE or owner not in ("transaction", "session") or not resource:
        return INVALID
    if owner == "transaction" and not state.trancount:
        run.sink.error(
            SqlError(
                3918,
                16,
                "The statement or function must be executed in the context of a user transaction.",
            )
        )
        return INVALID
    suffix = "_shared" if mode in _SHARED else ""
    number = _number(run, resource)
    held = state.applocks.setdefault((owner, resource), [])
    if state.link.rows(f"SELECT pg_try_advisory_lock{suffix}({number})")[0][0] == "t":
        held.append((number, suffix))
        return GRANTED
    if wait == 0:
        return TIMED_OUT
    usual = 0 if state.lock_timeout < 0 else max(1, state.lock_timeout)
    try:
        with state.statement(ErrorContext("EXECUTE")):
            state.link.run(f"SET lock_timeout = {max(wait, 0)}")
            state.link.rows(f"SELECT pg_advisory_lock{suffix}({number})")
    except SqlError as error:
        if error.number == 1222:
            return TIMED_OUT
        if error.number == 1205:
            return DEADLOCK
        if error.number == 3621:
            return CANCELLED
        raise
    finally:
        if state.link.alive:
            state.link.run(f"SET lock_timeout = {usual}")
    held.append((number, suffix))
    return GRANTED_AFTER_WAIT


def _number(run: Run, resource: str) -> str:
    rows = run.state.link.rows(
        "SELECT hashtextextended($1, 0)", [f"{run.state.database.lower()}|{resource}"]
    )
    return str(rows[0][0])


def _releaseapplock(run: Run, arguments: list[Argument]) -> int:
    """Release an application lock; returns 0, or -999 with error 1223 if it is not held."""
    given = bound(arguments, "@resource", "@lockowner", "@dbprincipal")
    resource = given["@resource"] or ""
    owner = (given["@lockowner"] or "transaction").lower()
    held = run.state.applocks.get((owner, resource))
    if not held:
        run.sink.error(
            SqlError(
                1223,
                16,
                "Cannot release the application lock (Database Principal: 'public', Resource: "
                f"'{resource}') because it is not currently held.",
            )
        )
        return INVALID
    number, suffix = held.pop()
    run.state.link.run(f"SELECT pg_advisory_unlock{suffix}({number})")
    if not held:
        del run.state.applocks[owner, resource]
    return 0


SYSTEM_PROCEDURES: dict[str, Procedure] = {
    "sp_describe_first_result_set": _describe,
    "sp_rename": _rename,
    "sp_getapplock": _getapplock,
    "sp_releaseapplock": _releaseapplock,
    "sp_tablecollations_100": _table_collations,
}
