"""The YAML of a transfer: what it may say, and how wrong files are reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tableferry.assets.declaring.transfer_files import TransferFolder, load_transfer, load_transfers
from tableferry.resources.errors import InputError
from tableferry.resources.registry import registered, system
from tableferry.resources.tables import TableRef

GOOD = """\
transfer: orders
source: postgres://public.orders
hops:
  - sqlserver://dbo.orders
  - clickhouse://warehouse.orders
key: id
"""
UPSERT = "write: upsert\nfingerprint: {watermark: at}\n"

HOP_COLUMNS = GOOD.replace(
    "  - clickhouse://warehouse.orders\n",
    "  - to: clickhouse://warehouse.orders\n    columns: {a: {on_overflow: null, rename: c}}\n",
)

NO_KEY = GOOD.replace("key: id", "ranges: {by: ctid, count: 4}")


def write(folder: Path, text: str, name: str = "orders.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("postgres://", "sink://", 2, "source should be"),
        ("sqlserver://dbo", "sink://a", 5, "cannot move rows from"),
    ],
)
def test_a_system_that_only_takes_rows(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    with (
        registered(replace(system("clickhouse"), name="sink", source=None)),
        pytest.raises(InputError, match=rf"orders\.yaml:{line}: .*{message}"),
    ):
        load_transfer(write(tmp_path, GOOD.replace(old, new)))


def test_what_a_hop_says_of_columns_comes_first(tmp_path: Path) -> None:
    wide = "columns:\n  a: {rename: b, type: int, on_overflow: clamp}\n"
    wide += "  d: {type: {clickhouse: String}}\n"
    transfer = load_transfer(write(tmp_path, HOP_COLUMNS + wide))
    first, second = transfer.columns_in(1), transfer.columns_in(2)
    assert (first["a"].type, first["a"].on_overflow, first["d"].type) == ("int", "clamp", None)
    assert (second["a"].type, second["a"].on_overflow) == (None, "null")
    assert second["d"].type == "String"
    assert [transfer.target_name("a", hop) for hop in (0, 1, 2)] == ["a", "b", "c"]
    one = load_transfer(write(tmp_path, HOP_COLUMNS))
    assert [one.target_name("a", hop) for hop in (0, 1, 2)] == ["a", "a", "c"]


def test_the_smallest_file_gets_the_defaults(tmp_path: Path) -> None:
    transfer = load_transfer(write(tmp_path, GOOD))
    assert transfer.source == TableRef("postgres", "public", "orders")
    assert [hop.to.system_name for hop in transfer.hops] == ["sqlserver", "clickhouse"]
    assert (transfer.write, transfer.reconcile, transfer.fingerprint) == (
        "replace",
        "checksum",
        "auto",
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
        (NO_KEY + "write: upsert\n", 7, "upsert needs a key that stays with its row"),
        (NO_KEY + "key: id\n", 7, "cannot be declared with 'ranges: {by: ctid}'"),
        (NO_KEY + "fingerprint: none\n", 7, "one of auto, content, row_version with"),
        (NO_KEY + "fingerprint: {watermark: at}\n", 7, "one of auto, content, row_version with"),
        (NO_KEY + "exclude: [ctid]\n", 7, "key 'ctid' should not be excluded"),
        (NO_KEY.replace("postgres", "clickhouse"), 6, "by: ctid is for PostgreSQL tables"),
        (NO_KEY.replace("postgres", "files"), 6, "each file is a range"),
        (NO_KEY.replace(", count: 4", ""), 6, "by: ctid goes with count"),
        (NO_KEY.replace("count: 4", "rows: 10"), 6, "by: ctid goes with count, not rows"),
        (NO_KEY.replace("by: ctid", "by: block"), 6, "'ctid'"),
        (GOOD + "rangez: 3\n", 7, "unknown key rangez"),
        (GOOD + "ranges: {rows: 5, count: 2}\n", 7, "one of rows, count and width"),
        (GOOD + "ranges: {rows: 0}\n", 7, "greater than 0"),
        (GOOD + "ranges:\n  bounds: [5, 5]\n", 8, "bounds overlap"),
        (GOOD + "write: overwrite\n", 7, "'replace'"),
        (GOOD + "key: id\n", 7, "key is given twice"),
        (GOOD + "exclude: [id]\n", 7, "key 'id' should not be excluded"),
        (GOOD + "columns: [note]\n", 7, "key 'id' should not be excluded"),
        (GOOD + "columns:\n  note:\n    typ: text\n", 9, "columns.note.typ: did you mean type?"),
        (GOOD + "ranges: {row: 1000}\n", 7, "unknown key ranges.row: did you mean rows?"),
        (GOOD + "ranges: {rows: lots}\n", 7, "rows: should be a whole number (got 'lots')"),
        (GOOD + "columns:\n  n: {type: decimal(9,2)}\n", 8, 'quoted: {type: "decimal(12,2)"}'),
        (
            GOOD + "columns:\n  n: {type: {sqlserver: decimal(9,2)}}\n",
            8,
            "columns.n.type.2) is the rest of a type",
        ),
        (
            GOOD + "columns:\n  n: {type: {sqlserver: 5, clickhouse: Int8}}\n",
            8,
            "columns.n.type.sqlserver: should be a text (got 5)",
        ),
        (
            GOOD + 'columns:\n  "price (eur)": 7\n',
            8,
            "columns.price (eur): should be keys with values",
        ),
        (GOOD.replace("public.orders", "orders"), 2, "system://schema.table"),
        (GOOD.replace("sqlserver://", "oracle://"), 4, "system://schema.table"),
        (GOOD.replace("orders\nsource", "my orders\nsource"), 1, "letters, digits"),
        (GOOD.replace("transfer: orders", "transfer: context"), 1, "Dagster reserves"),
        (GOOD.replace("clickhouse://warehouse", "sqlserver://dbo"), 5, "appears twice"),
        (
            GOOD.replace("clickhouse://warehouse.orders", "files://out/") + "write: upsert\n",
            7,
            "write: files://out/*.parquet takes only replace, not upsert",
        ),
        (
            GOOD.replace("clickhouse://warehouse.orders", "files://out/*.csv"),
            5,
            "files://out/*.csv is not a folder to write to",
        ),
        (GOOD.replace("clickhouse://warehouse.orders", "files://a*/"), 5, "is not a folder"),
        (
            GOOD.replace("postgres://public.orders", "files://in/*.csv")
            .replace("clickhouse://warehouse.orders", "files://in/")
            .replace("key: id\n", ""),
            5,
            "one folder of files, and has files://in/*.csv",
        ),
        (GOOD + "ranges: {}\n", 7, "give one of rows, count, width and bounds"),
        (GOOD + "ranges: {rows: 5, bounds: [1, 10]}\n", 7, "not with rows"),
        (GOOD + "ranges: {width: 5, bounds: [1, 5, 10]}\n", 7, "found 3"),
        (GOOD + "ranges: {count: 100000}\n", 7, "less than or equal to 2000"),
        (GOOD + "ranges: {width: week}\n", 7, "or day, month or year"),
        (GOOD + "ranges: {width: day, bounds: [1, 10]}\n", 7, "bounds that are dates"),
        (GOOD + "ranges: {bounds: [1, abc]}\n", 7, "should all be integers, dates"),
        (GOOD + "ranges: {bounds: [1, 2024-01-01]}\n", 7, "should all be integers, dates"),
        (GOOD + "ranges: {bounds: [1, null]}\n", 7, "should all be integers, dates"),
        (GOOD + "write: swap\nparallel:\n  runs: 4\n", 9, "parallel.runs: is for one run alone"),
        (
            GOOD.replace("key: id", "ranges: {by: ctid, count: 4}") + "parallel: {runs: 4}\n",
            7,
            "parallel.runs: is for one run alone",
        ),
        (GOOD + "parallel: {runs: 0}\n", 7, "parallel.runs: "),
        (GOOD + "parallel: {runs: 65}\n", 7, "parallel.runs: "),
        (GOOD + 'schedule: "every day"\n', 7, "schedule: should be a cron line"),
        (GOOD + 'schedule: "* * * * * *"\n', 7, "schedule: should be a cron line"),
        (GOOD + 'check_schedule: "0 0 31 2 *"\n', 7, "check_schedule: should be a cron line"),
        (
            GOOD + "freshness: often\n",
            7,
            "should be schedule, none or an age such as 36h",
        ),
        (GOOD + "freshness: 0d\n", 7, "freshness: should be longer than zero"),
        (GOOD + 'owners: ["team:x", "sales team"]\n', 7, "owners.1: should be an e-mail"),
        (GOOD + 'tags:\n  team: sales\n  "a b": c\n', 9, "tags.a b: should be 1 to 63"),
        (GOOD + 'tags: {team: "a b"}\n', 7, "tags.team: should be at most 63"),
        (GOOD + "tags: {year: 2024}\n", 7, "should be a text (got 2024)"),
        (
            GOOD.replace(
                "- clickhouse://warehouse.orders", "- {to: clickhouse://w.o, engine: Foo}"
            ),
            5,
            "engine: should be an engine of the MergeTree family",
        ),
        (
            GOOD.replace(
                "- clickhouse://warehouse.orders",
                '- {to: clickhouse://w.o, engine: "ReplacingMergeTree(a"}',
            ),
            5,
            "engine",
        ),
        (
            GOOD.replace("- sqlserver://dbo.orders", "- {to: sqlserver://d.o, partition_by: x}"),
            4,
            "partition_by: is for ClickHouse targets",
        ),
        (
            GOOD + 'columns: {a: {type: "nvarcha(3)"}}\n',
            7,
            "not a sqlserver type that can be filled",
        ),
        (GOOD + 'columns: {a: {type: "varbinary(9000)"}}\n', 7, "not a sqlserver type"),
        (GOOD + 'columns: {a: {type: "datetime2(9)"}}\n', 7, "not a sqlserver type"),
        (GOOD + "columns:\n  a:\n    type: {clickhouse: Strng}\n", 9, "not a clickhouse type"),
        (
            GOOD + "columns: {a: {type: {clickhouse: DateTime}}}\n",
            7,
            "'DateTime' is not a clickhouse type that can be filled; DateTime64(0, 'UTC') is one",
        ),
        (GOOD + "columns: {a: {type: {oracle: X}}}\n", 7, "columns.a.type"),
        (GOOD + "columns: {a: {type: 5}}\n", 7, "should be a type of the target"),
        (
            GOOD.replace("  - sqlserver://dbo.orders\n", "")
            + "columns: {a: {type: {sqlserver: int}}}\n",
            6,
            "no hop goes to sqlserver",
        ),
        (
            GOOD.replace("  - clickhouse://warehouse.orders\n", "")
            + "columns: {a: {low_cardinality: true}}\n",
            6,
            "no hop goes there",
        ),
        (GOOD + "columns: {a: {type: int, on_overflow: text}}\n", 7, "chooses the type itself"),
        (GOOD + "columns:\n  a: {expression: b + 1}\n", 8, "needs type: that of its value"),
        (GOOD + "columns:\n  id: {expression: b, type: int}\n", 8, "the key needs the column's"),
        (
            GOOD + "columns:\n  a: {expression: b, type: {clickhouse: String}}\n",
            8,
            "needs the type of the expression in postgres, too",
        ),
        (
            GOOD + "fingerprint: {watermark: at}\ncolumns:\n  at: {expression: b, type: date}\n",
            9,
            "the key needs the column's own values",
        ),
        (GOOD + "columns:\n  a: {rename: b}\n  b: {}\n", 9, "would both be 'b'"),
        (GOOD + "columns:\n  - id\n  - a: {rename: 5}\n", 9, "columns.a.rename"),
        (GOOD + "checks:\n  row_count: {}\n  chekcsum: {}\n", 9, "there is no such check"),
        (GOOD + "expectations:\n  - {type: sql}\n", 8, "one argument, query"),
        (GOOD + "fingerprint: {watermark: }\n", 7, "should be one of auto, content"),
        (GOOD + "incremental: true\n", 7, "needs 'write: upsert'"),
        (GOOD + "write: swap\nincremental: {}\n", 8, "swap cannot leave the older rows"),
        (GOOD + "write: upsert\nincremental: true\n", 8, "auto does not tell newer rows"),
        (GOOD + UPSERT + "exclude: [at]\nincremental: true\n", 10, "which is not copied"),
        (GOOD + UPSERT + "columns: [id]\nincremental: true\n", 10, "which is not copied"),
        (
            GOOD + UPSERT + "columns: {at: {on_overflow: clamp}}\nincremental: true\n",
            10,
            "without on_overflow",
        ),
        (GOOD + UPSERT + "incremental: {full_check: 0h}\n", 9, "longer than zero"),
        (GOOD + UPSERT + "incremental: {full_check: soon}\n", 9, "should be an age"),
        (GOOD + UPSERT + "incremental: often\n", 9, "incremental"),
        (GOOD + "delta: sometimes\n", 7, "delta: should be 'auto'"),
        (
            GOOD.replace("  - sqlserver://dbo.orders\n", "").replace(
                "clickhouse://warehouse.orders", "files://out/"
            )
            + "delta: always\n",
            6,
            "files://out/*.parquet takes whole ranges",
        ),
        (GOOD + "write: replace\ndeletes: apply\n", 8, "has no other rows"),
        (GOOD + "write: append\ndeletes: apply\n", 8, "never changes rows"),
        (GOOD + "write: upsert\ndeletes: {mark: ''}\n", 8, "deletes"),
        (GOOD + "write: upsert\ndeletes: apply\n", 8, "apply is not for clickhouse"),
        (GOOD + "delta: always\nwrite: swap\n", 7, "swap writes no single rows"),
        (GOOD + "delta: always\nwrite: append\n", 7, "append writes no single rows"),
        (GOOD + "reconcile: in_flight\n", 7, "reconcile: in_flight is gone"),
        (GOOD + "checks:\n  in_flight: {severity: warn}\n", 8, "take checksum; or count"),
        (GOOD + "columns: {a: {on_overflow: 'null'}}\ndelta: always\n", 8, "without on_overflow"),
        (
            GOOD.replace("- clickhouse", "- {exclude: [a], columns: {a: {}}, to: clickhouse")
            .replace("warehouse.orders", "warehouse.orders'}")
            .replace("clickhouse:", "'clickhouse:"),
            5,
            "column 'a': clickhouse://warehouse.orders is without it",
        ),
        (
            HOP_COLUMNS + "delta: always\n",
            8,
            "needs column 'a' as it is",
        ),
        (GOOD + "key: 2024-13-45\n", 1, "month must be in"),
        (GOOD + "? [a]\n: b\n", 7, "unhashable"),
        ("&a [*a]\n", 1, "should be a mapping"),
        ("transfer: &a\n  b: *a\n", 1, "transfer"),
        ("a: 1\n---\nb: 2\n", 2, "single document"),
        ("", 1, "should be a mapping"),
        (GOOD + "profile: turbo\n", 7, "should be one of safe, balanced, throughput"),
        (GOOD + "fingerprint: md5\n", 7, "should be one of auto, content"),
        (GOOD + "fingerprint: count_minmax\n", 7, "take auto, or {watermark: column}"),
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


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """\
transfer: my orders
source: postgres://public.orders
hops:
  - {to: sqlserver://dbo.orders, engine: MergeTree}
  - {to: clickhouse://warehouse.orders, engine: FooTree}
  - {to: clickhouse://warehouse.orders}
key: id
ranges:
  rows: 0
  bounds: [1, 10, 3]
columns:
  price: {type: "Decimel(10,2)", typo: 1}
  note: {type: {clickhouse: Strng, sqlserver: nvarcha(3)}}
  other: {rename: price}
exclude: [id]
schedule: every day
check_schedule: 61 * * * *
owners: [bob, "team:ok", sales team]
tags: {"a b": x, y: "b c"}
checks: {foo: {}, bar: {}}
write: overwrite
key: id
sauce: x
""",
    )
    with pytest.raises(InputError) as caught:
        load_transfer(path)
    lines = str(caught.value).splitlines()
    found = [line.removeprefix(f"{path}:").split(": ", 1) for line in lines]
    starts = [(int(line), message.split(": ")[0]) for line, message in found]
    assert starts == [
        (1, "transfer"),
        (4, "hops.0.engine"),
        (5, "hops.1.engine"),
        (6, "hops.2"),
        (9, "ranges.rows"),
        (10, "ranges.bounds"),
        (12, "unknown key columns.price.typo"),
        (12, "columns.price.type"),
        (13, "columns.note.type.clickhouse"),
        (13, "columns.note.type.sqlserver"),
        (14, "columns.other.rename"),
        (15, "exclude"),
        (16, "schedule"),
        (17, "check_schedule"),
        (18, "owners.0"),
        (18, "owners.2"),
        (19, "tags.a b"),
        (19, "tags.y"),
        (20, "checks.foo"),
        (20, "checks.bar"),
        (21, "write"),
        (22, "key is given twice"),
        (23, "unknown key sauce"),
    ]


def test_a_null_policy_needs_no_quotes(tmp_path: Path) -> None:
    transfer = load_transfer(write(tmp_path, GOOD + "columns: {note: {on_overflow: null}}\n"))
    assert transfer.columns["note"].on_overflow == "null"


def test_a_table_without_a_key_has_its_place(tmp_path: Path) -> None:
    transfer = load_transfer(write(tmp_path, NO_KEY))
    assert (transfer.key, transfer.target_name(transfer.key), transfer.by_place) == (
        "ctid",
        "_ctid",
        True,
    )
    renamed = load_transfer(write(tmp_path, NO_KEY + "columns: {ctid: {rename: place}}\n"))
    assert renamed.target_name("ctid") == "place"
    subset = load_transfer(write(tmp_path, NO_KEY + "columns: [note]\n"))
    assert subset.only == ["ctid", "note"]


@pytest.mark.parametrize(
    "bounds",
    [
        "[2024-01-01, 2024-02-01 12:00:00, 2024-02-01T12:00:01Z]",
        '["2024-01-01", 2024-01-02]',
        "['10', 100]",
        "['00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-0000000000ff']",
    ],
)
def test_bounds_are_keys_of_one_kind(tmp_path: Path, bounds: str) -> None:
    transfer = load_transfer(write(tmp_path, GOOD + f"ranges: {{bounds: {bounds}}}\n"))
    assert transfer.ranges.bounds == yaml.safe_load(bounds)


def test_one_bad_file_leaves_the_others_good(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    bad = write(tmp_path, GOOD.replace("orders", "bad") + "sauce: x\n", "bad.yaml")
    odd = write(tmp_path, "transfer: [\n", "odd.yml")
    write(tmp_path, "editor's lock", ".#orders.yaml")
    declared = load_transfers(tmp_path)
    assert list(declared.transfers) == ["orders"]
    assert [(file.path, file.transfer) for file in declared.invalid] == [(bad, "bad"), (odd, None)]
    assert declared.files["orders"].line(("hops", 1)) == 5
    with pytest.raises(InputError, match=r"bad\.yaml:7: unknown key sauce"):
        declared.transfer("bad")
    with pytest.raises(InputError, match=r"odd\.yml:2"):
        declared.transfer("odd")
    unknown = (
        r"no transfer 'nope' .*; there are orders; "
        r"2 files left out as invalid \(bad\.yaml, odd\.yml\): see `ferry validate`"
    )
    with pytest.raises(InputError, match=unknown):
        declared.transfer("nope")


def test_an_unknown_name_among_many_is_answered_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    orders = load_transfers(tmp_path).transfer("orders")
    many = {name: orders for name in (*(f"t{number}" for number in range(9)), "orders")}
    with pytest.raises(
        InputError, match=r"no transfer 'order' in \S+; did you mean orders\? `ferry st"
    ):
        TransferFolder(tmp_path, many).transfer("order")


def test_files_that_claim_the_same_are_all_left_out_and_named(tmp_path: Path) -> None:
    first, second = write(tmp_path, GOOD), write(tmp_path, GOOD, "again.yaml")
    third = write(tmp_path, GOOD.replace("orders", "other"), "third.yaml")
    declared = load_transfers(tmp_path)
    assert list(declared.transfers) == ["other"]
    text = "\n".join(map(str, declared.invalid))
    assert f"{first}:1: transfer 'orders' is also in {second}:1" in text
    assert f"{second}:1: transfer 'orders' is also in {first}:1" in text
    assert f"{second}:5: the target clickhouse://warehouse.orders is also in {first}:5" in text
    assert str(third) not in text
    with pytest.raises(InputError) as caught:
        declared.transfer("orders")
    assert f"{first}:1:" in str(caught.value)
    assert f"{second}:1:" in str(caught.value)


def test_two_transfers_cannot_share_a_name_in_dagster(tmp_path: Path) -> None:
    schedules = 'schedule: "0 1 * * *"\ncheck_schedule: "0 2 * * *"\n'
    write(tmp_path, GOOD + schedules)
    write(tmp_path, GOOD.replace("orders", "orders_check") + schedules, "second.yaml")
    declared = load_transfers(tmp_path)
    assert not declared.transfers
    assert all("in Dagster is also in" in str(file) for file in declared.invalid)


def test_a_missing_folder_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="TABLEFERRY_TRANSFERS"):
        load_transfers(tmp_path / "nope")
