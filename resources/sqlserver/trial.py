"""Loads that nobody gets to see, and what one of them tells about the others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan, Format
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.target import RangeLoad, TargetOptions
from tableferry.resources.errors import RangeBusy, ReceiptMismatch, StatementFailed
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.sqlserver.dialect import DIALECT
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.sqlserver.target import SqlServerTarget
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

REHEARSALS = 16
"""Names that a rehearsal's staging table may have: few, so that each drops what a dead process has
left under its own, and enough that processes seldom wait for each other."""

COLUMNS, ROW = ("a", "b"), (1, 2)
"""Two columns of one type, so that nothing but their place tells one from the other."""


class _Untried(Exception):
    """What failed says nothing about how rows arrive."""


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
    named = DIALECT.literal(plan.target.schema)
    ((there, own),) = resource.query(f"SELECT SCHEMA_ID({named}), SCHEMA_NAME()")
    schema = plan.target.schema if there is not None else str(own)
    into = replace(plan.target, schema=schema, name=f"probe {os.getpid() % REHEARSALS}")
    plan = replace(plan, target=into)
    target = SqlServerTarget(resource)
    target.expect(plan)
    with target.attempt(plan, KeyRange("integer"), options, owner="", data_version="") as load:
        yield load


def trial(resource: SqlServerServer, table: TableRef, format: Format) -> str | None:
    """Why rows cannot be bulk copied into a server, as one row has shown; see `Loader.trial`.

    The driver asks the server for a table's columns by a query that adds their names up in a
    variable. A Babelfish that keeps the last row's alone tells it of one column, and whatever the
    driver then makes of the others, it need not say.
    """
    if format != "arrow":
        return None
    with contextlib.suppress(_Untried):
        facts = resource.settings().facts
        return facts.known("bulk copy", lambda: _why_not(resource, table))
    return None


def _why_not(resource: SqlServerServer, table: TableRef) -> str | None:
    columns = tuple(
        ColumnPlan(Column(name, "int"), Column(name, "int"), None, pa.int32()) for name in COLUMNS
    )
    plan = CopyPlan(table, table, columns, columns[0])
    batch = pa.record_batch([pa.array([value], pa.int32()) for value in ROW], COLUMNS)
    loading = False
    try:
        with rehearsal(resource, plan, TargetOptions()) as load:
            loading = True
            load.load_arrow([batch])
            rows = resource.query(f"SELECT a, b FROM {qualified(load.audited_table())}")
    except (StatementFailed, ReceiptMismatch, RangeBusy) as error:
        if not loading or getattr(error, "transient", False):
            raise _Untried from error
        outcome = f"failed ({error})"
    else:
        if rows == [ROW]:
            return None
        outcome = f"came back as {', '.join(map(str, rows)) or 'nothing'}"
    return (
        f"to bulk copy the row {ROW} into two columns {outcome}: the server tells the driver wrong "
        "columns of a table; declare 'wire: text', which loads by bcp, if the server takes that"
    )
