"""Plain SQL of a system: what certifying makes, changes and reads by statements of its own."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pkgutil import resolve_name
from typing import Any, cast

from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.types.kinds import Array, Binary, Float, Kind, Text
from tableferry.resources.types.samples import meaning

COLUMNS = ("id", "version", "note", "amount", "at", "flag")
"""The columns of the table of many rows: a key, an integer, a nullable text, a decimal, a timestamp
and a boolean."""


@dataclass(frozen=True)
class Plain:
    """The SQL of one system."""

    types: Mapping[str, Sequence[str]]
    """Constants of each type that its tables may have, besides those of `types.samples`."""
    create_rows: str
    """Creates the table of many rows; `{table}` is its name, here and below."""
    fill_rows: Callable[[str, int], Sequence[str]]
    """The statements that fill it, given its name and the number of rows; version is 1 in all."""
    insert_row: str
    """Inserts the row `{id}`."""
    create_types: str
    """Creates the table of all types; `{columns}` are the definitions but for the key."""
    text: Callable[[str, str, Kind | None], str]
    """Writes the SQL by which a column is read, given its quoted name, its declared type, and the
    kind of the values that were put into the source."""
    tables: str
    """Lists the tables of the schema `{schema}`, a constant."""
    misfits: Sequence[tuple[str, str]]
    """Types with constants that most other systems do not hold."""
    settings: Mapping[str, str]
    """Queries of what a certificate says about a server, by name; each has one row and column."""
    unneeded: Mapping[str, str]
    """Queries that tell, by 1 or 0, whether a login has a right that no move needs."""
    null: str = " NULL"
    """What stands behind the type of a column that may be NULL."""
    mark: str = ""
    """What `text` puts before texts, because the driver changes the beginning of some."""
    create_schema: str = "CREATE SCHEMA {schema}"
    drop_schema: str = "DROP SCHEMA {schema}"
    update: str = "UPDATE {table} SET {assignment} WHERE {condition}"
    delete: str = "DELETE FROM {table} WHERE {condition}"


def plain_of(system: System) -> Plain:
    """Return the SQL of a system.

    Raises:
        InputError: it cannot be certified.
    """
    try:
        return cast(Plain, resolve_name(f"{__package__}.{system.name}:PLAIN"))
    except (ImportError, AttributeError):
        raise InputError(f"{system} cannot be certified, as it is no server") from None


def as_text(value: object) -> str | None:
    """Write what a driver returns as text."""
    match value:
        case None:
            return None
        case bool():
            return str(int(value))
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case Decimal():
            return f"{value:f}"
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat(" ")
        case list() | tuple():
            return json.dumps([as_text(item) for item in value])
    return str(value)


def normal(kind: Kind | None, text: str | None) -> object:
    """Make the texts of equal values equal, however the systems write them.

    Args:
        kind: what the values are; None for those that only a text represents.
        text: what was read.
    """
    if text is None or kind is None or isinstance(kind, Text):
        return text
    try:
        match kind:
            case Binary():
                return text.lower()
            case Array(item):
                return [normal(item, _item(each)) for each in json.loads(text)]
            case Float(bits) if text.lower() in ("nan", "inf", "-inf", "infinity", "-infinity"):
                return struct.pack("<d" if bits == 64 else "<f", float(text))
        return meaning(kind, text)
    except ValueError:
        return text


def _item(value: Any) -> str | None:
    """Write an item of a JSON array as text."""
    return as_text(value) if not isinstance(value, float) else repr(value)
