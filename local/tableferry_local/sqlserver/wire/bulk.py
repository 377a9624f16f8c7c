"""INSERT BULK: rows off the wire to PostgreSQL's binary COPY, by code made for each column list.

A generic decoder would spend its time on finding out, for every value, what it is. Here the
question is asked once per load: a source text is put together that reads exactly these columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.types.sqltype import CODE_PAGE, MAX, ResultColumn, SqlType, storage
from tableferry_local.sqlserver.wire import wiretypes as wire
from tableferry_local.sqlserver.wire.packets import ProtocolError
from tableferry_local.sqlserver.wire.values import numeric_binary, read_plp, read_raw
from tableferry_local.sqlserver.wire.wiretypes import WireType, read_type_info, time_length

COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER = b"\xff\xff"

_COLMETADATA, _ROW, _NBCROW, _DONE = 0x81, 0xD1, 0xD2, 0xFD
# Rows are decoded once so many bytes are there: enough to make the fixed costs small.
_BLOCK = 1 << 17
# Each text column remembers this many short values: real columns repeat themselves.
_REMEMBERED, _SHORT = 4096, 64
_DAY = 86_400_000_000

Decoder = Callable[[bytes, int, int], tuple[bytes, int, int, bool]]


@dataclass(frozen=True)
class Fixed:
    """How values of one length are read and written inside of a run of such columns."""

    read: str
    """struct codes of the value, without the length byte."""
    size: int
    fields: int
    expression: str
    """What is written, in terms of {0}, {1}, ... for the fields."""
    write: str
    """struct codes of what is written, without PostgreSQL's length."""
    length: int


def copy_stream(
    payload: Iterable[bytes],
    columns: Sequence[ResultColumn],
    numeric: Callable[[int, int], bytes] = numeric_binary,
) -> Iterator[bytes]:
    """A bulk load's payload as PostgreSQL's binary COPY.

    Args:
        payload: the message in pieces, from COLMETADATA to DONE.
        columns: the target's columns in the order of the INSERT BULK statement.
        numeric: writes decimals, of their units and scale.

    Raises:
        SqlError: a value does not fit its column.
        ProtocolError: the payload is not what its metadata says.
    """
    pieces = iter(payload)
    data, kinds, at = _metadata(pieces)
    if len(kinds) != len(columns):
        raise ProtocolError(f"a row should have {len(columns)} columns; it has {len(kinds)}")
    decode = decoder(kinds, columns, numeric)
    yield COPY_HEADER
    finished, wanted = False, _BLOCK
    while not finished:
        collected, size, last = [data[at:]], len(data) - at, False
        while size < wanted and not last:
            piece = next(pieces, None)
            last = piece is None
            collected.append(piece or b"")
            size += len(piece or b"")
        # A run of columns is read at its full length, also where NULLs make it shorter.
        data = b"".join([*collected, bytes(64 * len(kinds) + 64) if last else b""])
        copied, at, rows, finished = decode(data, 0, size)
        # A value that is larger than the block needs more of it, not another try at once.
        wanted = _BLOCK if rows else 2 * wanted
        if copied:
            yield copied
        if last and not finished:
            raise ProtocolError("the bulk load ends inside of a row")
    for _rest in pieces:
        pass
    yield COPY_TRAILER


def _metadata(pieces: Iterator[bytes]) -> tuple[bytes, list[WireType], int]:
    data = b""
    for piece in pieces:
        data += piece
        try:
            kinds, at = read_metadata(data)
        except (IndexError, struct.error):
            continue
        return data, kinds, at
    # A load without rows may come without columns as well.
    raise ProtocolError("the bulk load has no COLMETADATA")


def read_metadata(data: bytes) -> tuple[list[WireType], int]:
    """Read COLMETADATA; returns the columns' types and the offset behind it."""
    if data[0] != _COLMETADATA:
        raise ProtocolError(f"a bulk load should begin with COLMETADATA; it is 0x{data[0]:02X}")
    (count,) = struct.unpack_from("<H", data, 1)
    at, kinds = 3, []
    for _ in range(count):
        kind, at = read_type_info(data, at + 6)
        if kind.long:
            at = _skip_table_name(data, at)
        kinds.append(kind)
        at += 1 + 2 * data[at]
        if at > len(data):
            raise IndexError
    return kinds, at


