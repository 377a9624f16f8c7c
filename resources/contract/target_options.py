"""How a transfer writes to a target, and what follows from its write mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.delta import Delta
from tableferry.resources.contract.hazards import Hazard, PublishAudit, having
from tableferry.resources.contract.marks import Mark
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.contract.write_modes import WriteMode
from tableferry.resources.errors import InputError, ReceiptMismatch
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef


class Written(NamedTuple):
    """Which kinds of statements publish a range."""

    inserts: bool
    updates: bool
    deletes: bool

    @classmethod
    def of(cls, delta: Delta, mark: Mark | None) -> Written:
        """Those for rows that are written by themselves."""
        if mark is not None:
            return cls(delta.inserted > 0, True, False)
        return cls(delta.inserted > 0, delta.updated > 0, delta.deleted > 0)


@dataclass(frozen=True)
class TargetOptions:
    """How a transfer writes. No option changes a value, only where and how fast it lands."""

    mode: WriteMode = WriteMode.REPLACE
    engine: str | None = None
    """ClickHouse only: the engine of a new table, e.g. `ReplacingMergeTree(version)`."""
    order_by: str | None = None
    """ClickHouse only: the sorting key of a new table, as SQL without the keyword."""
    partition_by: str | None = None
    """ClickHouse only: the partitioning of a new table; its finalise is not atomic."""
    hazards: tuple[Hazard, ...] = ()
    """The result of `Target.hazards` when the hop was planned."""
    publish_audit: PublishAudit = "auto"
    """Whether to compare what readers are about to see with the audited rows: `visible`, always;
    `auto`, if a hazard may change rows."""
    single_rows: Written | None = None
    """How rows are published that are written by themselves; None: whole ranges are."""
    removes: bool = False
    """Whether rows go that the source has no more, though the mode would keep them."""
    mark: Mark | None = None
    """How such rows are marked, if they are not deleted."""
    recreate: WriteMode | None = None
    """The declared mode of a target that is recreated: the shadow table of the swap has the plan's
    shape, and none of the target's rows."""

    @property
    def audits_shown(self) -> bool:
        """Whether to compare what readers are about to see with the audited rows."""
        return self.publish_audit == "visible" or bool(having(self.hazards, "changes"))

    def written_to(self, plan: CopyPlan) -> TableRef:
        """The table that finalised ranges go to: the target, or with `swap` its shadow."""
        return shadow_of(plan.target) if self.mode.whole_table else plan.target

    def keeps_rows(self, plan: CopyPlan) -> bool:
        """Whether rows stay in the target that the source no longer has."""
        return self.mode.keeps_rows and not self.removes and bool(plan.row_identity)

    def appends(self, plan: CopyPlan) -> bool:
        """Whether rows that the target already has stay as they are."""
        return self.mode.keeps_known and bool(plan.row_identity)

    def replaces(self, plan: CopyPlan) -> bool:
        """Whether a range's rows are deleted for those that are loaded."""
        whole = self.single_rows is None and not self.mode.updates_known
        return whole and not self.appends(plan)

    def written_by(self, plan: CopyPlan) -> Written:
        """How a range's rows are published: by themselves, or by the write mode."""
        deletes = self.replaces(plan) or (self.removes and self.mark is None)
        return self.single_rows or Written(True, self.mode.updates_known, deletes)


def require_staged(
    table: TableRef, key_range: KeyRange, staged: int, expected: int, which: str
) -> int:
    """Return the number of staged rows if it is that of the rows sent or audited.

    Raises:
        ReceiptMismatch: they are not.
    """
    if staged != expected:
        raise ReceiptMismatch(
            f"{table} range {key_range.name}: {expected} rows were {which}, "
            f"but {staged} arrived in the staging table"
        )
    return staged


def require_named(target: TableRef) -> None:
    """Refuse a target whose name its system would cut, or could not have.

    Raises:
        InputError: names the limit and the remedy.
    """
    if why := target.system.dialect.unfit_table(target.schema, target.name):
        raise InputError(f"{target}: {why}; give the hop a shorter one")


def check_mode(plan: CopyPlan, options: TargetOptions) -> None:
    """Refuse a write mode that needs a primary key if there is none.

    Raises:
        InputError: `upsert` without a primary key.
    """
    if options.mode.needs_identity and not plan.row_identity:
        raise InputError(
            f"{plan.source}: {options.mode} needs a primary key whose columns all travel"
        )
