"""Writes the canonical form of rows in Arrow batches, and hashes it, by polars."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import polars as pl
import polars_hash as plh
import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.contract.digest_writer import Algorithm
from tableferry.resources.contract.fields import Field
from tableferry.resources.digest.definition import NAN_BITS, NULL, SEPARATOR
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.types.steps import plain, relisted

UUID_PARTS = ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))
"""The offset and length of each part of a uuid, in its 32 hexadecimal digits."""


def digests(
    fields: Sequence[Field],
    arrays: Sequence[pa.Array | pa.ChunkedArray],
    algorithm: Algorithm,
    written: Collection[int] = (),
) -> pl.Series:
    """Compute the digest of each row, as 64-bit integers.

    Args:
        fields: the columns of a row.
        arrays: each column's values in the Arrow type for its kind (uuids as 16 bytes, timestamps
            with a zone as UTC). Times and timestamps may be ISO texts, decimals and uuids texts.
        algorithm: the hash.
        written: positions of columns that hold canonical forms instead of values.
    """
    forms = [
        pl.Series(array.cast(pa.large_string()))
        if position in written
        else framed(field, array, algorithm)
        for position, (field, array) in enumerate(zip(fields, arrays, strict=True))
    ]
    frame = pl.DataFrame([form.alias(str(number)) for number, form in enumerate(forms)])
    row = pl.concat_str(pl.all().fill_null(NULL), separator=SEPARATOR)
    return _first_8_bytes(frame.select(row.alias("row"))["row"], algorithm)


def summed(digest: RowDigest, batches: Iterable[pa.RecordBatch]) -> dict[int, tuple[int, int]]:
    """Count the rows of each group, and sum up their digests exactly.

    Args:
        digest: the digest of a row.
        batches: rows of the group's number and the columns, as `digest.sent` has them.
    """
    written = {at for at, (_, exact) in enumerate(digest.sent) if not exact}
    sums: dict[int, tuple[int, int]] = {}
    for batch in batches:
        values = digests(digest.fields, batch.columns[1:], digest.dialect.algorithm, written)
        for group, (rows, total) in totals(pl.Series(batch.column(0)), values).items():
            before = sums.get(group, (0, 0))
            sums[group] = before[0] + rows, before[1] + total
    return sums


def totals(groups: pl.Series, values: pl.Series) -> dict[int, tuple[int, int]]:
    """Count the rows of each group, and sum up their digests exactly."""
    frame = pl.DataFrame({"group": groups, "value": values})
    sums = frame.group_by("group").agg(pl.len(), pl.col("value").cast(pl.Int128).sum())
    return {group: (rows, total) for group, rows, total in sums.iter_rows()}


def total(values: pl.Series) -> int:
    """Sum up digests exactly."""
    return int(values.to_frame("value").select(pl.col("value").cast(pl.Int128).sum()).item())


def framed(field: Field, array: pa.Array | pa.ChunkedArray, algorithm: Algorithm) -> pl.Series:
    """Write a column's values in canonical form, as they stand in a row."""
    array = plain(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)
    if field.kind == "array":
        return _lists(field, array, algorithm)
    if field.kind == "bytes":
        values = pl.Series(array.cast(pa.large_binary()))
        return _sized(values.bin.size(), _first_8_bytes(values, algorithm).cast(pl.String))
    if pa.types.is_decimal256(array.type):
        return _written(field, _wide(array))
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    if field.kind == "text":
        values = pl.Series(array.cast(pa.large_string()))
        values = values.str.strip_chars_end(" ") if field.padded else values
        return _sized(values.str.len_bytes(), values)
    if text and field.kind in ("time", "timestamp"):
        return _parsed(field, pl.Series("x", array).str.replace(r"\+00(:00)?$", ""))
    return _written(field, pl.Series("x", array)) if text else _plain(field, array)


def _wide(array: pa.Array) -> pl.Series:
    """Write decimals of more than 38 digits, which polars cannot hold, as texts."""
    # Arrow writes no exponents for integers
    units = pa.Array.from_buffers(
        pa.decimal256(76), len(array), array.buffers(), offset=array.offset
    ).cast(pa.large_string())
    texts, scale = pl.Series("x", units), array.type.scale
    if not scale:
        return texts
    x = pl.col("x")
    digits = x.str.strip_prefix("-").str.pad_start(scale + 1, "0")
    sign = pl.when(x.str.starts_with("-")).then(pl.lit("-")).otherwise(pl.lit(""))
    parts = [sign, digits.str.head(-scale), pl.lit("."), digits.str.tail(scale)]
    return texts.to_frame().select(pl.concat_str(parts).alias("x")).to_series()


