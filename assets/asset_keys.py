"""Asset keys of tables: Dagster takes only ASCII letters, digits and `_`, servers take any name.

Such plain names stay as they are. Any other character is written as .NET's `XmlConvert.EncodeName`
and SQL Server's `FOR XML` write it, `_x0020_` for a blank: its UTF-16 code units in hexadecimal,
neighbours within one pair of underscores. An underscore that would seem to begin such an escape is
escaped itself. So no two names share an asset key, and a key says which table it is.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

from tableferry.resources.connecting.names import system_of
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef

if TYPE_CHECKING:
    import dagster as dg

LONGEST = 240
"""Characters of a part of a key: Dagster's storage has room for 512 in all."""

_PLAIN = re.compile(r"[A-Za-z0-9_]+")
_ESCAPE = re.compile(r"_x([0-9A-F]{4,})_")
_TO_ESCAPE = re.compile(
    # an underscore that would begin an escape together with what follows it; other characters
    r"_(?=x[0-9A-F]{4,}(?:_|[^A-Za-z0-9_]))|[^A-Za-z0-9_]+"
)
_DIGEST_BYTES = 15
"""Its digits are no multiple of four, so that it is no escape of characters."""


def asset_key(table: TableRef) -> dg.AssetKey:
    """The asset of a table: connection, schema, table, e.g. `sqlserver/dbo/Order_x0020_Details`.

    Where a project calls it otherwise, `TableRef.asset` says so.
    """
    import dagster as dg

    return dg.AssetKey(_path(table))


def stored_key(table: TableRef) -> str:
    """The same as Dagster's storage has it, found without Dagster."""
    return json.dumps(_path(table))


def _path(table: TableRef) -> list[str]:
    if table.asset:
        return [*table.asset]
    return [table.connection, key_part(table.schema), key_part(table.name)]


def table_of(asset: dg.AssetKey) -> TableRef | None:
    """The table of an asset; None if it is none of ours, or its name was too long to be kept."""
    if len(asset.path) != 3:
        return None
    connection, *parts = asset.path
    names = [name_of(part) for part in parts]
    try:
        system = system_of(connection)
    except InputError:
        return None
    if None in names:
        return None
    return TableRef(system.name, str(names[0]), str(names[1]), connection)


def key_part(name: str) -> str:
    """A name of a schema or table as a part of an asset key.

    One that would be longer than `LONGEST` keeps what is plain of its beginning, and a digest.
    """
    part = _TO_ESCAPE.sub(lambda found: f"_x{_units(found[0]).hex().upper()}_", name)
    if len(part) <= LONGEST or part == name:
        return part
    digest = hashlib.blake2b(_units(name), digest_size=_DIGEST_BYTES).hexdigest().upper()
    return f"{''.join(_PLAIN.findall(name))[:100]}_x{digest}_"


def name_of(part: str) -> str | None:
    """The inverse of `key_part`; None where only a digest of the name is left."""
    if any(len(digits) % 4 for digits in _ESCAPE.findall(part)):
        return None
    return _ESCAPE.sub(lambda found: _text(bytes.fromhex(found[1])), part)


def _units(text: str) -> bytes:
    # a server may hold halves of surrogate pairs
    return text.encode("utf-16-be", "surrogatepass")


def _text(units: bytes) -> str:
    return units.decode("utf-16-be", "surrogatepass")
