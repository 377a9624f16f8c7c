"""The formats that two systems have in common."""

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
"""All formats, by preference, and the names that users know them by. Formats that are passed on
unparsed come first, then `arrow`, which carries every type that two systems share without a tool.
"""

UNREAD: tuple[Format, ...] = ("pgcopy", "copy_text")
"""The formats that the client passes on without reading them."""


def formats_between(source: TableRef, target: TableRef) -> tuple[Format, ...]:
    """List the formats that the source's system sends and the target's accepts, preferred first.

    Raises:
        InputError: the source's system cannot be a source, or the target's no target.
    """
    sends = source_of(source.system).sends
    accepts = loader_of(target.system).accepts
    return tuple(format for format in WIRES if format in sends and format in accepts)


def format_of(wire: WireFormat, source: TableRef, target: TableRef) -> Format | None:
    """The format that a wire format stands for between two systems; None if they share none."""
    formats = formats_between(source, target)
    return next((format for format in formats if WIRES[format] == wire), None)
