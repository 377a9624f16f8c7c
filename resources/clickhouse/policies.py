"""What ClickHouse hides from a user: rows by policies, and columns that are not granted."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.clickhouse.dialect import DIALECT
from tableferry.resources.clickhouse.server import among, columns_of
from tableferry.resources.contract.catalog import Withheld
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.looking_ahead import answer
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import StatementFailed
from tableferry.resources.tables import TableRef

ACCESS_DENIED, NO_SYNTAX = "497", "62"

POLICIES = """
WITH arrayConcat([currentUser()], enabledRoles()) AS me
SELECT table, short_name, currentUser() FROM system.row_policies
WHERE {tables} AND select_filter IS NOT NULL
    AND (hasAny(apply_to_list, me) OR (apply_to_all AND NOT hasAny(apply_to_except, me)))
ORDER BY short_name
"""


FILTERS = ("Row level filter column", "Filter (Row-level security filter", "Filter ((Row-level sec")
"""How the lines of EXPLAIN begin that tell of a row policy."""


def withheld(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, Withheld]:
    """See `Inspection.withheld`."""
    messages, columns = policies_of(endpoint, tables), _unreadable(endpoint, tables)
    return {table: (messages.get(table) or None, columns.get(table, ())) for table in tables}


def unseen(endpoint: Endpoint, table: TableRef) -> str | None:
    """See `Inspection.refused`: the catalog shows a user the columns that it may read or see, and
    one that was taken from it looks like one that is gone."""
    return answer(endpoint, _unseen, table)


def withheld_of_all(
    endpoint: Endpoint, tables: Sequence[TableRef]
) -> dict[TableRef, tuple[str | None, tuple[str, ...] | None]]:
    """What `unseen` says of tables of one database, and their columns that may not be read."""
    unseen, columns = _unseen(endpoint, tables), _unreadable(endpoint, tables)
    return {table: (unseen.get(table), tuple(columns.get(table, ())) or None) for table in tables}


def _unseen(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, str]:
    without = _without(endpoint, "SHOW COLUMNS", tables)
    if not without:
        return {}
    user = user_of(endpoint)
    return {
        table: f"{user} is not shown all of its columns, and one that is not shown looks like one "
        f"that is gone; GRANT SHOW COLUMNS ON {qualified(table)} TO {user}, and exclude those "
        "that it may not read"
        for table in without
    }


def _unreadable(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, Sequence[str]]:
    """The columns that the user sees, and may not read."""
    without = _without(endpoint, "SELECT", tables)
    return {
        table: [
            column.name
            for column in columns
            if not granted(endpoint, f"SELECT({DIALECT.quote(column.name)})", qualified(table))
        ]
        for table, columns in (columns_of(endpoint, without) if without else {}).items()
    }


def _without(endpoint: Endpoint, right: str, tables: Sequence[TableRef]) -> list[TableRef]:
    """Those tables of one database for all of whose columns the user lacks a right."""
    if granted(endpoint, right, f"{DIALECT.quote(tables[0].schema)}.*"):
        return []
    return [table for table in tables if not granted(endpoint, right, qualified(table))]


def granted(endpoint: Endpoint, right: str, on: str) -> bool:
    """Whether the user has a right; before 24.11 also if that is unknown, as of ALTER."""
    try:
        return bool(endpoint.query(f"CHECK GRANT {right} ON {on}")[0][0])
    except StatementFailed as error:
        if str(error.code) != NO_SYNTAX:
            raise
    # before 24.11
    if on.endswith(".*"):
        return False
    try:
        names = right.removeprefix("SELECT").strip("()") or "*"
        shown = f"DESCRIBE TABLE {on}" if right == "SHOW COLUMNS" else None
        endpoint.query(shown or f"SELECT {names} FROM {on} LIMIT 0")
    except StatementFailed as error:
        return str(error.code) != ACCESS_DENIED
    return True


def user_of(endpoint: Endpoint) -> str:
    """The user's name, quoted."""
    return DIALECT.quote(str(endpoint.query("SELECT currentUser()")[0][0]))


def policies_of(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, str]:
    """Say why rows of tables of one database are hidden; empty where none are.

    A user who may not see row policies is shown by EXPLAIN that there is one. A table that this
    does not explain has no answer.
    """
    try:
        # a policy without a table is for all of its database
        policies = endpoint.query(POLICIES.format(tables=among(tables, "", name="table")))
    except StatementFailed as error:
        if str(error.code) == ACCESS_DENIED:
            return _explained(endpoint, tables)
        raise
    messages = dict.fromkeys(tables, "")
    for table in tables:
        for name, policy, user in policies:
            if name in (table.name, ""):
                messages[table] = _message(table, DIALECT.quote(policy), DIALECT.quote(user))
                break
    return messages


def _explained(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, str]:
    messages: dict[TableRef, str] = {}
    for table, columns in columns_of(endpoint, tables).items():
        name = next((column.name for column in columns if not column.generated), None)
        if name is None:
            continue
        try:
            lines = endpoint.query(
                f"EXPLAIN actions = 1 SELECT {DIALECT.quote(name)} FROM {qualified(table)}"
            )
        except StatementFailed as error:
            if error.transient:
                raise
            continue
        found = any(str(line).lstrip(" │└─├").startswith(FILTERS) for (line,) in lines)
        messages[table] = _message(table, None, user_of(endpoint)) if found else ""
    return messages


def _message(table: TableRef, policy: str | None, user: str) -> str:
    which = f"the row policy {policy}" if policy else "a row policy (see system.row_policies)"
    return (
        f"{which} would hide rows from {user}; have an administrator run ALTER ROW POLICY "
        f"{policy or '...'} ON {qualified(table)} TO ALL EXCEPT {user}, give another user, or "
        "declare 'row_security: apply' to take the rows that are shown for all"
    )