def _skip_table_name(data: bytes, at: int) -> int:
    (length,) = struct.unpack_from("<H", data, at)
    return at + 2 + 2 * length


def decoder(
    kinds: Sequence[WireType],
    columns: Sequence[ResultColumn],
    numeric: Callable[[int, int], bytes],
) -> Decoder:
    """The decoder for rows of these columns.

    It takes a buffer, an offset, and the offset where the buffer's data ends and padding begins.
    It returns the rows as binary COPY, the offset of the first row that is not complete, the number
    of rows, and whether the end was reached: DONE, or with FreeTDS simply the end of the data.
    """
    names: dict[str, object] = {"pack_length": struct.Struct(">i").pack, "read_plp": read_plp}
    names |= {"read_raw": read_raw, "numeric": numeric, "struct_error": struct.error}
    names |= {"ProtocolError": ProtocolError}
    readers = [
        _column(index, kind, column, names, numeric)
        for index, (kind, column) in enumerate(zip(kinds, columns, strict=True))
    ]
    fixed = [_fixed(kind, column.type) for kind, column in zip(kinds, columns, strict=True)]
    header = struct.pack(">h", len(kinds))
    octets = (len(kinds) + 7) // 8
    lines = [
        "def decode(buf, p, limit):",
        "    parts = []; a = parts.append; end = len(buf); rows = mark = 0; start = p",
        "    try:",
        "        while True:",
        "            start = p; mark = len(parts); token = buf[p]; p += 1",
        f"            if token == {_ROW}: nulls = 0",
        f"            elif token == {_NBCROW}:",
        f"                nulls = int.from_bytes(buf[p:p + {octets}], 'little'); p += {octets}",
        f"            elif token == {_DONE} or start == limit:",
        "                return b''.join(parts), start, rows, True",
        "            else: raise ProtocolError(f'unexpected token 0x{token:02X} in a bulk load')",
        f"            a({header!r})",
        "            if not nulls:",
        *_indent(_row(kinds, readers, fixed, names), 16),
        "            else:",
    ]
    for index, reader in enumerate(readers):
        lines.append(f"                if nulls & {1 << index}: a({_NULL!r})")
        lines += ["                else:", *_indent(reader, 20)]
    lines += [
        "            if p > limit: raise IndexError",
        "            rows += 1",
        "    except (IndexError, struct_error):",
        "        del parts[mark:]",
        "    return b''.join(parts), start, rows, False",
    ]
    exec("\n".join(lines), names)
    return names["decode"]  # type: ignore[return-value]


_NULL = b"\xff\xff\xff\xff"


def _indent(lines: Iterable[str], by: int) -> list[str]:
    return [" " * by + line for line in lines]


def _row(
    kinds: Sequence[WireType],
    readers: Sequence[list[str]],
    fixed: Sequence[Fixed | None],
    names: dict[str, object],
) -> list[str]:
    """A whole row: columns of fixed length in runs, the others one by one."""
    lines: list[str] = []
    at = 0
    while at < len(kinds):
        run: list[Fixed] = []
        while at + len(run) < len(kinds) and (item := fixed[at + len(run)]):
            run.append(item)
        if not run:
            lines += readers[at]
            at += 1
            continue
        numbers = range(at, at + len(run))
        fields = [
            ([] if kinds[n].fixed else [f"n{n}"]) + [f"v{n}_{f}" for f in range(item.fields)]
            for n, item in zip(numbers, run, strict=True)
        ]
        codes = [
            ("" if kinds[n].fixed else "B") + i.read for n, i in zip(numbers, run, strict=True)
        ]
        reader = struct.Struct("<" + "".join(codes))
        names[f"read{at}"] = reader.unpack_from
        names[f"write{at}"] = struct.Struct(">" + "".join("i" + item.write for item in run)).pack
        lines.append(f"{', '.join(chain.from_iterable(fields))}, = read{at}(buf, p)")
        written = ", ".join(
            f"{item.length}, {_expression(item, n)}" for n, item in zip(numbers, run, strict=True)
        )
        present = " and ".join(
            f"n{n} == {item.size}"
            for n, item in zip(numbers, run, strict=True)
            if not kinds[n].fixed
        )
        lines.append(f"if {present or 'True'}: p += {reader.size}; a(write{at}({written}))")
        lines.append("else:")
        for n in numbers:
            lines += _indent(readers[n], 4)
        at += len(run)
    return lines


