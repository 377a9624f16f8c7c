"""Renders a report as one HTML page, as JSON by its schema, or as Markdown."""

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

SCHEMA_VERSION = 3
"""Incremented when a field of the JSON report is removed or changes its meaning; see
docs/report.schema.json."""

MOST_PROBLEMS = 20
"""Maximum problems listed at the top of the page; its tables mark all of them."""

Format = Literal["md", "html", "json"]


def render(report: Report, fmt: Format) -> str:
    """Render the report in one of its formats."""
    if fmt == "json":
        return to_json(report)
    if fmt == "md":
        return to_markdown(report)
    return page("report.html.j2").render(
        report=report,
        counts=report.counts(),
        problems=report.problems,
        suites=report.suites(),
        most=MOST_PROBLEMS,
    )


def to_json(report: Report) -> str:
    """Render the report as JSON by docs/report.schema.json."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "passed": report.passed,
        "counts": report.counts(),
        **asdict(report),
        "problems": [problem.text for problem in report.problems],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


@functools.cache
def page(template: str) -> Template:
    """Load the template of a self-contained page, in which all texts are escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": breakable,
        "count": lambda number, noun: counted(number or 0, noun),
        "figure": _figure,
        "moment": moment,
        "number": _number,
        "plain": plain,
        "tally": tally,
    }
    return environment.get_template(template)


def breakable(text: str) -> Markup:
    """Allow a name to break after its separators only."""
    parts = re.split(r"(?<=[./_,:])(?=[^./_,:])", text)
    return Markup("<wbr>").join(escape(part) for part in parts)


def plain(value: Any) -> str:
    """Format a recorded value for people: no quotes around texts, lists with commas."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {plain(item)}" for name, item in value.items())
    return json.dumps(value, default=str)


def tally(entry: RangeEntry) -> str:
    """Count the passed checks of a range, or name those that have not passed."""
    bad = [f"{check.name} {check.outcome}" for check in entry.checks if check.outcome != "passed"]
    bad += [f"{name} missing" for name in entry.unchecked]
    if bad:
        return ", ".join(bad)
    return f"{len(entry.checks)} passed" if entry.checks else "none"


def _figure(text: str | None) -> str:
    """Format whole numbers of any size with thousands separators; other texts are unchanged."""
    if text is None:
        return "none"
    return f"{int(text):,}" if re.fullmatch(r"-?\d{1,4000}", text) else text


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
