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

VERSION = "15.0.4430.1"
VERSION_TEXT = (
    "Microsoft SQL Server 2019 (RTM-CU32) - 15.0.4430.1 (X64) compatible: "
    "the Tableferry stand-in on PostgreSQL"
)
COLLATION = "SQL_Latin1_General_CP1_CI_AS"

NVARCHAR_128 = SqlType("nvarchar", 128)
SESSION_VALUES: dict[str, SqlType] = {
    "@@rowcount": INT,
    "@@error": INT,
    "@@trancount": INT,
    "@@spid": SMALLINT,
    "@@identity": SqlType("numeric", precision=38, scale=0),
    "@@scope_identity": SqlType("numeric", precision=38, scale=0),
    "@@version": SqlType("nvarchar", 300),
    "@@servername": NVARCHAR_128,
    "@@language": NVARCHAR_128,
    "@@datefirst": SqlType("tinyint"),
    "@@lock_timeout": INT,
    "@@max_precision": SqlType("tinyint"),
    "@@nestlevel": INT,
    "@@options": INT,
    "@@textsize": INT,
    "@@dbts": SqlType("varbinary", 8),
    "@@db_name": NVARCHAR_128,
    "@@user_name": NVARCHAR_128,
    "@@app_name": NVARCHAR_128,
    "@@host_name": NVARCHAR_128,
    "@@xact_state": SMALLINT,
}

_SERVER_PROPERTIES: dict[str, str | int | None] = {
    "productversion": VERSION,
    "productlevel": "RTM",
    "productmajorversion": "15",
    "productminorversion": "0",
    "productbuild": "4430",
    "edition": "Developer Edition (64-bit)",
    "engineedition": 3,
    "editionid": -2117995310,
    "servername": "tableferry",
    "machinename": "tableferry",
    "instancename": None,
    "collation": COLLATION,
    "isclustered": 0,
    "ishadrenabled": 0,
    "isintegratedsecurityonly": 0,
    "isfulltextinstalled": 0,
    "issingleuser": 0,
    "isxtpsupported": 0,
    "lcid": 1033,
    "sqlcharset": 1,
    "sqlcharsetname": "iso_1",
    "sqlsortorder": 52,
    "sqlsortordername": "nocase_iso",
    "processid": 1,
    "buildclrversion": "v4.0.30319",
    "resourceversion": VERSION,
}
_DATABASE_PROPERTIES: dict[str, str | int | None] = {
    "collation": COLLATION,
    "status": "ONLINE",
    "updateability": "READ_WRITE",
    "useraccess": "MULTI_USER",
    "recovery": "SIMPLE",
    "version": 904,
    "isautoclose": 0,
    "isautoshrink": 0,
    "isansinullsenabled": 1,
    "isquotedidentifiersenabled": 1,
    "isfulltextenabled": 0,
    "lcid": 1033,
    "sqlsortorder": 52,
    "comparisonstyle": 196609,
}


def _text(value: Value) -> str:
    return convert(value, NVARCHAR_MAX)


def _session(name: str) -> Handler:
    return lambda compiler, args: compiler.parameter(name)


def _database(compiler: Compiler) -> str:
    return literal(compiler.database)


def _property(table: dict[str, str | int | None], position: int) -> Handler:
    def handler(compiler: Compiler, args: list[Value]) -> Value:
        found = table.get(str(args[position].constant or "").lower())
        if isinstance(found, int):
            return Value(f"({found})", INT)
        return Value("NULL::text" if found is None else f"{literal(found)}::text", NVARCHAR_128)

    return handler


def _object_id(compiler: Compiler, args: list[Value]) -> Value:
    kind = _text(args[1]) if len(args) > 1 else "NULL"
    return Value(f"sys.object_id({_database(compiler)}, {_text(args[0])}, {kind})", INT)


