"""Trial loads into staging tables that are dropped again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan, Format, WireFormat
from tableferry.resources.contract.delimited import Framing
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import RangeBusy, ReceiptMismatch, StatementFailed
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.sqlserver.connection import LOGIN_TIMEOUT
from tableferry.resources.sqlserver.dialect import literal
from tableferry.resources.sqlserver.errors import BulkLoginFailed, copying, from_driver
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.sqlserver.target import SqlServerLoad, SqlServerTarget, takes_38_digits
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

REHEARSALS = 16
"""How many names the staging tables of rehearsals have: few, so that a rehearsal drops what a dead
process left under its name, yet enough that processes seldom wait for each other."""

COLUMNS, ROW = ("a", "b"), (1, 2)
"""Two columns of one type, which only their position tells apart."""


NOWHERE = "[tempdb].[dbo].[tableferry has no such table]"
"""A bulk copy into it ends after the login."""


class _Untried(Exception):
    """The trial failed for a reason that says nothing about how rows arrive."""


@contextlib.contextmanager
def rehearsal(
    resource: SqlServerServer, plan: CopyPlan, framing: Framing | None = None
) -> Iterator[SqlServerLoad]:
    """Open a load whose staging table is dropped at the end; nothing else is created or read.

    The table is in the schema of the plan's target or, if that does not exist, in the user's.

    Raises:
        StatementFailed: the user may not create tables.
        RangeBusy: another process uses the name.
    """
    schema = plan.target.schema
    ((exists, own),) = resource.query(f"SELECT SCHEMA_ID({literal(schema)}), SCHEMA_NAME()")
    name = f"probe {os.getpid() % REHEARSALS}"
    table = replace(plan.target, schema=schema if exists is not None else str(own), name=name)
    plan = replace(plan, target=table)
    target = SqlServerTarget(resource)
    target.expect(plan)
    publication = Publication(plan, KeyRange("integer"), "", "", framing=framing)
    with target.attempt(publication, TargetOptions()) as load:
        yield load


def shut_out(resource: SqlServerServer, wire: WireFormat) -> str | None:
    """Why the driver's bulk copy cannot log in although ODBC does; see `Loader.shut_out`.

    Asked once per process where it can, and anew where it could not.
    https://github.com/microsoft/mssql-python/issues/600, /750

    Raises:
        ConnectionFailed: ODBC cannot, either.
    """
    if wire != "arrow":
        return None
    try:
        resource.settings().facts.known("bulk login", lambda: _log_in_to_copy(resource))
    except BulkLoginFailed as error:
        return str(error)
    return None


def _log_in_to_copy(resource: SqlServerServer) -> None:
    with resource.connection() as session:
        for last in (False, True):
            nothing = pa.table({"n": pa.array([], pa.int32())}).to_reader()
            try:
                session.raw.cursor().bulkcopy_arrow(NOWHERE, nothing, timeout=LOGIN_TIMEOUT)
            except Exception as error:
                if not from_driver(error):
                    raise
                failed = copying(error, session.login.settings, NOWHERE)
                if not isinstance(failed, BulkLoginFailed):
                    return
                if last:
                    raise failed from None


def trial(resource: SqlServerServer, table: TableRef, format: Format) -> str | None:
    """Why rows cannot be bulk copied into a server, by a trial with one row; see `Loader.trial`.

    The driver asks the server for a table's columns by a query that concatenates their names in a
    variable. A Babelfish that keeps only the last row's name reports one column, and the driver may
    silently misplace the others.
    """
    if format != "arrow":
        return None
    with contextlib.suppress(_Untried):
        facts = resource.settings().facts
        return facts.known("bulk copy", lambda: _why_not(resource, table))
    return None


def takes_decimals(resource: SqlServerServer, table: TableRef) -> bool:
    """See `takes_38_digits`; true also if that cannot be tried."""
    untried = contextlib.suppress(StatementFailed, RangeBusy)
    with untried, rehearsal(resource, _plan(table)) as load:
        return takes_38_digits(load)
    return True


def _plan(table: TableRef) -> CopyPlan:
    columns = tuple(
        ColumnPlan(Column(name, "int"), Column(name, "int"), None, pa.int32()) for name in COLUMNS
    )
    return CopyPlan(table, table, columns, columns[0])


def _why_not(resource: SqlServerServer, table: TableRef) -> str | None:
    batch = pa.record_batch([pa.array([value], pa.int32()) for value in ROW], COLUMNS)
    loading = False
    try:
        with rehearsal(resource, _plan(table)) as load:
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
