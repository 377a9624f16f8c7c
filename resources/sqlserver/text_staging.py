"""The table that bcp fills: columns that its conversions cannot damage, and the server's casts."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry.resources.sqlserver.types import MAX_BYTES, MAX_UNITS, slot
from tableferry.resources.types.kinds import Binary, Date, Float, Text, Time, Timestamp


@dataclass(frozen=True)
class StagedText:
    """One column of the table that bcp fills; `{}` stands for its quoted name in `cast`."""

    type: str
    cast: str


def text_staging(target_type: str) -> StagedText:
    """How a column of a SQL Server type is staged as text.

    Texts are as CAST of nvarchar takes them in every language and DATEFORMAT setting.
    """
    found = slot(target_type)
    kind = found.kind if found else None
    if isinstance(kind, Text):
        # LEN leaves out trailing blanks, of which there are none before the end
        length = kind.units
        room = f"nvarchar({length + 1 if length and length < MAX_UNITS else 'max'})"
        return StagedText(room, "LEFT({}, LEN({}) - 1)")
    if isinstance(kind, Binary):
        length = kind.length
        room = f"varbinary({length + 1 if length and length < MAX_BYTES else 'max'})"
        return StagedText(room, "SUBSTRING({}, 1, DATALENGTH({}) - 1)")
    if isinstance(kind, Float):
        # strtod's denormals are an overflow to freebcp
        return StagedText("nvarchar(30)", f"CAST({{}} AS {target_type})")
    if isinstance(kind, (Date, Time, Timestamp)):
        return StagedText("nvarchar(34)", f"CAST({{}} AS {target_type})")
    return StagedText(target_type, "{}")
