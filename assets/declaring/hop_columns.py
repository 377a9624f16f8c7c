"""What a hop declares about columns, put together with what the transfer declares about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tableferry.assets.declaring.sections import ColumnSpec, HopColumnSpec, HopSpec
from tableferry.assets.declaring.yaml_lines import Location


def settings_in(
    columns: Mapping[str, ColumnSpec], hops: Sequence[HopSpec], number: int
) -> dict[str, ColumnSpec]:
    """Return the settings of columns in one hop, by their names in the transfer's source.

    What the hop says about a column comes before what the transfer says. A type without a system is
    for the first hop; the next one continues from there.

    Args:
        columns: what the transfer says.
        hops: its hops.
        number: the hop's 1-based position.
    """
    hop, settings = hops[number - 1], {}
    for name in dict.fromkeys((*columns, *hop.columns)):
        common, own = columns.get(name, ColumnSpec()), hop.columns.get(name, HopColumnSpec())
        given = {field: getattr(own, field) for field in own.model_fields_set}
        if isinstance(common.type, dict):
            given.setdefault("type", common.type.get(hop.to.system.name))
        elif number > 1 or common.expression is not None:
            given.setdefault("type", None)
        if own.on_overflow == "text":
            given["type"] = None
        elif own.type is not None and common.on_overflow == "text":
            given.setdefault("on_overflow", "refuse")
        settings[name] = common.model_copy(update=given)
    return settings


def name_in(
    columns: Mapping[str, ColumnSpec], hops: Sequence[HopSpec], column: str, number: int
) -> str:
    """Return a source column's name in the target of a hop; 0: in the source."""
    name = column
    for hop in hops[:number]:
        own = hop.columns.get(column, HopColumnSpec())
        name = own.rename or columns.get(column, ColumnSpec()).rename or name
    return name


def hop_column_problems(
    hops: Sequence[HopSpec], key: str, exclude: Sequence[str], only: Sequence[str] | None
) -> Iterator[tuple[Location, str]]:
    """Say what is wrong with the columns that hops declare.

    Args:
        hops: the transfer's hops.
        key: its key.
        exclude: the columns that no hop copies.
        only: the columns that hops copy at most; None: all of the source.
    """
    gone = {name: "the transfer excludes it" for name in exclude}
    for number, hop in enumerate(hops):
        for name in hop.exclude:
            if name == key:
                yield ("hops", number, "exclude", name), f"the key {key!r} should not be excluded"
            elif name in gone:
                yield ("hops", number, "exclude", name), f"column {name!r}: {gone[name]} already"
        gone |= {name: f"{hop.to} is without it" for name in hop.exclude if name not in gone}
        for name in hop.columns:
            why = gone.get(name)
            if why is None and only is not None and name not in only:
                why = "the transfer's columns are without it"
            if why is not None:
                yield ("hops", number, "columns", name), f"column {name!r}: {why}"
