"""What a publishing transaction is about to show, compared with what was audited in staging."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.hazards import Hazard, ShownDiffers, having, with_remedies
from tableferry.resources.contract.target_options import TargetOptions, require_staged
from tableferry.resources.digest.same_rows import Ask, SameRows, Summed, differs
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.other_ranges import Changes, Counted, Digested, other_ranges
from tableferry.resources.transactional.statements import Statements

if TYPE_CHECKING:
    from tableferry.resources.transactional.load import TransactionalLoad

ROLLED_BACK = "rolled back, nothing is visible"


@dataclass
class PublishAudit:
    """The comparison of one range by the session that publishes it, before it commits.

    The range must then have the staged rows and, with `upsert`, its rows that were not staged, as
    they were when this was made. Sums of digests add up, so those of both are compared at once.
    """

    load: TransactionalLoad[Any]
    _kept: Summed = field(default=Summed(0, 0), init=False)

    def __post_init__(self) -> None:
        load = self.load
        self._in_range = load.plan.target_range(load.key_range)
        self.same = SameRows.of(load.resource, load.plan, load.staging, load.table, load.columns)
        if load.options.mode.updates_known and load.options.keeps_rows(load.plan):
            kept = load.sql.kept_rows(load.plan, load.table, load.staging, self._in_range)
            self._kept = self.same.of_rows(load.session.query, kept)
        self._others = other_ranges(load, self.same)

    def after(self, written: Changes, audited: int) -> int:
        """Run what is deferred to the commit, and compare; return the range's rows.

        Args:
            written: the rows that the statements have changed.
            audited: the number of rows that were staged when they were audited.

        Raises:
            ReceiptMismatch: another number is staged now.
            ShownDiffers: the range is not what was audited, or other ranges have changed.
        """
        load, ask = self.load, self.load.session.query
        for statement in load.sql.run_deferred:
            load.session.execute(statement)
        staged = self.same.staged(ask)
        require_staged(load.table, load.key_range, staged.rows, audited, "audited")
        expected = staged.plus(self._kept)
        shown = self.same.shown(ask, self._in_range)
        if shown != expected:
            alike = self._kept.rows == 0 and shown.rows == expected.rows
            columns = self.same.differing(ask, self._in_range) if alike else []
            raise differs(expected, shown, columns, hazards_now(load), ROLLED_BACK)
        require_unchanged(load, self._others, written.marked(load.options.mark))
        return shown.rows


def hazards_now(load: TransactionalLoad[Any]) -> Sequence[Hazard]:
    """The table's hazards now, of which some may be newer than the plan."""
    with suppress(TableferryError):
        return load.look()
    return load.options.hazards


def require_unchanged(
    load: TransactionalLoad[Any], others: Counted | Digested, expected: Sequence[int]
) -> None:
    """Require the rows of other ranges to be as they were; see `Counted.changed`.

    Raises:
        ShownDiffers: names what may have changed them.
    """
    if changed := others.changed(expected):
        causes = with_remedies(hazards_now(load))
        raise ShownDiffers(f"{changed} along with it; {ROLLED_BACK}. {causes}")


def require_deletable(
    ask: Ask,
    sql: Statements,
    plan: CopyPlan,
    key_range: KeyRange,
    options: TargetOptions,
    table: TableRef,
) -> None:
    """Refuse to delete the rows of a range if rows of other tables would be deleted with them.

    Raises:
        InputError: names the tables.
    """
    destroying = having(options.hazards, "destroys")
    if destroying and ask(sql.any_row(table, plan.target_range(key_range))):
        raise InputError(
            f"{table} range {key_range.name}: it has rows already, and to replace them would "
            f"change other tables: {with_remedies(destroying)}"
        )
