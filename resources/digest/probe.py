"""Which hash and encoding a server has, found by the digest of constants whose result is known.

So what a report calls equal was computed by expressions that were seen to work on both servers.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple, cast

from resources.connection import ServerResource
from resources.dialects import quote
from resources.digest.definition import ALGORITHMS, NAN_BITS, NULL, SAMPLE, Algorithm
from resources.digest.expressions import WRITERS, Dialect, RowDigest
from resources.digest.fields import Field, Kind
from resources.endpoint import Endpoint
from resources.errors import TableferryError
from resources.probe import Constant, probed, remembered
from resources.tables import Column, System

SHOWN = 3
"""Of the wrong results that a message names."""


class DigestRefused(TableferryError):
    """A server does not compute the row digest as it is defined."""


class Value(NamedTuple):
    """A value, and its canonical form in a row."""

    kind: Kind
    scale: int
    form: str
    sql: dict[System, tuple[str, str]]
    """Declared type and literal, of the systems that have such a value."""


def _hashed(algorithm: Algorithm, data: bytes) -> int:
    digest = hashlib.new(algorithm, data, usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


_UUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
_WIDE = "-9876543210987654321098765432.109876543"
_TABLE = f"""
integer, 0 -> -9223372036854775807
  postgres bigint: (-9223372036854775807)
  sqlserver bigint: CAST(-9223372036854775807 AS bigint)
  clickhouse Int64: toInt64(-9223372036854775807)
boolean, 0 -> 1
  postgres boolean: true
  sqlserver bit: CAST(1 AS bit)
  clickhouse Bool: true
decimal, 10 -> {_WIDE}0
  postgres numeric(38,10): ({_WIDE})::numeric(38,10)
  sqlserver decimal(38,10): CAST({_WIDE} AS decimal(38,10))
  clickhouse Decimal(38, 10): toDecimal128('{_WIDE}', 10)
decimal, 4 -> -0.5000
  postgres numeric(12,4): (-0.5)::numeric(12,4)
  sqlserver decimal(12,4): CAST(-0.5 AS decimal(12,4))
  clickhouse Decimal(12, 4): toDecimal64('-0.5', 4)
float, 0 -> 4591870180066957722
  postgres double precision: 0.1::float8
  sqlserver float(53): CAST(0.1E0 AS float(53))
  clickhouse Float64: toFloat64('0.1')
float, 0 -> {-(2**63)}
  postgres double precision: '-0.0'::float8
  clickhouse Float64: toFloat64('-0.0')
float, 0 -> {NAN_BITS}
  postgres real: 'NaN'::real
  clickhouse Float32: toFloat32('nan')
date, 0 -> -25567
  postgres date: date '1900-01-01'
  sqlserver date: CAST('19000101' AS date)
  clickhouse Date32: toDate32('1900-01-01')
time, 6 -> 86399999999
  postgres time without time zone: time '23:59:59.999999'
  sqlserver time(6): CAST('23:59:59.999999' AS time(6))
  clickhouse String: '23:59:59.999999'
timestamp, 6 -> -2208988799999999
  postgres timestamp without time zone: timestamp '1900-01-01 00:00:00.000001'
  sqlserver datetime2(6): CAST('1900-01-01T00:00:00.000001' AS datetime2(6))
  clickhouse DateTime64(6, 'UTC'): toDateTime64('1900-01-01 00:00:00.000001', 6, 'UTC')
timestamp, 6 -> -3599999999
  postgres timestamp with time zone: timestamptz '1970-01-01 01:00:00.000001+02'
  sqlserver datetimeoffset(6): CAST('1970-01-01T01:00:00.000001+02:00' AS datetimeoffset(6))
  clickhouse DateTime64(6, 'UTC'): toDateTime64('1969-12-31 23:00:00.000001', 6, 'UTC')
uuid, 0 -> {_UUID}
  postgres uuid: uuid '{_UUID}'
  sqlserver uniqueidentifier: CAST('{_UUID}' AS uniqueidentifier)
  clickhouse UUID: toUUID('{_UUID}')
text, 0 -> 4:~,:\N{SPACE}
  postgres character(4): '~,: '::character(4)
  sqlserver nvarchar(20): CAST(N'~,: ' AS nvarchar(20))
  clickhouse String: '~,: '
text, 0 -> {len(SAMPLE.encode())}:{SAMPLE}
  postgres text: '{SAMPLE}'::text
  sqlserver nvarchar(20): CAST(N'{SAMPLE}' AS nvarchar(20))
  clickhouse String: '{SAMPLE}'
text, 0 -> {NULL}
  postgres text: NULL::text
  sqlserver nvarchar(20): CAST(NULL AS nvarchar(20))
bytes, 0 -> 3:#
  postgres bytea: decode('00ff10', 'hex')
  sqlserver varbinary(20): CAST(0x00FF10 AS varbinary(20))
  clickhouse String: unhex('00ff10')
