"""Loads key ranges into SQL Server tables, each by one transaction."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.target import TargetOptions
from tableferry.resources.errors import InputError
from tableferry.resources.sqlserver import anew, hazards
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.ddl import (
    STATEMENTS,
    not_renamed,
    rows_of,
    shown,
    staging_schema,
)
from tableferry.resources.sqlserver.indexed import altered_with_indexes, longer
from tableferry.resources.sqlserver.load import SqlServerLoad
from tableferry.resources.sqlserver.policies import is_babelfish
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.target import TransactionalTarget
from tableferry.resources.types.column import Column


class SqlServerTarget(TransactionalTarget[SqlServerConnection]):
    """A SQL Server or Babelfish as a load target, which holds ranges by application locks."""

    resource: SqlServerServer
    sql = STATEMENTS

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse a swap whose tables Babelfish could not rename, too. See `Target.require`."""
        super().require(plan, options)
        why = not_renamed(plan.target)
        if why and options.mode.whole_table and is_babelfish(self.resource):
            raise InputError(
                f"{plan.target}: no swap on Babelfish, whose sp_rename {why}; "
                "take another name, or another write mode"
            )

    def altering(
        self, table: TableRef, before: Column, after: Column
    ) -> tuple[tuple[str, ...], str]:
        """A primary key and an index of ours make way for the statement, and are made again by its
        transaction. See `Target.altering`."""
        statements, _ = super().altering(table, before, after)
        if is_babelfish(self.resource) or longer(before, after):
            return statements, ""
        return altered_with_indexes(self.resource, table, before, after, statements[0])

    def _session(self) -> AbstractContextManager[SqlServerConnection]:
        return self.resource.pooled_connection()

    def _in_catalog(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        lost = anew.lost(self.resource, plan) if options.recreate else []
        return [*hazards.hazards(self.resource, plan, options), *lost]

    def staged_columns(self, plan: CopyPlan, staging: TableRef) -> list[Column]:
        """Derived from the table behind the view. See `Target.staged_columns`."""
        return shown(plan, self.resource.columns(rows_of(staging)))

    def _staging_schema(self, session: SqlServerConnection, table: TableRef) -> str:
        return staging_schema(session, table)

    def _load(self, stack: contextlib.ExitStack, **parts: Any) -> SqlServerLoad:
        return SqlServerLoad(files=stack.enter_context(contextlib.ExitStack()), **parts)
