"""What one hop declares about columns holds there, before what the transfer declares."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

SOURCE = (
    "CREATE TABLE {t} (id bigint PRIMARY KEY, n int, note text, day date, secret text, code text)",
    "INSERT INTO {t} SELECT i, i * 100, 'n' || i, '2024-01-01', 's', 'c'"
    " FROM generate_series(1, 20) i",
    "UPDATE {t} SET day = 'infinity' WHERE id = 3",
    "UPDATE {t} SET day = '0001-02-03' WHERE id = 4",
)
HOPS = """
  - to: sqlserver://dbo.{t}
    columns: {{note: {{rename: remark}}, id: {{rename: ident}}}}
    exclude: [code]
  - to: clickhouse://warehouse.{t}
    columns:
      n: {{type: Int8, on_overflow: clamp}}
      day: {{type: Date, on_overflow: null}}
      id: {{rename: id}}
    exclude: [secret]"""
WIDE = "{day: {on_overflow: clamp}}"


def test_each_hop_has_its_own_columns(ferry: Callable[..., Ferry]) -> None:
    one = ferry(HOPS, *SOURCE, columns=WIDE, figures="[n]", ranges="{count: 2}")
    validated = command("validate")
    assert validated.exit_code == 0, validated.output
    moved = one.run()
    assert moved.good, moved.errors
    first = one.session.servers.endpoints["sqlserver"].query(
        f"SELECT ident, n, remark, day, secret FROM dbo.{one.table} WHERE ident IN (3, 4)"
        " ORDER BY ident"
    )
    assert [tuple(row) for row in first] == [
        (3, 300, "n3", dt.date(9999, 12, 31), "s"),
        (4, 400, "n4", dt.date(1, 2, 3), "s"),
    ]
    lake = one.session.servers.endpoints["clickhouse"]
    table = f"warehouse.{one.table}"
    assert lake.query(f"SELECT id, n, remark, day FROM {table} WHERE id IN (1, 3, 4)") == [
        (1, 100, "n1", dt.date(2024, 1, 1)),
        (3, 127, "n3", None),
        (4, 127, "n4", None),
    ]
    assert [column.name for column in lake.columns(one.session.transfer(one.table).hops[1].to)] == [
        *("id", "n", "remark", "day")
    ]
    checked = runner.check(one.session, one.table, level="full_hash")
    assert checked.good, checked.errors
    assert not one.moved(one.run()), "nothing has changed"

    # a setting of the second hop moves the second hop alone
    one.declare(HOPS.replace("clamp", "null"), columns=WIDE, figures="[n]", ranges="{count: 2}")
    states = {(each.hop, each.state) for each in one.run().ranges}
    assert states == {(1, "skipped_unchanged"), (2, "committed")}
    assert lake.query(f"SELECT n FROM {table} WHERE id = 3") == [(None,)]


@pytest.mark.parametrize("middle", ["postgres://{copies}.{{t}}", "sqlserver://dbo.{{t}}"])
@pytest.mark.parametrize("last", ["clickhouse://warehouse.{{t}}", "files://{folder}/{{t}}/"])
def test_an_on_overflow_for_all_hops_holds_where_a_value_may_not_fit(
    ferry: Callable[..., Ferry],
    copies: str,
    tmp_path: Path,
    middle: str,
    last: str,
) -> None:
    hops = [hop.format(copies=copies, folder=tmp_path) for hop in (middle, last)]
    one = ferry(str(hops), *SOURCE, columns="{day: {on_overflow: 'null'}, n: {}}")
    moved = one.run()
    assert moved.good, moved.errors
    assert runner.check(one.session, one.table, level="full_hash").good
    one.declare(str(hops), columns="{n: {on_overflow: clamp}}")
    result = command("validate")
    assert result.exit_code == 2
    assert f"{one.folder}/t.yaml:5: column 'n': no value can overflow" in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("exclude: [secret]", "exclude: [id]", 11, "the key 'id' should not be excluded"),
        ("exclude: [secret]", "exclude: [code]", 11, "is without it already"),
        ("n: {{type: Int8", "code: {{type: Int8", 8, "column 'code': sqlserver://dbo."),
        ("n: {{type: Int8", "n: {{type: Int9", 8, "'Int9' is not a clickhouse type"),
        ("n: {{type: Int8", "nn: {{type: Int8", 8, "there is no column 'nn'"),
        ("note: {{rename: remark}}", "note: {{rename: n}}", 4, "would both be named 'n'"),
        ("n: {{type: Int8", "n: {{type: Date", 8, "cannot become Date"),
        ("remark}}", "remark, on_overflow: clamp}}", 4, "column 'note': no value can overflow"),
    ],
)
def test_errors_name_the_hop_and_the_line(
    ferry: Callable[..., Ferry], old: str, new: str, line: int, message: str
) -> None:
    assert old in HOPS
    one = ferry(HOPS.replace(old, new), *SOURCE, columns=WIDE)
    result = command("validate")
    assert result.exit_code == 2
    told = [text for text in result.output.splitlines() if f"{one.folder}/t.yaml:{line}: " in text]
    assert told and message in told[0], result.output
    assert "clickhouse://" in told[0] or "sqlserver://" in told[0] or "hops." in told[0]


def test_what_a_later_hop_would_refuse_has_a_remedy_for_that_hop(
    ferry: Callable[..., Ferry],
) -> None:
    hops = ["sqlserver://dbo.{t}", "clickhouse://warehouse.{t}"]
    narrow = "{n: {type: {clickhouse: Int8}}}"
    one = ferry(str(hops), *SOURCE[:2], columns=narrow)
    document = json.loads(command("plan", one.table, "--values", "--json").stdout)
    (refused,) = document["hops"][1]["columns"]
    assert not document["hops"][0]["columns"]
    for number, remedy in enumerate(refused["remedies"]):
        (hop,) = yaml.safe_load(remedy["yaml"])["hops"]
        assert hop["to"] == hops[1].format(t=one.table)
        both = json.dumps([hops[0].format(t=one.table), hop])
        one.declare(both.replace("{", "{{").replace("}", "}}"), columns=narrow)
        assert command("plan", one.table, "--values").exit_code == 0
        if not number:
            assert one.run().good
