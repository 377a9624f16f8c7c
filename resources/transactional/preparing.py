"""Creates and verifies the tables that a transactional target writes to."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_columns import unfilled, unfilled_notes, verify_columns
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import InputError, SchemaDrift, StatementFailed
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.statements import RIGHTS, Statements, TargetSession
from tableferry.resources.types.type_map import Column

ALREADY_THERE = "42S01"
"""The SQLSTATE of SQL Server for a table that is there, which it may not have shown."""


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


def create_beside(
    sql: Statements,
    session: TargetSession,
    target: TableRef,
    table: TableRef,
    columns: Sequence[str],
) -> None:
    """Create a table of ours beside a target unless it exists; another run may be faster.

    Raises:
        InputError: another login has it, and this one may not see it.
    """
    exists = sql.table_exists(table)
    if session.query(exists):
        return
    try:
        session.execute(f"CREATE TABLE {qualified(table)} ({', '.join(columns)})")
    except StatementFailed as error:
        if session.query(exists):
            return
        if error.code == ALREADY_THERE:
            raise InputError(f"{target}: {not_allowed(table, 'the login')}") from None
        raise


def not_allowed(table: TableRef, login: str) -> str:
    """Say that a login lacks a right on a table of ours beside a target, and how to grant it."""
    return (
        f"{login} may not read and write {table}, of another login, which runs keep beside their "
        f"targets; GRANT {', '.join(RIGHTS)} ON {qualified(table)} TO {login}"
    )


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
