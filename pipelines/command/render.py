"""What the commands print: ranges, verdicts and differences as lists, and the progress bar."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tableferry.assets.log.records import State
from tableferry.assets.running.progress import OnProgress
from tableferry.assets.running.progress import Progress as Event
from tableferry.checks.verdict import Differences, shown_value
from tableferry.pipelines.command.listing import Column, Listing, Row, hanging

if TYPE_CHECKING:
    from tableferry.assets.verifying.on_demand import Checked
    from tableferry.pipelines.command.range_views import RangeView, TransferView
    from tableferry.pipelines.command.views import PlannedRange, PlanView

PHASES = ("export", "load", "finalise", "reconcile")
STYLES = {
    State.COMMITTED: "green",
    State.SKIPPED_UNCHANGED: "cyan",
    State.FAILED: "red",
    "skip": "cyan",
    "run": "yellow",
}
WITHOUT_SCREEN = 1_000_000
"""Width at which no line is wrapped."""
FIRST_SECONDS = 2
"""Before that, the progress bar's rate is that of the first batches."""

RANGE, ROWS = Column("range"), Column("rows", right=True)

One = TypeVar("One")


def console() -> Console:
    """Where the commands print. Without a terminal no line is wrapped."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=WITHOUT_SCREEN)


def show_plan(out: Console, view: PlanView) -> None:
    """Print every range of every hop: its rows, what would happen, and why."""

    def row(one: PlannedRange) -> Row:
        cells = [shown(one.range), number(one.rows), _styled(one.state), shown(str(one.decision))]
        return Row(cells)

    columns = [RANGE, ROWS, Column("action"), Column("reason")]
    _show(out, f"plan of {view.transfer}", columns, view.ranges, lambda one: one.target, row)
    _show_notes(out, view.notes)


def show_ranges(out: Console, title: str, view: TransferView, *, wide: bool = False) -> None:
    """Print every range of every hop: rows, state, its last run and checks, what went wrong.

    Args:
        out: where to.
        title: of the list, e.g. `run`.
        view: what a command found.
        wide: with the seconds of each phase, and the rate.
    """
    plain = not out.is_terminal
    columns = [RANGE, ROWS, Column("state"), Column("last run"), Column("at (UTC)")]
    columns += [Column("checks")]
    if wide:
        columns += [Column(name, right=True) for name in (*PHASES, "rows/s")]
    if plain:
        columns += [Column("error")]

    def row(one: RangeView) -> Row:
        at = dt.datetime.fromtimestamp(one.timestamp, dt.UTC) if one.timestamp else None
        moment = at.strftime("%Y-%m-%dT%H:%M:%SZ" if plain else "%Y-%m-%d %H:%M") if at else ""
        error = shown(one.error or "")
        failed = [name for name, passed in one.checks.items() if not passed]
        cells = [shown(one.range), number(one.rows), _styled(one.state)]
        cells += [Text((one.run_id or "")[:8]), Text(moment)]
        cells += [_each_check(one.checks) if plain else _tally(one.checks)]
        if wide:
            rate = one.rows_per_second
            cells += [_seconds(one.seconds.get(phase)) for phase in PHASES]
            cells += [number(round(rate) if rate else None)]
        if plain:
            return Row([*cells, error])
        notes = [Text(f"FAILED: {', '.join(failed)}", style="red")] if failed else []
        return Row(cells, [*notes, *([error] if error.plain else [])])

    def total(found: Sequence[RangeView]) -> str:
        states = Counter(one.state for one in found)
        parts = ", ".join(f"{count} {state}" for state, count in states.items())
        rows = sum(one.rows or 0 for one in found)
        return f"{_count(len(found), 'range')}, {_count(rows, 'row')}: {parts}"

    title = f"{title} of {view.transfer}"
    _show(out, title, columns, view.ranges, lambda one: one.target, row, total)
    _show_notes(out, view.notes)


def _show_notes(out: Console, notes: Sequence[str]) -> None:
    for note in notes:
        out.print(Text.assemble(("note: ", "yellow"), shown(note)))


def show_checks(out: Console, transfer: str, found: Sequence[Checked]) -> None:
    """Print every verdict: what was compared, how long it took, how it ended.

    What one query found out about many ranges took so long for all of them; the first has it.
    """
    shared: set[tuple[str, str, float]] = set()

    def took(one: Checked) -> Text:
        verdict = one.verdict
        if verdict.ranges == 1:
            return _seconds(verdict.seconds)
        query = (str(one.hop.plan.target), verdict.check, verdict.seconds)
        text = "" if query in shared else f"{verdict.seconds:.2f} for {verdict.ranges}"
        shared.add(query)
        return Text(text)

    def row(one: Checked) -> Row:
        verdict = shown(one.verdict.summary())
        verdict.stylize("green" if one.verdict.passed else "yellow" if one.warning else "red")
        name = shown(one.range) if one.range else Text("(whole table)")
        return Row([name, took(one), verdict])

    columns = [RANGE, Column("seconds", right=True), Column("verdict", sentence=True)]
    _show(out, f"checks of {transfer}", columns, found, lambda one: str(one.hop.plan.target), row)


def _show(
    out: Console,
    title: str,
    columns: Sequence[Column],
    found: Iterable[One],
    target: Callable[[One], str],
    row: Callable[[One], Row],
    total: Callable[[Sequence[One]], str] | None = None,
) -> None:
    """Print a list per target; without a terminal one list, with the target in each line."""
    by_target: dict[str, list[One]] = {}
    for one in found:
        by_target.setdefault(target(one), []).append(one)
    if not out.is_terminal:
        rows = [
            Row([shown(name), *(cell if cell.plain else Text("-") for cell in row(one).cells)])
            for name, ones in by_target.items()
            for one in ones
        ]
        out.print(Listing([Column("target"), *columns], rows), soft_wrap=True)
        return
    out.print(Text(title, style="italic"))
    for name, ones in by_target.items():
        out.print()
        out.print(*hanging(out, Text(), shown(name), 4, out.width), sep="\n")
        out.print(Listing(columns, [row(one) for one in ones]))
        if total:
            out.print(Text(total(ones), style="bold"))


def shown(text: str) -> Text:
    """A name or message as it is, on one line: what is not printable is escaped."""
    return Text(
        "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    )


def difference_table(differences: Differences) -> Table:
    """One row per differing value, named by the columns that tell it from others."""
    caption = f"rows are named by their {differences.naming()}"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=shown(caption))
    for name in differences.named_by:
        table.add_column(shown(name), style="bold", overflow="fold")
    for name in ("what", "column", "source", "target"):
        table.add_column(name, overflow="fold")
    for one in differences.examples:
        names = map(shown_value, one.row.values())
        cells = (*names, one.kind.replace("_", " "), one.column or "", *one.shown())
        table.add_row(*map(shown, cells))
    return table


@contextmanager
def live_progress(*, shown: bool) -> Iterator[OnProgress]:
    """A bar of finished ranges with rows, rows/s and the current phase, on standard error.

    Yields what is to be told of the progress, see `runner.run`.
    """
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} ranges"),
        TextColumn("{task.fields[moved]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[phase]}", markup=False),
        console=Console(stderr=True),
        disable=not shown,
        transient=True,
    )
    task = bar.add_task("moving", total=None, moved="", phase="planning")
    lock = threading.Lock()
    rows = 0
    began = 0.0

    def listen(event: Event) -> None:
        nonlocal rows, began
        with lock:
            rows += event.rows
            if event.total:
                bar.update(task, total=event.total)
            elapsed = bar.tasks[0].elapsed or 0
            if event.rows and not began:
                began = elapsed
            bar.update(
                task,
                description=event.transfer,
                advance=1 if event.phase in ("committed", "skipped", "failed") else 0,
                moved=_moved(rows, elapsed - began),
                phase=f"{event.phase} {event.range} -> {event.target}",
            )

    with bar:
        yield listen


def _moved(rows: int, seconds: float) -> str:
    """Rows so far, and per second as soon as that says something."""
    rate = f"{rows / seconds:,.0f} rows/s" if rows and seconds >= FIRST_SECONDS else ""
    return f"{rows:,} rows {rate}".rstrip()


def _tally(checks: Mapping[str, bool]) -> Text:
    failed = sum(not passed for passed in checks.values())
    if failed:
        return Text(f"{failed} of {len(checks)} FAILED", style="red")
    return Text(f"{len(checks)} passed" if checks else "", style="green")


def _each_check(checks: Mapping[str, bool]) -> Text:
    """E.g. `row_count=passed,checksum=FAILED`."""
    return Text(",".join(f"{name}={'passed' if ok else 'FAILED'}" for name, ok in checks.items()))


def _styled(state: str) -> Text:
    return Text(state, style=STYLES.get(state, ""))


def number(value: int | None) -> Text:
    """With thousands separators; empty if there is none."""
    return Text("" if value is None else f"{value:,}")


def _seconds(value: float | None) -> Text:
    return Text("" if value is None else f"{value:.2f}")


def _count(value: int, noun: str) -> str:
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"
