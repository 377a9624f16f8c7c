"""Shows on stderr how far a run is: lines into a pipe; on a terminal, a live display."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tableferry.assets.running.progress import Progress
from tableferry.pipelines.command.show.range_views import TransferOutcome
from tableferry.resources.words import counted, one_line

ENDED = ("committed", "skipped", "failed")
"""Phases that end a range."""
FIRST_SECONDS = 2
"""Seconds before which a rate would be that of the first batches only."""
FIRST_SHARE = 0.2
"""The share of several transfers before which those that have ended say too little of the rest."""
BAR_WIDTH = 16
TABLES_SHOWN = 12


class Watch:
    """Watches a run, and shows nothing. All methods may be called from any thread."""

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop showing."""

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Hear which transfers there are, and how long each is expected to take."""

    def started(self, transfer: str) -> None:
        """Hear that a transfer is moved from now on."""

    def progress(self, event: Progress) -> None:
        """Hear of the progress of a range."""

    def finished(self, outcome: TransferOutcome) -> None:
        """Hear that a transfer has ended."""


@dataclass
class Tally(Watch):
    """Counts what it hears."""

    began: float = field(default_factory=time.monotonic)
    expected: Mapping[str, float] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)
    """When each transfer was started that is moved now."""
    arrived: dict[str, Counter[str]] = field(default_factory=dict)
    """The rows that have gone into each target, by transfer."""
    done: set[str] = field(default_factory=set)
    failed: int = 0
    total: int = 0
    """Ranges times hops that have to be moved."""
    ended: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def rows(self) -> int:
        """The rows that have gone; see `rows_of`."""
        return sum(map(self.rows_of, self.arrived))

    def rows_of(self, transfer: str) -> int:
        """Return the rows of a transfer that have gone, each once however many hops it makes."""
        return max(self.arrived.get(transfer, Counter()).values(), default=0)

    @property
    def seconds(self) -> float:
        """The seconds since the beginning."""
        return time.monotonic() - self.began

    def expect(self, seconds: Mapping[str, float]) -> None:
        """See `Watch.expect`."""
        self.expected = seconds

    def started(self, transfer: str) -> None:
        """See `Watch.started`."""
        with self.lock:
            self.running[transfer] = time.monotonic()

    def progress(self, event: Progress) -> None:
        """See `Watch.progress`."""
        with self.lock:
            self.total += event.total
            self.ended += event.phase in ENDED
            self.arrived.setdefault(event.transfer, Counter())[event.target] += event.rows

    def finished(self, outcome: TransferOutcome) -> None:
        """See `Watch.finished`."""
        with self.lock:
            self.running.pop(outcome.view.transfer, None)
            self.done.add(outcome.view.transfer)
            self.failed += not outcome.view.good

    def share(self) -> float:
        """Return the share of the work that is done, by ranges or by expected seconds."""
        if not self.expected:
            return self.ended / self.total if self.total else 0.0
        total = sum(self.expected.values())
        done = sum(self.expected.get(name, 0.0) for name in self.done)
        return done / total if total else len(self.done) / len(self.expected)

    def left(self) -> float | None:
        """Return the seconds that the rest will take, once that can be estimated."""
        share = self.share()
        first = FIRST_SHARE if self.expected else 0.0
        if not share or share < first or self.seconds < FIRST_SECONDS:
            return None
        return self.seconds * (1 - share) / share


class RangeLines(Tally):
    """A line per range that ends, and one for the transfer."""

    def __init__(self) -> None:
        """Make it."""
        super().__init__()
        self._moving: Counter[str] = Counter()
        """The rows of ranges that have not ended."""

    def progress(self, event: Progress) -> None:
        """See `Watch.progress`."""
        super().progress(event)
        if event.phase.startswith("waiting"):
            _say(f"{event.transfer}: {event.phase}")
        way = f"{event.range} -> {event.target}"
        with self.lock:
            self._moving[way] += event.rows
            rows = self._moving.pop(way) if event.phase in ENDED else 0
        if event.phase in ENDED:
            ended = f"{self.ended} of {self.total}: {way} {event.phase}, {counted(rows, 'row')}"
            _say(f"{event.transfer}: {ended}{self._so_far()}")

    def finished(self, outcome: TransferOutcome) -> None:
        """See `Watch.finished`."""
        super().finished(outcome)
        _say(outcome_line(outcome))

    def _so_far(self) -> str:
        return f" ({self.rows:,} so far), {clock(self.seconds)}"


class TransferLines(Tally):
    """A line per transfer that ends."""

    def progress(self, event: Progress) -> None:
        """See `Watch.progress`."""
        super().progress(event)
        if event.phase.startswith("waiting"):
            _say(f"{event.transfer}: {event.phase}")

    def finished(self, outcome: TransferOutcome) -> None:
        """See `Watch.finished`."""
        with self.lock:
            super().finished(outcome)
            left = self.left() if len(self.done) < len(self.expected) else None
            rest = f"; about {clock(left)} left" if left is not None else ""
            count = f"{len(self.done)} of {len(self.expected)}"
            _say(f"{count}: {outcome_line(outcome)}{rest}")


class Display(Tally):
    """A display on a terminal that is drawn again and again, and removed at the end."""

    def __init__(self, draw: Callable[[Tally, int], list[Text]]) -> None:
        """Make it.

        Args:
            draw: makes the lines for a width in cells.
        """
        super().__init__()
        self.phase = "planning"
        console = Console(stderr=True)
        self._live = Live(
            console=console,
            get_renderable=lambda: Group(*draw(self, console.width - 1)),
            transient=True,
            refresh_per_second=4,
        )

    def progress(self, event: Progress) -> None:
        """See `Watch.progress`."""
        super().progress(event)
        where = f" {event.range} -> {event.target}" if event.range else ""
        self.phase = f"{event.phase}{where}"

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the display."""
        self._live.__exit__(kind, error, trace)


