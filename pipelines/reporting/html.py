"""Renders a report as one HTML page, as JSON by its schema, or as Markdown.

Markdown has the evidence of failed checks only.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from tableferry.pipelines.reporting.evidence import CheckEntry
from tableferry.pipelines.reporting.report import HopEntry, RangeEntry, Report, moment
from tableferry.resources.words import counted


class Markdown(str):
    """A text that is markup already, and is not to be escaped."""


def to_markdown(report: Report) -> str:
    """Render the report as Markdown tables."""
    return "\n".join(_report(report)) + "\n"


def _report(report: Report) -> Iterator[str]:
    counts = report.counts()
    yield f"# {inline(report.transfer)}: {'passed' if report.passed else 'NOT PASSED'}"
    yield ""
    yield (
        f"{counted(counts['ranges'], 'range')}, {counted(counts['rows'], 'row')}, "
        f"{counted(counts['checks'], 'check')}, {counts['failed_checks']} failed, "
        f"{counted(counts['warnings'], 'warning')}. "
        f"Made {report.created_at}."
    )
    for hop in report.hops:
        if hop.departures:
            said = "; ".join(map(inline, hop.departures))
            yield from ("", f"**Not as in the source:** {inline(hop.target)}: {said}")
    if report.problems:
        yield ""
        yield from (f"- {inline(problem.text)}" for problem in report.problems)
    if report.not_seen:
        yield ""
        yield f"The servers could not be queried: {inline(report.not_seen)}"
    for hop in report.hops:
        yield from _hop(hop)
    if report.runs:
        yield from ("", "## Runs", "", "| run | kind | outcome | began | ended | error |")
        yield "|---|---|---|---|---|---|"
        for run in report.runs:
            url = report.run_url(run.run_id)
            name = Markdown(f"[{run.run_id}]({url})" if url else run.run_id)
            yield row(name, run.kind, run.outcome, run.started_at, run.ended_at, run.error)
    for title, values in (
        ("Settings", report.settings),
        ("Servers", report.servers),
        ("Software", report.packages),
    ):
        if values:
            yield from ("", f"## {title}", "")
            yield from (f"- {inline(name)}: {inline(value)}" for name, value in values.items())


def _hop(hop: HopEntry) -> Iterator[str]:
    yield from ("", f"## {inline(hop.source)} to {inline(hop.target)}", "")
    for role, servers in hop.servers.items():
        yield from (f"- {role}: {inline(server)}" for server in servers)
    yield from ("", "| range | keys | state | source | target | checks | committed | run |")
    yield "|---|---|---|---|---|---|---|---|"
    for entry in hop.ranges:
        checks = [
            inline(check.name) if check.passed else f"**{check.name} {check.outcome.upper()}**"
            for check in entry.checks
        ]
        checks += [f"**{name} missing**" for name in entry.unchecked]
        yield row(
            entry.name,
            entry.keys,
            entry.state,
            entry.rows_source,
            entry.rows,
            Markdown(", ".join(checks)),
            entry.moved_at,
            entry.moved_by,
        )
    remarks = [
        f"- {inline(entry.name)}: {inline(remark)}"
        for entry in hop.ranges
        for remark in entry.remarks
    ]
    if remarks:
        yield from ("", *remarks)
    for check in hop.checks:
        yield from _evidence("whole table", check)
    for entry in hop.ranges:
        for check in entry.checks:
            yield from _evidence(entry.name, check)


def _evidence(subject: str, check: CheckEntry) -> Iterator[str]:
    if check.passed:
        return
    yield from ("", f"### {inline(subject)}: {inline(check.summary)}", "")
    disagreeing = [figure for figure in check.figures if figure[1] != figure[2]]
    if disagreeing:
        yield from ("| figure | source | target |", "|---|---|---|")
        yield from (row(*figure) for figure in disagreeing)
    unmet = [expectation for expectation in check.expectations if not expectation.passed]
    if unmet:
        yield "| expectation | arguments | unexpected | observed | examples |"
        yield "|---|---|---|---|---|"
        for item in unmet:
            arguments = ", ".join(f"{name}: {value}" for name, value in item.arguments.items())
            yield row(
                item.name, arguments, item.unexpected, item.observed, ", ".join(item.examples)
            )
    if check.differences:
        rows = check.differing_rows or 0
        yield ""
        yield (
            f"{counted(rows, 'row')} {'differs' if rows == 1 else 'differ'}; the first of them, "
            f"named by their {inline(check.rows_named_by)}:"
        )
        names = check.named_by
        yield from ("", row(*names, "what", "column", "source", "target"))
        yield "|---" * (len(names) + 4) + "|"
        for difference in check.differences:
            kind = difference.kind.replace("_", " ")
            yield row(
                *difference.row.values(),
                kind,
                difference.column,
                difference.source,
                difference.target,
            )


def row(*cells: object) -> str:
    """Format one line of a table."""
    texts = (
        "" if cell is None else cell if isinstance(cell, Markdown) else inline(str(cell))
        for cell in cells
    )
    return f"| {' | '.join(texts)} |"


def inline(text: str) -> str:
    """Escape a text so that it stays within a cell and a line, and is not taken for markup."""
    for character in "\\|`*<[":
        text = text.replace(character, f"\\{character}")
    return text.replace("\r", "\\r").replace("\n", "\\n")


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
