"""What a publishing transaction is about to show, compared with what was audited in staging."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tableferry.resources.contract.hazards import Hazard, Look, ShownDiffers, having, told
from tableferry.resources.contract.target import replaces
from tableferry.resources.digest.same_rows import Ask, SameRows, Summed, differs
from tableferry.resources.errors import InputError, StatementFailed, TableferryError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.other_ranges import OtherRanges, other_ranges
from tableferry.resources.transactional.statements import Statements

if TYPE_CHECKING:
    from tableferry.resources.transactional.load import TransactionalLoad

ROLLED_BACK = "rolled back, nothing is visible"


@dataclass
class PublishAudit:
    """The comparison of one range, made by the session that publishes it, before it commits.

    The range must then have the staged rows, and with `upsert` besides them its own rows that were
    not staged, as they were before. Digests are summed, so that those of both add up.
    """

    load: TransactionalLoad[Any]
    same: SameRows
    look: Look
    _kept: Summed = field(default=Summed(0, 0), init=False)
    _others: OtherRanges = field(init=False)

    def __post_init__(self) -> None:
        self._others = other_ranges(self.load, self.same)

    @property
    def _own(self) -> str:
        return self.load.plan.target_range(self.load.key_range)

    def before(self) -> None:
        """Take down the rows that stay. Nothing is written yet."""
        load = self.load
        if load.options.mode.updates_known:
            kept = load.sql.kept_rows(load.plan, load.table, load.staging, self._own)
            self._kept = self.same.of_rows(load.session.query, kept)
        self._others.before()

    def after(self, written: Sequence[int]) -> None:
        """Compare, once all has run that would run at the commit.

        Args:
            written: how many rows each statement has changed that brought the staged rows in.

        Raises:
            ShownDiffers: the range is not as it was audited, or others are not as they were.
        """
        load, ask = self.load, self.load.session.query
        for statement in load.sql.settle:
            load.session.execute(statement)
        expected = self.same.staged(ask).plus(self._kept)
        shown = self.same.shown(ask, self._own)
        if shown == expected:
            return self._require_others(written)
        alike = self._kept.rows == 0 and shown.rows == expected.rows
        columns = self.same.differing(ask, self._own) if alike else []
        raise differs(expected, shown, columns, self._hazards(), ROLLED_BACK)

    def _require_others(self, written: Sequence[int]) -> None:
        if changed := self._others.changed(written):
            causes = told(self._hazards())
            raise ShownDiffers(f"{changed} along with it; {ROLLED_BACK}. {causes}")

    def _hazards(self) -> Sequence[Hazard]:
        """Those of now: some may be newer than the plan."""
        with suppress(TableferryError):
            return self.look()
        return self.load.options.hazards


def require_room(
    ask: Ask,
    sql: Statements,
    table: TableRef,
    key_range: KeyRange,
    own: str,
    hazards: Sequence[Hazard],
) -> None:
    """Refuse to delete rows of a range with which rows of other tables would go.

    Args:
        ask: runs a query.
        sql: of the system.
        table: what is written to.
        key_range: the range.
        own: condition: a row of the table that is in the range.
        hazards: of the table.

    Raises:
        InputError: names the tables.
    """
    destroying = having(hazards, "destroys")
    if destroying and ask(sql.any_row(table, own)):
        raise InputError(
            f"{table} range {key_range.name}: it has rows already, and to replace them would "
            f"change other tables: {told(destroying)}"
        )


def require_room_for(load: TransactionalLoad[Any]) -> None:
    """The same of the range of a load, in the transaction that is about to delete its rows."""
    if replaces(load.plan, load.options):
        require_room(
            load.session.query,
            load.sql,
            load.table,
            load.key_range,
            load.plan.target_range(load.key_range),
            load.options.hazards,
        )


def explained(error: StatementFailed, hazards: Sequence[Hazard]) -> TableferryError:
    """The error of a transaction that the server refused, with what may have refused it."""
    if error.transient or not hazards:
        return error
    return TableferryError(f"{error}; nothing is visible. {told(hazards)}")
