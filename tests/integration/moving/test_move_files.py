"""Folders of files as a source: every value, every check, and what files do that tables do not."""

from __future__ import annotations

import datetime as dt
import gzip
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import Command, crash, reopen

pytestmark = pytest.mark.integration

TO_CLICKHOUSE = "['clickhouse://warehouse.{t}']"
Maker = Callable[..., Ferry]

CORPUS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, 127, 0, None]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1, 0, None]),
    "u64": (pa.uint64(), [0, 2**64 - 1, 1, None]),
    "f32": (pa.float32(), [1.5, float("inf"), -0.0, None]),
    "f64": (pa.float64(), [0.1, 5e-324, 1.7976931348623157e308, None]),
    "flag": (pa.bool_(), [True, False, True, None]),
    "money": (
        pa.decimal128(38, 10),
        [*map(Decimal, (f"-{'9' * 28}.{'9' * 10}", "0E-10", "1.0000000000")), None],
    ),
    "text": (pa.string(), ["", " \t\r\n\\N", "ä€😀\u0000e\u0301", None]),
    "blob": (pa.binary(), [b"", b"\x00\xff\n", b"abc", None]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), None]),
    "wall": (
        pa.timestamp("us"),
        [
            dt.datetime(1, 1, 1),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
            None,
        ],
    ),
    "instant": (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(1969, 12, 31, 23, 59, 59, 1, dt.UTC),
            dt.datetime(2038, 1, 19, 3, 14, 8, 0, dt.UTC),
            dt.datetime(1900, 1, 1, tzinfo=dt.UTC),
            None,
        ],
    ),
    "clock": (pa.time64("us"), [dt.time.min, dt.time.max, dt.time(12), None]),
    "items": (pa.list_(pa.int32()), [[], [1, None, 3], [2**31 - 1], [0]]),
    "i16": (pa.int16(), [-(2**15), 2**15 - 1, 0, None]),
    "u8": (pa.uint8(), [255, 0, 1, None]),
    "u32": (pa.uint32(), [2**32 - 1, 0, 1, None]),
    "cents": (pa.decimal256(9, 2), [*map(Decimal, ("-9999999.99", "0.01", "1.50")), None]),
    "kind": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a", None]),
    "nothing": (pa.null(), [None] * 4),
}


