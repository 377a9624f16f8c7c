"""Makes canonical forms of values readable."""

from __future__ import annotations

import datetime as dt
import struct

from tableferry.resources.contract.fields import Field
from tableferry.resources.digest.definition import NULL
from tableferry.resources.types.kinds import civil


def shown(field: Field, form: str | bytes | None) -> str | None:
    """Make a value that `DigestSql.shown` selected readable; None for NULL."""
    if form is None:
        return None
    if isinstance(form, bytes):
        return form.hex() if field.kind == "bytes" else form.decode(errors="backslashreplace")
    if field.kind in ("integer", "decimal", "uuid", "text"):
        return str(form)
    if field.kind == "array":
        return _array(field, form)
    if field.kind == "boolean":
        return {"0": "false", "1": "true"}.get(form, form)
    try:
        number = int(form)
    except ValueError:
        return form  # without canonical form, e.g. an infinite date
    if field.kind == "float":
        return repr(float(struct.unpack(">d", struct.pack(">q", number))[0]))
    if field.kind == "date":
        return _date(number)
    return _moment(field, number)


def _date(days: int) -> str:
    """Write a day counted from 1970-01-01, also in years that Python's dates do not have."""
    year, month_and_day = civil(days)
    return f"{year:0{5 if year < 0 else 4}d}-{month_and_day}"


def _moment(field: Field, number: int) -> str:
    units = 10_000_000 if field.scale > 6 else 1_000_000
    whole, rest = divmod(number, units)
    width = min(field.scale, 7 if units == 10_000_000 else 6)
    fraction = f"{rest:0{len(str(units)) - 1}d}"
    # show digits beyond the declared ones: they would be a difference
    fraction = fraction[:width] + fraction[width:].rstrip("0")
    days, seconds = (0, whole) if field.kind == "time" else divmod(whole, 86_400)
    moment = str(dt.timedelta(seconds=seconds)).rjust(8, "0")
    if field.kind != "time":
        moment = f"{_date(days)} {moment}"
    return f"{moment}.{fraction}" if fraction else moment


def _array(field: Field, form: str) -> str:
    assert field.item is not None
    rest = form.encode().partition(b":")[2]
    parts: list[str] = []
    while rest:
        if field.item.kind == "text" and rest[:1] != NULL.encode():
            length, _, rest = rest.partition(b":")
            item, rest = rest[: int(length)], rest[int(length) + 1 :]
            parts.append(item.decode(errors="backslashreplace"))
            continue
        word, _, rest = rest.partition(b",")
        text = word.decode()
        if text == NULL:
            parts.append("NULL")
        elif field.item.kind == "bytes":
            size, _, number = text.partition(":")
            parts.append(f"{size} bytes ({int(number) % 2**64:016x})")
        else:
            parts.append(shown(field.item, text) or "")
    return "[" + ", ".join(parts) + "]"
