"""Row policies, which hide rows of a ClickHouse table from a user."""

from __future__ import annotations

from tableferry.resources.clickhouse.dialect import DIALECT, literal
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import StatementFailed
from tableferry.resources.tables import TableRef

ACCESS_DENIED = "497"

POLICIES = """
WITH arrayConcat([currentUser()], enabledRoles()) AS me
SELECT short_name, currentUser() FROM system.row_policies
WHERE database = {schema} AND table IN ({table}, '') AND select_filter IS NOT NULL
    AND (hasAny(apply_to_list, me) OR (apply_to_all AND NOT hasAny(apply_to_except, me)))
ORDER BY short_name LIMIT 1
"""


def hidden(endpoint: Endpoint, table: TableRef) -> str | None:
    """A message about a row policy of a table that applies to the user; None if there is none."""
    return _message(endpoint, table) or None


def may_look(endpoint: Endpoint, table: TableRef) -> bool:
    """Whether the user may see row policies."""
    return _message(endpoint, table) is not None


def _message(endpoint: Endpoint, table: TableRef) -> str | None:
    """Why rows are hidden; empty if none are, None if the user may not see row policies."""
    sql = POLICIES.format(schema=literal(table.schema), table=literal(table.name))
    try:
        policies = endpoint.query(sql)
    except StatementFailed as error:
        if str(error.code) == ACCESS_DENIED:
            return None
        raise
    if not policies:
        return ""
    policy, user = (DIALECT.quote(str(name)) for name in policies[0])
    return (
        f"the row policy {policy} would hide rows from {user}; have an administrator run ALTER ROW "
        f"POLICY {policy} ON {qualified(table)} TO ALL EXCEPT {user}, give another user, or "
        "declare 'row_security: apply' to take the rows that are shown for all"
    )
