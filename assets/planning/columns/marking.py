"""The column by which a target's rows are marked instead of deleted, `deletes: {mark: column}`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.marks import Mark
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import InputError
from tableferry.resources.ranges.key_kind import key_kind
from tableferry.resources.types.column import Column

FLAGS = ("boolean", "bit")
"""Types of one binary digit."""


def mark_of(name: str, plan: CopyPlan, existing: Mapping[str, Column] | None) -> Mark:
    """Return how rows of a hop's target are marked.

    Args:
        name: the column; a table that does not exist yet gets one for moments.
        plan: the hop.
        existing: the columns of an existing target, by name.

    Raises:
        InputError: the target has no such column, it is of another type, or rows are copied to it.
    """
    target, system = plan.target, plan.target.system
    where = f"deletes: {target}"
    if any(column.name == name for column in plan.target_columns):
        raise InputError(f"{where}: {name!r} is copied from the source, so that it marks no rows")
    new = Column(name, system.dialect.moment, nullable=True)
    if existing is None:
        return Mark(new)
    column = existing.get(name)
    if column is None:
        add = system.dialect.add_column(qualified(target), system.quote(name), new)
        raise InputError(f"{where} has no column {name!r} that marks rows; add it: {add}")
    if column.type in FLAGS:
        return Mark(column, flag=True)
    with suppress(InputError):
        match key_kind(column, system)[0]:
            case "integer":
                return Mark(column, flag=True)
            case "timestamp" | "date" if column.nullable:
                return Mark(column)
    raise InputError(
        f"{where}: {name!r} of type {column.type} cannot mark rows; it should be a timestamp or "
        "date that may be NULL, a boolean or an integer"
    )
