"""The columns that a hop reads: as the source has them, as declared, and as the target was made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.resources.columns.planner import ColumnOverride
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.source import source_of
from tableferry.resources.types.column import Column
from tableferry.resources.types.export import Refusal


def source_columns(transfer: Transfer, endpoint: Endpoint) -> list[Column]:
    """The source's columns, those as declared of which the transfer names the source's type.

    Raises:
        InputError: ranges go by the places of rows, and the rows of that table have none.
    """
    source, found = transfer.source.system, []
    for column in _found(transfer, endpoint):
        spec = transfer.columns.get(column.name)
        types = spec.type if spec is not None and isinstance(spec.type, dict) else {}
        of = types.get(source.name)
        found.append(source_of(source).declared(column, of) if of else column)
    return found


def _found(transfer: Transfer, endpoint: Endpoint) -> Sequence[Column]:
    """The source's columns; with ranges by place, the place first, which alone tells rows apart.

    Raises:
        InputError: the rows of that table have no place.
    """
    columns = endpoint.columns(transfer.source)
    sending = source_of(transfer.source.system)
    if not transfer.placed or sending.place is None:
        return columns
    sending.blocks(endpoint, transfer.source)
    return [sending.place.column, *(replace(column, primary_key=None) for column in columns)]


def kept_columns(
    transfer: Transfer, columns: Sequence[Column], existing: Mapping[str, Column]
) -> list[Column]:
    """The source's columns as they were when the target was made, where they depend on what there
    is: which files, with which values in them.
    """
    sending, target = source_of(transfer.source.system), transfer.hops[0].to.system.types
    if sending.own_key is None:
        return [*columns]
    places = {name: place for place, name in enumerate(existing)}
    found = []
    for column in columns:
        spec, there = transfer.columns.get(column.name), transfer.target_name(column.name)
        if there in existing and (spec is None or spec.type is None):
            held = target.plain(existing[there].type)
            own = transfer.source.system.types.export(column.type)
            same = not isinstance(own, Refusal) and target.default(own.kind) == held
            kept = column if same else sending.kept(column, target.read(held).kind)
        else:
            kept = column
        found.append((places.get(there, len(places)), kept))
    return [column for _, column in sorted(found, key=lambda one: one[0])]


def as_source(plan: CopyPlan) -> list[Column]:
    """A hop's target columns as the next hop's source: the rows' identity goes on with them."""
    positions = {name: number for number, name in enumerate(plan.primary_key, start=1)}
    return [
        replace(column, primary_key=positions.get(column.name)) for column in plan.target_columns
    ]


def overrides_of(
    transfer: Transfer, number: int, exclude: Collection[str]
) -> dict[str, ColumnOverride]:
    """What is declared about the columns, by the names that they have in this hop's source.

    A type without a system is meant for the first hop; the next one goes on from there.
    """
    target = transfer.hops[number - 1].to.system
    low_cardinality = target.types.low_cardinality is not None
    found: dict[str, ColumnOverride] = {}
    for name, column in transfer.columns.items():
        here = name if number == 1 else column.rename or name
        if name in exclude or here in exclude:
            continue
        types = column.type if isinstance(column.type, dict) else {}
        first = column.type if isinstance(column.type, str) and number == 1 else None
        found[here] = ColumnOverride(
            rename=column.rename if number == 1 else None,
            type=types.get(target.name, first),
            on_overflow=column.on_overflow,
            low_cardinality=column.low_cardinality and low_cardinality,
        )
    return found
