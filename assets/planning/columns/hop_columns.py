"""The columns of a hop: those it reads, those its target has, those that mark rows or their age."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.columns.planner import ColumnOverride
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_options import Mark
from tableferry.resources.errors import InputError, TableferryError, TableMissing
from tableferry.resources.tables import TableRef
from tableferry.resources.types.export import Refusal
from tableferry.resources.types.type_map import Column
from tableferry.resources.words import those_there

Renames = tuple[tuple[str, str], ...]
"""The present and the wanted name of each column."""


def renames_of(transfer: Transfer, hop: int, existing: Mapping[str, Column] | None) -> Renames:
    """Return the renames that a hop's target needs; none once they are done."""
    wanted = (
        (spec.was, transfer.target_name(name, hop))
        for name, spec in transfer.columns.items()
        if spec.was is not None
    )
    columns = existing or {}
    return tuple((was, name) for was, name in wanted if was in columns and name not in columns)


def renamed(existing: Mapping[str, Column], renames: Renames) -> dict[str, Column]:
    """Return a target's columns as they will be."""
    names = dict(renames)
    columns = (replace(each, name=names.get(each.name, each.name)) for each in existing.values())
    return {column.name: column for column in columns}


def source_columns(transfer: Transfer, endpoint: Endpoint) -> list[Column]:
    """Read the source's columns, with source types as declared.

    With ranges by place, the place comes first: it alone identifies a row.

    Raises:
        InputError: ranges are cut by the places of rows, and the table's rows have none.
    """
    source = source_of(transfer.source.system)
    try:
        columns = endpoint.columns(transfer.source)
    except TableMissing as error:
        raise TableMissing(f"{error}{_similar_tables(endpoint, transfer.source)}") from None
    if transfer.by_place and source.place is not None:
        source.blocks(endpoint, transfer.source)
        columns = [source.place.column, *(replace(each, primary_key=None) for each in columns)]
    # a database knows its types: that of a system which a hop goes to is the target's
    if source.file_key is None and any(
        hop.to.system is transfer.source.system for hop in transfer.hops
    ):
        return columns
    types: dict[str, str] = {}
    for name, spec in transfer.columns.items():
        declared = spec.type if isinstance(spec.type, dict) and not spec.expression else {}
        if type_ := declared.get(transfer.source.system.name):
            types[name] = type_
    return [
        source.declared(column, types[column.name]) if column.name in types else column
        for column in columns
    ]


def _similar_tables(endpoint: Endpoint, table: TableRef) -> str:
    """Say which table of the schema may have been meant, where the server can be asked."""
    if table.system.by_path:
        return ""
    names = "SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = "
    with suppress(TableferryError):
        rows = endpoint.query(names + table.system.dialect.literal(table.schema))
        return f"; in {table.schema}, {those_there(table.name, [str(n) for (n,) in rows], 'table')}"
    return ""


def kept_columns(
    transfer: Transfer, columns: Sequence[Column], existing: Mapping[str, Column]
) -> list[Column]:
    """Return the source's columns as they were when the target was made.

    Matters for files, whose columns depend on which files there are, and on their values.
    """
    source = source_of(transfer.source.system)
    types, own = transfer.hops[0].to.system.types, transfer.hops[0].columns
    typed = {name for name, spec in transfer.columns.items() if spec.type}
    typed |= {name for name, spec in own.items() if spec.type}
    if source.file_key is None:
        return [*columns]
    changed: dict[str, Column] = {}
    for column in columns:
        name = transfer.target_name(column.name)
        if name in existing and column.name not in typed:
            held = types.plain(existing[name].type)
            export = transfer.source.system.types.export(column.type)
            if isinstance(export, Refusal) or types.default(export.kind) != held:
                changed[column.name] = source.kept(column, types.read(held).kind)
    positions = {name: position for position, name in enumerate(existing)}
    ordered = sorted(
        columns,
        key=lambda column: positions.get(transfer.target_name(column.name), len(positions)),
    )
    return [changed.get(column.name, column) for column in ordered]


def as_source(plan: CopyPlan) -> list[Column]:
    """A hop's target columns as the next hop's source, with the primary key of the rows."""
    positions = {name: number for number, name in enumerate(plan.primary_key, start=1)}
    return [
        replace(_as_read(column), primary_key=positions.get(column.target.name))
        for column in plan.columns
    ]


def _as_read(column: ColumnPlan) -> Column:
    """Return a target column as its server describes it: of a user's type, also what it is."""
    source, target = column.source, column.target
    if source.own_type and source.own_type == target.type:
        return replace(target, type=source.type, own_type=source.own_type)
    return target


def overrides_of(
    transfer: Transfer, number: int, names: Mapping[str, str], exclude: Collection[str]
) -> dict[str, ColumnOverride]:
    """Return the declared settings of columns, by their names in this hop's source.

    Args:
        transfer: the transfer.
        number: the hop's 1-based position.
        names: the columns of the hop's source by their names in the transfer's source; those that
            a hop before leaves out are missing.
        exclude: columns of the hop's source to leave out.
    """
    own = transfer.hops[number - 1].columns
    low_cardinality = transfer.hops[number - 1].to.system.types.low_cardinality is not None
    overrides: dict[str, ColumnOverride] = {}
    for name, column in transfer.columns_in(number).items():
        # what the transfer says of a column that is gone by now is of no use here
        unknown = number == 1 or name in own
        source_name = names.get(name, name if unknown else None)
        if source_name is None or source_name in exclude:
            continue
        assert not isinstance(column.type, dict)
        own_keys = own[name].model_fields_set if name in own else ()
        overrides[source_name] = ColumnOverride(
            rename=column.rename,
            type=column.type,
            on_overflow=column.on_overflow,
            low_cardinality=column.low_cardinality and low_cardinality,
            where_possible=len(transfer.hops) > 1 and "on_overflow" not in own_keys,
        )
    return overrides


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


WATERMARK_KINDS = ("integer", "date", "timestamp")
"""Kinds of columns that can be watermarks."""


def watermark_column(plan: CopyPlan, transfer: Transfer) -> ColumnPlan:
    """Return the watermark column of a hop.

    Raises:
        InputError: it is not copied, or its type has no usable order.
    """
    assert transfer.watermark is not None, "the declaration has been checked"
    name = transfer.target_name(transfer.watermark, transfer.hop_of(plan.target))
    column = next((column for column in plan.columns if column.target.name == name), None)
    where = f"{transfer.transfer}: incremental: {plan.source}"
    if column is None:
        raise InputError(f"{where} has no column {name!r} that is copied")
    with suppress(InputError):  # it could not be a key either
        if key_kind(column.source, plan.source.system)[0] in WATERMARK_KINDS:
            return column
    raise InputError(
        f"{where}: the watermark column {column.source.name!r} is of type {column.source.type}; "
        "it should be an integer, date or timestamp"
    )
