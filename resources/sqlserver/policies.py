"""Security policies, which hide rows of a SQL Server table."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.looking_ahead import answer
from tableferry.resources.sqlserver.dialect import DIALECT
from tableferry.resources.sqlserver.names import Row, about, by_table
from tableferry.resources.tables import TableRef

POLICIES_SQL = """
SELECT {number}, CAST(p.name AS nvarchar(128)) FROM sys.security_predicates AS f
INNER JOIN sys.security_policies AS p ON p.object_id = f.object_id
INNER JOIN sys.objects AS o ON o.object_id = f.target_object_id
INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE s.name = {schema} AND o.name IN ({names}) AND p.is_enabled = 1 AND f.predicate_type = 0
"""
"""Only enabled filters: the other predicates refuse rows with an error."""


def is_babelfish(endpoint: Endpoint) -> bool:
    """Whether the server is Babelfish."""
    return endpoint.query("SELECT CAST(SERVERPROPERTY('babelfish') AS int)") == [(1,)]


def hidden(endpoint: Endpoint, table: TableRef) -> str | None:
    """A message about a security policy that filters a table's rows; None if there is none.

    Babelfish has no security policies, and shows none of PostgreSQL's.
    """
    policies = answer(endpoint, _policies, table)
    if not policies:
        return None
    policy = DIALECT.quote(str(policies[0][0]))
    return (
        f"the security policy {policy} filters its rows; have an administrator let this login see "
        f"all of them and switch the filter off (ALTER SECURITY POLICY {policy} WITH (STATE = "
        "OFF)), or declare 'row_security: apply' to take the rows that are shown for all"
    )


def _policies(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, list[Row]]:
    if is_babelfish(endpoint):
        return {}
    return by_table(tables, endpoint.query(about(POLICIES_SQL, tables, "o.name")))
