"""What a SQL Server table has that one recreated would not: refused before anything happens."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import NOT_CARRIED_OVER, Hazard, not_carried_over
from tableferry.resources.errors import StatementFailed
from tableferry.resources.sqlserver.catalog import about
from tableferry.resources.sqlserver.ddl import OWN_INDEX, primary_key
from tableferry.resources.sqlserver.dialect import DIALECT, literal
from tableferry.resources.sqlserver.policies import NO_DEFINITIONS, grant_definitions, is_babelfish
from tableferry.resources.tables import TableRef

TABLE = (
    "sys.tables AS t INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id "
    "AND s.name = {schema} AND t.name IN ({names})"
)


def _named(view: str, join: str, name: str = "x.name") -> str:
    return f"SELECT CAST({name} AS nvarchar(400)) FROM {TABLE} INNER JOIN {view} AS x ON {join}"


def _column(condition: str) -> str:
    columns = _named("sys.columns", "x.object_id = t.object_id")
    return f"{columns} WHERE {condition}"


PARTS = {
    "trigger": _named("sys.triggers", "x.parent_id = t.object_id"),
    "foreign key": _named("sys.foreign_keys", "x.parent_object_id = t.object_id"),
    "foreign key of another table": _named(
        "sys.foreign_keys",
        "x.referenced_object_id = t.object_id AND x.parent_object_id <> t.object_id",
    ),
    "check": _named("sys.check_constraints", "x.parent_object_id = t.object_id"),
    "default of column": _column("x.default_object_id <> 0"),
    "expression of column": _column("x.is_computed = 1"),
    "identity of column": _column("x.is_identity = 1"),
    "mask of column": _column("x.is_masked = 1"),
    "sparse column": _column("x.is_sparse = 1"),
    "index": _named("sys.indexes", "x.object_id = t.object_id AND x.index_id > 0")
    + " WHERE x.is_primary_key = 0",
    "statistics": _named("sys.stats", "x.object_id = t.object_id AND x.user_created = 1"),
    "extended property": _named(
        "sys.extended_properties", "x.class = 1 AND x.major_id = t.object_id"
    ),
    "permission": _named(
        "sys.database_permissions",
        "x.class = 1 AND x.major_id = t.object_id",
        "CONCAT(x.state_desc COLLATE DATABASE_DEFAULT, ' ', x.permission_name COLLATE "
        "DATABASE_DEFAULT, ' to ', USER_NAME(x.grantee_principal_id))",
    ),
    "owner": f"SELECT CAST(USER_NAME(t.principal_id) AS nvarchar(400)) FROM {TABLE} "
    "WHERE t.principal_id IS NOT NULL",
    "security policy": _named(
        "sys.security_predicates",
        "x.target_object_id = t.object_id",
        "OBJECT_NAME(x.object_id)",
    ),
    "compression": _named(
        "sys.partitions",
        "x.object_id = t.object_id AND x.data_compression <> 0",
        "x.data_compression_desc",
    ),
    "partition scheme": f"SELECT CAST(p.name AS nvarchar(400)) FROM {TABLE} INNER JOIN sys.indexes "
    "AS x ON x.object_id = t.object_id INNER JOIN sys.partition_schemes AS p "
    "ON p.data_space_id = x.data_space_id",
    "change tracking": _named(
        "sys.change_tracking_tables", "x.object_id = t.object_id", "'of the table'"
    ),
    "change data capture": f"SELECT N'of the table' FROM {TABLE} WHERE t.is_tracked_by_cdc = 1",
    "replication": f"SELECT N'of the table' FROM {TABLE} "
    "WHERE t.is_replicated = 1 OR t.is_published = 1",
    "memory optimization": f"SELECT N'of the table' FROM {TABLE} WHERE t.is_memory_optimized = 1",
    "schema-bound object": _named(
        "sys.sql_expression_dependencies",
        "x.referenced_id = t.object_id AND x.is_schema_bound_reference = 1 "
        "AND x.referencing_id <> t.object_id",
        "OBJECT_NAME(x.referencing_id)",
    ),
}
"""The queries for names, by what they name."""

UNSEEN = f"SELECT CAST(USER_NAME() AS nvarchar(128)) WHERE {NO_DEFINITIONS}"
"""Without that right, a login sees its own permissions, and what is bound to the table by whom it
may see."""

PRIMARY_KEY = """
SELECT CAST(x.name AS nvarchar(128)), CAST(c.name AS nvarchar(128)) FROM {table}
INNER JOIN sys.indexes AS x ON x.object_id = t.object_id AND x.is_primary_key = 1
INNER JOIN sys.index_columns AS k ON k.object_id = x.object_id AND k.index_id = x.index_id
INNER JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
"""


def lost(endpoint: Endpoint, plan: CopyPlan) -> list[Hazard]:
    """What the target has and a new table would not."""
    table = plan.target
    named = {kind: _names(endpoint, table, kind, sql) for kind, sql in PARTS.items()}
    keys = endpoint.query(about(PRIMARY_KEY.replace("{table}", TABLE), [table], "t.name"))
    if keys and {column for _, column in keys} != set(primary_key(plan)):
        named["primary key"] = [str(keys[0][0])]
    hazards = not_carried_over((kind, name) for kind in named for name in named[kind] or ())
    if not is_babelfish(endpoint):
        for (login,) in endpoint.query(UNSEEN):
            blind = f"{DIALECT.quote(login)} may not see those of others, which {NOT_CARRIED_OVER}"
            remedy = grant_definitions(login)
            hazards.append(Hazard("permissions and", "dependents", "refused", blind, remedy))
    if unknown := [kind for kind, names in named.items() if names is None]:
        told = f"{NOT_CARRIED_OVER}, and the server does not tell whether there are any"
        hazards.append(Hazard("features", ", ".join(unknown), "noted", told))
    return hazards


def _names(endpoint: Endpoint, table: TableRef, kind: str, sql: str) -> list[str] | None:
    """The names of such parts of a table; None if the server has no view of them."""
    try:
        if kind == "permission" and is_babelfish(endpoint):
            return sorted(set(_granted(endpoint, table)))
        rows = endpoint.query(about(sql, [table], "t.name"))
    except StatementFailed as error:
        if error.transient:
            raise
        return None
    names = sorted({str(name) for (name,) in rows})
    return [name for name in names if kind != "index" or not re.match(OWN_INDEX, name)]


def _granted(endpoint: Endpoint, table: TableRef) -> Iterator[str]:
    """What others than the owner may do: Babelfish's view of permissions is always empty."""
    for row in endpoint.query(
        f"EXEC sp_table_privileges @table_name = {literal(table.name)}, "
        f"@table_owner = {literal(table.schema)}, @fUsePattern = 0"
    ):
        grantor, grantee, privilege = map(str, row[3:6])
        if grantee != grantor:
            yield f"GRANT {privilege} to {grantee}"
