"""Loads key ranges into SQL Server tables, each by one transaction."""

from __future__ import annotations

import contextlib
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import InputError
from tableferry.resources.sqlserver import anew, ddl, hazards, policies, types
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.dialect import DIALECT, literal
from tableferry.resources.sqlserver.load import SqlServerLoad
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.target import TransactionalTarget
from tableferry.resources.types.column import Column


class SqlServerTarget(TransactionalTarget[SqlServerConnection]):
    """A SQL Server or Babelfish as a load target, which holds ranges by application locks."""

    resource: SqlServerServer
    sql = ddl.STATEMENTS

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse a swap whose tables Babelfish could not rename, too. See `Target.require`."""
        super().require(plan, options)
        why = ddl.not_renamed(plan.target)
        if why and options.mode.whole_table and policies.is_babelfish(self.resource):
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
        if policies.is_babelfish(self.resource) or longer(before, after):
            return statements, ""
        return altered_with_indexes(self.resource, table, before, after, statements[0])

    def _session(self) -> AbstractContextManager[SqlServerConnection]:
        return self.resource.pooled_connection()

    def _in_catalog(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        return hazards.hazards(self.resource, plan, options)

    def lost(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        """See `Target.lost`."""
        return anew.lost(self.resource, plan)

    def staged_columns(self, plan: CopyPlan, staging: TableRef) -> list[Column]:
        """Derived from the table behind the view. See `Target.staged_columns`."""
        return ddl.shown(plan, self.resource.columns(ddl.rows_of(staging)))

    def _staging_schema(self, session: SqlServerConnection, table: TableRef) -> str:
        return ddl.staging_schema(session, table)

    def _load(self, stack: contextlib.ExitStack, **parts: Any) -> SqlServerLoad:
        return SqlServerLoad(files=stack.enter_context(contextlib.ExitStack()), **parts)


OWN_INDEX = re.compile(r"ix_[0-9a-f]{12}_key")
"""The names of the indexes that `SqlServerStatements.create_table` makes."""

IN_PLACE = ("varchar", "nvarchar", "varbinary")
"""Types whose columns become longer though an index holds them,
https://learn.microsoft.com/sql/t-sql/statements/alter-table-transact-sql#alter-column"""

INDEXES = """
SELECT CAST(i.name AS nvarchar(128)), i.type, CAST(i.is_primary_key AS int),
       CAST(i.is_unique AS int), CAST(COALESCE(q.is_system_named, 0) AS int),
       CAST(c.name AS nvarchar(128))
FROM sys.tables AS t
INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id
INNER JOIN sys.indexes AS i ON i.object_id = t.object_id
INNER JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
INNER JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
LEFT JOIN sys.key_constraints AS q
    ON q.parent_object_id = i.object_id AND q.unique_index_id = i.index_id
WHERE s.name = {schema} AND t.name = {name}
ORDER BY i.index_id, k.key_ordinal
"""

REFERRING = """
SELECT CAST(f.name AS nvarchar(128)) FROM sys.foreign_keys AS f
INNER JOIN sys.tables AS t ON t.object_id = f.referenced_object_id
INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id
WHERE s.name = {schema} AND t.name = {name}
"""


@dataclass
class _Index:
    name: str
    clustered: bool
    primary: bool
    unique: bool
    system_named: bool
    columns: list[str] = field(default_factory=list)

    @property
    def own(self) -> bool:
        """Whether it is as we make them, so that it can be made again."""
        if self.primary:
            return self.system_named
        return bool(OWN_INDEX.fullmatch(self.name)) and not (self.unique or self.clustered)

    def drop(self, table: TableRef) -> str:
        name = DIALECT.quote(self.name)
        if self.primary:
            return f"ALTER TABLE {qualified(table)} DROP CONSTRAINT {name}"
        return f"DROP INDEX {name} ON {qualified(table)}"

    def create(self, table: TableRef) -> str:
        columns = ", ".join(map(DIALECT.quote, self.columns))
        if self.primary:
            kind = "CLUSTERED" if self.clustered else "NONCLUSTERED"
            return f"ALTER TABLE {qualified(table)} ADD PRIMARY KEY {kind} ({columns})"
        return f"CREATE INDEX {DIALECT.quote(self.name)} ON {qualified(table)} ({columns})"


def longer(before: Column, after: Column) -> bool:
    """Whether a column only becomes longer, which indexes do not prevent."""
    old, new = types.read(before.type).name, types.read(after.type).name
    return old == new and new in IN_PLACE and before.nullable == after.nullable


def altered_with_indexes(
    endpoint: Endpoint, table: TableRef, before: Column, after: Column, statement: str
) -> tuple[tuple[str, ...], str]:
    """See `Target.altering`; `statement` alters the column once no index holds it."""
    place = {"schema": literal(table.schema), "name": literal(table.name)}
    by_name: dict[str, _Index] = {}
    for name, type_, primary, unique, system_named, column in endpoint.query(
        INDEXES.format(**place)
    ):
        index = by_name.setdefault(
            name, _Index(name, type_ == 1, bool(primary), bool(unique), bool(system_named))
        )
        index.columns.append(column)
    holding = [index for index in by_name.values() if before.name in index.columns]
    if not holding:
        return (statement,), ""
    if others := [index.name for index in holding if not index.own]:
        return (statement,), f"the index {', '.join(map(repr, others))} holds it; drop that first"
    if any(index.primary for index in holding):
        if after.nullable:
            return (statement,), "the primary key holds it, which cannot be NULL"
        if keys := [str(name) for (name,) in endpoint.query(REFERRING.format(**place))]:
            referring = ", ".join(map(repr, keys))
            return (statement,), f"the foreign key {referring} refers to it; drop that first"
    steps = (
        "SET XACT_ABORT ON",
        "BEGIN TRANSACTION",
        *(index.drop(table) for index in holding),
        statement,
        *(index.create(table) for index in holding),
        "COMMIT TRANSACTION",
    )
    return ("; ".join(steps),), ""
