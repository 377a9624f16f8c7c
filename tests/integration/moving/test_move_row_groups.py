"""Parquet files that are cut into ranges of whole row groups."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.moving.test_move_files import declared, held, invoke, parquet, reopened
from tests.integration.support.crashing import Command, crash

pytestmark = pytest.mark.integration

Maker = Callable[..., Ferry]
POSTGRES = "postgres://public.{t}"
CUT = [
    "big.parquet#0000000001..0000000201",
    "big.parquet#0000000201..0000000401",
    "big.parquet#0000000401..",
]


def big(
    folder: Path,
    rows: int = 500,
    group: int = 100,
    name: str = "größe",
    type_: pa.DataType | None = None,
) -> None:
    """A Parquet file with row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = pa.array(range(rows), type_ or pa.int64())
    names = [f"{name} {one}" for one in range(rows)]
    pq.write_table(
        pa.table({"id": ids, "name": names}), folder / "big.parquet", row_group_size=group
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file of five row groups of 100 rows, and one of 20 rows."""
    found = tmp_path / "in"
    big(found)
    parquet(found / "small.parquet", {"id": list(range(1000, 1020)), "name": ["x"] * 20})
    return found


def cut(ferry: Maker, folder: Path, hop: str = "clickhouse://warehouse.{t}", **more: str) -> Ferry:
    """A transfer of ranges of at most 250 rows."""
    return declared(ferry, f"{folder}/*.parquet", f"['{hop}']", ranges="{rows: 250}", **more)


def test_every_stretch_is_a_range(ferry: Maker, folder: Path) -> None:
    one = cut(ferry, folder)
    view = one.run()
    assert view.good, view.errors
    assert one.moved(view) == [*CUT, "small.parquet"]
    assert [row.rows for row in view.ranges] == [200, 200, 100, 20]
    rows = held(one, "id, name, _file, _row")
    assert rows[:500] == [(n, f"größe {n}", "big.parquet", n + 1) for n in range(500)]
    assert len(rows) == 520 and not one.run().run_ids
    target = one.session.servers.endpoint(TableRef("clickhouse", "warehouse", one.table))
    target.execute(
        f"ALTER TABLE warehouse.{one.table} UPDATE name = 'damaged' WHERE id = 300 "
        "SETTINGS mutations_sync = 2"
    )
    for level in ("checksum", "full_hash"):
        code, output = invoke("check", one.table, "--level", level, "--range", "big.parquet")
        assert code == 1 and "small.parquet" not in output
        assert f"{CUT[1]}: {level} FAILED: 1 row differs: name" in output
    code, output = invoke("diff", one.table, "--range", CUT[1])
    assert "damaged" in output and "größe 300" in output
    code, output = invoke("diff", one.table, "--range", "big.parquet")
    assert code == 2 and f"name one of {', '.join(CUT)}" in output
    mended = one.run()
    assert mended.good and one.moved(mended) == [CUT[1]]


def lying(folder: Path, rows: int = 1000, group: int = 250) -> None:
    """A Parquet file whose footer says that all ids are 0."""
    big(folder, rows, group)
    path = folder / "big.parquet"
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[-8:-4])
    start = len(data) - 8 - length
    footer = data[start:-8]
    for end in range(group, rows + 1, group):
        for bound in (end - group, end - 1):
            number = struct.pack("<q", bound)
            assert footer.count(number) >= 2
            footer = footer.replace(number, bytes(8))
    path.write_bytes(data[:start] + footer + data[-8:])
    columns = [pq.read_metadata(path).row_group(n).column(0) for n in range(rows // group)]
    assert {(one.statistics.min, one.statistics.max) for one in columns} == {(0, 0)}


@pytest.mark.parametrize("ranges", [None, "{rows: 500}"])
@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("id > 99", range(100, 1000)),
        ("id IN (7, 8, 900)", (7, 8, 900)),
        ("id = 0", (0,)),
        ("id + 1 > 990", range(990, 1000)),
        ("id BETWEEN 240 AND 260 AND name IS NOT NULL", range(240, 261)),
    ],
)
def test_a_filter_does_not_believe_the_footer(
    ferry: Maker, tmp_path: Path, ranges: str | None, where: str, ids: Collection[int]
) -> None:
    folder = tmp_path / "in"
    lying(folder)
    given = {"where": where, **({"ranges": ranges} if ranges else {})}
    hop = "['clickhouse://warehouse.{t}']"
    one = declared(ferry, f"{folder}/*.parquet", hop, **given)
    moved = one.run()
    assert moved.good, moved.errors
    assert [row[0] for row in held(one, "id, name")] == [*ids]
    for level in ("checksum", "full_hash"):
        code, output = invoke("check", one.table, "--level", level)
        assert code == 0, output
    assert not one.run().run_ids


@pytest.mark.parametrize("hop", ["clickhouse://warehouse.{t}", POSTGRES])
def test_a_changed_file_replaces_its_own_rows_however_it_is_cut(
    ferry: Maker, folder: Path, hop: str
) -> None:
    one = cut(ferry, folder, hop)
    assert one.run().good
    # torn: what it had brought stays
    whole = (folder / "big.parquet").read_bytes()
    (folder / "big.parquet").write_bytes(whole[:-9])
    torn = one.run()
    assert not torn.good and f"{folder}/big.parquet cannot be read" in "".join(torn.errors)
    assert not one.moved(torn)
    assert held(one, "count(*), count(DISTINCT id)", hop)[0] == (520, 520)
    # fewer ranges than before, then more of them, then none
    for rows, group, names in (
        (300, 150, ["big.parquet#0000000001..0000000151", "big.parquet#0000000151.."]),
        (700, 250, [f"big.parquet#{n:010d}..{e}" for n, e in ((1, "0000000251"),
                    (251, "0000000501"), (501, ""))]),
        (200, 100, ["big.parquet"]),
    ):  # fmt: skip
        big(folder, rows, group, f"of {rows}")
        view = one.run()
        assert view.good, view.errors
        assert one.moved(view) == names
        found = held(one, "id, name, _row", hop)
        assert found[:rows] == [(n, f"of {rows} {n}", n + 1) for n in range(rows)]
        assert len(found) == rows + 20
    assert invoke("check", one.table, "--level", "full_hash")[0] == 0


def test_rows_stay_if_the_file_that_is_cut_otherwise_is_refused(ferry: Maker, folder: Path) -> None:
    (folder / "small.parquet").unlink()
    big(folder, type_=pa.int32())
    one = cut(ferry, folder)
    assert one.run().good
    table = pa.table({"id": [*range(150), *[2**40] * 150], "name": ["new"] * 300})
    pq.write_table(table, folder / "big.parquet", row_group_size=150)
    view = one.run()
    assert not view.good and f"value {2**40}" in "".join(view.errors)
    # the first stretch is the new one, the other rows are those of before
    found = held(one, "id, name")
    assert found[:150] == [(n, "new") for n in range(150)]
    assert found[150:] == [(n, f"größe {n}") for n in range(150, 500)]


def test_a_vanished_file_goes_with_all_of_its_stretches(ferry: Maker, folder: Path) -> None:
    one = cut(ferry, folder)
    assert one.run().good
    (folder / "big.parquet").unlink()
    kept = one.run()
    assert kept.good and not kept.run_ids
    note = "big.parquet no longer exists; its rows stay (on_missing: keep)"
    assert kept.notes == [f"files://{folder}/*.parquet: {note}"]
    file = one.folder / "t.yaml"
    file.write_text(file.read_text() + "on_missing: delete\n", encoding="utf-8")
    assert reopened(one).run().good
    assert held(one, "count(), uniqExact(_file)") == [(20, 1)]


def test_a_crash_between_two_stretches_is_made_good(
    ferry: Maker, folder: Path, tmp_path: Path
) -> None:
    one = cut(ferry, folder)
    assert one.run().good
    big(folder, 400, 200, "new")
    crash(Command(tmp_path), one.table, "after_commit:1", "--profile", "safe")
    view = reopened(one).run()
    assert view.good, view.errors
    found = held(one, "id, name")
    assert found[:400] == [(n, f"new {n}") for n in range(400)] and len(found) == 420


@pytest.mark.parametrize(
    ("files", "lines", "message"),
    [
        ("*.csv", ["ranges: {rows: 10}"], "x.yaml:4: ranges: are for Parquet files alone"),
        ("*.ndjson.gz", ["ranges: {rows: 10}"], "x.yaml:4: ranges: are for Parquet files alone"),
        ("*.parquet", ["ranges: {count: 4}"], "x.yaml:4: ranges: files are cut by rows alone"),
    ],
)
def test_what_cannot_be_cut_is_refused(
    ferry: Maker, folder: Path, files: str, lines: list[str], message: str
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", source="postgres://public.x")
    (one.folder / "t.yaml").unlink()
    text = ["transfer: x", f"source: files://{folder}/{files}", "hops: ['clickhouse://w.x']"]
    (one.folder / "x.yaml").write_text("\n".join([*text, *lines]) + "\n", encoding="utf-8")
    code, output = invoke("validate")
    assert code == 2 and message in output


def test_stretches_need_the_number_of_the_row(ferry: Maker, folder: Path) -> None:
    one = cut(ferry, folder, exclude="[_row]")
    code, output = invoke("plan", one.table)
    assert code == 2 and "'ranges' of files need the column '_row'" in output


def test_the_guides_example(ferry: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in guide.split("```yaml\n")]
    example = next(block for block in blocks if "ranges: {rows: 5000000}" in block)
    one = ferry("['clickhouse://warehouse.{t}']", source="postgres://public.x")
    text = example.replace("events", one.table).replace("5000000", "250")
    (one.folder / "t.yaml").write_text(text, encoding="utf-8")
    big(tmp_path / one.table)
    monkeypatch.setenv("TABLEFERRY_FILES_URL", f"file://{tmp_path}")
    view = reopened(one).run()
    assert view.good and one.moved(view) == CUT
