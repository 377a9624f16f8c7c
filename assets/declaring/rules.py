"""What is wrong with parts of a transfer that are each well-formed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tableferry.assets.declaring.yaml_lines import Location
from tableferry.resources.columns.planner import is_target_type
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.system import System
from tableferry.resources.registry import systems
from tableferry.resources.tables import TableRef

if TYPE_CHECKING:  # the models ask for these rules
    from tableferry.assets.declaring.sections import ColumnSpec, HopSpec


def hop_problems(source: TableRef | None, hops: list[HopSpec]) -> Iterator[tuple[Location, str]]:
    """What is wrong with the way of the hops."""
    before, seen = source, {str(source)}
    by_path = source if source is not None and source.system.by_path else None
    for number, hop in enumerate(hops):
        if str(hop.to) in seen:
            yield (number,), f"{hop.to} stands twice in source and hops"
        elif hop.to.system.loader and (why := loader_of(hop.to.system).table_problem(hop.to)):
            yield (number,), f"{hop.to} {why}"
        elif by_path is not None and hop.to.system.by_path:
            yield (number,), f"a transfer has to do with one folder of files, and has {by_path}"
        elif hop.to.system.loader is None or (before is not None and before.system.source is None):
            yield (number,), f"{before} -> {hop.to} is not a hop that Tableferry can make"
        seen.add(str(hop.to))
        by_path = hop.to if hop.to.system.by_path else by_path
        before = hop.to


def column_problems(
    columns: dict[str, ColumnSpec], hops: list[System], source: System | None = None
) -> Iterator[tuple[Location, str]]:
    """What is wrong with the declared columns.

    Args:
        columns: by name.
        hops: the systems of the hops; none if they are not known.
        source: the source's system, whose own type may be named, too.
    """
    names: dict[str, str] = {}
    for name, column in columns.items():
        renamed = column.rename or name
        if renamed in names:
            yield (name, "rename"), f"{names[renamed]!r} and {name!r} would both be {renamed!r}"
        names[renamed] = name
        if not hops:
            continue
        if column.low_cardinality and not any(one.types.low_cardinality for one in hops):
            having = [one.title for one in systems() if one.types.low_cardinality]
            why = f"is for {' and '.join(having)} targets, and no hop goes there"
            yield (name, "low_cardinality"), why
        named = {one.name: one for one in hops}
        types = {hops[0].name: column.type} if isinstance(column.type, str) else column.type or {}
        for target, type_ in types.items():
            if source is not None and target == source.name and target not in named:
                continue  # the source itself says whether there is such a type
            if target not in named:
                yield (name, "type", target), f"no hop goes to {target}"
            elif not is_target_type(named[target], type_):
                where: Location = () if isinstance(column.type, str) else (target,)
                yield (name, "type", *where), f"{type_!r} is not a {target} type that can be filled"


def incremental_problems(fields: Mapping[str, Any]) -> Iterator[str]:
    """What keeps a transfer from moving only the newer rows of a range.

    Args:
        fields: of the transfer, by name; those that are wrong by themselves are missing.
    """
    mode = fields.get("write")
    if mode is not None and not mode.updates_known:
        yield f"needs 'write: upsert': {mode} cannot leave the older rows of a range as they are"
    method, _, column = fields.get("fingerprint", "").partition(":")
    if method not in ("", "watermark"):
        yield f"needs 'fingerprint: {{watermark: column}}': {method} does not tell newer rows"
    if not column:
        return
    only, declared = fields.get("only"), fields.get("columns", {}).get(column)
    if column in fields.get("exclude", ()) or (only is not None and column not in only):
        yield f"needs the watermark column {column!r}, which is not copied"
    if declared is not None and declared.on_overflow != "refuse":
        yield f"needs the watermark column {column!r} as it is, without on_overflow"
