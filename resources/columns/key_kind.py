"""Which columns can be cut into key ranges."""

from __future__ import annotations

from tableferry.resources.contract.source import Source
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.keys.cover import DEFAULT_DIGITS
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.types.kinds import Date, Decimal, Integer, Text, Timestamp, Uuid
from tableferry.resources.types.type_map import Column, ColumnType

MOST_DIGITS = 38
"""The maximum digits of a decimal key, which every system can store."""

DECIMAL_DIGITS = (18, MOST_DIGITS)
"""The digits to which those of a decimal are rounded up, so that a column that gets more digits
keeps the names of its ranges; `LARGEST` has neither."""


def key_kind(column: Column, system: System) -> tuple[KeyKind, int]:
    """Return the kind of key that a column is, and the digits to which its integers are padded.

    The `file_key` of a system is of the kind `file`.

    Raises:
        InputError: systems order its type differently, for example a float.
    """
    if isinstance(system.source, Source) and system.source.file_key == column.name:
        return "file", DEFAULT_DIGITS
    subject = f"{column.name!r} is of type {column.type}"
    match system.types.read(column.type):
        case ColumnType(kind=Integer(high=high)):
            return "integer", len(str(high))
        case ColumnType(kind=Decimal(int() as precision, 0)) if precision <= MOST_DIGITS:
            return "integer", next(digits for digits in DECIMAL_DIGITS if precision <= digits)
        case ColumnType(kind=Decimal() as kind):
            example = system.types.decimal(MOST_DIGITS, 0)
            raise _no_key(
                f"{subject}, {_why_no_integer(kind)}",
                f", or a decimal of scale 0 and up to {MOST_DIGITS} digits, such as {example}",
            )
        case ColumnType(kind=Date()):
            return "date", DEFAULT_DIGITS
        case ColumnType(kind=Timestamp()):
            return "timestamp", DEFAULT_DIGITS
        case ColumnType(kind=Uuid()):
            return "uuid", DEFAULT_DIGITS
        case ColumnType(name, Text()) if name in system.dialect.ordered_texts:
            return "text", DEFAULT_DIGITS
    raise _no_key(subject)


def is_text_key(column: Column, system: System) -> bool:
    """Whether a column is cut into ranges in the order of its UTF-8 bytes."""
    try:
        return key_kind(column, system)[0] == "text"
    except InputError:
        return False


def _no_key(subject: str, also: str = "") -> InputError:
    return InputError(
        f"the key {subject}; a key should be an integer, date, timestamp, uuid or text column{also}"
    )


def _why_no_integer(kind: Decimal) -> str:
    if kind.precision is None:
        return "which declares no digits, so that it may hold fractions"
    if kind.scale:
        return "which may hold fractions"
    return f"which may have more than {MOST_DIGITS} digits"
