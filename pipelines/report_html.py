"""A report as one HTML file: no scripts, no links to elsewhere, readable on paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.report import CheckEntry, HopEntry, RangeEntry, Report

STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #18794e; --bad: #cd2b31; }
body { font: 14px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 small { font-weight: normal; font-size: 60%; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.passed { color: var(--good); } .failed { color: var(--bad); font-weight: 600; }
code, pre { font: 12px/1.4 ui-monospace, monospace; white-space: pre-wrap; }
details { margin: .2rem 0; } summary { cursor: pointer; }
tr.differs td { background: #cd2b3118; }
.null { opacity: .6; font-style: italic; }
"""


def render_html(report: Report) -> str:
    """The whole page."""
    return "".join(_page(report))


def _page(report: Report) -> Iterator[str]:
    title, counts = escape(report.transfer), report.counts()
    yield f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{STYLE}</style></head><body>\n"
    yield f"<h1>{title} {_verdict('passed' if report.passed else 'failed')} "
    yield f"<small>{escape(report.created_at)}</small></h1>\n"
    yield f"<p>{counts['ranges']:,} ranges, {counts['rows']:,} rows, {counts['checks']:,} checks, "
    yield f"{counts['failed_checks']:,} failed.</p>\n"
    for hop in report.hops:
        yield from _hop(hop)
    for heading, values in (("Settings", report.settings), ("Versions", report.versions)):
        if values:
            yield f"<h2>{heading}</h2>\n"
            yield from _pairs(values)
    yield "</body></html>\n"


def _hop(hop: HopEntry) -> Iterator[str]:
    yield f"<h2>{escape(hop.source)} &rarr; {escape(hop.target)}</h2>\n"
    if hop.checks:
        yield "<h3>Whole table</h3>\n"
        yield from map(_check, hop.checks)
    yield "<h3>Key ranges</h3>\n<table><thead><tr><th>range</th><th>state</th><th>rows</th>"
    yield "<th>seconds</th><th>checks</th><th>fingerprint, run</th></tr></thead><tbody>\n"
    for entry in hop.ranges:
        yield from _range(entry)
    yield "</tbody></table>\n"


def _range(entry: RangeEntry) -> Iterator[str]:
    rows = "" if entry.rows is None else f"{entry.rows:,}"
    seconds = "<br>".join(f"{escape(n)} {value:.2f}" for n, value in entry.seconds.items())
    origin = "<br>".join(
        escape(text) for text in (entry.fingerprint, entry.run_id, entry.committed_at) if text
    )
    yield f"<tr><td><code>{escape(entry.name)}</code></td><td>{escape(entry.state)}</td>"
    yield f'<td class="number">{rows}</td><td class="number">{seconds}</td><td>'
    yield "".join(map(_check, entry.checks)) or _verdict("unchecked")
    yield f"</td><td><code>{origin}</code></td></tr>\n"


def _check(check: CheckEntry) -> str:
    verdict = "passed" if check.passed else "failed"
    note = "" if check.blocking else " (not blocking)"
    at = f" <small>{escape(check.at)}</small>" if check.at else ""
    head = f"{_verdict(verdict)} {escape(check.summary)}{note}{at}"
    if not check.figures and not check.differences:
        return f"<div>{head}</div>"
    opened = "" if check.passed else " open"
    return (
        f"<details{opened}><summary>{head}</summary>"
        f"{_figures(check)}{_differences(check)}</details>\n"
    )


def _figures(check: CheckEntry) -> str:
    # of a failed check only what disagrees: a wide table has hundreds of figures
    shown = [f for f in check.figures if check.passed or f[1] != f[2]]
    rows = "".join(
        f"<tr{'' if source == target else ' class=differs'}><td>{escape(name)}</td>"
        f"<td class=number>{escape(source)}</td><td class=number>{escape(target)}</td></tr>"
        for name, source, target in shown
    )
    return _table(("figure", "source", "target"), rows) if rows else ""


def _differences(check: CheckEntry) -> str:
    rows = "".join(
        f"<tr>{''.join(f'<td>{_value(value)}</td>' for value in one.row.values())}"
        f"<td>{escape(one.kind.replace('_', ' '))}</td>"
        f"<td>{escape(one.column or '')}</td>"
        + (
            f"<td>{_value(one.source)}</td><td>{_value(one.target)}</td>"
            if one.column
            else "<td></td><td></td>"
        )
        + "</tr>"
        for one in check.differences
    )
    if not rows:
        return ""
    named = f"named by their {escape(check.rows_named_by)}"
    return f"<p>{check.differing_rows:,} rows differ; the first of them, {named}:</p>" + _table(
        (*map(escape, check.named_by), "what", "column", "source", "target"), rows
    )


def _table(heads: Sequence[str], rows: str) -> str:
    cells = "".join(f"<th>{head}</th>" for head in heads)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>"


def _value(text: str | None) -> str:
    if text is None:
        return '<span class="null">NULL</span>'
    return f"<code>{escape(text)}</code>" if text else '<span class="null">empty</span>'


def _verdict(verdict: str) -> str:
    return f'<span class="{verdict}">{verdict}</span>'


def _pairs(values: Mapping[str, str]) -> Iterator[str]:
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td><code>{escape(value)}</code></td></tr>"
        for name, value in values.items()
    )
    yield f"<table><tbody>{rows}</tbody></table>\n"
