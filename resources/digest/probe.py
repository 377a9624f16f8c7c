"""Finds out by constants which hash a server has, and how to write digests for it.

So whatever a report calls equal was computed by expressions that have worked on both servers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from tableferry.resources.connecting.probe import Constant, probed
from tableferry.resources.contract.digest_writer import Algorithm
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Kind
from tableferry.resources.contract.system import System
from tableferry.resources.digest import definition
from tableferry.resources.digest.expressions import DigestSql, RowDigest
from tableferry.resources.errors import TableferryError
from tableferry.resources.extras import missing
from tableferry.resources.types.type_map import Column

SHOWN = 3
"""Maximum number of wrong results in a message."""


class DigestRefused(TableferryError):
    """A server does not compute the row digest as it is defined."""


class Value(NamedTuple):
    """A value's kind, and its canonical form in a row."""

    kind: Kind
    scale: int
    form: str


def _hashed(algorithm: Algorithm, data: bytes) -> int:
    digest = hashlib.new(algorithm, data, usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


VALUES = {
    "a large integer": Value("integer", 0, "-9223372036854775807"),
    "true": Value("boolean", 0, "1"),
    "a long decimal": Value("decimal", 10, f"{definition.LONG_DECIMAL}0"),
    "a short decimal": Value("decimal", 4, "-0.5000"),
    "a float": Value("float", 0, "4591870180066957722"),
    "negative zero": Value("float", 0, str(-(2**63))),
    "NaN": Value("float", 0, str(definition.NAN_BITS)),
    "a date": Value("date", 0, "-25567"),
    "a time": Value("time", 6, "86399999999"),
    "a timestamp": Value("timestamp", 6, "-2208988799999999"),
    "an instant": Value("timestamp", 6, "-3599999999"),
    "a uuid": Value("uuid", 0, definition.UUID),
    "a text with blanks": Value("text", 0, "4:~,: "),
    "a text": Value("text", 0, f"{len(definition.SAMPLE.encode())}:{definition.SAMPLE}"),
    "NULL": Value("text", 0, definition.NULL),
    "bytes": Value("bytes", 0, "3:#"),
}
"""Values of every kind, by name, with those that systems are known to treat differently."""


def dialect(endpoint: Endpoint, algorithm: Algorithm | None = None) -> DigestSql:
    """Find out how a server computes digests, by the preferred hash unless one is given.

    Raises:
        DigestRefused: it has none of the hashes, or computes wrong digests.
    """
    candidates = [
        DigestSql(endpoint.system, hash_, variant)
        for hash_ in ((algorithm,) if algorithm else definition.ALGORITHMS)
        for variant in endpoint.system.digest.VARIANTS
        # a record's hash reads texts as they are stored
        if (hash_, variant) != (definition.RECORD, definition.CONVERTED)
    ]
    for candidate in candidates:
        if not probed(endpoint, "digest", constants(candidate)[-1:]):
            return candidate
    refused = []
    for candidate in candidates:
        wrong = map(str, probed(endpoint, "digest", constants(candidate))[:SHOWN])
        refused.append(f"{candidate.algorithm}, {candidate.variant}: {', '.join(wrong)}")
    raise DigestRefused(
        f"{endpoint.settings()} does not compute the row digest as it is defined, so that no "
        f"checksum would mean anything ({'; '.join(refused)}); declare reconcile: count"
    )


def _algorithms(source: System, target: System) -> Sequence[Algorithm]:
    """List the hashes that servers of two systems may share, preferred first; see `shared`."""
    has_record = source == target and source.record_digest is not None
    return (definition.RECORD, *definition.ALGORITHMS) if has_record else definition.ALGORITHMS


def preferred(endpoint: Endpoint, target: System) -> DigestSql:
    """Find out how a server computes the digests that it most likely shares with a target system.

    Raises:
        DigestRefused: see `dialect`.
    """
    for algorithm in _algorithms(endpoint.system, target):
        with suppress(DigestRefused):
            return dialect(endpoint, algorithm)
    return dialect(endpoint)


def shared(source: Endpoint, target: Endpoint) -> tuple[DigestSql, DigestSql]:
    """Find out how two servers compute the same digests.

    Args:
        source: the source's server.
        target: the target's server.

    Raises:
        DigestRefused: they share no hash.
    """
    refused: list[str] = []
    for algorithm in _algorithms(source.system, target.system):
        try:
            return dialect(source, algorithm), dialect(target, algorithm)
        except DigestRefused as error:
            refused.append(str(error))
    raise DigestRefused("; ".join(refused))


def require_client(endpoint: Endpoint, dialect: DigestSql) -> None:
    """Make sure that the client gets the right digests from the rows that a server sends.

    Raises:
        DigestRefused: it gets wrong ones, or lacks a package for it.
    """
    if error := missing("digest", f"a client that digests the rows of {endpoint.settings()}"):
        raise DigestRefused(str(error))
    facts = endpoint.settings().facts
    rows, total = facts.known(("client", dialect), lambda: _sum_by_client(endpoint, dialect))
    expected = rows * int(str(constants(dialect)[-1].expected))
    if total != expected:
        raise DigestRefused(
            f"the client gets {total}, not {expected}, for constants that {endpoint.settings()} "
            "sends; let the server compute the digests (digest_by=server)"
        )


def _sum_by_client(endpoint: Endpoint, dialect: DigestSql) -> tuple[int, int]:
    """Have a server send rows of `VALUES`; count them and sum up their digests."""
    # polars takes half a second to import
    from tableferry.resources.digest.client import summed

    fields, _, literals = zip(*_columns(dialect), strict=True)
    names = [dialect.system.quote(field.name) for field in fields]
    digest = RowDigest(dialect, fields, "target")
    # two rows, as PostgreSQL treats a single one as constants
    source = dialect.system.dialect.constants([literals, literals], names)
    query = f"SELECT 0 AS ferry__g, {digest.selected('ferry__')} FROM {source}"
    with endpoint.read_arrow(query) as reader:
        return summed(digest, reader)[0]


def constants(dialect: DigestSql) -> list[Constant]:
    """List the expected results for each of `VALUES`, and last for a row of all of them."""
    columns = _columns(dialect)
    digest = dialect.digest([field for field, _, _ in columns], "target")
    literals = tuple((field.name, literal) for field, _, literal in columns)
    if dialect.algorithm == definition.RECORD:
        expected = str(dialect.system.record_digest)
        return [Constant("the digest of a row", digest, expected, literals)]
    single: list[Constant] = []
    forms: list[str] = []
    for field, value, literal in columns:
        forms.append(value.form.replace("#", str(_hashed(dialect.algorithm, b"\x00\xff\x10"))))
        sql = dialect.framed(field, "target", dialect.system.quote(field.name))
        result = None if value.form == definition.NULL else forms[-1]
        what = f"{field.target.type} {value.form}"
        single.append(Constant(what, sql, result, ((field.name, literal),)))
    expected = str(_hashed(dialect.algorithm, ",".join(forms).encode()))
    return [*single, Constant("the digest of a row", digest, expected, literals)]


def _columns(dialect: DigestSql) -> list[tuple[Field, Value, str]]:
    """List the columns for all values that a server's system has, with their literals."""
    columns: list[tuple[Field, Value, str]] = []
    constants = dialect.system.digest.CONSTANTS
    for number, (name, value) in enumerate(VALUES.items()):
        # a database in another encoding may lack the characters
        encodable = dialect.variant != definition.CONVERTED or value.form.isascii()
        if name in constants and encodable:
            type_, literal = constants[name]
            column = Column(f"c{number}", type_)
            field = Field(column.name, value.kind, column, column, scale=value.scale)
            columns.append((field, value, literal))
    return columns
