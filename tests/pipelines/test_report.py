"""The report: complete, escaped, self-contained, and of the form that its schema says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import dagster as dg
import jsonschema
import pytest

from tableferry.assets.declaring.dagster_rules import about
from tableferry.assets.judging import ProofState, RangeJudgement, TableJudgement
from tableferry.assets.log.history import PastRun, unanswered
from tableferry.pipelines.reporting.collect import checked_url, problems_of
from tableferry.pipelines.reporting.html import breakable, render
from tableferry.pipelines.reporting.report import RunEntry, Suite
from tableferry.resources.errors import InputError
from tableferry.resources.words import counted
from tests.pipelines.sample_report import MOVED, NAMES, NASTY, PROVEN, REFUSED, SUITE, sample

SCHEMA = Path(__file__).parent.parent.parent / "docs" / "report.schema.json"


@pytest.mark.parametrize("bad", [False, True])
def test_json_has_the_form_of_its_schema(bad: bool) -> None:
    found = sample(bad=bad)
    document = json.loads(render(found, "json"))
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)
    assert document["passed"] is not bad
    assert document["problems"] == [problem.text for problem in found.problems]
    check = document["hops"][0]["ranges"][1]["checks"][-1]
    if bad:
        assert check["expectations"][1]["arguments"]["query"].endswith("price <= 0")
        assert document["runs"][0]["unanswered"] is True


def test_rows_and_ranges_count_once_and_checks_of_every_hop() -> None:
    good = sample(bad=False)
    assert good.counts() == {
        "ranges": 4,
        "rows": 500_000,
        "checks": 18,
        "failed_checks": 0,
        "warnings": 0,
    }


def test_it_passes_only_if_all_of_it_is_proven_and_nothing_else_is_wrong() -> None:
    good = sample(bad=False)
    assert good.passed and good.problems == ()
    unanswered_run = RunEntry("r", "move", "failed", "", "", unanswered=True)
    drifted = replace(good.hops[0], drift="new source column 'x'")
    not_moved = TableJudgement(
        ProofState.NOT_MOVED,
        ("sqlserver://dbo.x: no run has moved it yet",),
        {NAMES[0]: RangeJudgement(ProofState.NOT_MOVED, ("missing",))},
    )
    failed = TableJudgement(
        ProofState.FAILED, (), {NAMES[0]: RangeJudgement(ProofState.FAILED, ("checksum FAILED",))}
    )
    both = [PROVEN, PROVEN]
    wrong = [
        problems_of("column 'x' has no exact type", (), good.hops, both),
        problems_of("", (unanswered_run,), good.hops, both),
        problems_of("", (), (drifted, good.hops[1]), both),
        problems_of("", (), good.hops, [PROVEN, not_moved]),
        problems_of("", (), good.hops, [failed, PROVEN]),
    ]
    for problems in map(tuple, wrong):
        assert len(problems) == 1, problems
        one = replace(good, problems=problems)
        assert not one.passed
        assert "Not passed" in render(one, "html") and "NOT PASSED" in render(one, "md")
        assert problems[0].text in text_of(render(one, "html"))


def test_a_warning_is_told_and_fails_nothing() -> None:
    good = sample(bad=False)
    first, *others = good.hops[0].ranges
    first = replace(first, checks=(*first.checks, SUITE))
    warned = replace(good, hops=(replace(good.hops[0], ranges=(first, *others)), good.hops[1]))
    assert warned.passed
    assert warned.counts()["warnings"] == 1
    assert "with a warning" in render(warned, "html")


def test_servers_that_were_not_asked_are_told_and_fail_nothing() -> None:
    alone = replace(sample(bad=False), not_seen="cannot connect to postgres at db:5432")
    assert alone.passed
    assert "could not be queried" in text_of(render(alone, "html"))
    assert "cannot connect to postgres at db:5432" in text_of(render(alone, "html"))


def test_expectations_are_summed_up_over_the_ranges() -> None:
    ((target, found),) = sample().suites()
    assert target == sample().hops[0].target
    assert [(one.name, one.met, one.failed, one.unexpected) for one in found] == [
        ("expect_column_values_to_not_be_null(origin)", 1, 0, None),
        ("no order without a price", 0, 1, 2),
    ]
    assert isinstance(found[0], Suite)


def test_a_sentence_ends_once_and_a_number_goes_with_its_word() -> None:
    (run, *_) = sample().runs
    died = replace(run, unanswered=True, error="The process of this run is gone.")
    gone = [problem.text for problem in problems_of("", (died,), (), ())]
    assert gone and "gone. None" in gone[0]
    assert counted(1, "row") == "1 row" and counted(2000, "row") == "2,000 rows"
    assert about("orders", "orders: no") == about("orders", "no") == "orders: no"


def past(run_id: str, outcome: str, *targets: str) -> PastRun:
    keys = frozenset(dg.AssetKey(name) for name in targets)
    return PastRun(run_id, "move", outcome, "", "", keys)  # type: ignore[arg-type]


def test_a_failed_run_is_answered_by_a_later_success_of_the_same_targets() -> None:
    newest_first = [
        past("5", "failed", "a"),
        past("4", "unfinished", "a", "b"),
        past("3", "succeeded", "b"),
        past("2", "failed", "a", "b"),
        past("1", "canceled", "b"),
        past("0", "succeeded", "a", "b"),
    ]
    assert [run.run_id for run in unanswered(newest_first)] == ["5", "2"]
    assert unanswered(newest_first[2:3]) == []


def test_markdown_shows_what_disagrees_and_keeps_its_tables() -> None:
    text = render(sample(), "md")
    assert text.startswith("# orders: NOT PASSED\n")
    assert "| note length | 9 | 8 |" in text
    assert "| n sum |" not in text
    assert "2 rows differ" in text
    assert "no order without a price" in text
    assert "| row_count, **checksum FAILED**, **expectations WARNING** |" in text
    assert f"| [{REFUSED}](https://dagster.example.com/runs/{REFUSED}) | move | failed |" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    (nasty,) = (line for line in tables if "alert" in line)
    assert len(re.findall(r"(?<!\\)\|", nasty)) == 7


class _Page(HTMLParser):
    """Collects what a browser would load, where links lead, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = {name: value or "" for name, value in attrs}
        self.loaded += [found[name] for name in ("src", "srcset", "data") if name in found]
        if tag == "a":
            self.links.append(found["href"])
        elif "href" in found:
            self.loaded.append(found["href"])
        self.ids += [found["id"]] if "id" in found else []

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(html: str) -> _Page:
    page = _Page()
    page.feed(html)
    return page


