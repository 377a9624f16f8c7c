"""Row policies, which hide rows of a ClickHouse table from a user."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.clickhouse.dialect import DIALECT
from tableferry.resources.clickhouse.server import among
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.looking_ahead import answer
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import StatementFailed
from tableferry.resources.tables import TableRef

ACCESS_DENIED = "497"

POLICIES = """
WITH arrayConcat([currentUser()], enabledRoles()) AS me
SELECT table, short_name, currentUser() FROM system.row_policies
WHERE {tables} AND select_filter IS NOT NULL
    AND (hasAny(apply_to_list, me) OR (apply_to_all AND NOT hasAny(apply_to_except, me)))
ORDER BY short_name
"""


def hidden(endpoint: Endpoint, table: TableRef) -> str | None:
    """A message about a row policy of a table that applies to the user; None if there is none."""
    return answer(endpoint, _messages, table) or None


def may_look(endpoint: Endpoint, table: TableRef) -> bool:
    """Whether the user may see row policies."""
    return answer(endpoint, _messages, table) is not None


def _messages(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, str]:
    """Say why rows of tables of one database are hidden; empty where none are.

    No table has an answer if the user may not see row policies.
    """
    try:
        # a policy without a table is for all of its database
        policies = endpoint.query(POLICIES.format(tables=among(tables, "", name="table")))
    except StatementFailed as error:
        if str(error.code) == ACCESS_DENIED:
            return {}
        raise
    messages = dict.fromkeys(tables, "")
    for table in tables:
        for name, policy, user in policies:
            if name in (table.name, ""):
                messages[table] = _message(table, DIALECT.quote(policy), DIALECT.quote(user))
                break
    return messages


def _message(table: TableRef, policy: str, user: str) -> str:
    return (
        f"the row policy {policy} would hide rows from {user}; have an administrator run ALTER ROW "
        f"POLICY {policy} ON {qualified(table)} TO ALL EXCEPT {user}, give another user, or "
        "declare 'row_security: apply' to take the rows that are shown for all"
    )
