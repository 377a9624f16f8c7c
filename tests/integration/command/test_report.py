"""The report and the files of differences that a reviewer is sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq
import pytest

from tableferry.assets.log.runs import RANGE_END, RANGE_START
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.reporting.collect import report
from tableferry.pipelines.reporting.html import render
from tableferry.pipelines.reporting.report import HopEntry
from tests.integration.conftest import Ferry
from tests.integration.support.beside import until
from tests.integration.support.crashing import Command, crash, reopen, staging_tables
from tests.integration.support.webui import browser
from tests.pipelines.sample_report import sample

pytestmark = pytest.mark.integration

SCHEMA = Path(__file__).parents[3] / "docs" / "report.schema.json"
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, 'name ' || g FROM generate_series(1, 200) g",
)


def test_a_damaged_range_is_in_every_form_of_the_report(
    ferry: Callable[..., Ferry], tmp_path: Path
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *TABLE, ranges="{rows: 100}")
    assert not report(one.session, one.table).passed, "nothing was moved yet"
    assert one.run().good
    good = report(one.session, one.table)
    assert good.problems == ()
    assert good.counts()["rows"] == 200
    one.session.servers.endpoints["clickhouse"].execute(
        f"ALTER TABLE warehouse.{one.table} UPDATE name = '<b>damaged</b>' WHERE id <= 30 "
        "SETTINGS mutations_sync = 2"
    )
    runner.check(one.session, one.table)
    found = report(one.session, one.table)
    assert not found.passed

    document = json.loads(render(found, "json"))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["passed"] is False
    bad = document["hops"][0]["ranges"][0]
    assert bad["keys"] == "id < 101"
    checksum = next(check for check in bad["checks"] if check["name"] == "checksum")
    assert checksum["differing_rows"] == 30
    assert checksum["differences"][0]["source"] == "name 1"
    assert bad["seconds"].keys() >= {"export", "load", "finalise", "reconcile"}
    assert bad["fingerprint"]

    markdown = render(found, "md")
    assert "name 1" in markdown
    page = render(found, "html")
    assert "<b>damaged</b>" not in page, "values are escaped"
    assert "&lt;b&gt;damaged" in page
    assert "http" not in page.replace("http-equiv", ""), "the page needs nothing from elsewhere"

    path = tmp_path / "differences.parquet"
    name = found.hops[0].ranges[0].name
    shown = runner.differences(one.session, one.table, name, parquet=path)
    assert next(iter(shown.values())).rows == 30
    rows = pq.read_table(path).to_pylist()
    assert [row["key"] for row in rows] == [str(number) for number in range(1, 31)]
    assert {(row["kind"], row["column"]) for row in rows} == {("different", "name")}


def test_a_run_that_was_killed_over_unchanged_ranges_is_mended_by_the_next(
    ferry: Callable[..., Ferry], tmp_path: Path
) -> None:
    one = ferry(
        "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']", *TABLE, ranges="{rows: 50}"
    )
    assert one.run().good
    crash(Command(tmp_path), one.table, "after_load:2", "--force", "--profile", "safe")
    assert staging_tables(one, "clickhouse"), "which only a run or `ferry clean` drops"
    reopen(one)
    assert not report(one.session, one.table).passed
    mending = one.run()
    assert mending.good and one.moved(mending) == [], mending.errors
    assert report(one.session, one.table).problems == ()
    assert staging_tables(one, "clickhouse") == staging_tables(one, "sqlserver") == []
    again = one.run()
    assert again.good and not again.run_ids, "there is nothing left to do"


def test_the_evidence_of_both_hops_and_of_a_skip(ferry: Callable[..., Ferry]) -> None:
    one = ferry(
        "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']", *TABLE, ranges="{rows: 100}"
    )
    (first,) = one.run().run_ids
    one.source("UPDATE {t} SET name = 'new' WHERE id = 1")
    names = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
    again = one.launch(tags={RANGE_START: names[0], RANGE_END: names[-1]})
    assert again.success
    found = report(one.session, one.table, dagster_url="http://dagster:3000/")
    assert found.problems == ()
    assert (found.counts()["rows"], found.counts()["ranges"]) == (200, 3)
    for hop, source, target in zip(
        found.hops, ("postgres", "sqlserver"), ("sqlserver", "clickhouse"), strict=True
    ):
        for entry in hop.ranges:
            assert entry.rows == entry.rows_source
            assert str(entry.source_server).startswith(f"{source} at ")
            assert str(entry.target_server).startswith(f"{target} at ")
            assert {check.name for check in entry.checks} == {"row_count", "checksum"}
            assert all(check.figures for check in entry.checks)
            assert all(str(check.at) >= str(entry.moved_at) for check in entry.checks)
            (checksum,) = (check for check in entry.checks if check.name == "checksum")
            moved = again.run_id if entry is hop.ranges[0] else first
            assert (entry.moved_by, checksum.run_id) == (moved, moved)
            assert entry.confirmed_by == (None if moved == again.run_id else again.run_id)
        assert {check.name for check in hop.checks} == {
            "total_rows",
            "unique_key",
            "no_stray_rows",
            "schema",
        }
        assert [(column.name, column.origin.split()[0]) for column in hop.columns] == [
            ("id", "id"),
            ("name", "name"),
        ]
    assert one.session.servers.endpoints["clickhouse"].ping() in str(
        found.hops[1].ranges[0].target_server
    )
    runs = {run.run_id: run for run in found.runs}
    assert {run.outcome for run in runs.values()} == {"succeeded"}
    referred = {check.run_id for hop in found.hops for check in hop.all_checks()}
    assert referred | {first, again.run_id} <= set(runs)
    page = render(found, "html")
    assert all(f'href="http://dagster:3000/runs/{run_id}"' in page for run_id in runs)
    password = one.session.servers.endpoints["clickhouse"].settings().password
    assert password and password not in page + render(found, "json")


def test_a_refused_run_and_the_drift_behind_it_are_told_until_a_run_succeeds(
    ferry: Callable[..., Ferry],
) -> None:
    hops = "['clickhouse://warehouse.{t}']"
    one = ferry(hops, *TABLE, ranges="{rows: 100}")
    assert one.run().good
    one.source("ALTER TABLE {t} ADD COLUMN extra integer")
    assert not one.run().good
    found = report(one.session, one.table)
    (refused,) = (run for run in found.runs if run.unanswered)
    assert refused.outcome == "failed" and "extra" in refused.error
    assert "extra" in found.hops[0].drift
    assert [entry.state for entry in found.hops[0].ranges] == ["committed"] * 3
    assert not found.passed
    page = render(found, "html")
    assert "Not passed" in page and refused.run_id in page

    one.declare(hops, ranges="{rows: 100}", on_schema_drift="ignore_new")
    ignored = report(one.session, one.table)
    assert ignored.hops[0].drift == ""
    assert not ignored.passed, "the refused run has not been answered yet"
    runner.check(one.session, one.table)
    assert report(one.session, one.table).problems == ()


@pytest.mark.skipif(find_spec("great_expectations") is None, reason="needs the extra")
def test_expectations_are_told_with_arguments_counts_and_examples(
    ferry: Callable[..., Ferry],
) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        *TABLE,
        ranges="{rows: 100}",
        checks="{expectations: {severity: warn, blocking: false}}",
        expectations="["
        "{type: expect_column_values_to_be_between, kwargs: {column: id, max_value: 190}}, "
        "{name: no late ids, type: sql, kwargs: "
        "{query: 'SELECT id, name FROM {table} WHERE {range} AND id > 195'}}, "
        "{type: sql, kwargs: {query: 'SELECT id FROM {table} WHERE {range} AND id < 0'}}]",
    )
    one.run()
    found = report(one.session, one.table)
    assert found.counts()["warnings"] == 1
    ((_, (between, late, negative)),) = found.suites()
    assert between.name == "expect_column_values_to_be_between(id)"
    assert between.arguments == {"column": "id", "max_value": 190}
    assert (between.met, between.failed, between.unexpected) == (2, 1, 10)
    assert between.examples[0] == "191"
    assert (late.name, late.unexpected) == ("no late ids", 5)
    assert json.loads(late.examples[0]) == {"id": 196, "name": "name 196"}
    assert (negative.name, negative.met, negative.unexpected) == ("sql: id < 0", 3, 0)
    shown = render(found, "html")
    assert "no late ids" in shown and "AND id &gt; 195" in shown
    assert "None" not in shown and "&#39;id&#39;:" not in shown, "no Python"


def hop_names(hops: tuple[HopEntry, ...]) -> list[str]:
    return [entry.name for hop in hops for entry in hop.ranges]


BROKEN = """
const found = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const node = texts.currentNode;
  if (node.parentElement.closest('.value, pre, style')) continue;
  for (const word of node.data.matchAll(/\\S+/g)) {
    const range = document.createRange();
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const lines = new Set([...range.getClientRects()].map(one => Math.round(one.top)));
    // a word may be continued after a hyphen of its own
    if (lines.size > 1 + (word[0].match(/[-\\/?]/g) || []).length) found.push(word[0]);
  }
}
return found;
"""
WIDER = """
return [...document.querySelectorAll('body, .scroll, dl, p, li, h1, h2, h3')]
  .filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth)
  .map(one => one.outerHTML.slice(0, 200));
"""


@pytest.mark.parametrize("width", [1280, 800])
@pytest.mark.parametrize("bad", [True, False])
def test_the_page_in_a_browser(width: int, bad: bool, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(sample(bad=bad), "html"), encoding="utf-8")
    with browser("file://", tmp_path / "profile") as found:
        found.resize(width, 1000)
        found.open(str(page))
        shown = found.see("Summary", "Key ranges", "Runs", "Not passed" if bad else "Passed")
        assert all(name in shown for name in hop_names(sample(bad=bad).hops))
        # of what is folded, too
        found.script("for (const one of document.querySelectorAll('details')) one.open = true")
        assert found.script(BROKEN) == [], "words are broken"
        assert found.script(WIDER) == [], "something does not fit"
        found.open(str(page))
        found.script("document.querySelector('a[href=\"#hop-2-range-2\"]').click()")
        unfolded = "return document.getElementById('hop-2-range-2').closest('details').open"
        assert until("the linked range", lambda: found.script(unfolded), seconds=60)
