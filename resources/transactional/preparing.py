"""Creates and verifies the tables that a transactional target writes to."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.target_columns import unfilled, unfilled_notes, verify_columns
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import InputError, SchemaDrift, StatementFailed
from tableferry.resources.transactional.statements import Statements, TargetSession
from tableferry.resources.types.column import Column


def create_table(sql: Statements, session: TargetSession, plan: CopyPlan) -> bool:
    """Create the target table and its schema; return whether this session has created the table.

    Another run may be faster with the schema, and then with the table: its are as good.
    """
    for last in (False, True):
        try:
            with sql.transaction(session):
                session.execute(sql.create_schema(plan.target))
                for statement in sql.create_table(plan, plan.target):
                    session.execute(statement)
            return True
        except StatementFailed:
            if session.query(sql.table_exists(plan.target)):
                return False
            if last:
                raise
    return False


def verify_table(
    sql: Statements,
    session: TargetSession,
    plan: CopyPlan,
    options: TargetOptions,
    columns: Sequence[Column],
) -> list[str]:
    """Verify that an existing target takes the plan's rows.

    Returns:
        See `Target.verify`.

    Raises:
        SchemaDrift: a column is missing, cannot hold every value, or must be written but is not.
        InputError: a swap would lose columns.
    """
    problems: list[str] = []
    try:
        verify_columns(plan, columns, incompatibility)
    except SchemaDrift as error:
        problems.append(str(error))
    others = unfilled(plan, columns, options.mark)
    required = session.query(sql.required_columns(plan.target)) if others else []
    if blocking := [repr(column.name) for column in others if (column.name,) in required]:
        problems.append(
            f"{plan.target} has columns that the transfer does not write and that must not be "
            f"NULL: {', '.join(blocking)}; give them a default, or have them filled"
        )
    if problems:
        raise SchemaDrift("; ".join(problems))
    if others and options.mode.whole_table:
        raise InputError(
            f"{plan.target}: {options.mode} would lose the columns that the transfer does "
            f"not write: {', '.join(repr(column.name) for column in others)}"
        )
    return unfilled_notes(plan, options, others)
