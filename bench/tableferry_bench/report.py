"""Reports as Markdown and as one HTML page, and the folder in which a result is left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from tableferry.resources.errors import InputError
from tableferry_bench.certification import Verdict
from tableferry_bench.results import Result
from tableferry_bench.section import Section
from tableferry_bench.sections import sections


def markdown(title: str, parts: Sequence[Section], charts: str | None = "charts") -> str:
    """The parts as Markdown.

    Args:
        title: of the document.
        parts: in their order.
        charts: the folder of the charts, as seen from the document; None leaves them out.
    """
    return "\n".join([f"# {title}", "", *(part_markdown(part, charts) for part in parts)])


def part_markdown(part: Section, charts: str | None = "charts", level: int = 2) -> str:
    """One part as Markdown, with its heading at some level, and a blank line at its end."""
    found = [f"{'#' * level} {part.title}", ""]
    for remark in part.remarks:
        found += [_escaped(remark), ""]
    if part.rows:
        found.append(f"| {' | '.join(map(_escaped, part.columns))} |")
        bars = ["---" if number < part.words else "---:" for number in range(len(part.columns))]
        found.append(f"|{'|'.join(bars)}|")
        found += [f"| {' | '.join(map(_escaped, row))} |" for row in part.rows]
        found.append("")
    if part.chart and charts is not None:
        found += [f"![{part.title}]({charts}/{part.chart.name}.svg)", ""]
    return "\n".join(found) + "\n"


def html(title: str, parts: Sequence[Section]) -> str:
    """The parts as one page that needs nothing else; every text in it is escaped."""
    environment = Environment(
        loader=PackageLoader("tableferry_bench"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(title=title, parts=parts)


def write_charts(folder: Path, parts: Sequence[Section]) -> None:
    """The charts as files."""
    for part in parts:
        if part.chart:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{part.chart.name}.svg").write_text(part.chart.svg, encoding="utf-8")


def leave(folder: Path, result: Result, verdict: Verdict | None) -> None:
    """Write result and verdict as JSON, both as Markdown and HTML, and the charts, into a folder.

    Raises:
        InputError: it cannot be written to.
    """
    parts, title = sections(result, verdict), title_of(result)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result.json").write_text(result.to_json(), encoding="utf-8")
        if verdict:
            (folder / "verdict.json").write_text(verdict.to_json(), encoding="utf-8")
        (folder / "report.md").write_text(markdown(title, parts), encoding="utf-8")
        (folder / "report.html").write_text(html(title, parts), encoding="utf-8")
        write_charts(folder / "charts", parts)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None


def title_of(result: Result) -> str:
    """Write the heading of a report about a result."""
    kinds = {
        "run": "Tableferry, measured",
        "tune": "Tableferry, tuned",
        "lab": "Ways to read PostgreSQL",
        "staging": "Ways to fill ClickHouse",
    }
    return kinds[result.kind]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