def _expression(item: Fixed, number: int) -> str:
    return item.expression.format(*(f"v{number}_{field}" for field in range(item.fields)))


def _column(
    index: int,
    kind: WireType,
    column: ResultColumn,
    names: dict[str, object],
    numeric: Callable[[int, int], bytes],
) -> list[str]:
    """The lines that read one column, NULL or not, at p and write it."""
    if item := _fixed(kind, column.type):
        names[f"get{index}"] = struct.Struct("<" + item.read).unpack_from
        names[f"put{index}"] = struct.Struct(">i" + item.write).pack
        fields = "".join(f"v{index}_{field}, " for field in range(item.fields))
        behind = 0 if kind.fixed else 1
        read = (
            f"{fields}= get{index}(buf, p + {behind}); p += {behind + item.size}; "
            f"a(put{index}({item.length}, {_expression(item, index)}))"
        )
        if kind.fixed:
            return [read]
        return [f"if not buf[p]: p += 1; a({_NULL!r})", f"else: {read}"]
    remembered: dict[bytes, bytes] = {}
    convert = _converter(index, kind, column, numeric)

    def piece(raw: bytes) -> bytes:
        value = convert(raw)
        result = struct.pack(">i", len(value)) + value
        if len(raw) <= _SHORT and len(remembered) < _REMEMBERED:
            remembered[raw] = result
        return result

    names[f"known{index}"], names[f"piece{index}"] = remembered.get, piece
    write = f"a(known{index}(raw) or piece{index}(raw))"
    two_bytes = not (kind.plp or kind.long or kind.fixed) and kind.code in (
        wire.NVARCHAR,
        wire.NCHAR,
        wire.BIGVARCHAR,
        wire.BIGCHAR,
        wire.BIGVARBINARY,
        wire.BIGBINARY,
    )
    if two_bytes:
        return [
            "size = buf[p] | buf[p + 1] << 8; p += 2",
            f"if size == 65535: a({_NULL!r})",
            "else:",
            "    stop = p + size",
            "    if stop > end: raise IndexError",
            f"    raw = buf[p:stop]; p = stop; {write}",
        ]
    names[f"kind{index}"] = kind
    return [
        f"raw, p = read_raw(kind{index}, buf, p)",
        f"if raw is None: a({_NULL!r})",
        f"else: {write}",
    ]


def _converter(
    index: int, kind: WireType, column: ResultColumn, numeric: Callable[[int, int], bytes]
) -> Callable[[bytes], bytes]:
    """From a value's bytes on the wire to PostgreSQL's binary format."""
    target, limit = column.type, column.type.length
    unit = 2 if target.is_unicode else 1

    def too_long() -> SqlError:
        return SqlError(
            4815,
            17,
            f"Received an invalid column length from the bcp client for colid {index + 1}.",
        )

    def text(raw: bytes) -> bytes:
        value = raw.decode(kind.encoding)
        if target.name == "xml":
            value = value.removeprefix("\ufeff")
        if not target.is_unicode:
            value = value.encode(CODE_PAGE, "replace").decode(CODE_PAGE)
        if limit is not None and limit != MAX:
            units = len(value.encode("utf-16-le")) // 2 if unit == 2 else len(value)
            if units > limit:
                raise too_long()
            if target.name in ("char", "nchar"):
                value += " " * (limit - units)
        if "\0" in value:
            raise SqlError(
                40510, 16, f"Column '{column.name}': U+0000 cannot be kept by this stand-in."
            )
        return value.encode()

    def octets(raw: bytes) -> bytes:
        if limit is not None and limit != MAX:
            if len(raw) > limit:
                raise too_long()
            if target.name == "binary":
                return raw.ljust(limit, b"\0")
        return raw

    def decimal(raw: bytes) -> bytes:
        units = int.from_bytes(raw[1:], "little")
        return numeric(units if raw[0] else -units, kind.scale)

    def money(raw: bytes) -> bytes:
        halves = raw[4:] + raw[:4] if len(raw) == 8 else raw
        return numeric_binary(int.from_bytes(halves, "little", signed=True), 4)

    if kind.sql_type.is_text and target.is_text:
        return text
    if kind.sql_type.is_binary and target.is_binary:
        return octets
    if kind.code in (wire.DECIMALN, wire.NUMERICN) and storage(target).startswith("numeric"):
        return decimal
    if kind.code == wire.MONEYN and target.name in ("money", "smallmoney"):
        return money
    raise SqlError(4816, 16, f"Invalid column type from bcp client for colid {index + 1}.")