def _written(field: Field, texts: pl.Series) -> pl.Series:
    """Write the canonical form of values that the source's server has written as texts."""
    x = pl.col("x")
    match field.kind:
        case "uuid":
            form = x.str.to_lowercase()
        case "boolean":
            form = x.replace({"t": "1", "f": "0"})
        case "date":
            form = x.str.to_date("%Y-%m-%d").cast(pl.Int32).cast(pl.String)
        case "decimal":
            split = x.str.splitn(".", 2)
            digits = split.struct.field("field_1").fill_null("").str.strip_chars_end("0")
            fraction = digits.str.pad_end(field.scale, "0")
            point = pl.when(fraction == "").then(pl.lit("")).otherwise(pl.lit("."))
            form = pl.concat_str([split.struct.field("field_0"), point, fraction])
        case "float":
            numbers = texts.cast(pl.Float32 if field.single else pl.Float64)
            return _plain(field, numbers.to_arrow())
        case _:
            form = x
    return texts.to_frame().select(form).to_series()


def _parsed(field: Field, texts: pl.Series) -> pl.Series:
    """Write the canonical form of times and timestamps from ISO texts without offset."""
    units, digits = (10_000_000, 7) if field.scale > 6 else (1_000_000, 6)
    x = pl.col("x")
    seconds = sum(
        x.str.slice(at, 2).cast(pl.Int64) * unit for at, unit in ((-8, 3600), (-5, 60), (-2, 1))
    )
    if field.kind == "timestamp":
        days = x.str.slice(0, 10).str.to_date("%Y-%m-%d").cast(pl.Int64)
        seconds = days * 86_400 + seconds
    split = x.str.splitn(".", 2)
    whole = split.struct.field("field_0")
    fraction = split.struct.field("field_1").fill_null("").str.pad_end(digits, "0").cast(pl.Int64)
    frame = pl.DataFrame([texts]).select(whole.alias("x"), fraction.alias("fraction"))
    return frame.select((seconds * units + pl.col("fraction")).cast(pl.String)).to_series()


def _plain(field: Field, array: pa.Array) -> pl.Series:
    match field.kind:
        case "float":
            floats = array.cast(pa.float64())
            bits = pc.if_else(pc.is_nan(floats), NAN_BITS, floats.view(pa.int64()))
            number = pl.Series(bits)
        case "decimal":
            number = pl.Series(array).cast(pl.Decimal(38, field.scale))
        case "date":
            number = pl.Series(array.cast(pa.date32()).cast(pa.int32()))
        case "time":
            number = _ticks(field, pl.Series(array.cast(pa.time64("us")).cast(pa.int64())))
        case "timestamp":
            unzoned = array.cast(pa.timestamp("us", array.type.tz))
            number = _ticks(field, pl.Series(unzoned.cast(pa.int64())))
        case "uuid":
            return _uuids(array)
        case "boolean":
            number = pl.Series(array.cast(pa.int8()))
        case _:
            number = pl.Series(array)
    return number.cast(pl.String)


def _uuids(array: pa.Array) -> pl.Series:
    """Write uuids of 16 bytes as 36 characters."""
    digits = pl.Series("x", array.cast(pa.large_binary())).bin.encode("hex")
    parts = [pl.col("x").str.slice(offset, length) for offset, length in UUID_PARTS]
    return digits.to_frame().select(pl.concat_str(parts, separator="-")).to_series()


def _ticks(field: Field, micros: pl.Series) -> pl.Series:
    if field.scale <= 6:
        return micros
    # only expressions calculate with 128 bits
    return micros.alias("x").to_frame().select(pl.col("x").cast(pl.Int128) * 10)["x"]


def _lists(field: Field, array: pa.Array, algorithm: Algorithm) -> pl.Series:
    assert field.item is not None
    items = framed(field.item, array.flatten(), algorithm).fill_null(NULL)
    texts = pl.Series(relisted(array, items.to_arrow())).list.join(SEPARATOR)
    return _sized(pl.Series(array.value_lengths()), texts)


def _sized(sizes: pl.Series, values: pl.Series) -> pl.Series:
    """Join sizes and values as `size:value`; NULL where the size is NULL."""
    frame = pl.DataFrame([sizes.alias("size"), values.alias("value")])
    return frame.select(pl.concat_str("size", "value", separator=":")).to_series()


def _first_8_bytes(values: pl.Series, algorithm: Algorithm) -> pl.Series:
    column = plh.col("x")
    hashed = column.nchash.md5() if algorithm == "md5" else column.chash.sha2_256()
    digits = pl.DataFrame([values.alias("x")]).select(hashed)["x"]
    # parsing two numbers of 32 bits costs a quarter of decoding the digits as bytes
    high, low = (
        digits.str.slice(at, 8).str.to_integer(base=16, dtype=pl.Int64).cast(pl.UInt64)
        for at in (0, 8)
    )
    return (high * (1 << 32) + low).reinterpret(signed=True)
