"""The table that bcp fills: columns that its conversions cannot damage, and the server's casts."""

from __future__ import annotations

from dataclasses import dataclass

from resources.sqlserver.types import MAX_BYTES, MAX_UNITS, slot
from resources.types.kinds import Binary, Date, Float, Text, Time, Timestamp


@dataclass(frozen=True)
class Landing:
    """One column of the landing table; `{}` stands for its quoted name in `cast`."""

    type: str
    cast: str


def landing(target_type: str) -> Landing:
    """How a column of a SQL Server type is landed.

    Texts are as CAST of nvarchar takes them in every language and DATEFORMAT setting.
    """
    found = slot(target_type)
    kind = found.kind if found else None
    if isinstance(kind, Text):
        # LEN leaves out trailing blanks, of which there are none before the end
        length = kind.units
        room = f"nvarchar({length + 1 if length and length < MAX_UNITS else 'max'})"
        return Landing(room, "LEFT({}, LEN({}) - 1)")
    if isinstance(kind, Binary):
        length = kind.length
        room = f"varbinary({length + 1 if length and length < MAX_BYTES else 'max'})"
        return Landing(room, "SUBSTRING({}, 1, DATALENGTH({}) - 1)")
    if isinstance(kind, Float):
        # strtod's denormals are an overflow to freebcp
        return Landing("nvarchar(30)", f"CAST({{}} AS {target_type})")
    if isinstance(kind, (Date, Time, Timestamp)):
        return Landing("nvarchar(34)", f"CAST({{}} AS {target_type})")
    return Landing(target_type, "{}")
