"""What a transfer does about changed columns: fail, add columns, or ignore new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import DriftPolicy, DroppedPolicy
from tableferry.assets.log.ledger import WrittenColumn
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import SchemaDrift, StatementFailed, TableMissing
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

if TYPE_CHECKING:
    import dagster as dg


ADDING = ("add_columns", "evolve")
"""The policies under which new columns of the source are added to targets."""


def target_columns(endpoint: Endpoint, table: TableRef) -> dict[str, Column] | None:
    """Read the columns of a target, by name; None if it does not exist yet."""
    try:
        return {column.name: column for column in endpoint.columns(table)}
    except TableMissing:
        return None


def new_columns(plan: CopyPlan, actual: Mapping[str, Column] | None) -> list[Column]:
    """Planned columns that an existing target lacks."""
    if actual is None:
        return []
    return [column for column in plan.target_columns if column.name not in actual]


def remove_dropped(
    endpoint: Endpoint, table: TableRef, columns: Sequence[str], handled: DroppedPolicy | None
) -> bool:
    """Drop columns of a target, or make them NULL; return whether its columns are others now."""
    dialect = table.system.dialect
    write = {"drop": dialect.drop_column, "null": dialect.empty_column}.get(handled or "")
    if write is None:
        return False
    for name in columns:
        endpoint.execute(write(qualified(table), table.system.quote(name)))
    return bool(columns) and handled == "drop"


def add_columns(endpoint: Endpoint, table: TableRef, columns: list[Column]) -> list[str]:
    """Add columns to a target, nullable because its rows have no values for them.

    Returns:
        Notes for the user.
    """
    notes = []
    for column in columns:
        name = table.system.quote(column.name)
        sql = table.system.dialect.add_column(qualified(table), name, column)
        try:
            if sql:
                endpoint.execute(sql)
        except StatementFailed:
            # another run of the transfer may have added it first
            if column.name not in (target_columns(endpoint, table) or {}):
                raise
        notes.append(f"{table}: added column {column.name!r} ({column.type})")
    return notes


def misfits(plan: CopyPlan, actual: Mapping[str, Column] | None) -> list[str]:
    """Columns of a target that cannot hold what is planned for them, and why."""
    return [
        f"{plan.target}: column {column.name!r} {why}"
        for column in plan.target_columns
        if actual and column.name in actual
        if (why := incompatibility(plan.target.system, column, actual[column.name]))
    ]


def dropped_columns(
    plan: CopyPlan,
    actual: Mapping[str, Column] | None,
    committed: Sequence[WrittenColumn] | None,
) -> list[str]:
    """Columns that earlier runs filled, that the target still has, and that the plan lacks now."""
    planned = {column.name for column in plan.target_columns}
    return [
        column.name
        for column in committed or ()
        if actual and column.name in actual and column.name not in planned
    ]


def require_no_dropped(
    plan: CopyPlan,
    actual: Mapping[str, Column] | None,
    committed: Sequence[WrittenColumn] | None,
    policy: DriftPolicy,
    handled: DroppedPolicy | None = None,
) -> list[str]:
    """Refuse to continue without columns that the target has from this transfer.

    With another policy than `fail` they stay, and rows that move get NULL there. `handled` is what
    the transfer declares about them alone.

    Returns:
        Notes for the user.

    Raises:
        SchemaDrift: the policy is `fail`, a dropped column cannot be NULL, or it may have been
            renamed, so that values would be lost though the source still has them.
    """
    dropped = dropped_columns(plan, actual, committed)
    if not dropped or actual is None or committed is None:
        return []
    names = ", ".join(repr(name) for name in dropped)
    gone = f"{plan.source} no longer has {names}, which {plan.target} has from earlier runs"
    if policy == "fail" and handled is None:
        raise SchemaDrift(
            f"{gone}; drop the column there, or set dropped_columns, or on_schema_drift (it is "
            f"{policy})"
        )
    if handled != "drop" and (required := [name for name in dropped if not actual[name].nullable]):
        raise SchemaDrift(
            f"{gone}: rows that move have no value for {', '.join(map(repr, required))}, which "
            "cannot be NULL there; drop the column there, or make it nullable"
        )
    told = policy in ADDING or handled in ("null", "drop")
    if told and (renamed := _perhaps_renamed(plan, dropped, committed)):
        old, new = renamed
        raise SchemaDrift(
            f"{gone}, and now has {new!r} with the type of {old!r}: if that is {old!r} renamed, "
            "the rows that move would lose their old values. To rename it in the target, declare "
            f"columns: {{{new}: {{was: {old}}}}}; to continue to fill the old column, declare "
            f"columns: {{{new}: {{rename: {old}}}}}; if it is another column, drop {old!r} "
            f"in {plan.target}; to leave it out, exclude: [{new}]"
        )
    if handled in ("null", "drop"):
        done = "dropped" if handled == "drop" else "NULL in all rows"
        return [f"{plan.source} no longer has {names}: {done} in {plan.target}"]
    kept = f"rows that move get NULL in {names} of {plan.target}, the others keep their values"
    note = f"{plan.source} no longer has {names}: {kept}"
    if plan.ignored:
        ignored, first = ", ".join(map(repr, plan.ignored)), plan.ignored[0]
        note += (
            f"; on_schema_drift: {policy} leaves out {ignored}. If one of them is {names} renamed, "
            f"declare columns: {{{first}: {{rename: {dropped[0]}}}}}"
        )
    return [note]


def _perhaps_renamed(
    plan: CopyPlan, dropped: Sequence[str], committed: Sequence[WrittenColumn]
) -> tuple[str, str] | None:
    """A dropped column, and a new one with its type that appeared in the same change."""
    before = {column.name: column.description or "" for column in committed}
    new = [column.source for column in plan.columns if column.target.name not in before]
    for old in dropped:
        for column in new:
            if before[old].endswith(f" {column.type}"):
                return old, column.name
    return None


def require_no_new(
    plan: CopyPlan,
    actual: Mapping[str, Column] | None,
    committed: Sequence[WrittenColumn] | None,
    policy: DriftPolicy,
) -> None:
    """Refuse to continue with a target that lacks planned columns.

    A target that no run has written to yet is left to `Target.prepare`.

    Raises:
        SchemaDrift: the source has new columns, or the target has lost some; with the remedy.
    """
    lacking = {column.name for column in new_columns(plan, actual)}
    if not lacking or committed is None:
        return
    before = {column.name for column in committed}
    new = [column.source for column in plan.columns if column.target.name in lacking - before]
    lost = [column.target for column in plan.columns if column.target.name in lacking & before]
    problems = []
    if new:
        problems.append(
            f"{plan.source} has {_listed('a new column', 'new columns', new)}, which "
            f"{plan.target} lacks: set on_schema_drift to add_columns or ignore_new "
            f"(it is {policy}), or exclude {'it' if len(new) == 1 else 'them'}"
        )
    if lost:
        problems.append(
            f"{plan.target} has lost {_listed('the column', 'the columns', lost)}: set "
            f"on_schema_drift to add_columns (it is {policy}), and the next run adds "
            f"{'it' if len(lost) == 1 else 'them'} again and moves every range anew"
        )
    raise SchemaDrift("; ".join(problems))


def foreseen(
    plan: CopyPlan,
    actual: Mapping[str, Column] | None,
    committed: Sequence[WrittenColumn] | None,
    policy: DriftPolicy,
    handled: DroppedPolicy | None = None,
) -> tuple[str, list[str]]:
    """Why a run would be refused as things are, or an empty text; and its notes for the user."""
    notes: list[str] = []
    try:
        notes = require_no_dropped(plan, actual, committed, policy, handled)
        if policy not in ADDING:
            require_no_new(plan, actual, committed, policy)
    except SchemaDrift as error:
        return str(error), notes
    return "", notes


def schema_changes(plan: CopyPlan, committed: Sequence[WrittenColumn] | None) -> str:
    """Describe in one line how a hop's columns differ from those of its last commit."""
    if committed is None:
        return ""
    before = {column.name: column for column in committed}
    new = [column.source for column in plan.columns if column.target.name not in before]
    parts = [_listed("new source column", "new source columns", new)] if new else []
    planned = {column.target.name for column in plan.columns}
    if gone := [name for name in before if name not in planned]:
        parts.append(f"{', '.join(map(repr, gone))} no longer in the source")
    for column in plan.columns:
        name, type_ = column.target.name, column.target.type
        if name not in before:
            continue
        if before[name].description != _origin(column):
            parts.append(f"{name!r} is {_origin(column)} now, was {before[name].description}")
        elif before[name].type != type_:
            parts.append(f"{name!r} becomes {type_}, was {before[name].type}")
    return ", ".join(parts)


def _listed(singular: str, plural: str, columns: Sequence[Column]) -> str:
    names = ", ".join(f"{column.name!r} ({column.type})" for column in columns)
    return f"{singular if len(columns) == 1 else plural} {names}"


def _origin(column: ColumnPlan) -> str:
    return f"from {column.source.name} {column.source.type}"


def column_schema(plan: CopyPlan) -> dg.TableSchema:
    """Return the plan's target columns as Dagster's column schema."""
    import dagster as dg

    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.target.name,
                column.target.type,
                description=_origin(column),
                constraints=dg.TableColumnConstraints(nullable=column.target.nullable),
            )
            for column in plan.columns
        ]
    )


def column_lineage(plan: CopyPlan) -> dg.TableColumnLineage:
    """Return which column of the hop's source each target column comes from."""
    import dagster as dg

    source = asset_key(plan.source)
    return dg.TableColumnLineage(
        {
            column.target.name: [dg.TableColumnDep(source, column.source.name)]
            for column in plan.columns
        }
    )
