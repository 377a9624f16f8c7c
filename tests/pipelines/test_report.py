"""The report: complete, escaped, self-contained, and of the form that its schema says."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from checks.verdict import Difference, Differences, Verdict
from pipelines.report import CheckEntry, HopEntry, RangeEntry, Report, render

SCHEMA = Path(__file__).parent.parent.parent / "docs" / "report.schema.json"
NASTY = "<script>alert('|')</script>\r\n`&"

PASSED = Verdict("row_count", True, {"rows": 3}, {"rows": 3}, 0.01)
FAILED = Verdict(
    "checksum",
    False,
    {"rows": 3, "note": {"values": 3, "length": "9"}, "n": {"values": 3, "sum": "6"}},
    {"rows": 3, "note": {"values": 2, "length": "8"}, "n": {"values": 3, "sum": "6"}},
    0.25,
    ("note",),
    Differences(
        different=1,
        extra_in_target=1,
        by_column={"note": 1},
        examples=(
            Difference("2", "different", "note", NASTY, None, {"id": "2", NASTY: "line 9"}),
            Difference("7", "extra_in_target", row={"id": "7", NASTY: None}),
        ),
        named_by=("id", NASTY),
        primary_key=("id", NASTY),
    ),
)


def report(*verdicts: Verdict, state: str = "committed") -> Report:
    checks = tuple(CheckEntry.of(verdict, at="2026-01-02T03:04:05Z") for verdict in verdicts)
    entry = RangeEntry(
        "0000000001..0000000004", state, 3, 120, {"export": 0.5}, "f00d", "run-1", None, checks
    )
    hop = HopEntry("postgres://public.orders", "clickhouse://warehouse.orders", (entry,))
    return Report("orders", "2026-01-02T03:04:06Z", (hop,), {"dagster": "1.13.27"}, {"key": "id"})


@pytest.mark.parametrize("verdicts", [(), (PASSED,), (PASSED, FAILED)])
def test_json_has_the_form_of_its_schema(verdicts: tuple[Verdict, ...]) -> None:
    document = json.loads(render(report(*verdicts), "json"))
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)
    assert document["passed"] is (FAILED not in verdicts)
    assert document["counts"]["checks"] == len(verdicts)


def test_it_passes_only_if_everything_is_committed() -> None:
    assert report(PASSED).passed
    assert not report(PASSED, state="failed").passed
    assert not report(PASSED, FAILED).passed


def test_markdown_shows_what_disagrees_and_keeps_its_tables() -> None:
    text = render(report(PASSED, FAILED), "md")
    assert text.startswith("# orders: FAILED\n")
    assert "| note length | 9 | 8 |" in text
    assert "| n sum |" not in text
    assert "2 rows differ" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    heads, nasty = (line for line in tables if "alert" in line)
    assert len(re.findall(r"(?<!\\)\|", heads)) == len(re.findall(r"(?<!\\)\|", nasty)) == 7
    assert "named by their primary key (id, " in text
    assert "| 2 | line 9 | different | note |" in text


class _Page(HTMLParser):
    """Collects what a browser would load, and whether tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_self_contained_and_escaped() -> None:
    page = _Page()
    html = render(report(PASSED, FAILED), "html")
    page.feed(html)
    assert page.loaded == []
    assert "script" not in page.tags
    assert "url(" not in html
    assert NASTY.replace("\r\n", "\n") in page.text.replace("\r\n", "\n")
    for text in ("checksum FAILED", "NULL", "0000000001..0000000004", "f00d", "dagster"):
        assert text in page.text
