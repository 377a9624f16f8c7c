"""The YAML of a transfer: what it may say, and how wrong files are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.manifest import load_transfer, load_transfers
from resources.errors import InputError
from resources.tables import TableRef

GOOD = """\
transfer: orders
source: postgres://public.orders
hops:
  - sqlserver://dbo.orders
  - clickhouse://warehouse.orders
key: id
"""


def write(folder: Path, text: str, name: str = "orders.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_smallest_file_gets_the_defaults(tmp_path: Path) -> None:
    transfer = load_transfer(write(tmp_path, GOOD))
    assert transfer.source == TableRef("postgres", "public", "orders")
    assert [hop.to.system for hop in transfer.hops] == ["sqlserver", "clickhouse"]
    assert (transfer.write, transfer.reconcile, transfer.fingerprint) == (
        "replace",
        "checksum",
        "content",
    )
    assert transfer.ranges.rows == 250_000


def test_every_key_of_the_design_is_understood(tmp_path: Path) -> None:
    text = GOOD + (
        "ranges: {count: 8, bounds: [1, 10000001]}\n"
        "write: upsert\n"
        "reconcile: full_hash\n"
        "fingerprint: {watermark: updated_at}\n"
        'columns:\n  note: {type: "nvarchar(400)", on_overflow: "null"}\n'
        "exclude: [internal_flag]\n"
        "parallel: {export: 4, load: 2}\n"
        "tags: {team: sales}\n"
        'owners: ["team:data-platform"]\n'
        'schedule: "0 2 * * *"\n'
    )
    transfer = load_transfer(write(tmp_path, text))
    assert transfer.watermark == "updated_at"
    assert transfer.columns["note"].type == "nvarchar(400)"
    assert (transfer.parallel.export, transfer.parallel.load) == (4, 2)
    assert transfer.ranges.bounds == [1, 10000001]


def test_columns_as_a_list_are_a_subset(tmp_path: Path) -> None:
    text = GOOD + "columns:\n  - id\n  - note: {rename: remark}\n"
    transfer = load_transfer(write(tmp_path, text))
    assert transfer.only == ["id", "note"]
    assert transfer.columns["note"].rename == "remark"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (GOOD + "rangez: 3\n", 7, "unknown key rangez"),
        (GOOD + "ranges: {rows: 5, count: 2}\n", 7, "one of rows, count and width"),
        (GOOD + "ranges: {rows: 0}\n", 7, "greater than 0"),
        (GOOD + "ranges:\n  bounds: [5, 5]\n", 7, "bounds overlap"),
        (GOOD + "write: overwrite\n", 7, "'replace'"),
        (GOOD + "key: id\n", 7, "key is given twice"),
        (GOOD + "exclude: [id]\n", 1, "key 'id' should not be excluded"),
        (GOOD + "columns:\n  note:\n    typ: text\n", 9, "unknown key columns.note.typ"),
        (GOOD.replace("public.orders", "orders"), 2, "system://schema.table"),
        (GOOD.replace("sqlserver://", "oracle://"), 4, "system://schema.table"),
        (GOOD.replace("orders\nsource", "my orders\nsource"), 1, "letters, digits"),
        (GOOD.replace("postgres://", "clickhouse://"), 1, "source should be"),
        (GOOD + "profile: turbo\n", 7, "should be one of safe, balanced, throughput"),
        (GOOD + "fingerprint: md5\n", 7, "should be one of content"),
        ("transfer: [\n", 2, ""),
        ("- a\n", 1, "should be a mapping"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_transfer(path)
    assert f"{path}:{line}:" in str(caught.value)
    assert message in str(caught.value)


def test_two_transfers_cannot_share_a_name_or_a_target(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, GOOD, "again.yaml")
    with pytest.raises(InputError, match="is also in"):
        load_transfers(tmp_path)
    write(tmp_path, GOOD.replace("transfer: orders", "transfer: other"), "again.yaml")
    with pytest.raises(InputError, match="is also a target"):
        load_transfers(tmp_path)


def test_a_missing_folder_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="TABLEFERRY_TRANSFERS"):
        load_transfers(tmp_path / "nope")