def parquet(path: Path, columns: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three Parquet files of 100 rows each, below `in/orders`."""
    found = tmp_path / "in" / "orders"
    for number, name in enumerate(("a", "b", "c")):
        ids = range(number * 100, number * 100 + 100)
        names = [f"größe {one}" if one % 7 else None for one in ids]
        parquet(found / f"{name}.parquet", {"id": list(ids), "name": names})
    return found


def declared(ferry: Maker, files: str, hops: str = TO_CLICKHOUSE, **settings: Any) -> Ferry:
    """A transfer out of files; `key` is not given."""
    one = ferry(hops, source="postgres://public.x")
    lines = [f"transfer: {one.table}", f"source: files://{files}"]
    lines += [f"hops: {hops.format(t=one.table)}"]
    lines += [f"{key}: {value}" for key, value in settings.items()]
    (one.folder / "t.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return reopened(one)


def reopened(one: Ferry) -> Ferry:
    reopen(one)
    return one


def held(
    one: Ferry, columns: str, hop: str = "clickhouse://warehouse.{t}"
) -> list[tuple[Any, ...]]:
    """What the target holds."""
    target = TableRef.parse(hop.format(t=one.table))
    table = f"{target.schema}.{target.name}"
    sql = f"SELECT {columns} FROM {table} ORDER BY 1, 2"
    return [tuple(row) for row in one.session.servers.endpoint(target).query(sql)]


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(arguments))
    return done.exit_code, done.output


@pytest.mark.parametrize("level", ["full_hash", "checksum"])
def test_every_value_of_parquet_is_exact(ferry: Maker, tmp_path: Path, level: str) -> None:
    table = pa.table({name: pa.array(values, type_) for name, (type_, values) in CORPUS.items()})
    ids = [uuid.UUID(int=one) for one in (0, 2**128 - 1, 1, 2)]
    table = table.append_column("number", pa.array([1, 2, 3, 4]))
    table = table.append_column(
        pa.field("uid", pa.uuid()), pa.array([one.bytes for one in ids], pa.uuid())
    )
    pq.write_table(table, tmp_path / "v.parquet")
    one = declared(ferry, f"{tmp_path}/v.parquet", reconcile=level)
    view = one.run()
    assert view.good, view.errors
    names = [name for name in CORPUS if name not in ("blob", "clock", "wall", "instant", "items")]
    rows = held(one, ", ".join(["number", "uid", *names]))
    wanted = [
        (number, ids[number - 1], *(CORPUS[name][1][number - 1] for name in names))
        for number in range(1, 5)
    ]
    assert [tuple(map(repr, row)) for row in rows] == [tuple(map(repr, row)) for row in wanted]
    shown = held(one, "number, hex(blob), clock, toString(wall), toString(instant), items")
    assert shown[0] == (
        1, "", "00:00:00", "0001-01-01 00:00:00.000000", "1969-12-31 23:59:59.000001", [],
    )  # fmt: skip
    assert shown[1][1:4] == ("00FF0A", "23:59:59.999999", "9999-12-31 23:59:59.999999")
    assert shown[1][5] == [1, None, 3]


@pytest.mark.parametrize("hop", ["postgres://public.{t}", "sqlserver://dbo.{t}"])
def test_tables_of_transactional_targets(ferry: Maker, tmp_path: Path, hop: str) -> None:
    """Exact values, a changed file and a vanished one; the names differ in case and blanks."""
    folder = tmp_path / "in"
    names = ["a.parquet", "A.parquet", "b .parquet"]
    without = ("f32", "items", "text") if "sqlserver" in hop else ("text",)
    columns = {
        name: pa.array(values, type_)
        for name, (type_, values) in CORPUS.items()
        if name not in without
    }
    uids = pa.array([uuid.UUID(int=one).bytes for one in (0, 2**128 - 1, 1, 2)], pa.uuid())
    texts = ["", " \t\r\n\\N ", "ä€😀e\u0301", None]
    for name in names:
        parquet(folder / name, {**columns, "number": [1, 2, 3, 4], "uid": uids, "text": texts})
    one = declared(
        ferry, f"{folder}/*.parquet", f"['{hop}']", reconcile="full_hash", on_missing="delete"
    )
    view = one.run()
    assert view.good, view.errors
    rows = held(one, "number, i64, u64, money, text, uid", hop)
    values = [[*CORPUS[name][1]] for name in ("i64", "u64", "money")]
    wanted = [
        (at + 1, *(some[at] for some in values), texts[at], uuid.UUID(bytes=uids[at].as_py().bytes))
        for at in range(4)
        for _ in names
    ]
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)
    parquet(folder / "A.parquet", {"number": [7], "text": ["changed"]})
    (folder / "b .parquet").unlink()
    changed = one.run()
    assert changed.good, changed.errors
    assert one.moved(changed) == ["A.parquet"]
    found = held(one, "number, _row, text, _file", hop)
    assert sorted(row[0] for row in found) == [1, 2, 3, 4, 7]
    assert {row[3] for row in found} == {"a.parquet", "A.parquet"}
    assert invoke("check", one.table)[0] == 0


@pytest.mark.parametrize("hop", ["clickhouse://warehouse.{t}", "postgres://public.{t}"])
def test_elements_that_do_not_fit_are_changed_and_compared(
    ferry: Maker, tmp_path: Path, hop: str
) -> None:
    too_early, too_late = -2_440_589, 2_145_042_906  # days, just outside of the servers' calendars
    whole = [[1, 40_000, None], [], [7], [-40_000]]
    columns = {
        "id": [1, 2, 3, 4],
        "days": pa.array([[0, too_early, None], [], [1], [too_late]], pa.list_(pa.date32())),
        "small": pa.array(whole, pa.list_(pa.int32())),
        "blank": pa.array(whole, pa.list_(pa.int32())),
    }
    parquet(tmp_path / "in" / "a.parquet", columns)
    types = {
        "copies": "SMALLINT[]",
        "clickhouse": "Array(Nullable(Int16))",
        "postgres": "smallint[]",
    }
    type_ = types[hop.partition(":")[0]]
    settings = (
        f"{{days: {{on_overflow: clamp}}, small: {{type: '{type_}', on_overflow: clamp}},"
        f" blank: {{type: '{type_}', on_overflow: 'null'}}}}"
    )
    one = declared(
        ferry,
        f"{tmp_path}/in/*.parquet",
        f"['{hop}']",
        columns=settings,
        reconcile="full_hash",
    )
    view = one.run()
    assert view.good, view.errors
    assert invoke("check", one.table, "--level", "checksum")[0] == 0
    if "copies" in hop:
        (path,) = (tmp_path / "out").glob("*.parquet")
        moved = pq.read_table(path)
        assert moved["small"].to_pylist() == [[1, 32767, None], [], [7], [-32768]]
        assert moved["blank"].to_pylist() == [[1, None, None], [], [7], [None]]
        assert moved["days"].cast(pa.list_(pa.int32())).to_pylist()[0] == [0, too_early + 1, None]


def test_what_the_readers_do_not_read_alike_is_refused(
    ferry: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the types of the footer before anything moves; by the digest if a value is read wrong."""
    nanos = pa.array([1, 1000], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    wide = pa.array([Decimal("1.11e49"), Decimal(0)], pa.decimal256(50, 0))
    parquet(tmp_path / "in" / "a.parquet", {"id": [1, 2], "at": nanos, "number": wide})
    one = declared(ferry, f"{tmp_path}/in/*.parquet")
    code, output = invoke("run", one.table)
    assert code == 2 and "decimal256(50, 0) in a.parquet" in output
    assert "exclude: [number]" in output
    one = declared(ferry, f"{tmp_path}/in/*.parquet", exclude="[number]")
    view = one.run()
    assert not view.good and not one.moved(view)
    assert (
        "column 'at', key 'a.parquet, 1': value '1970-01-01 00:00:00.000000001'" in view.errors[0]
    )
    assert "has more than 6 decimals of a second" in view.errors[0]
    parquet(
        tmp_path / "in" / "a.parquet", {"id": [1, 2], "at": nanos.take([1, 1]), "number": [1, 2]}
    )

    def misread(file: Any, field: pa.Field, array: pa.Array) -> pa.Array:
        return pc.add(array, 1) if field.name == "id" else array.cast(field.type)

    with monkeypatch.context() as patched:
        patched.setattr("tableferry.resources.files.parquet._converted", misread)
        view = reopened(one).run()
    assert not view.good and not one.moved(view) and "FAILED" in view.errors[0]
    view = one.run()
    assert view.good, view.errors
    shown = held(one, "id, toString(at)")
    assert shown == [(number, "1970-01-01 00:00:00.000001") for number in (1, 2)]


TEXTS = """id,big,exp,mixed,zip,flag,at,amount
1,123456789012345678901234567890123456789012,1E5,12345678901234567890,007,TRUE,2024-02-29,1.50
2,1,1e400,1e5, 7,true,2024-01-01,2.25
"""


@pytest.mark.parametrize("hop", ["clickhouse://warehouse.{t}", "postgres://public.{t}_copy"])
def test_texts_arrive_as_they_are(ferry: Maker, tmp_path: Path, hop: str) -> None:
    """Numbers are numbers only where they give the same text back; odd files are refused alone."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(TEXTS, encoding="utf-8")
    (folder / "b.csv").write_text('id,zip\n3, "x"\n', encoding="utf-8")
    one = declared(ferry, f"{folder}/*.csv", f"['{hop}']")
    view = one.run()
    assert one.moved(view) == ["a.csv"]
    assert "b.csv cannot be read: column 'zip' of row 1 is 'x' to one reader" in view.errors[0]
    found = held(one, "id, big, exp, mixed, zip, flag, at, amount", hop)
    rows = [line.split(",") for line in TEXTS.splitlines()[1:]]
    assert [[str(value) for value in row] for row in found] == rows
    assert isinstance(found[0][0], int) and isinstance(found[0][6], dt.date)
    assert isinstance(found[0][7], Decimal)


def test_it_moves_is_skipped_and_follows_its_files(ferry: Maker, folder: Path) -> None:
    one = declared(ferry, f"{folder}/*.parquet")
    assert one.run().good
    rows = held(one, "id, name, _file, _row")
    assert len(rows) == 300 and rows[100] == (100, "größe 100", "b.parquet", 1)
    again = one.run()
    assert again.good and not again.run_ids
    # a rewritten file with the same rows in it, another order and more of them; and a new one
    parquet(folder / "b.parquet", {"name": ["x", "y"], "id": pa.array([7, 8], pa.int16())})
    parquet(folder / "sub" / "d.parquet", {"id": [1], "name": ["not below: no **"]})
    parquet(folder / "d.parquet", {"id": [1000], "name": ["new"]})
    changed = one.run()
    assert changed.good, changed.errors
    assert one.moved(changed) == ["b.parquet", "d.parquet"]
    assert held(one, "count(), uniqExact(_file)") == [(203, 4)]
    assert [row for row in held(one, "_row, id, name, _file") if row[3] == "b.parquet"] == [
        (1, 7, "x", "b.parquet"),
        (2, 8, "y", "b.parquet"),
    ]


def test_damage_is_found_by_every_level(ferry: Maker, folder: Path) -> None:
    one = declared(ferry, f"{folder}/*.parquet")
    assert one.run().good
    target = one.session.servers.endpoint(TableRef("clickhouse", "warehouse", one.table))
    assert invoke("check", one.table, "--level", "full_hash")[0] == 0
    target.execute(
        f"ALTER TABLE warehouse.{one.table} UPDATE name = 'damaged' WHERE id = 107 "
        "SETTINGS mutations_sync = 2"
    )
    for level in ("checksum", "full_hash"):
        code, output = invoke("check", one.table, "--level", level)
        assert code == 1
        assert f"b.parquet: {level} FAILED: 1 row differs: name" in output
    code, output = invoke("diff", one.table, "--range", "b.parquet")
    assert "damaged" in output and "größe 107" in output and "108" not in output.split("damaged")[0]
    mended = one.run()
    assert mended.good and one.moved(mended) == ["b.parquet"]


def test_a_vanished_file_is_told_and_goes_only_if_declared(ferry: Maker, folder: Path) -> None:
    one = declared(ferry, f"{folder}/*.parquet")
    assert one.run().good
    (folder / "b.parquet").unlink()
    kept = one.run()
    assert kept.good and not kept.run_ids
    assert kept.notes == [
        f"files://{folder}/*.parquet: b.parquet no longer exists; its rows stay (on_missing: keep)"
    ]
    assert "note: " in invoke("plan", one.table)[1]
    assert invoke("check", one.table)[0] == 0
    assert held(one, "count(), 1") == [(300, 1)]
    file = one.folder / "t.yaml"
    file.write_text(file.read_text() + "on_missing: delete\n", encoding="utf-8")
    gone = reopened(one).run()
    assert gone.good and [note for note in gone.notes if "its rows go" in note]
    assert held(one, "count(), uniqExact(_file)") == [(200, 2)]
    assert not reopened(one).run().notes


def test_a_vanished_file_whose_partition_somebody_deletes_stays_too(
    ferry: Maker, folder: Path
) -> None:
    one = declared(ferry, f"{folder}/*.parquet")
    assert one.run().good
    partitions, instance = f"{one.table}_ranges", one.session.instance
    for name in ("a.parquet", "b.parquet"):
        (folder / name).unlink()
    instance.delete_dynamic_partition(partitions, "b.parquet")
    code, output = invoke("status", one.table)
    assert code == 1 and "b.parquet" in output and "adds it again" in output
    ended = one.run()
    assert ended.good, ended.errors
    assert sum("its rows stay (on_missing: keep)" in note for note in ended.notes) == 2
    assert "b.parquet" in instance.get_dynamic_partitions(partitions)
    assert invoke("status", one.table)[0] == invoke("check", one.table)[0] == 0
    assert held(one, "count(), uniqExact(_file)") == [(300, 3)]


def test_a_torn_file_is_refused_by_name_and_the_others_move(ferry: Maker, folder: Path) -> None:
    whole = (folder / "b.parquet").read_bytes()
    (folder / "b.parquet").write_bytes(whole[: len(whole) // 2])
    one = declared(ferry, f"{folder}/*.parquet")
    view = one.run()
    assert not view.good and f"{folder}/b.parquet cannot be read" in "".join(view.errors)
    assert one.moved(view) == ["a.parquet", "c.parquet"]
    (folder / "b.parquet").write_bytes(whole)
    mended = one.run()
    assert mended.good and one.moved(mended) == ["b.parquet"]
    # a committed file that is torn later keeps its rows, until it is whole again
    (folder / "b.parquet").write_bytes(whole[: len(whole) // 2])
    assert not one.run().good
    assert held(one, "count(), 1") == [(300, 1)]


def test_csv_by_name_with_types_of_all_files_together(ferry: Maker, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text(
        'id,amount,zip,note\n1,1.5,007,"a ""b"",\nc"\n2,,100,""\n', encoding="utf-8"
    )
    (folder / "2.csv").write_text("\ufeffzip;id\n12a;3\n", encoding="utf-8")
    with gzip.open(folder / "3.csv.gz", "wt", encoding="utf-8") as stream:
        stream.write("note,amount,id\nä😀,-3.125,4\n")
    one = declared(ferry, f"{folder}/*.csv*", reconcile="full_hash")
    view = one.run()
    assert view.good, view.errors
    assert held(one, "id, amount, zip, note, _file") == [
        (1, Decimal("1.500"), "007", 'a "b",\nc', "1.csv"),
        (2, None, "100", "", "1.csv"),
        (3, None, "12a", None, "2.csv"),
        (4, Decimal("-3.125"), None, "ä😀", "3.csv.gz"),
    ]
    # torn within the stream, at the end of a row
    packed = (folder / "3.csv.gz").read_bytes()
    (folder / "3.csv.gz").write_bytes(packed[:-6])
    view = one.run()
    assert not view.good and "3.csv.gz cannot be read" in "".join(view.errors)


def test_objects_of_ndjson(ferry: Maker, tmp_path: Path) -> None:
    folder = tmp_path / "in [x]"
    folder.mkdir()
    (folder / "1.ndjson").write_text(
        '{"id": 1, "amount": 1.10, "note": "a \\"b\\" 1234567890.12345678901", "tags": [1, "x"]}\n'
        '{"note": "", "id": 18446744073709551615, "flag": true}\n',
        encoding="utf-8",
    )
    with gzip.open(folder / "2.ndjson.gz", "wt", encoding="utf-8") as stream:
        stream.write('{"amount": null, "id": 3, "note": "ä😀"}\n')
    (folder / "3.ndjson").write_text('{"id": 4, "amount": 12345678901234567890.5}\n')
    (folder / "4.ndjson").write_text('{"id": 5}\n{"id": ')
    one = declared(
        ferry,
        f"{tmp_path}/in ?x?/*.ndjson*",
        columns="{id: {type: {files: ubigint}}, amount: {type: {files: 'decimal(9,2)'}}}",
    )
    view = one.run()
    problems = "\n".join(view.errors)
    assert "3.ndjson" in problems
    assert "'12345678901234567890.5' is not a valid DECIMAL(9,2)" in problems
    assert "4.ndjson cannot be read" in problems
    assert one.moved(view) == ["in [x]/1.ndjson", "in [x]/2.ndjson.gz"]
    assert held(one, "id, toString(amount), note, tags, toString(flag)") == [
        (1, "1.1", 'a "b" 1234567890.12345678901', '[1,"x"]', None),
        (3, None, "ä😀", None, None),
        (2**64 - 1, None, "", None, "true"),
    ]


def test_guessed_types_are_kept_by_the_target(ferry: Maker, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text("id,amount,at\n1,1.5,2020-01-01T00:00:00\n", encoding="utf-8")
    one = declared(ferry, f"{folder}/*.csv")
    assert one.run().good
    (folder / "2.csv").write_text("id,amount\nx2,1.5\n", encoding="utf-8")
    (folder / "3.csv").write_text("id,amount\n3,12.25\n", encoding="utf-8")
    (folder / "4.csv").write_text("at,id\n2021-02-03 04:05:06,4\n", encoding="utf-8")
    view = one.run()
    assert one.moved(view) == ["4.csv"]
    problems = "\n".join(view.errors)
    assert "key '2.csv, 1': value 'x2' is not a valid BIGINT" in problems
    assert "key '3.csv, 1': value '12.25' is not a valid DECIMAL(18,1)" in problems
    assert held(one, "id, toString(at)")[-1] == (4, "2021-02-03 04:05:06.000000")


def test_a_wider_integer_of_a_later_file_is_refused_by_name(ferry: Maker, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    parquet(folder / "1.parquet", {"id": pa.array([1], pa.int32()), "name": ["a"]})
    one = declared(ferry, f"{folder}/*.parquet")
    assert one.run().good
    parquet(folder / "0.parquet", {"name": ["b"], "id": pa.array([2], pa.int64())})
    parquet(folder / "2.parquet", {"id": pa.array([2**40], pa.int64()), "name": ["c"]})
    view = one.run()
    assert one.moved(view) == ["0.parquet"]
    assert f"value {2**40}" in "".join(view.errors) and "2.parquet" in "".join(view.errors)
    assert held(one, "id, name") == [(1, "a"), (2, "b")]


def test_declared_types_are_kept_and_others_refused_by_name(ferry: Maker, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text("id,amount\n1,1.5\n", encoding="utf-8")
    columns = "{id: {type: {files: bigint}}, amount: {type: {files: 'decimal(9,2)'}}}"
    one = declared(ferry, f"{folder}/*.csv", columns=columns)
    assert one.run().good
    (folder / "2.csv").write_text("id,amount\n2,1.255\n", encoding="utf-8")
    (folder / "3.csv").write_text("id,amount\n3,x\n4,7\n", encoding="utf-8")
    (folder / "4.csv").write_text("id,amount\n5,8.00\n", encoding="utf-8")
    view = one.run()
    problems = "\n".join(view.errors)
    assert "column 'amount'" in problems and "'1.255' is not a valid DECIMAL(9,2)" in problems
    assert "2.csv" in problems and "'x' is not a valid DECIMAL(9,2)" in problems
    assert one.moved(view) == ["4.csv"]
    assert held(one, "id, toString(amount)") == [(1, "1.5"), (5, "8")]


def test_a_crash_in_the_middle_is_made_good(ferry: Maker, folder: Path, tmp_path: Path) -> None:
    command = Command(tmp_path)
    one = declared(ferry, f"{folder}/*.parquet")
    for point in ("after_load:2", "after_commit:2"):
        crash(command, one.table, point, "--profile", "safe")
    view = reopened(one).run()
    assert view.good, view.errors
    assert held(one, "count(), uniqExact(id)") == [(300, 300)]


def test_a_plan_names_the_folder_that_depends_on_the_process(
    ferry: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet(tmp_path / "in" / "a.parquet", {"id": [1]})
    monkeypatch.chdir(tmp_path)
    one = declared(ferry, "in/*.parquet")
    code, output = invoke("plan", one.table)
    assert code == 0
    assert f"note: files://in/*.parquet is {tmp_path}/in, below the working directory" in output
    monkeypatch.setenv("TABLEFERRY_FILES_URL", f"file://{tmp_path}")
    assert "working directory" not in invoke("plan", reopened(one).table)[1]


def test_what_cannot_be_is_said(ferry: Maker, folder: Path) -> None:
    one = declared(ferry, f"{folder}/*.parquet", key="id", ranges="{rows: 5}")
    assert not one.session.transfers
    code, output = invoke("validate")
    assert code == 2
    assert "is not needed: each file is a range" in output
    one = declared(ferry, f"{folder}/*.txt")
    code, output = invoke("plan", one.table)
    assert code == 2 and "no file matches" in output


def test_the_guides_example(ferry: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
    example = next(
        block.partition("```")[0] for block in guide.split("```yaml\n") if "files://" in block[:90]
    )
    parquet(tmp_path / "srv" / "readings" / "one.parquet", {"id": [1, 2]})
    monkeypatch.setenv("TABLEFERRY_FILES_URL", f"file://{tmp_path}/srv")
    one = ferry(TO_CLICKHOUSE, source="postgres://public.x")
    (one.folder / "t.yaml").write_text(example.replace("readings", one.table), encoding="utf-8")
    (tmp_path / "srv" / "readings").rename(tmp_path / "srv" / one.table)
    reopen(one)
    assert one.run().good
    assert held(one, "id, _file") == [(1, "one.parquet"), (2, "one.parquet")]


def test_the_last_days_that_64_bits_reach_arrive(ferry: Maker, folder: Path, copies: str) -> None:
    """PostgreSQL has them, and 30 years more."""
    moments = pa.array([9_223_372_036_800_000, 9_223_371_244_799_999, 0], pa.timestamp("ms"))
    pq.write_table(pa.table({"t": moments}), folder / "late.parquet")
    one = declared(
        ferry, f"{folder}/*.parquet", f"['postgres://{copies}.{{t}}']", reconcile="full_hash"
    )
    view = one.run()
    assert view.good, view.errors
    assert one.rows(f"SELECT max(t)::text FROM {copies}.{{t}}") == [("294247-01-10 04:00:00",)]
