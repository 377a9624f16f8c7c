"""Which columns can be cut into key ranges."""

from __future__ import annotations

from tableferry.resources.contract.source import Source
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.keys.bounds import DEFAULT_DIGITS
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.types.column import Column
from tableferry.resources.types.kinds import Date, Decimal, Integer, Text, Timestamp, Uuid
from tableferry.resources.types.type_map import ColumnType

MOST_DIGITS = 38
"""Of a decimal that is a key: what every system has room for."""


DECIMAL_DIGITS = (18, MOST_DIGITS)
"""To which those of a decimal are rounded up: `LARGEST` has none of them, and a column that gets
more digits keeps the names of its ranges."""


def key_kind(column: Column, system: System) -> tuple[KeyKind, int]:
    """What kind of key a column is, and to how many digits its integers are padded.

    The key that a system brings along itself tells the file that a row is of.

    Raises:
        InputError: its type has no order that all systems agree on, for example a float.
    """
    if isinstance(system.source, Source) and system.source.own_key == column.name:
        return "file", DEFAULT_DIGITS
    own = system
    match own.types.read(column.type):
        case ColumnType(kind=Integer(high=high)):
            return "integer", len(str(high))
        case ColumnType(kind=Decimal(int() as precision, 0)) if precision <= MOST_DIGITS:
            return "integer", next(digits for digits in DECIMAL_DIGITS if precision <= digits)
        case ColumnType(kind=Decimal() as kind):
            whole = own.types.decimal(MOST_DIGITS, 0)
            raise _no_key(
                f"{column.name!r} is of type {column.type}, {_no_integer(kind)}",
                f", or a decimal of scale 0 and up to {MOST_DIGITS} digits, such as {whole}",
            )
        case ColumnType(kind=Date()):
            return "date", DEFAULT_DIGITS
        case ColumnType(kind=Timestamp()):
            return "timestamp", DEFAULT_DIGITS
        case ColumnType(kind=Uuid()):
            return "uuid", DEFAULT_DIGITS
        case ColumnType(name, Text()) if name in own.dialect.ordered_texts:
            return "text", DEFAULT_DIGITS
    raise _no_key(f"{column.name!r} is of type {column.type}")


def is_text_key(column: Column, system: System) -> bool:
    """Whether a column is cut into ranges by the order of its UTF-8 bytes."""
    try:
        return key_kind(column, system)[0] == "text"
    except InputError:
        return False


def _no_key(what: str, also: str = "") -> InputError:
    return InputError(
        f"the key {what}; a key should be an integer, date, timestamp, uuid or text column{also}"
    )


def _no_integer(kind: Decimal) -> str:
    if kind.precision is None:
        return "which declares no digits, so that it may hold fractions"
    if kind.scale:
        return "which may hold fractions"
    return f"which may have more than {MOST_DIGITS} digits"
