"""Renders a report as Markdown, with the evidence of failed checks only."""

from __future__ import annotations

from collections.abc import Iterator

from tableferry.pipelines.reporting.evidence import CheckEntry
from tableferry.pipelines.reporting.report import HopEntry, Report
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
