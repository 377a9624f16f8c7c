"""Which formats rows can take from one system to another."""

from __future__ import annotations

from tableferry.resources.contract.copy_plan import Format, WireFormat
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.tables import TableRef

WIRES: dict[Format, WireFormat] = {
    "pgcopy": "pgcopy",
    "copy_text": "text",
    "arrow": "arrow",
    "tab_separated": "text",
    "delimited": "text",
}
"""All formats, and the wire format that each of them is to users, in order of preference: what is
passed unparsed between two servers of one system, then `arrow`, which carries every type that two
systems share, and needs no tool."""

UNREAD: tuple[Format, ...] = ("pgcopy", "copy_text")
"""Formats that nobody but the two servers reads."""


def formats_between(source: TableRef, target: TableRef) -> tuple[Format, ...]:
    """The formats that the source's system sends and the target's accepts, the preferred first.

    Raises:
        InputError: one of them is no source, or no target.
    """
    sends = source_of(source.system).sends
    accepts = loader_of(target.system).accepts
    return tuple(one for one in WIRES if one in sends and one in accepts)


def format_of(wire: WireFormat, source: TableRef, target: TableRef) -> Format | None:
    """The format that a wire format is between two systems; None if they share none."""
    return next((one for one in formats_between(source, target) if WIRES[one] == wire), None)
