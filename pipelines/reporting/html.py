"""Renders a report as JSON by its schema, or by a template as one HTML page or as Markdown."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from tableferry.pipelines.reporting.report import RangeEntry, Report, moment
from tableferry.resources.words import counted


class Markdown(str):
    """A text that is markup already, and is not to be escaped."""


def row(*cells: object) -> str:
    """Format one line of a table."""
    return f"| {' | '.join(map(inline, cells))} |"


def inline(value: object) -> str:
    """Escape a text so that it stays within a cell and a line, and is not taken for markup."""
    text = "" if value is None else str(value)
    if isinstance(value, Markdown):
        return text
    for character in "\\|`*<[":
        text = text.replace(character, f"\\{character}")
    return text.replace("\r", "\\r").replace("\n", "\\n")


Table = tuple[str, Sequence[str], Sequence[Sequence[object]]]
"""A title, the heads of the columns, and rows."""


def markdown(heading: str, summary: str, tables: Iterable[Table]) -> str:
    """Write a document of tables."""
    lines = [f"# {inline(heading)}", "", inline(summary)]
    for title, heads, rows in tables:
        lines += ["", f"## {inline(title)}", "", row(*heads), "|---" * len(heads) + "|"]
        lines += [row(*cells) for cells in rows]
    return "\n".join(lines) + "\n"


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
    return page(f"report.{fmt}.j2").render(
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
    """Load the template of a self-contained page, in whose HTML all texts are escaped."""
    html = template.endswith(".html.j2")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=html,
        keep_trailing_newline=not html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": breakable,
        "bold": lambda text: Markdown(f"**{inline(text)}**"),
        "count": lambda number, noun: counted(number or 0, noun),
        "figure": _figure,
        "inline": inline,
        "linked": _linked,
        "moment": moment,
        "number": _number,
        "plain": plain,
        "tally": tally,
        "verdicts": _verdicts,
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


def _verdicts(entry: RangeEntry) -> Markdown:
    """Name the checks of a range, those in bold that have not passed."""
    checks = [
        inline(check.name) if check.passed else f"**{check.name} {check.outcome.upper()}**"
        for check in entry.checks
    ]
    return Markdown(", ".join([*checks, *(f"**{name} missing**" for name in entry.unchecked)]))


def _linked(text: str, url: str | None) -> Markdown:
    return Markdown(f"[{inline(text)}]({url})" if url else inline(text))


def _figure(text: str | None) -> str:
    """Format whole numbers of any size with thousands separators; other texts are unchanged."""
    if text is None:
        return "none"
    return f"{int(text):,}" if re.fullmatch(r"-?\d{1,4000}", text) else text


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
