"""A declaration of many tables and its lock, read without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tableferry.assets.declaring import many_tables
from tableferry.assets.declaring.many_tables import by_pattern, fits, lock_text, matching, read_lock
from tableferry.assets.declaring.schema import tables_schema
from tableferry.assets.declaring.sections import HopSpec
from tableferry.assets.declaring.transfer_files import TransferFolder, load_transfers
from tableferry.resources.tables import TableRef

DECLARATION = """\
tables: "postgres://sales.*"
exclude: ["*_old"]
hops:
  - sqlserver://dbo.{schema}_{table}
  - clickhouse://warehouse.{table}
tags: {team: sales}
ranges: {rows: 1000}
"""
ENTRIES: dict[str, dict[str, Any]] = {
    "sales.orders": {
        "transfer": "orders",
        "source": "postgres://sales.orders",
        "key": "id",
        "ranges": {"rows": 250000},
        "columns": {"price": {"type": {"sqlserver": "decimal(38,10)"}}},
    },
    "sales.log": {
        "transfer": "log",
        "source": "postgres://sales.log",
        "ranges": {"by": "ctid", "count": 3},
        "write": "replace",
        "exclude": ["odd"],
    },
}


def load(folder: Path, more: str = "", entries: dict[str, Any] = ENTRIES) -> TransferFolder:
    (folder / "sales.yaml").write_text(DECLARATION + more)
    (folder / "sales.lock.yaml").write_text(lock_text("sales.yaml", entries, {"sales.v": "a view"}))
    return load_transfers(folder)


def problems(folder: TransferFolder) -> list[str]:
    return [str(problem) for file in folder.invalid for problem in file.problems]


def test_each_locked_table_is_a_transfer_beside_those_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "defaults.yaml").write_text("reconcile: count\nranges: {rows: 5}\n")
    (tmp_path / "single.yaml").write_text(
        "transfer: single\nsource: postgres://sales.single\nkey: id\n"
        "hops: ['clickhouse://warehouse.single']\n"
    )
    overrides = "overrides:\n  orders: {tags: {size: big}, columns: {note: {rename: text}}}\n"
    folder = load(tmp_path, overrides)
    assert not folder.invalid
    assert list(folder.transfers) == ["log", "orders", "single"]
    orders, log = folder.transfers["orders"], folder.transfers["log"]
    assert [str(hop.to) for hop in orders.hops] == [
        "sqlserver://dbo.sales_orders",
        "clickhouse://warehouse.orders",
    ]
    assert orders.tags == {"team": "sales", "size": "big"}
    assert set(orders.columns) == {"price", "note"}, "those of the lock and of the override"
    assert orders.ranges.rows == 1000, "what is declared comes before the catalog"
    assert (log.ranges.by, log.ranges.count) == ("ctid", 3), "there is no other way to cut it"
    assert log.exclude == ["odd"]
    assert {orders.reconcile, log.reconcile} == {"count"}


def test_a_target_goes_by_its_shortened_name_as_long_as_it_is_declared(tmp_path: Path) -> None:
    names = {"clickhouse://warehouse.log": "clickhouse://warehouse.l"}
    entries = {"sales.log": {**ENTRIES["sales.log"], "shortened": names}}

    def hops(more: str = "") -> list[HopSpec]:
        folder = load(tmp_path, more, entries)
        assert not problems(folder)
        return folder.transfers["log"].hops

    def overridden(hop: str) -> list[HopSpec]:
        return hops(f"overrides:\n  log: {{hops: [{hop}]}}\n")

    assert [str(hop.to) for hop in hops()] == ["sqlserver://dbo.sales_log", *names.values()]
    (hop,) = overridden("{to: 'clickhouse://warehouse.{table}', order_by: [id]}")
    assert (str(hop.to), hop.order_by) == ("clickhouse://warehouse.l", ["id"])
    (hop,) = overridden("'clickhouse://warehouse.new_{table}'")
    assert str(hop.to) == "clickhouse://warehouse.new_log"


def test_an_override_gives_a_key_to_a_table_without_one(tmp_path: Path) -> None:
    more = "overrides:\n  sales.log: {key: at, columns: {odd: {rename: even}}}\n"
    log = load(tmp_path, more).transfers["log"]
    assert (log.key, log.ranges.by, log.ranges.rows) == ("at", None, 1000)
    assert log.exclude == []


@pytest.mark.parametrize(
    ("more", "line", "message"),
    [
        ("schedule: nonsense\n", 8, "schedule"),
        ("overrides:\n  orders:\n    reconcile: sure\n", 10, "reconcile"),
        ("overrides:\n  orders:\n    reconcile: in_flight\n", 10, "take checksum; or count"),
        ("reconcile: in_flight\n", 8, "take checksum; or count"),
        ("overrides:\n  order: {}\n", 9, "sales.lock.yaml has no such table"),
        ("overrides:\n  orders: 3\n", 9, "should be a mapping with the keys"),
        ("overrides:\n  orders: {source: postgres://a.b}\n", 9, "but source"),
        ("wirte: append\n", 8, "did you mean write?"),
        ("source: postgres://sales.orders\n", 8, "for files of one table"),
        ("prefix: a\nprefix: b\n", 9, "prefix is given twice"),
    ],
)
def test_errors_name_the_line_of_the_declaration_or_override(
    tmp_path: Path, more: str, line: int, message: str
) -> None:
    folder = load(tmp_path, more)
    lines = [one for one in problems(folder) if message in one]
    assert lines and all(one.startswith(f"{tmp_path}/sales.yaml:{line}: ") for one in lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tables: sales.*\nhops: ['clickhouse://w.{table}']\n", ":1: tables: 'sales.*' should be"),
        ("tables: postgres://s.*\nhops: ['clickhouse://w.{tabel}']\n", ":2: hops.0: {tabel} is"),
        ("tables: postgres://s.*\n", ":1: hops: should be a list"),
        ("tables: [postgres://s.*, sqlserver://s.*]\nhops: [clickhouse://w.x]\n", ":1: tables: sh"),
        (
            "tables: postgres://s.*\nhops: ['clickhouse://w.{table}']\n",
            "run `ferry refresh x.yaml`",
        ),
    ],
)
def test_a_declaration_without_tables_targets_or_lock_is_invalid(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    assert message in "\n".join(problems(load_transfers(tmp_path)))


def test_two_tables_with_one_target_are_told_by_line(tmp_path: Path) -> None:
    more = "overrides:\n  log: {hops: ['clickhouse://warehouse.orders']}\n"
    (first, second) = problems(load(tmp_path, more))
    assert "the target clickhouse://warehouse.orders is also in" in first + second
    assert f"{tmp_path}/sales.yaml:9: " in first + second


def test_a_lock_is_sorted_and_survives_names_that_look_like_variables(tmp_path: Path) -> None:
    odd = {"sales.${HOME}": {**ENTRIES["sales.orders"], "source": "postgres://sales.${HOME}"}}
    text = lock_text("sales.yaml", {**ENTRIES, **odd}, {})
    assert text == lock_text("sales.yaml", {**odd, **dict(reversed(ENTRIES.items()))}, {})
    assert text.index("sales.${HOME}:") < text.index("sales.log:") < text.index("sales.orders:")
    folder = load(tmp_path, entries=odd)
    assert folder.transfers["orders"].source.name == "${HOME}"
    assert str(folder.transfers["orders"].hops[1].to) == "clickhouse://warehouse.${HOME}"


@pytest.mark.parametrize("odd", ["\x85", "\u2028", "\r", "\ufeff", "\t", " ", "\n\n"])
def test_a_lock_means_the_names_that_the_server_has(tmp_path: Path, odd: str) -> None:
    table = f"a{odd}b"
    entries = {f"sales.{table}": {**ENTRIES["sales.orders"], "source": f"postgres://sales.{table}"}}
    (tmp_path / "t.lock.yaml").write_text(lock_text("t.yaml", entries, {}), newline="")
    assert read_lock(tmp_path / "t.lock.yaml").entries.keys() == entries.keys()
    (entry,) = read_lock(tmp_path / "t.lock.yaml").entries.values()
    assert entry.data["source"] == f"postgres://sales.{table}"


def test_the_schema_is_that_of_a_transfer_but_for_its_own_keys() -> None:
    schema = tables_schema()
    assert schema["required"] == ["tables", "hops"]
    assert {"tables", "overrides", "prefix", "schedule"} <= schema["properties"].keys()
    assert "source" not in schema["properties"]


def test_patterns_and_plain_names_choose_the_tables_that_they_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("a", "b.c", "B", "a*", "x[1]", "x1")
    tables = [TableRef("postgres", schema, name) for schema in ("s", "b", "s.b") for name in names]
    patterns = [*names, *(f"{schema}.{name}" for schema in ("s", "b", "s.b") for name in names)]
    patterns += ["*", "s.*", "?", "s.b.*", "missing"]
    assert by_pattern(tables, patterns) == {
        pattern: [table for table in tables if fits(table, pattern)] for pattern in patterns
    }
    assert matching(tables, ["s.*"], ["a", "x?"]) == [
        table
        for table in tables
        if fits(table, "s.*") and not (fits(table, "a") or fits(table, "x?"))
    ]
    compared: list[str] = []
    monkeypatch.setattr(many_tables, "fits", lambda table, pattern: compared.append(pattern))
    many = [TableRef("postgres", "s", f"t_{number}") for number in range(50)]
    assert len(matching(many, [f"s.t_{number}" for number in range(40)], ["t_7"])) == 39
    assert not compared, (
        "names are looked up: thousands of them need not be compared with each table"
    )
