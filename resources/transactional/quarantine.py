"""Writes the values that a range was published without, in the transaction that publishes it."""

from __future__ import annotations

from collections.abc import Collection

from tableferry.resources.contract.quarantine import COLUMNS, RANGE, Quarantine
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target import quarantine_of
from tableferry.resources.errors import StatementFailed
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.statements import Session, Statements

ROWS_AT_ONCE = 200
"""Maximum rows of one INSERT."""


def create_quarantine(sql: Statements, session: Session, target: TableRef) -> None:
    """Create the table beside a target, if it is missing."""
    table, system = quarantine_of(target), target.system
    columns = [f"{system.quote(name)} {system.types.text} NULL" for name in (RANGE, *COLUMNS)]
    if session.query(sql.table_exists(table)):
        return
    try:
        session.execute(f"CREATE TABLE {qualified(table)} ({', '.join(columns)})")
    except StatementFailed:
        # another run may have been faster
        if not session.query(sql.table_exists(table)):
            raise


def replace_quarantine(
    session: Session, target: TableRef, range_name: str, quarantine: Quarantine
) -> None:
    """Replace what is kept of a range."""
    system, table = target.system, qualified(quarantine_of(target))
    session.execute(_forgetting(target, [range_name]))
    names = ", ".join(map(system.quote, (RANGE, *COLUMNS)))
    kept = [*quarantine.stored(range_name)]
    literal = system.dialect.literal
    for start in range(0, len(kept), ROWS_AT_ONCE):
        rows = kept[start : start + ROWS_AT_ONCE]
        values = ", ".join(
            f"({', '.join('NULL' if text is None else literal(text) for text in row)})"
            for row in rows
        )
        session.execute(f"INSERT INTO {table} ({names}) VALUES {values}")


def forget_quarantine(
    sql: Statements, session: Session, target: TableRef, ranges: Collection[str]
) -> None:
    """Remove what is kept of ranges that there are no longer."""
    if ranges and session.query(sql.table_exists(quarantine_of(target))):
        session.execute(_forgetting(target, ranges))


def _forgetting(target: TableRef, ranges: Collection[str]) -> str:
    system = target.system
    names = ", ".join(map(system.dialect.literal, ranges))
    where = f"{system.quote(RANGE)} IN ({names})"
    return f"DELETE FROM {qualified(quarantine_of(target))} WHERE {where}"