def _lookup(sql: str, kind: SqlType = SYSNAME) -> Handler:
    """A scalar subquery with the first arguments as ints in {0} and {1}, the database as {db}."""

    def handler(compiler: Compiler, args: list[Value]) -> Value:
        numbers = [
            convert(arg, INT) if arg.type.name != "nvarchar" and arg.type.name != "varchar" else "0"
            for arg in args
        ]
        texts = [convert(arg, NVARCHAR_MAX) if not arg.is_null else "NULL::text" for arg in args]
        numbers += ["NULL::int"] * (2 - len(numbers))
        texts += ["NULL::text"] * (2 - len(texts))
        filled = sql.format(*numbers, t0=texts[0], t1=texts[1], db=_database(compiler))
        return Value(f"({filled})", kind)

    return handler


def _schema_name(compiler: Compiler, args: list[Value]) -> Value:
    if not args:
        return Value("'dbo'::text", SYSNAME)
    return _lookup("SELECT s.name FROM sys._schema s WHERE s.id = {0}")(compiler, args)


def _schema_id(compiler: Compiler, args: list[Value]) -> Value:
    name = _text(args[0]) if args else "'dbo'"
    return Value(
        f"(SELECT s.id FROM sys._schema s WHERE s.database = lower({_database(compiler)}) "
        f"AND lower(s.name) = lower({name}))",
        INT,
    )


def _db_name(compiler: Compiler, args: list[Value]) -> Value:
    if not args:
        return compiler.parameter("@@db_name")
    return _lookup("SELECT d.name FROM sys._database d WHERE d.id = {0}")(compiler, args)


def _db_id(compiler: Compiler, args: list[Value]) -> Value:
    name = _text(args[0]) if args else _database(compiler)
    return Value(
        f"(SELECT d.id FROM sys._database d WHERE d.key = lower({name}))::smallint", SMALLINT
    )


def _object_name(compiler: Compiler, args: list[Value]) -> Value:
    return _lookup(
        "SELECT r.name FROM sys._relation r JOIN pg_class c ON c.oid = r.oid WHERE r.oid = "
        "({0})::bigint::oid "
        "UNION ALL SELECT i.name FROM sys._index i WHERE i.oid = ({0})::bigint::oid LIMIT 1"
    )(compiler, args[:1])


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


_USER = _session("@@user_name")
META_FUNCTIONS: dict[str, Handler] = {
    "object_id": _object_id,
    "object_name": _object_name,
    "schema_name": _schema_name,
    "schema_id": _schema_id,
    "db_name": _db_name,
    "db_id": _db_id,
    "col_name": _lookup(
        "SELECT k.name FROM sys._column k WHERE k.oid = ({0})::bigint::oid AND k.attnum = {1}"
    ),
    "serverproperty": _property(_SERVER_PROPERTIES, 0),
    "databasepropertyex": _property(_DATABASE_PROPERTIES, 1),
    "connectionproperty": _property(
        {
            "net_transport": "TCP",
            "protocol_type": "TSQL",
            "auth_scheme": "SQL",
            "local_net_address": "127.0.0.1",
            "client_net_address": "127.0.0.1",
            "local_tcp_port": 1433,
        },
        0,
    ),
    "type_name": _lookup("SELECT t.name FROM sys._type t WHERE t.user_type_id = {0}"),
    "type_id": _lookup("SELECT t.user_type_id FROM sys._type t WHERE t.name = lower({t0})", INT),
    "suser_sname": _USER,
    "suser_name": _USER,
    "original_login": _USER,
    "user_name": _user_name,
    "user": _constant("'dbo'::text", SYSNAME),
    "user_id": _constant("1", INT),
    "suser_id": _constant("1", INT),
    "app_name": _session("@@app_name"),
    "host_name": _session("@@host_name"),
    "has_perms_by_name": _has_perms_by_name,
    "objectproperty": _object_property,
    "scope_identity": _session("@@scope_identity"),
    "xact_state": _session("@@xact_state"),
}
