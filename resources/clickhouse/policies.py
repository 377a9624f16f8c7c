"""What hides rows of a ClickHouse table from a user."""

from __future__ import annotations

from tableferry.resources.clickhouse.dialect import DIALECT
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.endpoint import Endpoint
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
    """What is said of a table with a row policy that holds for the user."""
    return _said(endpoint, table) or None


def may_look(endpoint: Endpoint, table: TableRef) -> bool:
    """Whether the user may see row policies."""
    return _said(endpoint, table) is not None


def _said(endpoint: Endpoint, table: TableRef) -> str | None:
    """Why rows are hidden, or nothing; None if the user may not look."""
    schema, name = (DIALECT.literal(one) for one in (table.schema, table.name))
    try:
        found = endpoint.query(POLICIES.format(schema=schema, table=name))
    except StatementFailed as error:
        if str(error.code) == ACCESS_DENIED:
            return None
        raise
    if not found:
        return ""
    policy, user = (DIALECT.quote(str(one)) for one in found[0])
    return (
        f"the row policy {policy} would hide rows from {user}; have an administrator run ALTER ROW "
        f"POLICY {policy} ON {qualified(table)} TO ALL EXCEPT {user}, give another user, or "
        "declare 'row_security: apply' to take the rows that are shown for all"
    )
