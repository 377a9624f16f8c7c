"""How a transfer writes to a target: write modes, marks of rows, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.delta import Delta
from tableferry.resources.contract.hazards import Hazard, PublishAudit, having
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.errors import InputError, ReceiptMismatch
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column


class WriteMode(StrEnum):
    """A write mode, by its properties.

    Other modules use the properties and never compare modes, so that a new mode is a line here and
    its SQL.
    """

    keeps_known: bool
    """Whether rows of the target whose primary key is loaded again keep their values."""
    updates_known: bool
    """Whether rows of the target whose primary key is loaded again get the new values."""
    whole_table: bool
    """Whether a shadow table collects all ranges and then replaces the target."""
    moves: bool
    """Whether rows are written at all; otherwise both tables are only compared."""

    def __new__(
        cls,
        name: str,
        keeps_known: bool = False,
        updates_known: bool = False,
        whole: bool = False,
        moves: bool = True,
    ) -> Self:
        mode = str.__new__(cls, name)
        mode._value_ = name
        mode.keeps_known, mode.updates_known, mode.whole_table = keeps_known, updates_known, whole
        mode.moves = moves
        return mode

    REPLACE = "replace"
    APPEND = "append", True
    UPSERT = "upsert", False, True
    SWAP = "swap", False, False, True
    NONE = "none", False, False, False, False

    @property
    def keeps_rows(self) -> bool:
        """Whether rows stay that the source no longer has."""
        return self.keeps_known or self.updates_known

    @property
    def needs_identity(self) -> bool:
        """Whether it needs a primary key."""
        return self.updates_known

    @property
    def replaces_in_place(self) -> bool:
        """Whether publishing a range shows readers exactly the staged rows."""
        return not self.keeps_rows and not self.whole_table

    @property
    def in_place(self) -> WriteMode:
        """The mode for a range in the table that readers see."""
        return WriteMode.REPLACE if self.whole_table else self


@dataclass(frozen=True)
class Mark:
    """A column that says of a row whether, or since when, its source has it no more.

    A row is marked by a moment or by a flag: otherwise the column is NULL, or the flag is 0.
    """

    column: Column
    flag: bool = False
    """Whether the column is a boolean or a number, not a moment."""

    def unmarked(self, system: System) -> str:
        """Write the condition that a row is not marked."""
        name = system.quote(self.column.name)
        # a text constant is taken for a boolean as well as for a number
        return f"({name} IS NULL OR {name} = '0')" if self.flag else f"{name} IS NULL"

    def setting(self, system: System) -> str:
        """Write the assignment that marks a row."""
        value = "'1'" if self.flag else system.dialect.now
        return f"{system.quote(self.column.name)} = {value}"

    def clearing(self, system: System) -> str:
        """Write the assignment that removes the mark of a row."""
        value = "'0'" if self.flag else "NULL"
        return f"{system.quote(self.column.name)} = {value}"


class Written(NamedTuple):
    """Which kinds of statements publish a range."""

    inserts: bool
    updates: bool
    deletes: bool

    @classmethod
    def of(cls, delta: Delta, mark: Mark | None) -> Written:
        """Those for rows that are written by themselves."""
        if mark is not None:  # which a row that comes back may have
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
