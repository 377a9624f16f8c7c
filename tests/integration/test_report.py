"""The report and the files of differences that a reviewer is sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq
import pytest

from pipelines import runner
from pipelines.report import render
from pipelines.reporting import report
from tests.integration.conftest import Ferry

pytestmark = pytest.mark.integration

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"


def test_a_damaged_range_is_in_every_form_of_the_report(
    ferry: Callable[..., Ferry], tmp_path: Path
) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
        "INSERT INTO {t} SELECT g, 'name ' || g FROM generate_series(1, 200) g",
        ranges="{rows: 100}",
    )
    assert one.run().good
    assert report(one.session, one.table).passed
    one.session.servers.clickhouse.execute(
        f"ALTER TABLE warehouse.{one.table} UPDATE name = '<b>damaged</b>' WHERE id <= 30 "
        "SETTINGS mutations_sync = 2"
    )
    runner.check(one.session, one.table)
    found = report(one.session, one.table)
    assert not found.passed

    document = json.loads(render(found, "json"))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["passed"] is False
    bad = next(entry for entry in document["hops"][0]["ranges"] if entry["name"] == "..0000000101")
    checksum = next(check for check in bad["checks"] if check["name"] == "checksum")
    assert checksum["differing_rows"] == 30
    assert checksum["differences"][0]["source"] == "name 1"
    assert bad["seconds"].keys() >= {"export", "load", "finalise", "reconcile"}
    assert bad["fingerprint"]

    markdown = render(found, "md")
    assert "..0000000101" in markdown and "name 1" in markdown
    page = render(found, "html")
    assert "<b>damaged</b>" not in page, "values are escaped"
    assert "&lt;b&gt;damaged" in page
    assert "http" not in page.replace("http-equiv", ""), "the page needs nothing from elsewhere"

    path = tmp_path / "differences.parquet"
    shown = runner.differences(one.session, one.table, "..0000000101", parquet=path)
    assert next(iter(shown.values())).rows == 30
    rows = pq.read_table(path).to_pylist()
    assert [row["key"] for row in rows] == [str(number) for number in range(1, 31)]
    assert {(row["kind"], row["column"]) for row in rows} == {("different", "name")}
