"""The digest of COPY text in C: by the definition, cut anywhere, of streams that are broken."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.contract.fields import Field, Form, Kind
from tableferry.resources.digest import native
from tableferry.resources.digest.client import digests
from tableferry.resources.digest.definition import NAN_BITS
from tableferry.resources.digest.fields import all_fields
from tableferry.resources.digest.native import Layout, SentRows
from tableferry.resources.errors import ReceiptMismatch, TableferryError
from tableferry.resources.postgres.text_formats import sent_form
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tests.resources import broken_copy_text

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "resources/digest/native/copy_text.c"

needs_extension = pytest.mark.skipif(native.extension() is None, reason="it was not built")

KINDS: dict[Form, tuple[Kind, bool]] = {
    "i": ("integer", False),
    "b": ("boolean", False),
    "d": ("decimal", False),
    "f": ("float", False),
    "D": ("date", False),
    "t": ("time", False),
    "T": ("timestamp", False),
    "Z": ("timestamp", False),
    "u": ("uuid", False),
    "s": ("text", False),
    "p": ("text", True),
}
"""The kind that is compared where a field has a form, and whether it is padded."""

EPOCH = dt.datetime(1970, 1, 1)
BITS = re.compile(r"[\b\f\n\r\t\v\\]")
LETTERS = dict(zip("\b\f\n\r\t\v\\", "bfnrtv\\", strict=True))


def sent(rows: Sequence[Sequence[str | None]]) -> bytes:
    """Rows as a server sends them."""
    lines = (
        "\t".join(
            r"\N" if field is None else BITS.sub(lambda found: "\\" + LETTERS[found[0]], field)
            for field in row
        )
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines).encode()


def hashed(row: str) -> int:
    return int.from_bytes(hashlib.md5(row.encode()).digest()[:8], "big", signed=True)


def text_form(text: str) -> str:
    return f"{len(text.encode())}:{text}"


def micros(moment: dt.datetime) -> int:
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
CLOCK = st.times()
# what is sent, and its form
VALUES: dict[Form, st.SearchStrategy[tuple[str, str]]] = {
    "i": st.integers(-(2**63), 2**63 - 1).map(lambda n: (str(n), str(n))),
    "b": st.booleans().map(lambda yes: ("t" if yes else "f", str(int(yes)))),
    "d": st.decimals(allow_nan=False, allow_infinity=False, places=4).map(
        lambda n: (f"{n:f}", f"{n + 0:f}")
    ),
    "f": st.floats().map(
        lambda x: (
            {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(x), repr(x)),
            str(NAN_BITS if x != x else struct.unpack("<q", struct.pack("<d", x))[0]),
        )
    ),
    "D": st.dates().map(lambda day: (day.isoformat(), str((day - EPOCH.date()).days))),
    "t": CLOCK.map(lambda at: (at.isoformat(), str(micros(dt.datetime.combine(EPOCH.date(), at))))),
    "T": st.datetimes().map(lambda at: (at.isoformat(" "), str(micros(at)))),
    "Z": st.datetimes().map(lambda at: (f"{at.isoformat(' ')}+00", str(micros(at)))),
    "u": st.uuids().map(lambda one: (str(one), str(one))),
    "s": TEXT.map(lambda text: (text, text_form(text))),
    "p": TEXT.map(lambda text: (text, text_form(text.rstrip(" ")))),
}
SCALES: dict[Form, int] = {"d": 4, "t": 6, "T": 6, "Z": 6}
FORMS = tuple(VALUES)
LAYOUT = Layout(FORMS, tuple(SCALES.get(form, 0) for form in FORMS))
ROWS = st.lists(st.tuples(*(st.none() | VALUES[form] for form in FORMS)), min_size=1, max_size=20)


def native_sum(data: bytes, layout: Layout = LAYOUT) -> tuple[int, int]:
    rows = SentRows(layout)
    rows.add(data)
    rows.end()
    return rows.rows, rows.total


@needs_extension
@given(rows=ROWS)
def test_rows_have_the_digest_of_the_definition_and_of_polars(
    rows: list[tuple[tuple[str, str] | None, ...]],
) -> None:
    data = sent([[None if value is None else value[0] for value in row] for row in rows])
    forms = [",".join("~" if value is None else value[1] for value in row) for row in rows]
    found = native_sum(data)
    assert found == (len(rows), sum(map(hashed, forms)))

    fields = [
        Field(form, *_kind(form), scale=SCALES.get(form, 0), padded=KINDS[form][1])
        for form in FORMS
    ]
    arrays = [_array(form, [row[at] for row in rows]) for at, form in enumerate(FORMS)]
    assert found[1] == sum(digests(fields, arrays, "md5").to_list())


def _kind(form: Form) -> tuple[Kind, Column, Column]:
    column = Column(form, "x")
    return KINDS[form][0], column, column


def _array(form: Form, values: Sequence[tuple[str, str] | None]) -> pa.Array:
    texts = [None if value is None else value[0] for value in values]
    if form == "f":
        return pa.array([None if text is None else float(text) for text in texts], pa.float64())
    if form == "i":
        return pa.array([None if text is None else int(text) for text in texts], pa.int64())
    if form == "d" and any(text and len(text) > 30 for text in texts):
        return pa.array([None if text is None else Decimal(text) for text in texts])
    return pa.array(texts, pa.string())


# as the server writes them; the form that its SQL has, by definition
EDGES: list[tuple[Form, int, str, str]] = [
    ("i", 0, "-9223372036854775808", "-9223372036854775808"),
    ("i", 0, "4294967295", "4294967295"),
    ("d", 2, "1", "1.00"),
    ("d", 0, "12.000", "12"),
    ("d", 2, "-0.0100", "-0.01"),
    ("d", 2, "0.0010", "0.0010"),
    ("d", 10, "-987654321098765432109876.109876543", "-987654321098765432109876.1098765430"),
    ("d", 76, "1", "1." + "0" * 76),
    ("d", 2, "NaN", "NaN"),
    ("d", 2, "-Infinity", "-Infinity"),
    ("f", 0, "-0", str(-(2**63))),
    ("f", 0, "0.1", "4591870180066957722"),
    ("f", 0, "5e-324", "1"),
    ("f", 0, "1.7976931348623157e+308", "9218868437227405311"),
    ("f", 0, "Infinity", "9218868437227405312"),
    ("f", 0, "-Infinity", "-4503599627370496"),
    ("r", 0, "0.1", "4591870180174331904"),
    ("r", 0, "1e-45", "3936146074321813504"),
    ("D", 0, "1970-01-01", "0"),
    ("D", 0, "0001-01-01", "-719162"),
    ("D", 0, "0001-12-31 BC", "-719163"),
    ("D", 0, "4714-11-24 BC", "-2440588"),
    ("D", 0, "0401-03-15 BC", "-865551"),
    ("D", 0, "10000-01-01", "2932897"),
    ("D", 0, "5874897-12-31", "2145042905"),
    ("D", 0, "infinity", "infinity"),
    ("t", 6, "24:00:00", "86400000000"),
    ("t", 3, "01:02:03.004", "3723004000"),
    ("t", 7, "00:00:00.000001", "10"),
    ("t", 7, "00:00:00", "0"),
    ("T", 6, "1969-12-31 23:59:59.9", "-100000"),
    ("T", 7, "1969-12-31 23:59:59.9", "-1000000"),
    ("T", 6, "4713-01-01 00:00:00 BC", "-210863520000000000"),
    ("T", 6, "-infinity", "-infinity"),
    ("T", 6, "294247-01-10 04:00:54.775806", "9223372036854775806"),
    ("T", 6, "294247-01-10 04:00:54.775807", "294247-01-10 04:00:54.775807"),
    ("T", 6, "294276-12-31 23:59:59.999999", "294276-12-31 23:59:59.999999"),
    ("Z", 6, "294276-12-31 23:59:59.999999+00", "294276-12-31 23:59:59.999999+00"),
    ("Z", 6, "0044-03-15 12:00:00+00 BC", "-63517780800000000"),
    ("s", 0, "\\N", "2:\\N"),
    ("s", 0, "", "0:"),
    ("p", 0, "a \t  ", "3:a \t"),
    ("p", 0, "   ", "0:"),
]  # fmt: skip


@needs_extension
@pytest.mark.parametrize(("form", "scale", "text", "expected"), EDGES)
def test_edges(form: Form, scale: int, text: str, expected: str) -> None:
    assert native_sum(sent([[text]]), Layout((form,), (scale,))) == (1, hashed(expected))


@needs_extension
def test_rows_that_are_cut_at_any_byte_have_the_same_digest() -> None:
    lengths = [0, 7, 8, 55, 56, 63, 64, 65, 200, 1000]
    rows = [[str(number), "x" * length + "\t\\ä"] for number, length in enumerate(lengths)]
    data, layout = sent(rows), Layout(("i", "s"), (0, 0))
    whole = native_sum(data, layout)
    assert whole == (len(rows), sum(hashed(f"{n},{text_form(text)}") for n, text in rows))
    for at in range(len(data) + 1):
        cut = SentRows(layout)
        cut.add(data[:at])
        cut.add(data[at:])
        cut.end()
        assert (cut.rows, cut.total) == whole, at


@needs_extension
def test_rows_larger_than_what_waits_to_be_hashed() -> None:
    sizes = [3 << 20, 1, 1 << 20, 0, 5]
    data = sent([["x" * size] for size in sizes])
    expected = sum(hashed(text_form("x" * size)) for size in sizes)
    assert native_sum(data, Layout(("s",), (0,))) == (5, expected)


BROKEN: list[tuple[Form, str]] = [
    *(("i", text) for text in ("", "-", "1.5", "x", " 1", "1 ", "--1")),
    *(("b", text) for text in ("", "true", "T")),
    *(("d", text) for text in ("", ".", "1.", ".5", "1e5", "1.2.3", "nan")),
    *(("f", text) for text in ("", "1,5", "0x10", "inf", "1e", "1 ", "nan")),
    *(("D", text) for text in ("", "2020-13-01", "2020-1-01", "01/02/2020", "2020-01-01 ", "BC")),
    *(("t", text) for text in ("", "1:02:03", "25:00:00", "00:00:00.", "00:00:00.0123456")),
    *(("T", text) for text in ("2020-01-01", "2020-01-01T00:00:00", "2020-01-01 00:00:00+00")),
    *(("Z", text) for text in ("2020-01-01 00:00:00", "2020-01-01 00:00:00+01")),
    *(("u", text) for text in ("", "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0", "0" * 36)),
]


@needs_extension
@pytest.mark.parametrize(("form", "text"), BROKEN)
def test_a_value_that_its_type_does_not_write_is_named(form: Form, text: str) -> None:
    data = sent([["1", None], ["2", text]])
    with pytest.raises(ReceiptMismatch, match=r"row 2, column 2: the value is not written as"):
        native_sum(data, Layout(("i", form), (0, 2)))


@needs_extension
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"1\ta\n2\n", "after 0 rows of the stream, row 2, column 1: the row has other columns"),
        (b"1\ta\tb\n", "row 1, column 2: the row has other columns"),
        (b"1\ta\n2\tb", "the stream ended within a row, after 1 rows"),
        (b"1\ta\n2\tb\\", "the stream ended within a row, after 1 rows"),
        (b"1\t\\q\n", "row 1, column 2: the value is not written as"),
        (b"1\t\\\0\n", "row 1, column 2: the value is not written as"),
        (b"1\ta\\\n2\tb\n", "row 1, column 2: the row has other columns"),
    ],
)
def test_a_broken_row_is_named(data: bytes, problem: str) -> None:
    with pytest.raises(ReceiptMismatch, match=re.escape(problem)):
        native_sum(data, Layout(("i", "s"), (0, 0)))


@needs_extension
def test_what_is_asked_has_to_fit() -> None:
    digest = native.extension()
    assert digest is not None
    for forms, scales in ((b"", b""), (b"ii", b"\0")):
        with pytest.raises(ValueError, match="one kind and one scale"):
            digest(b"1\n", forms, scales)
    with pytest.raises(ValueError, match="column 1"):
        digest(b"1\n", b"?", b"\0")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc's sanitizers")
def test_no_broken_stream_is_read_or_written_outside(tmp_path: Path) -> None:
    """Under gcc's sanitizers of addresses and undefined behaviour."""
    include = sysconfig.get_path("include")
    if not (Path(include) / "Python.h").exists():
        pytest.skip("needs Python's headers")
    flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    flags += ["-Wno-missing-field-initializers", "-fno-sanitize-recover=all"]
    library = tmp_path / "copy_text.abi3.so"
    sanitized = "-fsanitize=address,undefined"
    subprocess.run(
        ["gcc", *flags, sanitized, "-shared", "-fPIC", f"-I{include}", "-o", library, SOURCE],
        check=True,
    )
    runtimes = [
        subprocess.check_output(["gcc", f"-print-file-name={name}.so"], text=True).strip()
        for name in ("libasan", "libubsan")
    ]
    done = subprocess.run(
        [sys.executable, broken_copy_text.__file__, tmp_path, "3000"],
        env={
            **os.environ,
            "LD_PRELOAD": " ".join(runtimes),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    digested, refused = map(int, done.stdout.split())
    assert digested > 100 and refused > 1000


TYPES = (
    *("boolean", "smallint", "integer", "bigint", "oid", "money", "real", "double precision"),
    *("numeric", "numeric(12,2)", "numeric(38,10)", "numeric(60,20)", "date", "uuid", "text"),
    *("time without time zone", "time(3) without time zone", "time with time zone", "interval"),
    *("timestamp without time zone", "timestamp(0) without time zone", "timestamp with time zone"),
    *("character(5)", "character varying(5)", "bpchar", "citext", "name", '"char"', "bytea"),
    *("json", "jsonb", "xml", "inet", "cidr", "macaddr", "bit(8)", "bit varying", "int4range"),
    *("pg_lsn", "point", "tsvector", "mood", "integer[]", "text[]", "bytea[]", "integer[][]"),
)
TARGETS = (
    *(None, "String", "FixedString(16)", "LowCardinality(String)", "Bool", "UInt8", "Int64"),
    *("UInt64", "Float32", "Float64", "Decimal(38, 6)", "Decimal(76, 20)", "UUID", "Date"),
    *("Date32", "DateTime('UTC')", "DateTime64(3, 'UTC')", "DateTime64(6, 'UTC')"),
    *("DateTime64(7, 'UTC')", "Array(Nullable(String))", "Array(Nullable(Int32))"),
)


def test_each_column_that_text_carries_is_sent_in_a_form() -> None:
    """It carries no bytes and no arrays into ClickHouse, so that these need none."""
    source, target = TableRef("postgres", "s", "t"), TableRef("clickhouse", "s", "t")
    carried: dict[str, set[Form | None]] = {}
    for type_, into in itertools.product(TYPES, TARGETS):
        columns = [Column("n", "integer", False), Column("x", type_)]
        override = {"x": ColumnOverride(type=into)} if into else {}
        with suppress(TableferryError):
            plan = plan_copy(
                source, columns, target, key="n", overrides=override, target_version="26.9"
            )
            sent, field = plan.columns[1].text_sql, all_fields(plan)[1]
            if sent is not None:
                carried.setdefault(type_, set()).add(sent_form(field, sent))
    assert None not in set().union(*carried.values())
    assert not [type_ for type_ in carried if type_.startswith("bytea") or type_.endswith("]")]
    assert len(carried) > 30


def test_without_the_extension_nothing_is_digested_natively(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, f"{native.__name__}.copy_text", None)
    native.extension.cache_clear()
    try:
        assert native.extension() is None
    finally:
        native.extension.cache_clear()
