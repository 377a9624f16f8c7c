"""What SQL Server keeps from a login: rows by security policies, and columns by permissions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tableferry.resources.contract import catalog
from tableferry.resources.contract.catalog import Listed, Withheld
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.sqlserver.catalog import Row, about, by_table
from tableferry.resources.sqlserver.dialect import DIALECT
from tableferry.resources.tables import TableRef

NO_DEFINITIONS = "HAS_PERMS_BY_NAME(NULL, 'DATABASE', 'VIEW DEFINITION') = 0"
"""That the catalog does not show the login what belongs to others. Elsewhere than on SQL Server it
may be NULL.
https://learn.microsoft.com/sql/relational-databases/security/metadata-visibility-configuration"""

SEES_NO_POLICIES = (
    f"{NO_DEFINITIONS} AND HAS_PERMS_BY_NAME(NULL, 'DATABASE', 'ALTER ANY SECURITY POLICY') = 0"
)


def grant_definitions(login: str) -> str:
    """The remedy for a login that the catalog does not show all that it must know."""
    return f"GRANT VIEW DEFINITION TO {DIALECT.quote(login)}"


def _query(table: str, where: str) -> str:
    return f"""
SELECT {table}, 'policy', CAST(p.name AS nvarchar(128)) FROM sys.security_predicates AS f
INNER JOIN sys.security_policies AS p ON p.object_id = f.object_id
INNER JOIN sys.objects AS o ON o.object_id = f.target_object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE {where} AND p.is_enabled = 1 AND f.predicate_type = 0
UNION ALL
SELECT {table}, 'unseen', CAST(USER_NAME() AS nvarchar(128)) FROM sys.objects AS o
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE {where} AND {SEES_NO_POLICIES}
UNION ALL
SELECT {table}, 'column', CAST(c.name AS nvarchar(128)) FROM sys.columns AS c
INNER JOIN sys.objects AS o ON o.object_id = c.object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE {where} AND HAS_PERMS_BY_NAME(
    QUOTENAME(s.name) + N'.' + QUOTENAME(o.name), 'OBJECT', 'SELECT', c.name, 'COLUMN') = 0
"""


WITHHELD_SQL = _query("{number}", "s.name = {schema} AND o.name IN ({names})")
"""Enabled filters, as the other predicates refuse rows with an error; and columns that the login
may not read. A column may be denied where the table is granted.
https://learn.microsoft.com/sql/t-sql/functions/has-perms-by-name-transact-sql"""

ALL_WITHHELD_SQL = _query(
    "CAST(s.name AS nvarchar(128)), CAST(o.name AS nvarchar(128))", "o.type IN ('U', 'V')"
)
"""The same of all tables and views."""


def is_babelfish(endpoint: Endpoint) -> bool:
    """Whether the server is Babelfish."""
    asked = "SELECT CAST(SERVERPROPERTY('babelfish') AS int)"
    return endpoint.settings().facts.known("babelfish", lambda: endpoint.query(asked) == [(1,)])


def listed(endpoint: Endpoint, connection: str) -> list[Listed]:
    """See `Source.tables`."""
    tables = catalog.listed(endpoint, connection)
    if is_babelfish(endpoint):
        return tables
    rows: dict[tuple[str, str], list[Row]] = {}
    for schema, name, *row in endpoint.query(ALL_WITHHELD_SQL):
        rows.setdefault((schema, name), []).append(tuple(row))
    by_name = {name: _parted(of_table) for name, of_table in rows.items()}
    return [
        replace(each, hidden=policy, unreadable=tuple(columns) or None)
        for each in tables
        for policy, columns in [by_name.get((each.table.schema, each.table.name), (None, []))]
    ]


def withheld(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, Withheld]:
    """See `Inspection.withheld`.

    Babelfish has no security policies, and shows none of PostgreSQL's.
    """
    if is_babelfish(endpoint):
        return {}
    rows = by_table(tables, endpoint.query(about(WITHHELD_SQL, tables, "o.name")))
    return {table: _parted(of_table) for table, of_table in rows.items()}


def _parted(rows: Sequence[Row]) -> Withheld:
    columns = [str(name) for what, name in rows if what == "column"]
    policies = [str(name) for what, name in rows if what == "policy"]
    unseen = [str(login) for what, login in rows if what == "unseen"]
    if policies:
        return _filtered_by(policies[0]), columns
    return _unseen(unseen[0]) if unseen else None, columns


def _unseen(login: str) -> str:
    return (
        f"{DIALECT.quote(login)} may not see whether a security policy filters its rows; "
        f"{grant_definitions(login)}, or declare 'row_security: apply' to take the rows that are "
        "shown for all"
    )


def _filtered_by(policy: str) -> str:
    name = DIALECT.quote(policy)
    return (
        f"the security policy {name} filters its rows; have an administrator let this login see "
        f"all of them and switch the filter off (ALTER SECURITY POLICY {name} WITH (STATE = "
        "OFF)), or declare 'row_security: apply' to take the rows that are shown for all"
    )
