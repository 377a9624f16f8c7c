"""Every type of Parquet: both readers give exactly what was written, or it is refused."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.errors import InputError, TableferryError, TypeRefused, ValueRefused
from tableferry.resources.files import described
from tableferry.resources.files.folder import FileUnreadable
from tableferry.resources.files.resource import FilesResource
from tableferry.resources.files.source import FilesSource
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef

TARGET = TableRef("clickhouse", "warehouse", "t")
DAY = dt.date(2024, 2, 29)
BEFORE = dt.datetime(1969, 12, 31, 23, 59, 59, 999000, dt.UTC)
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)
FAR = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
UID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
NINES = Decimal("9" * 28 + "." + "9" * 10)
MINUS = Decimal(f"-{NINES}")


def stored(numbers: list[int], type_: pa.DataType) -> pa.Array:
    """Values by the numbers that stand for them."""
    return pa.array([*numbers, None], pa.int64()).cast(type_)


def halves() -> pa.Array:
    return pa.array(np.array([1.5, -0.0, 65504.0], np.float16))


def integers(name: str, edge: int) -> tuple[pa.Array, list[Any]]:
    values = [edge, 0, 127, None]
    return pa.array(values, getattr(pa, name)()), values


def same(type_: pa.DataType, *values: Any) -> tuple[pa.Array, list[Any]]:
    """Values that are read as they were written."""
    return pa.array([*values, None], type_), [*values, None]


PARQUET: dict[str, tuple[pa.Array, list[Any]]] = {
    **{f"int{bits}": integers(f"int{bits}", -(2 ** (bits - 1))) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": integers(f"uint{bits}", 2**bits - 1) for bits in (8, 16, 32, 64)},
    "boolean": same(pa.bool_(), True, False),
    "float16": (halves(), [1.5, -0.0, 65504.0]),
    "float": same(pa.float32(), 1.5, float("inf"), float("nan")),
    "double": same(pa.float64(), 5e-324, -0.0),
    "string": same(pa.string(), "", "ä😀\0"),
    "large_string": same(pa.large_string(), "a"),
    "string_view": same(pa.string_view(), "a"),
    "dictionary": (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    "dictionary_of_integers": (pa.array([7, None]).dictionary_encode(), [7, None]),
    "json": same(pa.json_(), '{"a": 1E5}'),
    "binary": same(pa.binary(), b"", b"\xff\0"),
    "fixed_binary": same(pa.binary(3), b"\xffab"),
    "uuid": (pa.array([UID.bytes, None], pa.uuid()), [UID.bytes, None]),
    "decimal32": same(pa.decimal32(9, 2), Decimal("-9999999.99")),
    "decimal64": same(pa.decimal64(18, 2), Decimal("0.01")),
    "decimal128": same(pa.decimal128(38, 10), NINES, MINUS),
    "decimal256": same(pa.decimal256(38, 2), Decimal("1.50")),
    "date": same(pa.date32(), DAY, dt.date.min, dt.date.max),
    "time_millis": (
        pa.array([86_399_999, None], pa.int32()).cast(pa.time32("ms")),
        ["23:59:59.999", None],
    ),
    "time_micros": (stored([86_399_999_999], pa.time64("us")), ["23:59:59.999999", None]),
    "time_nanos": (stored([86_399_999_999_000], pa.time64("ns")), ["23:59:59.999999", None]),
    "timestamp_millis": same(pa.timestamp("ms"), FAR.replace(microsecond=0)),
    "timestamp_micros": same(pa.timestamp("us"), NOON, FAR, dt.datetime.min),
    "timestamp_nanos": same(pa.timestamp("ns"), NOON),
    "instant_millis": (stored([-1], pa.timestamp("ms", "Europe/Berlin")), [BEFORE, None]),
    "instant_micros": (stored([-1000], pa.timestamp("us", "UTC")), [BEFORE, None]),
    "instant_nanos": (stored([-1_000_000], pa.timestamp("ns", "Asia/Tokyo")), [BEFORE, None]),
    "duration": (stored([5], pa.duration("us")), [5, None]),
    "list": same(pa.list_(pa.int32()), [], [1, None]),
    "list_of_texts": same(pa.list_(pa.string()), ["a", ""]),
    "fixed_list": same(pa.list_(pa.int32(), 2), [1, 2]),
    "nothing": (pa.nulls(2), [None, None]),
}

WIDE = pa.decimal256(76, 2)
REFUSED: dict[str, tuple[pa.DataType, Any, str]] = {
    "decimal256": (WIDE, Decimal("1.11e49"), r"decimal256\(76, 2\) in a.parquet, .*DOUBLE"),
    "decimals": (pa.list_(WIDE), [Decimal("1.5")], "decimal256"),
    "struct_of_decimals": (pa.struct([("a", WIDE)]), {"a": Decimal("1.5")}, "decimal256"),
    "list_of_instants": (pa.list_(pa.timestamp("ns", "UTC")), [1], r"timestamp\[ns\]"),
    "list_of_nanos": (pa.list_(pa.timestamp("ns")), [1], "an array of such items"),
    "nested": (pa.list_(pa.list_(pa.int8())), [[1]], "an array of such items"),
    "struct": (pa.struct([("a", pa.int8())]), {"a": 1}, "of a composite type"),
    "map": (pa.map_(pa.string(), pa.int32()), [("a", 1)], "of a composite type"),
}


class Reader:
    """A table of one Parquet file."""

    def __init__(self, path: Path) -> None:
        self.path, self.range = path, KeyRange("file", path.name)
        self.resource = FilesResource(url=path.parent.as_uri())
        self.table = TableRef("files", ".", path.name)

    def plan(self) -> CopyPlan:
        columns = self.resource.columns(self.table)
        return plan_copy(self.table, columns, TARGET, key="_file", target_version="26.7")

    def loaded(self, plan: CopyPlan) -> dict[str, list[Any]]:
        """What the load sends, by pyarrow."""
        sql = plan.select(self.range, "arrow")
        return self._read(
            plan, FilesSource().read_arrow(self.resource, plan, self.range, sql, batch_rows=1000)
        )

    def by_duckdb(self, plan: CopyPlan) -> dict[str, list[Any]]:
        """What digests are made of."""
        return self._read(plan, self.resource.read_arrow(plan.select(self.range, "arrow")))

    def _read(self, plan: CopyPlan, opened: Any) -> dict[str, list[Any]]:
        with opened as reader:
            table = reader.read_all()
        names = [column.source.name for column in plan.columns]
        return dict(zip(names, (column.to_pylist() for column in table.columns), strict=True))


@pytest.fixture(params=["as it is", "with a condition"])
def conditions(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """With a condition, DuckDB selects from what pyarrow read."""
    yield None if request.param == "as it is" else "true"


def test_both_readers_give_what_was_written(tmp_path: Path, conditions: str | None) -> None:
    for name, (array, values) in PARQUET.items():
        if name == "fixed_list" and int(pa.__version__.split(".")[0]) < 26:
            continue  # older ones refuse to read lists of one length that are NULL
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"x": array}), path, row_group_size=2)
        reader = Reader(path)
        plan = replace(reader.plan(), where=conditions)
        expected = {"_file": [path.name] * len(values), "_row": [*range(1, len(values) + 1)]}
        for read in (reader.loaded, reader.by_duckdb):
            found = read(plan)
            assert {one: found[one] for one in expected} == expected
            assert [*map(str, found["x"])] == [*map(str, values)], (name, read)


def test_what_other_libraries_wrote(tmp_path: Path) -> None:
    """Files of DuckDB and of polars, in types and encodings that pyarrow does not choose."""
    duckdb.sql(
        "COPY (SELECT 18446744073709551615::UBIGINT a, 'x'::ENUM('x', 'y') b, uuid '"
        f"{UID}' c, [1, 2] d, 1.50::DECIMAL(4, 2) e, time '23:59:59.999999' f, "
        f"timestamptz '2024-02-29 12:00:00.123456+00' g, 'ä'::VARCHAR h, true i "
        f"FROM range(3)) TO '{tmp_path}/duckdb.parquet' (PARQUET_VERSION v2, COMPRESSION zstd)"
    )
    reader = Reader(tmp_path / "duckdb.parquet")
    plan = reader.plan()
    clock, instant = "23:59:59.999999", NOON.replace(tzinfo=dt.UTC)
    one = (2**64 - 1, "x", UID.bytes, [1, 2], Decimal("1.50"), clock, instant, "ä", True)
    for read in (reader.loaded, reader.by_duckdb):
        assert list(zip(*[*read(plan).values()][2:], strict=True)) == [one] * 3
    pl.DataFrame(
        {
            "clock": [dt.time(1, 2, 3)],
            "category": pl.Series(["x"], dtype=pl.Categorical),
            "wall": pl.Series([NOON], dtype=pl.Datetime("ns")),
            "money": pl.Series([Decimal("-1.25")], dtype=pl.Decimal(38, 2)),
            "small": pl.Series([255], dtype=pl.UInt8),
        }
    ).write_parquet(tmp_path / "polars.parquet")
    reader = Reader(tmp_path / "polars.parquet")
    plan = reader.plan()
    for read in (reader.loaded, reader.by_duckdb):
        found = [values[0] for values in read(plan).values()][2:]
        assert found == ["01:02:03", "x", NOON, Decimal("-1.25"), 255]


@pytest.mark.parametrize("name", REFUSED)
def test_types_that_are_not_read_alike_are_refused_by_name(tmp_path: Path, name: str) -> None:
    type_, value, why = REFUSED[name]
    pq.write_table(pa.table({"x": pa.array([value], type_), "y": [1]}), tmp_path / "a.parquet")
    reader = Reader(tmp_path / "a.parquet")
    with pytest.raises(TypeRefused, match=rf"x.*{why}.*exclude: \[x\]"):
        reader.plan()
    columns = reader.resource.columns(reader.table)
    left = plan_copy(reader.table, columns, TARGET, key="_file", exclude=["x"])
    assert reader.loaded(left)["y"] == [1]


def test_types_of_duckdbs_own_are_refused_by_name(tmp_path: Path) -> None:
    duckdb.sql(
        "COPY (SELECT interval '1 month' a, timetz '01:02:03+02' b, '1'::VARIANT c) "
        f"TO '{tmp_path}/a.parquet'"
    )
    with pytest.raises(TypeRefused) as error:
        Reader(tmp_path / "a.parquet").plan()
    for name, type_ in (("a", "INTERVAL"), ("b", "TIME WITH TIME ZONE"), ("c", "VARIANT")):
        assert f"{type_}" in str(error.value) and f"exclude: [{name}]" in str(error.value)


@pytest.mark.parametrize(
    "type_", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns")], ids=str
)
def test_nanoseconds_are_refused_by_value(tmp_path: Path, type_: pa.DataType) -> None:
    pq.write_table(pa.table({"x": stored([1_000, 1_001], type_)}), tmp_path / "a.parquet")
    reader = Reader(tmp_path / "a.parquet")
    with pytest.raises(ValueRefused, match=r"'x', key 'a.parquet, 2'.*more than 6 decimals"):
        reader.loaded(reader.plan())


@pytest.mark.parametrize("nanos", [1_001, None])
def test_timestamps_of_12_bytes_are_exact_or_refused(tmp_path: Path, nanos: int | None) -> None:
    path = tmp_path / "a.parquet"
    array = stored([1_000, -1_000], pa.timestamp("ns"))
    if nanos is not None:
        array = pa.concat_arrays([array, stored([nanos], pa.timestamp("ns"))])
    pq.write_table(pa.table({"x": array}), path, use_deprecated_int96_timestamps=True)
    reader = Reader(path)
    plan = reader.plan()
    if nanos is not None:
        with pytest.raises(FileUnreadable, match="column 'x': the INT96 timestamp 1970"):
            reader.loaded(plan)
        return
    epoch = dt.datetime(1970, 1, 1)
    micro = dt.timedelta(microseconds=1)
    for read in (reader.loaded, reader.by_duckdb):
        assert read(plan)["x"] == [epoch + micro, epoch - micro, None]


def test_years_that_12_bytes_hold_and_8_do_not_are_exact(tmp_path: Path) -> None:
    path, years = tmp_path / "a.parquet", [FAR, dt.datetime(1, 1, 1), NOON]
    table = pa.table({"x": pa.array(years, pa.timestamp("us"))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    reader = Reader(path)
    plan = reader.plan()
    for read in (reader.loaded, reader.by_duckdb):
        assert read(plan)["x"] == years


def test_a_text_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    offsets = pa.array([b"ab", b"\xff"]).buffers()
    pq.write_table(
        pa.table({"x": pa.Array.from_buffers(pa.string(), 2, offsets)}), tmp_path / "a.parquet"
    )
    reader = Reader(tmp_path / "a.parquet")
    plan = reader.plan()
    for read in (reader.loaded, reader.by_duckdb):
        with pytest.raises(TableferryError, match=r"a.parquet.*UTF|Invalid string encoding"):
            read(plan)


def test_files_of_one_table_unite(tmp_path: Path) -> None:
    """Other orders, cases, types and columns; a file without rows, and row groups without any."""
    tables = {
        "a": pa.table({"id": pa.array([1, 2], pa.int8()), "Name": ["a", None]}),
        "b": pa.table({"NAME": pa.nulls(1), "id": pa.array([2**40])}),
        "c": pa.table({"id": pa.array([], pa.int64()), "other": pa.array([], pa.float32())}),
    }
    for name, table in tables.items():
        with pq.ParquetWriter(tmp_path / f"{name}.parquet", table.schema) as writer:
            writer.write_table(table.slice(0, 0))
            writer.write_table(table)
            writer.write_table(table.slice(0, 0))
    reader = Reader(tmp_path / "b.parquet")
    reader.table = replace(reader.table, name="*.parquet")
    plan = reader.plan()
    assert [one.source.type for one in plan.columns[2:]] == ["BIGINT", "VARCHAR", "FLOAT"]
    wanted = {
        "a": [(1, 1, "a", None), (2, 2, None, None)],
        "b": [(1, 2**40, None, None)],
        "c": [],
    }
    for name, rows in wanted.items():
        reader.range = KeyRange("file", f"{name}.parquet")
        for read in (reader.loaded, reader.by_duckdb):
            assert list(zip(*[*read(plan).values()][1:], strict=True)) == rows


@pytest.mark.parametrize("names", [["a", "A"], ["a", "a"], [""], ["_row"], ["a\0"]], ids=str)
def test_names_that_are_not_their_own_are_refused(tmp_path: Path, names: list[str]) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([1])] * len(names), names=names), path)
    with pytest.raises(
        InputError, match=r"a.parquet cannot be read: its column .* name of its own"
    ):
        Reader(path).plan()


def test_a_stretch_has_its_rows_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [*range(10)]}), path, row_group_size=4)
    reader = Reader(path)
    plan = reader.plan()
    assert described.row_groups(reader.resource.files(reader.table)[0]) == [4, 4, 2]
    for rows, wanted in (((1, 5), [0, 1, 2, 3]), ((3, 6), [2, 3, 4]), ((9, None), [8, 9])):
        reader.range = KeyRange("file", path.name, rows=rows)
        for read in (reader.loaded, reader.by_duckdb):
            assert read(plan)["x"] == wanted
            assert read(plan)["_row"] == [one + 1 for one in wanted]


OLD, NEW = dt.date(1001, 1, 1), dt.date(1582, 10, 15)


@pytest.mark.parametrize(
    ("said", "value", "refused"),
    [
        ({"org.apache.spark.legacyDateTime": ""}, OLD, True),
        ({"org.apache.spark.version": "2.4.8"}, OLD, True),
        ({"org.apache.spark.version": "3.5.0"}, OLD, False),
        ({"writer.date.proleptic": "false"}, OLD, True),
        ({"writer.date.proleptic": "true"}, OLD, False),
        ({"org.apache.spark.legacyDateTime": ""}, NEW, False),
        ({"org.apache.spark.legacyINT96": ""}, dt.datetime(1899, 12, 31, 23), True),
        ({"org.apache.spark.legacyINT96": ""}, dt.datetime(1900, 1, 1), False),
        ({"org.apache.spark.version": "2.4.8"}, dt.datetime(1800, 1, 1, tzinfo=dt.UTC), True),
        ({}, OLD, False),
    ],
)
def test_days_of_the_hybrid_calendar_are_refused_by_value(
    tmp_path: Path, said: dict[str, str], value: dt.date, refused: bool
) -> None:
    table = pa.table({"id": [1, 2], "d": [value, None]}).replace_schema_metadata(said)
    pq.write_table(table, tmp_path / "t.parquet")
    resource = FilesResource(url=tmp_path.as_uri())
    [file] = resource.files(TableRef("files", ".", "*.parquet"))
    if refused:
        with pytest.raises(FileUnreadable, match=r"t\.parquet cannot be read: column 'd': .*Spark"):
            described.names(file)
    else:
        assert [*described.names(file)] == ["id", "d"]
