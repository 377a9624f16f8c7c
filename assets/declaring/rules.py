"""Rules about parts of a transfer that are each valid by themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from tableferry.assets.declaring.profiles import profile
from tableferry.assets.declaring.sections import ColumnSpec, HopSpec
from tableferry.assets.declaring.yaml_lines import Location, not_fillable
from tableferry.checks.expectations import CHECK_NAME as EXPECTATIONS
from tableferry.checks.levels import CHECK_NAMES, GONE
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.columns.planner import is_target_type
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import Place, Source, source_of
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target_options import WriteMode
from tableferry.resources.registry import systems
from tableferry.resources.tables import TableRef

SEES_MOVED_ROWS = ("auto", "content", "row_version")
"""Fingerprints that notice a row stored at another place, where any update may put it."""

CHECKS = {*CHECK_NAMES.values(), *WHOLE_TABLE_CHECKS, EXPECTATIONS}
"""The names of all checks."""

Fields = Mapping[str, Any]
"""The fields of a transfer that are valid so far, by name."""

Problems = Iterator[str | tuple[Location, str]]
"""What is wrong with a value, or with a part of it."""


def _source(fields: Fields) -> Source | None:
    table = fields.get("source")
    return source_of(table.system) if table is not None and table.system.source else None


def own_key(fields: Fields) -> str | None:
    """The key that the source brings with it, as files do."""
    source = _source(fields)
    return source.file_key if source is not None else None


def place_of(fields: Fields) -> Place | None:
    """Where the source stores its rows, if the ranges are cut by that."""
    source, ranges = _source(fields), fields.get("ranges")
    return source.place if source is not None and ranges is not None and ranges.by else None


def hop_problems(source: TableRef | None, hops: list[HopSpec]) -> Iterator[tuple[Location, str]]:
    """What is wrong with the route that the hops make."""
    previous, tables = source, {str(source)}
    folder = source if source is not None and source.system.by_path else None
    for number, hop in enumerate(hops):
        target = hop.to.system
        if str(hop.to) in tables:
            yield (number,), f"{hop.to} appears twice in source and hops"
        elif target.loader and (why := loader_of(target).table_problem(hop.to)):
            yield (number,), f"{hop.to} {why}"
        elif folder is not None and target.by_path:
            yield (number,), f"a transfer can use only one folder of files, and has {folder}"
        elif target.loader is None or (previous is not None and previous.system.source is None):
            yield (number,), f"Tableferry cannot move rows from {previous} to {hop.to}"
        tables.add(str(hop.to))
        folder = hop.to if target.by_path else folder
        previous = hop.to


def column_problems(
    columns: dict[str, ColumnSpec],
    hops: list[System],
    source: System | None = None,
    keys: Collection[str] = (),
) -> Iterator[tuple[Location, str]]:
    """What is wrong with the declared columns.

    Args:
        columns: by name.
        hops: the systems of the hops; empty if they are unknown.
        source: the source's system, whose type may be declared too.
        keys: columns whose own values are needed: the key, a watermark.
    """
    names: dict[str, str] = {}
    for name, column in columns.items():
        renamed = column.rename or name
        if renamed in names:
            yield (name, "rename"), f"{names[renamed]!r} and {name!r} would both be {renamed!r}"
        names[renamed] = name
        if column.expression is not None:
            if name in keys:
                yield (name, "expression"), "the key needs the column's own values"
            elif isinstance(column.type, dict) and source and source.name not in column.type:
                yield (name, "type"), f"needs the type of the expression in {source.name}, too"
        if column.was is not None and name in keys:
            yield (name, "was"), "a key stays where it is: rename it back, or run --recreate"
        if column.was is not None and column.was in (name, column.rename):
            yield (name, "was"), "is the name that it has now"
        if column.cast and name in keys:
            yield (name, "cast"), "the key needs the column's own values"
        if not hops:
            continue
        if column.low_cardinality and not any(hop.types.low_cardinality for hop in hops):
            titles = " and ".join(each.title for each in systems() if each.types.low_cardinality)
            yield (name, "low_cardinality"), f"is for {titles} targets, and no hop goes there"
        targets = {hop.name: hop for hop in hops}
        types = {hops[0].name: column.type} if isinstance(column.type, str) else column.type or {}
        if column.expression is not None and isinstance(column.type, str):
            continue  # the server will say
        for target, type_ in types.items():
            if source is not None and target == source.name and target not in targets:
                continue  # the source itself knows its types
            if target not in targets:
                yield (name, "type", target), f"no hop goes to {target}"
            elif not is_target_type(targets[target], type_):
                where: Location = () if isinstance(column.type, str) else (target,)
                yield (name, "type", *where), not_fillable(type_, targets[target])


def _incremental(value: Any, fields: Fields) -> Problems:
    """What keeps a transfer from moving only the newer rows of a range."""
    mode = fields.get("write")
    if mode is not None and not mode.updates_known:
        yield f"needs 'write: upsert': {mode} cannot leave the older rows of a range as they are"
    method, _, column = fields.get("fingerprint", "").partition(":")
    if method not in ("", "watermark"):
        yield f"needs 'fingerprint: {{watermark: column}}': {method} does not tell newer rows"
    if not column:
        return
    only = fields.get("only")
    if column in fields.get("exclude", ()) or (only is not None and column not in only):
        yield f"needs the watermark column {column!r}, which is not copied"
    for hop in fields.get("hops", ()):
        if column in hop.exclude:
            yield f"needs the watermark column {column!r}, which {hop.to} is without"
    if column in _relaxed(fields):
        yield f"needs the watermark column {column!r} as it is, without on_overflow"


def _quarantine(value: Any, fields: Fields) -> Problems:
    """Say what keeps a transfer from moving ranges without the rows that do not fit."""
    mode = fields.get("write")
    if mode is not None and not (mode.replaces_in_place and mode.moves):
        yield f"quarantine needs 'write: replace': with {mode} a rejected row may be in the target"
    for hop in fields.get("hops", ()):
        if hop.to.system.loader and not loader_of(hop.to.system).quarantines:
            yield f"quarantine needs a table beside the target, which {hop.to} cannot have"


def most_rejected(value: object) -> object:
    """Return a number of rows, or a share of them with a percent sign, as text.

    Raises:
        ValueError: it is neither.
    """
    text = str(value).strip()
    number = text.removesuffix("%")
    plain = number.replace(".", "", 1) if text.endswith("%") else number
    if isinstance(value, bool) or not plain.isdecimal() or not plain.isascii():
        raise ValueError("should be a number of rows, such as 100, or a share of them, as 0.1%")
    return text


def share(value: object) -> object:
    """Return a share of rows as text, e.g. `50%`.

    Raises:
        ValueError: it is none.
    """
    text = str(value).strip()
    number = text.removesuffix("%")
    plain = number.replace(".", "", 1)
    if not text.endswith("%") or not (
        plain.isdecimal() and plain.isascii() and float(number) <= 100
    ):
        raise ValueError("should be a share of the rows, such as 50%")
    return text


def _deletes(value: Any, fields: Fields) -> Problems:
    """What keeps a transfer from removing the rows that its source has no more."""
    mode = fields.get("write")
    if mode is not None and not mode.updates_known:
        yield (
            f"apply is for 'write: upsert': {mode} "
            + ("never changes rows" if mode.keeps_rows or not mode.moves else "has no other rows")
        )
    for hop in fields.get("hops", ()):
        if hop.to.system.loader and not loader_of(hop.to.system).removes:
            yield (
                f"apply is not for {hop.to}: 'write: replace' shows there what the source has, and "
                "'deletes: keep' keeps the rest"
            )


def _delta(value: Any, fields: Fields) -> Problems:
    """What keeps a transfer from moving only the rows of a range that differ."""
    if value != "always":
        return
    mode, ranges = fields.get("write"), fields.get("ranges")
    source, targets = fields.get("source"), [hop.to for hop in fields.get("hops", ())]
    if source is not None and source.system.source and source_of(source.system).file_key:
        yield "always is for tables: files are moved as a whole"
    loaders = [loader_of(table.system) for table in targets if table.system.loader]
    if loaders and not any(loader.deltas for loader in loaders):
        yield f"always is of no use: {', '.join(map(str, targets))} takes whole ranges"
    if mode is not None and (mode.whole_table or mode.keeps_known or not mode.moves):
        yield f"always needs 'write: replace' or 'upsert': {mode} writes no single rows of a range"
    if fields.get("expectations"):
        yield "always does not go with 'expectations', which may be about all rows of a range"
    if ranges is not None and ranges.by is not None:
        yield f"always needs a key, which 'ranges: {{by: {ranges.by}}}' is without"
    for name in _relaxed(fields):
        yield f"always needs column {name!r} as it is, without on_overflow"


def _relaxed(fields: Fields) -> list[str]:
    """Name the columns with an `on_overflow`, of the transfer or of a hop."""
    declared = [fields.get("columns", {}), *(hop.columns for hop in fields.get("hops", ()))]
    names = (
        name for columns in declared for name, spec in columns.items()
        if spec.on_overflow != "refuse"
    )  # fmt: skip
    return [*dict.fromkeys(names)]


def _parallel(value: Any, fields: Fields) -> Problems:
    ranges, write, why = fields.get("ranges"), fields.get("write", WriteMode.REPLACE), ""
    if write.whole_table:
        why = "is for one run alone with 'write: swap', which puts all ranges in place at once"
    elif ranges is not None and ranges.by is not None:
        why = "is for one run alone with 'by: ctid', whose ranges are read under one snapshot"
    if value.runs > 1 and why:
        yield ("runs",), why


def _source_limits(value: Any, fields: Fields) -> Problems:
    if (source := _source(fields)) is not None:
        title = fields["source"].system.title
        for name in sorted(source.unlimited() & {*value.declared}):
            yield (name,), f"{title} has no such limit"


def _profile(value: str, fields: Fields) -> Problems:
    profile(value)
    yield from ()


def _source_table(value: TableRef, fields: Fields) -> Problems:
    if value.system.source is None:
        names = [f"{each.name}://" for each in systems() if each.source]
        yield f"the source should be {' or '.join(names)}"
    else:
        source_of(value.system).require_installed(value)


def _ranges(value: Any, fields: Fields) -> Problems:
    table, source = fields.get("source"), _source(fields)
    if table is None or source is None:
        return
    if source.file_key is not None:
        source.require_cuttable(table)
        if value.rows is None or value.bounds is not None:
            yield "files are cut by rows alone; without rows each file is a range"
    elif value.by is not None and source.place is None:
        titles = [each.title for each in systems() if each.source and source_of(each).place]
        yield f"by: {value.by} is for {' and '.join(titles)} tables, not {table}"


def _write(value: WriteMode, fields: Fields) -> Problems:
    if value.needs_identity and (place := place_of(fields)) is not None:
        yield (
            f"upsert needs a key that stays with its row, and 'ranges: {{by: "
            f"{place.column.name}}}' has none: an updated row is stored elsewhere"
        )
    for hop in fields.get("hops", ()) if value.moves else ():
        modes = loader_of(hop.to.system).modes if hop.to.system.loader else (value,)
        if value not in modes:
            yield f"{hop.to} takes only {', '.join(modes)}, not {value}"


def _mover(value: str, fields: Fields) -> Problems:
    if fields.get("write", WriteMode.NONE).moves:
        yield "is for 'write: none': it says who fills the target instead"
    elif len(fields.get("hops", ())) > 1:
        yield "is for one hop: declare a transfer for each table that it fills"


def _final(value: bool, fields: Fields) -> Problems:
    if value and fields.get("mover") is not None:
        yield "is what `mover` means for ClickHouse: leave it out"


def _on_missing(value: str, fields: Fields) -> Problems:
    if own_key(fields) is None:
        yield "is for files; rows gone from another source go with their range"
    elif value == "delete" and not fields.get("write", WriteMode.REPLACE).replaces_in_place:
        yield "delete requires 'write: replace'"


def _checks(value: Collection[str], fields: Fields) -> Problems:
    why = f"there is no such check; there are {', '.join(sorted(CHECKS))}"
    for name in value:
        if name not in CHECKS:
            yield (name,), GONE.get(name, why)


def _fingerprint(value: str, fields: Fields) -> Problems:
    place = place_of(fields)
    if own_key(fields) is not None and value not in ("auto", "content", "none"):
        yield f"{value!r} should be auto, content or none for files"
    elif place is not None and value not in SEES_MOVED_ROWS:
        yield (
            f"{value!r} should be one of {', '.join(SEES_MOVED_ROWS)} with 'ranges: {{by: "
            f"{place.column.name}}}': the others miss rows that an update stores elsewhere"
        )


def _schedule(value: str, fields: Fields) -> Problems:
    if not fields.get("write", WriteMode.REPLACE).moves:
        yield "is for runs that move rows: 'write: none' takes check_schedule"


RULES: Mapping[str, Callable[[Any, Fields], Problems]] = {
    "source": _source_table,
    "ranges": _ranges,
    "profile": _profile,
    "write": _write,
    "parallel": _parallel,
    "source_limits": _source_limits,
    "mover": _mover,
    "final": _final,
    "on_missing": _on_missing,
    "on_reject": _quarantine,
    "checks": _checks,
    "fingerprint": _fingerprint,
    "incremental": _incremental,
    "deletes": _deletes,
    "delta": _delta,
    "schedule": _schedule,
}
"""By key of a transfer, what is wrong with its value, given the fields before it."""

OPTIONAL = ("mover", "on_reject", "incremental", "deletes", "schedule")
"""Those of these keys whose defaults ask for nothing, and are never wrong."""