def text_of(html: str) -> str:
    return " ".join(page_of(html).text.split())


def test_html_is_self_contained_and_escaped() -> None:
    html = render(sample(), "html")
    page = page_of(html)
    assert page.loaded == []
    assert "script" not in page.tags
    assert "url(" not in html and "@import" not in html
    assert NASTY.replace("\r\n", "\n") in page.text.replace("\r\n", "\n")


def test_html_tells_everything_a_reviewer_asks() -> None:
    shown = text_of(render(sample(), "html"))
    for text in (
        "Not passed",
        "250001 ≤ id < 500001",
        "sql01.internal.example.com:1433",
        "16.0.4135.4",
        "column 'time_hour', key 300000",
        "query: SELECT id, price FROM {table} WHERE {range} AND price <= 0",
        '{"id": 61, "price": "0.00"}',
        "one row in 4",
        "primary key (id, line)",
        "new source column 'extra' (integer)",
        "content:8b1a9953c4611296a827abf8c47804d7",
        "1,000,000,000,000,000,000,000,001",
        MOVED,
    ):
        assert text in shown, text
    assert "None" not in shown.replace("None has succeeded since", "")


def test_links_lead_somewhere() -> None:
    page = page_of(render(sample(), "html"))
    inside = {link[1:] for link in page.links if link.startswith("#")}
    assert inside and inside <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    outside = {link for link in page.links if not link.startswith("#")}
    assert f"https://dagster.example.com/runs/{REFUSED}" in outside
    without = page_of(render(replace(sample(), dagster_url=None), "html"))
    assert all(link.startswith("#") for link in without.links)
    assert REFUSED in without.text


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)",
        "dagster:3000",
        "https://user:secret@dagster",
        "/runs",
        "http://",
        "http://[",
    ],
)
def test_the_address_of_the_web_ui_is_one(text: str) -> None:
    with pytest.raises(InputError) as caught:
        checked_url(text)
    assert "secret" not in str(caught.value)
    assert checked_url("http://127.0.0.1:3000/") == "http://127.0.0.1:3000"


def test_names_may_break_after_their_separators_only() -> None:
    assert breakable("a..b://c_d<") == "a..<wbr>b://<wbr>c_<wbr>d&lt;"
