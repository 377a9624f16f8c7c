"""Makes canonical forms of values readable."""

from __future__ import annotations

import datetime as dt
import struct

import numpy as np

from tableferry.resources.digest.definition import NULL
from tableferry.resources.digest.fields import Field


def shown(field: Field, form: str | bytes | None) -> str | None:
    """Make a value that `DigestSql.shown` selected readable; None for NULL."""
    if form is None or field.kind in ("integer", "decimal", "uuid"):
        return None if form is None else str(form)
    if isinstance(form, bytes):
        return form.hex() if field.kind == "bytes" else form.decode(errors="backslashreplace")
    if field.kind == "text":
        return form
    if field.kind == "array":
        return _array(field, form)
    if field.kind == "boolean":
        return {"0": "false", "1": "true"}.get(form, form)
    try:
        number = int(form)
    except ValueError:
        return form  # what has no canonical form, e.g. an infinite date
    if field.kind == "float":
        return repr(float(struct.unpack(">d", struct.pack(">q", number))[0]))
    if field.kind == "date":
        return str(np.datetime64(number, "D"))
    return _moment(field, number)


def _moment(field: Field, number: int) -> str:
    units = 10_000_000 if field.scale > 6 else 1_000_000
    whole, rest = divmod(number, units)
    width = min(field.scale, 7 if units == 10_000_000 else 6)
    fraction = f"{rest:0{len(str(units)) - 1}d}"
    # digits beyond the declared ones would be a difference: do not hide them
    fraction = fraction[:width] + fraction[width:].rstrip("0")
    moment = str(np.datetime64(whole, "s")).replace("T", " ")
    if field.kind == "time":
        moment = str(dt.timedelta(seconds=whole)).rjust(8, "0")
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
