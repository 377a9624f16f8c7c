"""The row digest between two PostgreSQL servers: their own hash of a record, for what both declare
alike, which costs less than half of writing the row as text and hashing that.

It is the 64-bit hash of hash partitioning, so that no version may change what it gives; a server
without it (before 14), of another byte order, or whose texts are not UTF-8 is found out by trying.
"""

from __future__ import annotations

from tableferry.resources.contract.fields import Field
from tableferry.resources.digest.fields import declared
from tableferry.resources.postgres.types import TYPES

EXPECTED = -403595406026974282
"""What the row of all `digest.probe.VALUES` gives."""

_EXACT = {"smallint", "integer", "oid", "boolean", "date", "uuid", "bytea"}
"""Types whose hash takes in all of their bytes."""

_SENT = {
    "bigint": "int8send",
    "timestamp without time zone": "timestamp_send",
    "timestamp with time zone": "timestamptz_send",
    "time without time zone": "time_send",
}
"""Of the others the binary form is hashed: -1 and 4294967295 have one hash as bigint."""

_FLOATS = {"real": "float4send", "double precision": "float8send"}


def native(field: Field, x: str) -> str | None:
    """The value as it is hashed; None where its canonical form is."""
    own, rendered = declared(TYPES, field.source.type), field.rendered or field.target_rendered
    if rendered or field.source.type != field.target.type:
        return None
    name = own.name
    if name in _EXACT:
        return x
    if name in ("text", "character varying"):
        # in another collation different texts may be equal, and have one hash
        return f'({x} COLLATE "C")'
    if name == "numeric" and own.precision is not None:
        # 1.5 and 1.50 have one hash
        return f"numeric_send({x})"
    if name in _FLOATS:
        # so have 0 and -0; and NaNs differ in bits that no text shows
        return f"CASE WHEN {x} = 'NaN' THEN ''::bytea ELSE {_FLOATS[name]}({x}) END"
    return f"{_SENT[name]}({x})" if name in _SENT else None


def digest(record: str) -> str:
    """The digest of a record, a bigint.

    A record's hash adds up those of its values, each times a constant (rowtypes.c), so that the sum
    over two rows stays as it is when they exchange values; hence the hash of its bytes.
    """
    return f"hash_record_extended(ROW(int8send(hash_record_extended({record}, 0))), 0)"