def _fixed(kind: WireType, target: SqlType) -> Fixed | None:
    """How a column goes inside of a run; None if it has no fixed length or needs a conversion."""
    code, size = kind.code, kind.length
    kept = storage(target)
    if code in (wire.INTN, wire.BITN) and kept in ("smallint", "integer", "bigint"):
        if target.name == "bit" and code != wire.BITN:
            return None
        read = {1: "B", 2: "h", 4: "i", 8: "q"}[size]
        write, length = {"smallint": ("h", 2), "integer": ("i", 4), "bigint": ("q", 8)}[kept]
        fits = length >= size and not (target.name == "tinyint" and size > 1)
        return Fixed(read, size, 1, "{0}", write, length) if fits else None
    if code == wire.FLTN and kept in ("real", "double precision"):
        if kept == "real" and size == 8:
            return None
        write, length = ("f", 4) if kept == "real" else ("d", 8)
        return Fixed("f" if size == 4 else "d", size, 1, "{0}", write, length)
    if code == wire.GUID and kept == "uuid":
        # The first three groups are little-endian numbers on the wire.
        return Fixed("IHHQ", 16, 4, "{0}, {1}, {2}, {3}.to_bytes(8, 'little')", "IHH8s", 16)
    return _fixed_temporal(kind, target.name, kept)


def _fixed_temporal(kind: WireType, name: str, kept: str) -> Fixed | None:
    code = kind.code
    stamp = kept.startswith("timestamp")
    if code == wire.DATETIMN and stamp and name != "smalldatetime" and kind.length == 8:
        # The microsecond nearest to the 300ths of a second.
        expression = f"({{0}} - 36524) * {_DAY} + ({{1}} * 20000 + 3) // 6"
        return Fixed("iI", 8, 2, expression, "q", 8)
    if code == wire.DATETIMN and stamp and kind.length == 4:
        return Fixed("HH", 4, 2, f"({{0}} - 36524) * {_DAY} + {{1}} * 60000000", "q", 8)
    if code == wire.DATEN and kept == "date":
        return Fixed("HB", 3, 2, "({0} | {1} << 16) - 730119", "i", 4)
    if code not in (wire.TIMEN, wire.DATETIME2N, wire.DATETIMEOFFSETN):
        return None
    clock_size = time_length(kind.scale)
    codes, clock = {
        3: ("HB", "({0} | {1} << 16)"),
        4: ("I", "{0}"),
        5: ("IB", "({0} | {1} << 32)"),
    }[clock_size]
    count = len(codes)
    ticks = f"{clock} * {10 ** (7 - kind.scale)}"
    micros = f"({clock} + 5) // 10" if kind.scale == 7 else f"{clock} * {10 ** (6 - kind.scale)}"
    day = f"({{{count}}} | {{{count + 1}}} << 16)"
    if code == wire.TIMEN and name == "time":
        return Fixed(codes, clock_size, count, ticks if kept == "bigint" else micros, "q", 8)
    if code == wire.DATETIME2N and name == "datetime2":
        since = f"{day} * {_DAY * 10} + {ticks}"
        if stamp:
            since = f"({day} - 730119) * {_DAY} + {micros}"
        return Fixed(codes + "HB", clock_size + 3, count + 2, since, "q", 8)
    if code == wire.DATETIMEOFFSETN and name == "datetimeoffset":
        fields = f"2, 20, 8, {day} * {_DAY * 10} + {ticks}, 21, 2, {{{count + 2}}}"
        return Fixed(codes + "HBh", clock_size + 5, count + 3, fields, "iIiqIih", 30)
    return None
