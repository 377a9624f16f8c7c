"""Loads key ranges into SQL Server tables, each by one transaction."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tableferry.resources.dialects import string_literal
from tableferry.resources.errors import InputError
from tableferry.resources.hazards import Hazard
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.plan import CopyPlan
from tableferry.resources.sqlserver import hazards as found_hazards
from tableferry.resources.sqlserver.catalog import is_babelfish
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.ddl import STATEMENTS, not_renamed
from tableferry.resources.sqlserver.load import SqlServerLoad
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.target import RangeLoad, TargetOptions
from tableferry.resources.transactional.target import TransactionalTarget

"""1 where the server is one."""

REHEARSALS = 16
"""Names that a rehearsal's staging table may have: few, so that each drops what a dead process has
left under its own, and enough that processes seldom wait for each other."""


class SqlServerTarget(TransactionalTarget[SqlServerConnection]):
    """A SQL Server, or a Babelfish, as a load target: ranges are held by application locks.

    Args:
        resource: the server.
    """

    resource: SqlServerServer
    sql = STATEMENTS

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse also a swap that Babelfish would do under another name. See `Target.require`."""
        super().require(plan, options)
        why = not_renamed(plan.target)
        if why and options.mode.whole_table and is_babelfish(self.resource):
            raise InputError(
                f"{plan.target}: no swap on Babelfish, whose sp_rename {why}; "
                "take another name, or another write mode"
            )

    def _session(self) -> AbstractContextManager[SqlServerConnection]:
        return self.resource.pooled_connection()

    def _in_catalog(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        return found_hazards.hazards(self.resource, plan, options)

    def _load(self, stack: contextlib.ExitStack, **parts: Any) -> SqlServerLoad:
        return SqlServerLoad(files=stack.enter_context(contextlib.ExitStack()), **parts)


@contextlib.contextmanager
def rehearsal(
    resource: SqlServerServer, plan: CopyPlan, options: TargetOptions
) -> Iterator[RangeLoad]:
    """A load whose staging table is dropped again; nothing else is made, or looked at.

    It is in the schema of the plan's target, or in the user's own where that one is still missing.

    Args:
        resource: the server.
        plan: what is loaded; its target need not be there.
        options: how.

    Raises:
        StatementFailed: the user may not create tables.
        RangeBusy: another process uses the name.
    """
    named = string_literal("sqlserver", plan.target.schema)
    ((there, own),) = resource.query(f"SELECT SCHEMA_ID({named}), SCHEMA_NAME()")
    schema = plan.target.schema if there is not None else str(own)
    into = replace(plan.target, schema=schema, name=f"probe {os.getpid() % REHEARSALS}")
    plan = replace(plan, target=into)
    target = SqlServerTarget(resource)
    target.expect(plan)
    with target.attempt(plan, KeyRange("integer"), options, owner="", data_version="") as load:
        yield load