"""


def _values() -> tuple[Value, ...]:
    found: list[Value] = []
    for line in _TABLE.strip("\n").split("\n"):
        if not line.startswith("  "):
            head, _, form = line.partition(" -> ")
            kind, _, scale = head.partition(", ")
            found.append(Value(cast(Kind, kind), int(scale), form, {}))
            continue
        system, _, rest = line.strip().partition(" ")
        type_, _, literal = rest.partition(": ")
        found[-1].sql[cast(System, system)] = type_, literal
    return tuple(found)


VALUES = _values()
"""Every kind with values that systems are known to treat differently."""


def dialect(endpoint: Endpoint, algorithm: Algorithm | None = None) -> Dialect:
    """How a server computes digests, with the preferred hash unless one is named.

    The server is asked once per process.

    Raises:
        DigestRefused: it has none of the hashes, or computes other digests than it should.
    """
    server, refused = cast(ServerResource, endpoint), list[str]()
    candidates = [
        Dialect(endpoint.system, one, encoding)
        for one in ((algorithm,) if algorithm else ALGORITHMS)
        for encoding in WRITERS[endpoint.system].ENCODINGS
    ]
    for found in candidates:
        if not probed(server, "digest", constants(found)[-1:]):
            return found
    for found in candidates:
        wrong = probed(server, "digest", constants(found))
        named = ", ".join(map(str, wrong[:SHOWN]))
        refused.append(f"{found.algorithm}, {found.encoding}: {named}")
    raise DigestRefused(
        f"{endpoint.settings()} does not compute the row digest as it is defined, so that no "
        f"checksum would mean anything ({'; '.join(refused)})"
    )


def shared(source: Endpoint, target: Endpoint) -> tuple[Dialect, Dialect]:
    """How two servers compute the same digests.

    Raises:
        DigestRefused: there is no hash that both have.
    """
    refused: list[str] = []
    for one in ALGORITHMS:
        try:
            return dialect(source, one), dialect(target, one)
        except DigestRefused as error:
            refused.append(str(error))
    raise DigestRefused("; ".join(refused))


def require_client(endpoint: Endpoint, found: Dialect) -> None:
    """See that the client makes of rows that the server sends the digests that it should.

    Raises:
        DigestRefused: it does not.
    """
    server = cast(ServerResource, endpoint)
    rows, total = remembered(
        server, ("client", found), lambda: summed_constants(endpoint, found, "client")
    )
    expected = int(str(constants(found)[-1].expected))
    if total != rows * expected:
        raise DigestRefused(
            f"the client gets {total}, not {rows * expected}, for constants that "
            f"{server.settings()} sends; let the server compute the digests (digest_by=server)"
        )


def summed_constants(
    endpoint: Endpoint, found: Dialect, who: Literal["server", "client"], tens: int = 0
) -> tuple[int, int]:
    """The number of some rows, all of them `VALUES`, and the sum of their digests.

    Args:
        endpoint: where the rows come from.
        found: how it computes digests.
        who: computes the digests.
        tens: of the power of ten that the number of rows, 2, is multiplied by.
    """
    row = constants(found)[-1]
    names = ", ".join(quote(found.system, name) for name, _ in row.values)
    values = ", ".join(sql for _, sql in row.values)
    # two, as PostgreSQL treats a single row as constants
    tables = [f"(VALUES ({values}), ({values})) AS probe({names})"]
    digits = ", ".join(f"({digit})" for digit in range(10))
    tables += [f"(VALUES {digits}) AS d{place}(n)" for place in range(tens)]
    source = " CROSS JOIN ".join(tables)
    if who == "server":
        total = WRITERS[found.system].total(row.expression)
        return 2 * 10**tens, int(endpoint.query(f"SELECT {total} FROM {source}")[0][0])
    # polars takes half a second to import
    from resources.digest.client import summed

    digest = RowDigest(found, tuple(field for field, _ in _framed(found)), "target")
    query = f"SELECT 0 AS ferry__g, {digest.selected} FROM {source}"
    with endpoint.read_arrow(query) as reader:
        return summed(digest, reader)[0]


def constants(found: Dialect) -> list[Constant]:
    """What a server must make of each of `VALUES`, and at last of a row of all of them."""
    asked: list[Constant] = []
    framed = _framed(found)
    literals = tuple((field.name, value.sql[found.system][1]) for field, value in framed)
    forms: list[str] = []
    for (field, value), literal in zip(framed, literals, strict=True):
        hashed = _hashed(found.algorithm, b"\x00\xff\x10")
        forms.append(value.form.replace("#", str(hashed)))
        form = found.framed(field, "target", quote(found.system, field.name))
        expected = None if value.form == NULL else forms[-1]
        asked.append(Constant(f"{field.target.type} {value.form}", form, expected, (literal,)))
    row = str(_hashed(found.algorithm, ",".join(forms).encode()))
    digest = found.digest([field for field, _ in framed], "target")
    return [*asked, Constant("the digest of a row", digest, row, literals)]


def _framed(found: Dialect) -> list[tuple[Field, Value]]:
    """The columns of a row of all values that a server has."""
    columns: list[tuple[Field, Value]] = []
    for number, value in enumerate(VALUES):
        # a database in another encoding may have no such characters
        known = found.encoding != "converted" or value.form.isascii()
        if found.system in value.sql and known:
            column = Column(f"c{number}", value.sql[found.system][0])
            field = Field(column.name, value.kind, column, column, scale=value.scale)
            columns.append((field, value))
    return columns
