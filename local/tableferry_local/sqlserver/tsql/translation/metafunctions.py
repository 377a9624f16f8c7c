"""Functions about the server, the session and the catalog."""

from __future__ import annotations

from collections.abc import Callable

from tableferry_local.sqlserver.tsql.translation.conversions import convert
from tableferry_local.sqlserver.tsql.translation.expressions import Compiler
from tableferry_local.sqlserver.types.sqltype import SqlType
from tableferry_local.sqlserver.types.typerules import (
    INT,
    NVARCHAR_MAX,
    SMALLINT,
    SYSNAME,
)
from tableferry_local.sqlserver.types.value import Value, literal

Handler = Callable[[Compiler, list[Value]], Value]

VERSION_TEXT = (
    "Microsoft SQL Server 2019 (RTM-CU32) - 15.0.4430.1 (X64) compatible: "
    "the Tableferry stand-in on PostgreSQL"
)

NVARCHAR_128 = SqlType("nvarchar", 128)
SESSION_VALUES: dict[str, SqlType] = {
    "@@trancount": INT,
    "@@spid": SMALLINT,
    "@@version": SqlType("nvarchar", 300),
    "@@datefirst": SqlType("tinyint"),
    "@@lock_timeout": INT,
    "@@options": INT,
    "@@db_name": NVARCHAR_128,
    "@@user_name": NVARCHAR_128,
}

_SERVER_PROPERTIES = {"productversion": "15.0.4430.1", "servername": "tableferry"}


def _text(value: Value) -> str:
    return convert(value, NVARCHAR_MAX)


def _database(compiler: Compiler) -> str:
    return literal(compiler.database)


def _server_property(compiler: Compiler, args: list[Value]) -> Value:
    found = _SERVER_PROPERTIES.get(str(args[0].constant or "").lower())
    return Value("NULL::text" if found is None else f"{literal(found)}::text", NVARCHAR_128)


def _object_id(compiler: Compiler, args: list[Value]) -> Value:
    kind = _text(args[1]) if len(args) > 1 else "NULL"
    return Value(f"sys.object_id({_database(compiler)}, {_text(args[0])}, {kind})", INT)


def _object_name(compiler: Compiler, args: list[Value]) -> Value:
    oid = f"({convert(args[0], INT)})::bigint::oid"
    return Value(
        "(SELECT r.name FROM sys._relation r JOIN pg_class c ON c.oid = r.oid "
        f"WHERE r.oid = {oid} "
        f"UNION ALL SELECT i.name FROM sys._index i WHERE i.oid = {oid} LIMIT 1)",
        SYSNAME,
    )


def _schema_id(compiler: Compiler, args: list[Value]) -> Value:
    return Value(
        f"(SELECT s.id FROM sys._schema s WHERE s.database = lower({_database(compiler)}) "
        f"AND lower(s.name) = lower({_text(args[0])}))",
        INT,
    )


def _db_id(compiler: Compiler, args: list[Value]) -> Value:
    name = _text(args[0]) if args else _database(compiler)
    return Value(
        f"(SELECT d.id FROM sys._database d WHERE d.key = lower({name}))::smallint", SMALLINT
    )


def _constant(sql: str, kind: SqlType) -> Handler:
    return lambda compiler, args: Value(sql, kind)


def _user_name(compiler: Compiler, args: list[Value]) -> Value:
    login = compiler.parameter("@@user_name").sql
    return Value(f"(CASE WHEN sys.limited() THEN {login} ELSE 'dbo' END)", SYSNAME)


def _has_perms_by_name(compiler: Compiler, args: list[Value]) -> Value:
    """A limited login has no permission on the database but those to create."""
    kind, permission = _text(args[1]), _text(args[2])
    return Value(
        f"(CASE WHEN sys.limited() AND upper({kind}) = 'DATABASE' "
        f"AND upper({permission}) NOT LIKE 'CREATE %' THEN 0 ELSE 1 END)",
        INT,
    )


def _object_property(compiler: Compiler, args: list[Value]) -> Value:
    """`TableHasForeignRef` alone; NULL for any other."""
    id_, name = convert(args[0], INT), _text(args[1])
    return Value(
        f"(CASE WHEN lower({name}) = 'tablehasforeignref' THEN (SELECT count(*) > 0 FROM "
        f"pg_constraint WHERE contype = 'f' AND confrelid = ({id_})::bigint::oid)::int END)",
        INT,
    )


META_FUNCTIONS: dict[str, Handler] = {
    "object_id": _object_id,
    "object_name": _object_name,
    "schema_name": _constant("'dbo'::text", SYSNAME),
    "schema_id": _schema_id,
    "db_name": lambda compiler, args: compiler.parameter("@@db_name"),
    "db_id": _db_id,
    "serverproperty": _server_property,
    "suser_name": lambda compiler, args: compiler.parameter("@@user_name"),
    "suser_sname": lambda compiler, args: compiler.parameter("@@user_name"),
    "user_name": _user_name,
    "user_id": _constant("1", INT),
    "suser_id": _constant("1", INT),
    "has_perms_by_name": _has_perms_by_name,
    "objectproperty": _object_property,
}
