"""The forms of a report: one HTML page, JSON by its schema, Markdown."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from tableferry.pipelines.reporting.markdown import to_markdown
from tableferry.pipelines.reporting.report import RangeEntry, Report, moment
from tableferry.resources.words import counted

SCHEMA_VERSION = 2
"""Counted up when a field of the JSON report changes its meaning or goes away; see
docs/report.schema.json."""

MOST_PROBLEMS = 20
"""So many are listed at the top of the page; all of them are marked in its tables."""

Format = Literal["md", "html", "json"]


def render(report: Report, fmt: Format) -> str:
    """The report as Markdown, as one self-contained HTML page, or as versioned JSON."""
    if fmt == "json":
        return to_json(report)
    return to_html(report) if fmt == "html" else to_markdown(report)


def to_json(report: Report) -> str:
    """The report as JSON; its form is docs/report.schema.json."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "passed": report.passed,
        "problems": [problem.text for problem in report.problems],
        "counts": report.counts(),
        **asdict(report),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def to_html(report: Report) -> str:
    """The report as one page; every text in it is escaped."""
    return _page().render(
        report=report,
        counts=report.counts(),
        problems=report.problems,
        suites=report.suites(),
        most=MOST_PROBLEMS,
    )


@functools.cache
def _page() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "arguments": _arguments,
        "breakable": breakable,
        "count": count,
        "figure": _figure,
        "moment": moment,
        "number": _number,
        "plain": plain,
        "tally": tally,
    }
    return environment.get_template("report.html.j2")


def breakable(text: str) -> Markup:
    """A name that may be continued in the next line after its separators, and only there."""
    parts = re.split(r"(?<=[./_,:])(?=[^./_,:])", text)
    return Markup("<wbr>").join(escape(part) for part in parts)


def count(number: int | None, noun: str) -> str:
    """E.g. `1 row`, `2,000 rows`."""
    return counted(number or 0, noun)


def plain(value: Any) -> str:
    """What a check recorded as a reader sees it: no quotes around texts, lists with commas."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {plain(one)}" for name, one in value.items())
    return json.dumps(value, default=str)


def tally(entry: RangeEntry) -> str:
    """How many checks of a range passed, or which did not."""
    bad = [f"{check.name} {check.outcome}" for check in entry.checks if check.outcome != "passed"]
    bad += [f"{name} missing" for name in entry.unchecked]
    if bad:
        return ", ".join(bad)
    return f"{len(entry.checks)} passed" if entry.checks else "none"


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {plain(value)}" for name, value in arguments.items())


def _figure(text: str | None) -> str:
    """Whole numbers of any size with thousands separators, other texts as they are."""
    if text is None:
        return "none"
    return f"{int(text):,}" if re.fullmatch(r"-?\d{1,4000}", text) else text


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
