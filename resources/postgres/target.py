"""Loads key ranges into PostgreSQL tables, each by one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.postgres import anew
from tableferry.resources.postgres.ddl import STATEMENTS
from tableferry.resources.postgres.hazards import hazards
from tableferry.resources.postgres.load import PostgresLoad
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.postgres.session import PostgresSession
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.target import TransactionalTarget
from tableferry.resources.types.column import Column


class PostgresTarget(TransactionalTarget[PostgresSession]):
    """A PostgreSQL database as a load target."""

    resource: PostgresServer
    sql = STATEMENTS

    def altering(
        self, table: TableRef, before: Column, after: Column
    ) -> tuple[tuple[str, ...], str]:
        """Views and other objects keep the types of their columns. See `Target.altering`."""
        statements, _ = super().altering(table, before, after)
        if before.type == after.type:
            return statements, ""
        users = [str(user) for (user,) in self.resource.query(STATEMENTS.users(table, before.name))]
        return statements, f"{', '.join(users)} needs its type; drop that first" if users else ""

    def _session(self) -> AbstractContextManager[PostgresSession]:
        return self.resource.session()

    def _as_it_is(
        self, plan: CopyPlan, options: TargetOptions, columns: Sequence[Column]
    ) -> TargetOptions:
        if options.written_to(plan) != plan.target:
            return options
        return replace(options, hazards=tuple(self.hazards(plan, options, columns)))

    def _in_catalog(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        return hazards(self.resource, plan, options)

    def lost(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        """See `Target.lost`."""
        return anew.lost(self.resource, plan)

    def as_made(self, plan: CopyPlan, options: TargetOptions) -> bool:
        """See `Target.as_made`."""
        return super().as_made(plan, options) and not anew.carried(self.resource, plan)

    def _load(self, stack: contextlib.ExitStack, **parts: Any) -> PostgresLoad:
        return PostgresLoad(**parts)

    def _add_indexes(self, session: PostgresSession, plan: CopyPlan, shadow: TableRef) -> None:
        anew.ensure_indexes(session, plan.target, shadow)

    def _before_swap(self, session: PostgresSession, plan: CopyPlan) -> None:
        anew.carry_over(session, plan.target, shadow_of(plan.target))