def watch_one(name: str, *, shown: bool = True) -> Watch:
    """Return what shows the run of one transfer."""
    if not shown:
        return Watch()
    if not sys.stderr.isatty():
        return RangeLines()
    return Display(lambda tally, width: [transfer_line(name, tally, width)])


def watch_several(*, shown: bool = True) -> Watch:
    """Return what shows the run of several transfers."""
    if not shown:
        return Watch()
    return Display(fleet_lines) if sys.stderr.isatty() else TransferLines()


def transfer_line(name: str, tally: Tally, width: int) -> Text:
    """Draw one line: the name and the time are kept, and the rest as far as there is room."""
    phase = tally.phase if isinstance(tally, Display) else ""
    parts = [
        times(tally),
        f"{tally.ended}/{tally.total} ranges",
        counted(tally.rows, "row"),
        rate(tally.rows, tally.seconds),
        bar(tally.share()),
        phase,
    ]
    return Text(fitted([one_line(name), *parts], width), no_wrap=True, overflow="crop")


def fleet_lines(tally: Tally, width: int) -> list[Text]:
    """Draw the totals of the fleet, and a line per transfer that is moved."""
    with tally.lock:
        count = len(tally.expected)
        waiting = count - len(tally.done) - len(tally.running)
        head = [
            f"{len(tally.done)}/{count} tables",
            times(tally),
            f"{tally.failed} failed",
            f"{len(tally.running)} running",
            f"{waiting} waiting",
            rate(tally.rows, tally.seconds),
            counted(tally.rows, "row"),
            bar(tally.share()),
        ]
        lines = [Text(fitted(head, width), "bold", no_wrap=True, overflow="crop")]
        now = time.monotonic()
        for name, began in [*tally.running.items()][:TABLES_SHOWN]:
            rows = tally.rows_of(name)
            parts = [clock(now - began), counted(rows, "row"), rate(rows, now - began)]
            line = fitted([f"  {one_line(name)}", *parts], width)
            lines.append(Text(line, no_wrap=True, overflow="crop"))
        return lines


def fitted(parts: list[str], width: int) -> str:
    """Join the parts that fit a line; the first is shortened for the second, both are kept."""
    name, second, *rest = parts
    room = width - cell_len(second) - 2
    if cell_len(name) > room:
        name = set_cell_size(name, max(room - 3, 1)) + "..."
    line = f"{name}  {second}"
    for part in filter(None, rest):
        if cell_len(line) + 2 + cell_len(part) <= width:
            line += f"  {part}"
    return line


def outcome_line(outcome: TransferOutcome) -> str:
    """Say in one line what became of a transfer."""
    view, seconds = outcome.view, f"{outcome.seconds:.1f} s"
    if not view.good:
        why = one_line(view.errors[0]) if view.errors else "see `ferry status`"
        return f"{view.transfer}: FAILED after {seconds}: {why}"
    if not outcome.moved:
        return f"{view.transfer}: ok, nothing to move, {seconds}"
    rows, ranges = counted(outcome.rows, "row"), counted(len(outcome.moved_ranges), "range")
    return f"{view.transfer}: ok, {ranges} moved, {rows}, {seconds}"


def rate(rows: int, seconds: float) -> str:
    """Format a rate, once it is meaningful."""
    return f"{rows / seconds:,.0f} rows/s" if rows and seconds >= FIRST_SECONDS else ""


def bar(share: float) -> str:
    """Draw a share as a bar."""
    full = round(share * BAR_WIDTH)
    return "[" + "#" * full + "." * (BAR_WIDTH - full) + "]"


def times(tally: Tally) -> str:
    """Format the time so far, and the rest."""
    left = tally.left()
    return clock(tally.seconds) + (f", about {clock(left)} left" if left is not None else "")


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds, with hours if there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _say(line: str) -> None:
    # whoever has read along may have gone
    with suppress(OSError, ValueError):
        click.echo(one_line(line), err=True)
