"""Writes the values that a range was published without, in the transaction that publishes it."""

from __future__ import annotations

from collections.abc import Collection

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.quarantine import COLUMNS, RANGE, ROW_NUMBER
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_names import of_ranges, quarantine_of
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.preparing import create_beside
from tableferry.resources.transactional.statements import Statements, TargetSession
from tableferry.resources.types.column import Column

ROWS_AT_ONCE = 200
"""Maximum rows of one INSERT."""


def create_quarantine(sql: Statements, session: TargetSession, plan: CopyPlan) -> None:
    """Create the table beside a target that rejects rows, or give it the columns that it lacks."""
    if not plan.fitting:
        return
    target, system = plan.target, plan.target.system
    table = quarantine_of(target)
    columns = [f"{system.quote(name)} {system.types.text} NULL" for name in (RANGE, *COLUMNS)]
    create_beside(sql, session, target, table, columns)
    if not session.query(sql.column_exists(table, ROW_NUMBER)):
        name, new = system.quote(ROW_NUMBER), Column(ROW_NUMBER, system.types.text)
        session.execute(system.dialect.add_column(qualified(table), name, new))


def replace_quarantine(session: TargetSession, publication: Publication) -> None:
    """Replace what is kept of a range."""
    target, range_name = publication.plan.target, publication.key_range.name
    if publication.quarantine.rows is None:
        return
    system, table = target.system, qualified(quarantine_of(target))
    session.execute(f"DELETE FROM {table} WHERE {of_ranges(target, [range_name])}")
    names = ", ".join(map(system.quote, (RANGE, *COLUMNS)))
    kept = [*publication.quarantine.stored(range_name, system.dialect.literal)]
    for start in range(0, len(kept), ROWS_AT_ONCE):
        values = ", ".join(kept[start : start + ROWS_AT_ONCE])
        session.execute(f"INSERT INTO {table} ({names}) VALUES {values}")


def keep_quarantined(
    sql: Statements, session: TargetSession, target: TableRef, ranges: Collection[str]
) -> None:
    """Remove what is kept of other ranges than these."""
    if session.query(sql.table_exists(quarantine_of(target))):
        rest = f"NOT ({of_ranges(target, ranges)})" if ranges else "1 = 1"
        session.execute(f"DELETE FROM {qualified(quarantine_of(target))} WHERE {rest}")
