"""Asset keys of tables: Dagster allows only ASCII letters, digits and `_`, servers any name.

Such plain names stay as they are. Other characters are escaped as .NET's `XmlConvert.EncodeName`
and SQL Server's `FOR XML` do it, a blank as `_x0020_`: their UTF-16 code units in hexadecimal, with
neighbours in one pair of underscores. An underscore that would seem to begin an escape is escaped
too. So no two names share an asset key, and a key identifies its table.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

from tableferry.resources.connecting.names import system_of
from tableferry.resources.contract.target_names import SUFFIX
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef

if TYPE_CHECKING:
    import dagster as dg

LONGEST = 240
"""Most characters of a part of a key: Dagster's storage allows 512 for all of it."""

_PLAIN = re.compile(r"[A-Za-z0-9_]+")
_ESCAPE = re.compile(r"_x([0-9A-F]{4,})_")
_TO_ESCAPE = re.compile(
    # an underscore that would begin an escape with what follows it; characters that are not plain
    r"_(?=x[0-9A-F]{4,}(?:_|[^A-Za-z0-9_]))|[^A-Za-z0-9_]+"
)
_DIGEST_BYTES = 15
"""Not a multiple of two, so that its digits cannot be an escape of UTF-16 code units."""


def asset_key(table: TableRef) -> dg.AssetKey:
    """The asset of a table: connection, schema, table, e.g. `sqlserver/dbo/Order_x0020_Details`.

    `TableRef.asset` replaces it where a project uses another name.
    """
    import dagster as dg

    return dg.AssetKey(_path(table))


def rejected_key(target: TableRef) -> dg.AssetKey:
    """The asset of the table that keeps the rows which a target cannot hold."""
    import dagster as dg

    *parents, name = _path(target)
    return dg.AssetKey([*parents, f"{name}{SUFFIX}"])


def group_of(table: TableRef) -> str:
    """The group of a table's asset: its schema, as in the asset's key."""
    return key_part(table.schema) or table.connection


def stored_key(table: TableRef) -> str:
    """The asset key as Dagster's storage writes it, made without importing Dagster."""
    return json.dumps(_path(table))


def _path(table: TableRef) -> list[str]:
    if table.asset:
        return [*table.asset]
    return [table.connection, key_part(table.schema), key_part(table.name)]


def table_of(asset: dg.AssetKey) -> TableRef | None:
    """The table of an asset; None if it is no table's, or the table's name was too long to keep."""
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
    """Encode the name of a schema or table as a part of an asset key.

    One that would be longer than `LONGEST` becomes its first plain characters and a digest.
    """
    part = _TO_ESCAPE.sub(lambda match: f"_x{_units(match[0]).hex().upper()}_", name)
    if len(part) <= LONGEST or part == name:
        return part
    digest = hashlib.blake2b(_units(name), digest_size=_DIGEST_BYTES).hexdigest().upper()
    return f"{''.join(_PLAIN.findall(name))[:100]}_x{digest}_"


def name_of(part: str) -> str | None:
    """Decode what `key_part` has encoded; None if only a digest of the name is left."""
    if any(len(digits) % 4 for digits in _ESCAPE.findall(part)):
        return None
    return _ESCAPE.sub(
        lambda match: bytes.fromhex(match[1]).decode("utf-16-be", "surrogatepass"), part
    )


def _units(text: str) -> bytes:
    # names on a server may contain halves of surrogate pairs
    return text.encode("utf-16-be", "surrogatepass")
