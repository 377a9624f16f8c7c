"""What a reviewer is sent: every range, every check, the evidence of both sides."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from checks.verdict import Difference, Verdict
from pipelines.report_html import render_html

SCHEMA_VERSION = 1
"""Counted up when a field of the JSON report changes its meaning or goes away; see
docs/report.schema.json."""

Format = Literal["md", "html", "json"]


@dataclass(frozen=True)
class CheckEntry:
    """One check's latest outcome."""

    name: str
    passed: bool
    summary: str
    at: str | None = None
    """When it was recorded, ISO 8601 in UTC."""
    seconds: float | None = None
    blocking: bool = True
    figures: tuple[tuple[str, str, str], ...] = ()
    """Name, source's figure, target's figure."""
    differences: tuple[Difference, ...] = ()
    differing_rows: int = 0
    rows_named_by: str = ""
    """What the rows in `differences` are named by, e.g. `primary key (id, line)`."""

    @property
    def named_by(self) -> tuple[str, ...]:
        """Names of the columns that name the rows in `differences`."""
        return tuple(self.differences[0].row) if self.differences else ()

    @classmethod
    def of(cls, verdict: Verdict, *, at: str | None = None, blocking: bool = True) -> CheckEntry:
        """The entry of a verdict that was just given."""
        found = verdict.differences
        return cls(
            name=verdict.check,
            passed=verdict.passed,
            summary=verdict.summary(),
            at=at,
            seconds=verdict.seconds,
            blocking=blocking,
            figures=tuple(_figures(verdict.source, verdict.target)),
            differences=found.examples if found else (),
            differing_rows=found.rows if found else 0,
            rows_named_by=found.naming() if found else "",
        )


@dataclass(frozen=True)
class RangeEntry:
    """One key range of one hop."""

    name: str
    state: str
    rows: int | None = None
    bytes: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase: export, load, finalise, reconcile."""
    fingerprint: str | None = None
    run_id: str | None = None
    committed_at: str | None = None
    checks: tuple[CheckEntry, ...] = ()

    @property
    def verdict(self) -> str:
        """`passed`, `failed`, or `unchecked`."""
        if not self.checks:
            return "unchecked"
        return "passed" if all(check.passed for check in self.checks) else "failed"


@dataclass(frozen=True)
class HopEntry:
    """One hop: its tables, its ranges in key order, its checks of the whole table."""

    source: str
    target: str
    ranges: tuple[RangeEntry, ...]
    checks: tuple[CheckEntry, ...] = ()


@dataclass(frozen=True)
class Report:
    """All that is known about one transfer at one moment."""

    transfer: str
    created_at: str
    """ISO 8601 in UTC."""
    hops: tuple[HopEntry, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of Tableferry, Dagster, the drivers and the servers."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """How the transfer is declared: key, write mode, level, fingerprint. No secrets."""

    @property
    def passed(self) -> bool:
        """Whether every range is committed and every check is green."""
        return all(check.passed for hop in self.hops for check in _all_checks(hop)) and all(
            entry.state in ("committed", "skipped_unchanged")
            for hop in self.hops
            for entry in hop.ranges
        )

    def counts(self) -> dict[str, int]:
        """Ranges, rows, checks and failed checks over all hops."""
        checks = [check for hop in self.hops for check in _all_checks(hop)]
        ranges = [entry for hop in self.hops for entry in hop.ranges]
        return {
            "ranges": len(ranges),
            "rows": sum(entry.rows or 0 for entry in ranges),
            "checks": len(checks),
            "failed_checks": sum(not check.passed for check in checks),
        }


def render(report: Report, fmt: Format) -> str:
    """The report as Markdown, as one self-contained HTML page, or as versioned JSON."""
    if fmt == "json":
        return to_json(report)
    return render_html(report) if fmt == "html" else to_markdown(report)


def to_json(report: Report) -> str:
    """The report as JSON; its form is docs/report.schema.json."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "passed": report.passed,
        "counts": report.counts(),
        **asdict(report),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def to_markdown(report: Report) -> str:
    """The report as Markdown tables."""
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: Report) -> Iterator[str]:
    counts = report.counts()
    yield f"# {report.transfer}: {'passed' if report.passed else 'FAILED'}"
    yield ""
    yield (
        f"{counts['ranges']} ranges, {counts['rows']} rows, {counts['checks']} checks, "
        f"{counts['failed_checks']} failed. Made {report.created_at}."
    )
    for hop in report.hops:
        yield from ("", f"## {hop.source} to {hop.target}", "")
        yield "| range | state | rows | seconds | verdict | checks | fingerprint |"
        yield "|---|---|---|---|---|---|---|"
        for entry in hop.ranges:
            seconds = ", ".join(f"{name} {value:.2f}" for name, value in entry.seconds.items())
            checks = ", ".join(
                check.name if check.passed else f"**{check.name} FAILED**" for check in entry.checks
            )
            cells = (entry.name, entry.state, entry.rows, seconds, entry.verdict, checks)
            yield _row(*cells, entry.fingerprint)
        yield from _markdown_failures("whole table", hop.checks)
        for entry in hop.ranges:
            yield from _markdown_failures(entry.name, entry.checks)
    for title, values in (("Settings", report.settings), ("Versions", report.versions)):
        if values:
            yield from ("", f"## {title}", "")
            yield from (f"- {name}: {value}" for name, value in values.items())


def _markdown_failures(where: str, checks: Sequence[CheckEntry]) -> Iterator[str]:
    for check in checks:
        if check.passed:
            continue
        yield from ("", f"### {where}: {check.summary}", "")
        disagreeing = [figure for figure in check.figures if figure[1] != figure[2]]
        if disagreeing:
            yield from ("| figure | source | target |", "|---|---|---|")
            yield from (_row(*figure) for figure in disagreeing)
        if check.differences:
            yield ""
            yield (
                f"{check.differing_rows} rows differ; the first of them, "
                f"named by their {_inline(check.rows_named_by)}:"
            )
            names = check.named_by
            yield from ("", _row(*names, "what", "column", "source", "target"))
            yield "|---" * (len(names) + 4) + "|"
            for one in check.differences:
                what = one.kind.replace("_", " ")
                yield _row(*one.row.values(), what, one.column, one.source, one.target)


def _row(*cells: object) -> str:
    return f"| {' | '.join('' if cell is None else _inline(str(cell)) for cell in cells)} |"


def _inline(text: str) -> str:
    """A text that ends neither a table's cell nor the line."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "\\r").replace("\n", "\\n")


def _all_checks(hop: HopEntry) -> tuple[CheckEntry, ...]:
    return (*hop.checks, *(check for entry in hop.ranges for check in entry.checks))


def _figures(
    source: Mapping[str, Any], target: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    for name in {**source, **target}:
        own, other = source.get(name), target.get(name)
        if isinstance(own, dict) or isinstance(other, dict):
            for figure in {**(own or {}), **(other or {})}:
                yield (
                    f"{name} {figure}",
                    str((own or {}).get(figure)),
                    str((other or {}).get(figure)),
                )
        else:
            yield name, str(own), str(other)
