"""Proves a range of which only the rows that differ are written, and writes them for a reviewer.

A row is never deleted to be inserted again: its foreign keys would take rows of other tables with
it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.connecting.address import Server
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.delta import Delta
from tableferry.resources.contract.endpoint import BATCH_ROWS, Endpoint, refuse_snapshot
from tableferry.resources.contract.hazards import having, with_remedies
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.settings import ConnectionSettings, DigestsBy
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target_options import TargetOptions, Written
from tableferry.resources.errors import InputError, ReceiptMismatch, RowsReferredTo
from tableferry.resources.tables import staging_name
from tableferry.resources.transactional import publish_audit, statements
from tableferry.resources.transactional.publish_audit import Changes
from tableferry.resources.transactional.statements import Statements
from tableferry.resources.types.type_map import Column

if TYPE_CHECKING:
    from tableferry.resources.transactional.load import TransactionalLoad


class SessionReader:
    """The part of an `Endpoint` that counts and digests need, on a session's uncommitted rows.

    Args:
        resource: the server.
        session: in its transaction; nothing else may be running on it.
    """

    def __init__(self, resource: Server, session: statements.TargetSession) -> None:
        self.system, self._resource, self._session = resource.system, resource, session

    limits: None = None
    """It reads what this process has written."""

    def settings(self) -> ConnectionSettings:
        """See `Endpoint.settings`."""
        return self._resource.settings()

    def digests_by(self) -> DigestsBy:
        """Return "server": a session's rows do not come as Arrow."""
        return "server"

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """See `Endpoint.query`."""
        refuse_snapshot(self.system, snapshot)
        return self._session.query(sql)

    @contextmanager
    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        """Refuse: see `digests_by`.

        Raises:
            InputError: always.
        """
        raise InputError(f"{self.settings()}: rows that are not committed are read by queries only")
        yield


@dataclass
class DeltaAudit(publish_audit.CountAudit):
    """The proof of a range by the session that writes its delta, before it commits."""

    def __post_init__(self) -> None:
        """No other rows are counted before."""

    def may_remove(self) -> bool:
        """See `CountAudit.may_remove`.

        Raises:
            RowsReferredTo: names a row that rows of other tables refer to.
        """
        if self.load.publication.delta.deleted and self.load.options.mark is None:
            require_unreferred(self.load, self.load.publication.delta)
        return True

    def after(self, written: Changes) -> None:
        """Prove the range.

        Raises:
            ReceiptMismatch: other rows than those of the delta would be changed.
            ShownDiffers: rows of other ranges have changed.
            TableferryError: the range does not agree with its source.
        """
        load, delta, mark = self.load, self.load.publication.delta, self.load.options.mark
        expected = Changes(delta.inserted, delta.updated, delta.deleted)
        if mark and written.inserted + written.updated == delta.moved:
            expected = Changes(written.inserted, written.updated, delta.deleted)
        if self._others is not None:
            load.run(load.sql.run_deferred)
        elif written != expected:  # triggers would add to these counts
            raise ReceiptMismatch(
                f"{load.table} range {load.key_range.name}: {written} rows would be inserted, "
                f"updated and deleted, not {expected}; rolled back"
            )
        reader = cast(Endpoint, SessionReader(load.resource, load.session))
        self.shown = delta.prove(reader, load.table)
        self._require_unchanged(expected)


def audit_of(load: TransactionalLoad[Any], staged: int) -> publish_audit.CountAudit:
    """Return the audit of a range as it is published, which has so many rows in staging."""
    audit = publish_audit.CountAudit
    if load.options.single_rows:
        audit = DeltaAudit
    elif load.options.audits_shown:
        audit = publish_audit.ContentAudit
    return audit(load, staged)


def require_unreferred(load: TransactionalLoad[Any], delta: Delta) -> None:
    """Refuse to delete a row that rows refer to which would change with it.

    These are locked out until the transaction ends. What refers to them in turn stays as they do.

    Raises:
        RowsReferredTo: names the row.
        InputError: rows would go that nothing refers to, as those of tables that inherit.
    """
    sql, plan, table, ask = load.sql, load.plan, load.table, load.session.query
    destroying = having(load.options.hazards, "destroys")
    if not destroying:
        return
    if any(hazard.kind != "foreign key" for hazard in destroying):
        return publish_audit.require_deletable(ask, sql, plan, load.key_range, load.options, table)
    for condition in delta.delete:
        if lock := sql.lock_referred(table, condition):
            ask(lock)
    pairs = [statements.Reference(*row) for row in ask(sql.referring(table))]
    for (key, schema, name), references in groupby(pairs, key=lambda pair: pair[:3]):
        of_key = list(references)
        for condition in delta.delete:
            if rows := ask(sql.referred(plan, table, of_key, condition)):
                values = zip(plan.row_identity, rows[0], strict=True)
                row = ", ".join(f"{column} {str(value)!r}" for column, value in values)
                raise RowsReferredTo(
                    f"{table} range {load.key_range.name}: to delete the row with {row} would "
                    f"change rows of {schema}.{name} that refer to it by {key}; rolled back. "
                    f"{with_remedies(destroying)}"
                )


