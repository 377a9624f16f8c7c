"""Which formats rows can take from one system to another."""

from __future__ import annotations

from resources.plan import Format, WireFormat
from resources.registry import system
from resources.tables import TableRef

WIRES: dict[Format, WireFormat] = {
    "arrow": "arrow",
    "tab_separated": "text",
    "delimited": "text",
}
"""All formats, and the wire format that each of them is to users, in order of preference: `arrow`
carries every type, and needs no tool."""


def formats_between(source: TableRef, target: TableRef) -> tuple[Format, ...]:
    """The formats that the source's system sends and the target's accepts, the preferred first.

    Raises:
        InputError: one of them is no source, or no target.
    """
    sends = system(source.system).as_source().sends
    accepts = system(target.system).as_target().accepts
    return tuple(one for one in WIRES if one in sends and one in accepts)
