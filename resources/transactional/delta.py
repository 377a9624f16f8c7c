"""Proves a range of which only the rows that differ are written, in the publishing transaction.

A row is never deleted to be inserted again: its foreign keys would take rows of other tables with
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from tableferry.resources.contract.delta import Delta
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import having, with_remedies
from tableferry.resources.errors import ReceiptMismatch, RowsReferredTo
from tableferry.resources.transactional import publish_audit, statements
from tableferry.resources.transactional.other_ranges import Changes

if TYPE_CHECKING:
    from tableferry.resources.transactional.load import TransactionalLoad
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from tableferry.resources.connecting.address import Server
from tableferry.resources.contract.endpoint import BATCH_ROWS, refuse_snapshot
from tableferry.resources.contract.settings import ConnectionSettings, DigestsBy
from tableferry.resources.errors import InputError


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