ROWS_PER_STATEMENT = 500
"""SQL Server takes at most 1,000 rows of constants.
https://learn.microsoft.com/sql/t-sql/queries/table-value-constructor-transact-sql"""


def script(
    sql: Statements,
    publication: Publication,
    options: TargetOptions,
    rows: Iterable[pa.RecordBatch],
    *,
    identity: bool,
) -> Iterator[str]:
    """Write the transaction that puts a range right, for the target's command line.

    See `Target.script`, and `_statements`.

    Raises:
        InputError: a name, value or condition cannot be written so.
    """
    target = publication.plan.target
    for statement in _statements(sql, publication, options, rows, identity=identity):
        try:
            yield target.system.dialect.scripted(statement)
        except InputError as error:
            raise InputError(f"{target}: {error}") from None


def _statements(
    sql: Statements,
    publication: Publication,
    options: TargetOptions,
    rows: Iterable[pa.RecordBatch],
    *,
    identity: bool,
) -> Iterator[str]:
    """Write the transaction that puts a range right.

    The rows go through a table of their own, as those of a repair go through staging, so that they
    are found and written by the same statements.

    Args:
        sql: the target's SQL.
        publication: the range, with the delta.
        options: how it is written.
        rows: the rows of the delta to insert or update, in the plan's columns.
        identity: whether an identity column is written.
    """
    plan, delta = publication.plan, publication.delta
    table = plan.target
    name = f"{staging_name(table, publication.key_range.name)}_repair"
    staging = replace(table, name=name)
    allowing = [sql.allow_identity(table, allowed) for allowed in (True, False)]
    yield from sql.script_begin
    yield from sql.begin
    options = replace(options, single_rows=Written.of(delta, options.mark))
    _, removes, updates, inserts = sql.publish(publication, options, table, staging)
    yield from removes
    if delta.moved:
        columns = sql.columns(plan)
        definitions = ", ".join(sql.definitions(plan, staging=True))
        yield f"CREATE TABLE {qualified(staging)} ({definitions})"
        for batch in rows:
            for at in range(0, batch.num_rows, ROWS_PER_STATEMENT):
                values = _values(plan, batch.slice(at, ROWS_PER_STATEMENT))
                yield f"INSERT INTO {qualified(staging)} ({columns}) VALUES\n{values}"
        if identity and allowing[0]:
            yield allowing[0]
        yield from (*updates, *inserts)
        if identity and allowing[1]:
            yield allowing[1]
        yield drop_table(staging)
    yield sql.commit


def _values(plan: CopyPlan, batch: pa.RecordBatch) -> str:
    columns = [
        _constants(plan, column, array)
        for column, array in zip(plan.target_columns, batch.columns, strict=True)
    ]
    return ",\n".join(f"({', '.join(row)})" for row in zip(*columns, strict=True))


def _constants(plan: CopyPlan, column: Column, array: pa.Array) -> list[str]:
    """Write the values of a column as constants that its type takes exactly."""
    dialect = plan.target.system.dialect
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return [
            "NULL" if value is None else dialect.binary(value, column)
            for value in array.to_pylist()
        ]
    try:
        if pa.types.is_fixed_size_binary(array.type):
            texts = [value and str(uuid.UUID(bytes=value)) for value in array.to_pylist()]
        elif pa.types.is_decimal(array.type):
            # Arrow writes small ones with an exponent, which SQL Server takes for a float's
            texts = [None if value is None else format(value, "f") for value in array.to_pylist()]
        else:
            texts = pc.cast(array, pa.large_string()).to_pylist()
    except pa.ArrowNotImplementedError:
        raise InputError(
            f"{plan.target}: the values of {column.name!r}, {column.type}, cannot be written as "
            "constants; `ferry repair` without --sql puts them right"
        ) from None
    return ["NULL" if text is None else dialect.constant(text, column) for text in texts]
