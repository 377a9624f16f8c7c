"""Tables and the progress bar of the command line."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from assets import progress
from assets.records import State
from assets.verification import Checked
from checks.verdict import Differences
from pipelines.runner import RangeView, TransferView

PHASES = ("export", "load", "finalise", "reconcile")
STYLES = {
    State.COMMITTED: "green",
    State.SKIPPED_UNCHANGED: "cyan",
    State.FAILED: "red",
    "skip": "cyan",
    "run": "yellow",
}


def console() -> Console:
    """Where tables go. Without a terminal lines are not cut to its width."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=160)


def plan_table(view: TransferView) -> Table:
    """Range, rows, what would happen and why, one row per hop and range."""
    table = Table(title=f"plan of {view.transfer}", title_justify="left")
    for name in ("target", "range"):
        table.add_column(name, no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("action")
    table.add_column("reason")
    for row in view.ranges:
        action = _styled(row.state)
        table.add_row(row.target, row.range, _number(row.rows), action, row.reason or "")
    return table


def result_table(view: TransferView, title: str) -> Table:
    """Range, rows, seconds of each phase, rate, checks: one row per hop and range, and a total."""
    table = Table(title=f"{title} of {view.transfer}", title_justify="left")
    for name in ("target", "range"):
        table.add_column(name, no_wrap=True)
    for name in ("rows", *PHASES, "rows/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("checks")
    for target, rows in _by_target(view.ranges):
        for row in rows:
            table.add_row(
                target,
                row.range,
                _number(row.rows),
                *(_seconds(row.seconds.get(phase)) for phase in PHASES),
                _number(round(row.rows_per_second)) if row.rows_per_second else "",
                _styled(row.state),
                _checks(row),
            )
        table.add_section()
        table.add_row(
            "",
            f"{len(rows)} ranges",
            _number(sum(row.rows or 0 for row in rows)),
            *(_seconds(sum(row.seconds.get(phase, 0) for row in rows)) for phase in PHASES),
            style="bold",
        )
        table.add_section()
    return table


def check_table(transfer: str, found: Sequence[Checked]) -> Table:
    """One row per verdict: what was compared, and how it ended."""
    table = Table(title=f"checks of {transfer}", title_justify="left")
    for name in ("target", "range", "verdict"):
        table.add_column(name, no_wrap=name != "verdict")
    table.add_column("seconds", justify="right")
    for one in found:
        colour = "green" if one.verdict.passed else "red"
        table.add_row(
            str(one.hop.plan.target),
            one.range or "(whole table)",
            f"[{colour}]{one.verdict.summary()}[/{colour}]",
            _seconds(one.verdict.seconds),
        )
    return table


def difference_table(differences: Differences) -> Table:
    """One row per differing value."""
    table = Table()
    for name in ("key", "what", "column", "source", "target"):
        table.add_column(name)
    for one in differences.examples:
        table.add_row(
            str(one.key), one.kind.replace("_", " "), one.column or "", *map(escape, one.shown())
        )
    return table


@contextmanager
def live_progress(*, shown: bool) -> Iterator[None]:
    """A bar of finished ranges with rows, rows/s and the current phase, on standard error."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} ranges"),
        TextColumn("{task.fields[rows]:,} rows"),
        TextColumn("{task.fields[rate]:,.0f} rows/s"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[phase]}"),
        console=Console(stderr=True),
        disable=not shown,
        transient=True,
    )
    task = bar.add_task("moving", total=None, rows=0, rate=0.0, phase="planning")
    lock = threading.Lock()
    moved = 0

    def listen(event: progress.Progress) -> None:
        nonlocal moved
        with lock:
            moved += event.rows
            if event.total:
                bar.update(task, total=event.total)
            elapsed = bar.tasks[0].elapsed or 0
            bar.update(
                task,
                description=event.transfer,
                advance=1 if event.phase in ("committed", "skipped", "failed") else 0,
                rows=moved,
                rate=moved / elapsed if elapsed else 0.0,
                phase=f"{event.phase} {event.range} -> {event.target}",
            )

    with bar, progress.listening(listen):
        yield


def _by_target(views: Iterable[RangeView]) -> list[tuple[str, list[RangeView]]]:
    found: dict[str, list[RangeView]] = {}
    for view in views:
        found.setdefault(view.target, []).append(view)
    return list(found.items())


def _checks(view: RangeView) -> str:
    return " ".join(
        f"[green]{name}[/green]" if passed else f"[red]{name} FAILED[/red]"
        for name, passed in view.checks.items()
    )


def _styled(state: str) -> str:
    style = STYLES.get(state)
    return f"[{style}]{state}[/{style}]" if style else state


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
