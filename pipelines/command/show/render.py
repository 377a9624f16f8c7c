"""Prints ranges, verdicts and differences as lists that never truncate."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from tableferry.assets.log.states import State
from tableferry.checks.verdict import Differences, shown_value
from tableferry.resources.words import counted, one_line

if TYPE_CHECKING:
    from tableferry.assets.running.work import RangeOutcome
    from tableferry.assets.verifying.checked import Checked
    from tableferry.pipelines.command.show.range_views import RangeView, TransferView
    from tableferry.pipelines.command.show.views import AdoptionView, PlannedRange, PlanView


GAP = "  "
"""Separates columns; two blanks, so that scripts can split lines whose names have one blank."""
INDENT = 4
SHORTEST_SENTENCE = 30
"""Minimum width in cells of a sentence beside other columns."""


@dataclass(frozen=True)
class ListColumn:
    """A column's name, and the layout of its cells."""

    name: str
    right: bool = False
    """Align cells to the right, as numbers are."""
    sentence: bool = False
    """Let cells take several lines; for the last column only."""


@dataclass(frozen=True)
class ListRow:
    """A cell per column, and notes on the lines below them."""

    cells: Sequence[Text]
    notes: Sequence[Text] = ()


@dataclass(frozen=True)
class Listing:
    """Rows under the names of their columns.

    If all rows fit the terminal, each is one line. Otherwise the first cell of each row has its own
    line, with the other cells and their columns' names beneath it; longer lines are wrapped.
    Without a terminal every row is one line.
    """

    columns: Sequence[ListColumn]
    rows: Sequence[ListRow]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width if console.is_terminal else None
        heads = ListRow([Text(column.name, style="bold") for column in self.columns])
        widths = [
            max(cell_len(row.cells[i].plain) for row in (heads, *self.rows))
            for i in range(len(self.columns))
        ]
        before = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
        if width is not None and self.columns[-1].sentence:
            widths[-1] = min(widths[-1], max(width - before, SHORTEST_SENTENCE))
        if width is None or before + widths[-1] <= width:
            for row in (heads, *self.rows):
                yield from self._aligned(console, row, widths, width)
        else:
            for row in self.rows:
                yield from self._stacked(console, row, width)

    def _aligned(
        self, console: Console, row: ListRow, widths: Sequence[int], width: int | None
    ) -> Iterator[Text]:
        line = Text()
        *first, last = zip(self.columns, row.cells, widths, strict=True)
        for column, cell, size in first:
            blanks = " " * (size - cell_len(cell.plain))
            line.append_text(Text.assemble(blanks, cell) if column.right else cell + Text(blanks))
            line.append(GAP)
        column, cell, size = last
        if column.right:
            cell = Text.assemble(" " * (size - cell_len(cell.plain)), cell)
        yield from hanging(console, line, cell, cell_len(line.plain), width)
        for note in row.notes:
            yield from hanging(console, Text(" " * INDENT), note, INDENT, width)

    def _stacked(self, console: Console, row: ListRow, width: int) -> Iterator[Text]:
        yield from hanging(console, Text(), row.cells[0], INDENT, width)
        line = Text()
        for column, cell in zip(self.columns[1:], row.cells[1:], strict=True):
            if not cell.plain:
                continue
            part = cell if column.sentence else Text.assemble((f"{column.name} ", "dim"), cell)
            if line.plain and cell_len((line + Text(GAP) + part).plain) > width - INDENT:
                yield from hanging(console, Text(" " * INDENT), line, INDENT, width)
                line = part
            else:
                line = Text.assemble(line, GAP, part) if line.plain else part
        for more in (line, *row.notes):
            yield from hanging(console, Text(" " * INDENT), more, INDENT, width)


def hanging(
    console: Console, head: Text, text: Text, indent: int, width: int | None
) -> Iterator[Text]:
    """Wrap a text after its head, continued at `indent`; only words longer than a line are split.

    Without a width, nothing is wrapped.
    """
    if width is None:
        lines = [text]
    else:
        lines = list(text.wrap(console, max(width - indent, 1), overflow="fold")) or [text]
    for index, line in enumerate(lines):
        full_line = Text.assemble(" " * indent if index else head, line)
        full_line.rstrip()
        full_line.no_wrap, full_line.overflow = True, "ignore"
        yield full_line


PHASES = ("export", "load", "finalise", "reconcile")
STYLES = {
    State.COMMITTED: "green",
    State.ADOPTED: "green",
    State.SKIPPED_UNCHANGED: "cyan",
    State.FAILED: "red",
    "skip": "cyan",
    "run": "yellow",
    "refused": "red",
}
NO_WRAP_WIDTH = 1_000_000
"""Width at which no line is wrapped."""

RANGE, ROWS = ListColumn("range"), ListColumn("rows", right=True)

Item = TypeVar("Item")


def console() -> Console:
    """Return a console for standard output; without a terminal it wraps no lines."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=NO_WRAP_WIDTH)


def show_plan(out: Console, view: PlanView) -> None:
    """Print every range of every hop: its rows, the planned action and its reason."""

    def row(range_: PlannedRange) -> ListRow:
        cells = [shown(range_.range), number(range_.rows)]
        return ListRow([*cells, _styled(range_.state), shown(range_.why)])

    columns = [RANGE, ROWS, ListColumn("action"), ListColumn("reason")]
    _show(out, f"plan of {view.transfer}", columns, view.ranges, lambda range_: range_.target, row)
    for line in view.outlook.lines() if view.outlook else ():
        out.print(Text.assemble(("outlook: ", "cyan"), shown(line)))
    _show_notes(out, view.notes)


def show_ranges(
    out: Console, title: str, view: TransferView, *, wide: bool = False, folded: bool = False
) -> None:
    """Print every range of every hop: rows, state, last run, checks and error.

    Args:
        out: where to print.
        title: what it is of, e.g. `run`.
        view: the transfer.
        wide: also print the seconds of each phase, and the rate.
        folded: print one line for a hop in which nothing was to do.
    """
    plain = not out.is_terminal
    columns = [RANGE, ROWS, ListColumn("state"), ListColumn("last run"), ListColumn("at (UTC)")]
    columns += [ListColumn("checks")]
    if wide:
        columns += [ListColumn(name, right=True) for name in (*PHASES, "rows/s")]
    if plain:
        columns += [ListColumn("error")]

    def row(range_: RangeView) -> ListRow:
        at = dt.datetime.fromtimestamp(range_.timestamp, dt.UTC) if range_.timestamp else None
        moment = at.strftime("%Y-%m-%dT%H:%M:%SZ" if plain else "%Y-%m-%d %H:%M") if at else ""
        error = shown(range_.error or "")
        failed = _named(range_, "FAILED")
        warned = _named(range_, "WARNED")
        cells = [shown(range_.range), number(range_.rows), _styled(range_.state)]
        cells += [Text((range_.run_id or "")[:8]), Text(moment)]
        cells += [_each_check(range_) if plain else _tally(range_)]
        if wide:
            rate = range_.rows_per_second
            cells += [_seconds(range_.seconds.get(phase)) for phase in PHASES]
            cells += [number(round(rate) if rate else None)]
        if plain:
            return ListRow([*cells, error])
        notes = [Text(f"FAILED: {', '.join(failed)}", style="red")] if failed else []
        notes += [Text(f"WARNED: {', '.join(warned)}", style="yellow")] if warned else []
        return ListRow(cells, [*notes, *([error] if error.plain else [])])

    def listed(ranges: Sequence[RangeView]) -> tuple[Sequence[RangeView], str]:
        states = Counter(range_.state for range_ in ranges)
        found_by = Counter(range_.unchanged_by for range_ in ranges if range_.unchanged_by)
        by = ", ".join(f"{count} by {what}" for what, count in found_by.items())
        parts = ", ".join(
            f"{count} {state}" + (f" ({by})" if by and state is State.SKIPPED_UNCHANGED else "")
            for state, count in states.items()
        )
        rows = sum(range_.rows or 0 for range_ in ranges)
        lines = _unless_unchanged(ranges) if folded else ranges
        return lines, f"{counted(len(ranges), 'range')}, {counted(rows, 'row')}: {parts}"

    title = f"{title} of {view.transfer}"
    _show(out, title, columns, view.ranges, lambda range_: range_.target, row, listed)
    _show_notes(out, view.notes)


def _unless_unchanged(ranges: Sequence[RangeView]) -> Sequence[RangeView]:
    """Return one line for the ranges of a hop if all are unchanged, and passed the same checks."""
    first, *others = ranges
    alike = all(range_.checks.keys() == first.checks.keys() for range_ in others)
    unchanged = all(range_.state is State.SKIPPED_UNCHANGED and range_.good for range_ in ranges)
    odd = any(range_.error or not all(range_.checks.values()) for range_ in ranges)
    if odd or not (others and alike and unchanged):
        return ranges
    newest = max(ranges, key=lambda range_: range_.timestamp or 0)
    rows = sum(range_.rows or 0 for range_ in ranges)
    return [replace(newest, range=f"({counted(len(ranges), 'range')})", rows=rows)]


def _show_notes(out: Console, notes: Sequence[str]) -> None:
    for note in notes:
        out.print(Text.assemble(("note: ", "yellow"), shown(note)))


def show_checks(out: Console, transfer: str, checks: Sequence[Checked]) -> None:
    """Print every verdict: the range, the seconds that it took, and the result.

    The seconds of a query about several ranges are shown with the first of them.
    """
    shown_queries: set[tuple[str, str, float]] = set()

    def seconds(check: Checked) -> Text:
        verdict = check.verdict
        if verdict.ranges == 1:
            return _seconds(verdict.seconds)
        query = (str(check.hop.plan.target), verdict.check, verdict.seconds)
        text = "" if query in shown_queries else f"{verdict.seconds:.2f} for {verdict.ranges}"
        shown_queries.add(query)
        return Text(text)

    def row(check: Checked) -> ListRow:
        verdict = shown(check.outcome)
        verdict.stylize("green" if check.verdict.passed else "yellow" if check.warning else "red")
        name = shown(check.range) if check.range else Text("(whole table)")
        return ListRow([name, seconds(check), verdict])

    columns = [RANGE, ListColumn("seconds", right=True), ListColumn("verdict", sentence=True)]
    title = f"checks of {transfer}"
    _show(out, title, columns, checks, lambda check: str(check.hop.plan.target), row)


def show_adoption(out: Console, view: AdoptionView) -> None:
    """Print the ranges that were compared to be adopted: rows, state, and why not."""

    def row(outcome: RangeOutcome) -> ListRow:
        record = outcome.record
        state = Text(view.state(outcome), style="green" if outcome.good else "yellow")
        cells = [shown(record.range), number(outcome.rows_there), state]
        return ListRow([*cells, shown(record.why or "")])

    columns = [RANGE, ROWS, ListColumn("state"), ListColumn("why", sentence=True)]
    title = f"adoption of {view.transfer}"
    _show(out, title, columns, view.compared, lambda item: str(item.hop.plan.target), row)
    _show_notes(out, view.notes)


def _show(
    out: Console,
    title: str,
    columns: Sequence[ListColumn],
    items: Iterable[Item],
    target: Callable[[Item], str],
    row: Callable[[Item], ListRow],
    listed: Callable[[Sequence[Item]], tuple[Sequence[Item], str]] = lambda items: (items, ""),
) -> None:
    """Print a list per target; without a terminal, one list with a column for the target.

    `listed` returns which items of a target are listed, and a line about all of them.
    """
    by_target: dict[str, list[Item]] = {}
    for item in items:
        by_target.setdefault(target(item), []).append(item)
    if not out.is_terminal:
        rows = [
            ListRow([shown(name), *(cell if cell.plain else Text("-") for cell in row(item).cells)])
            for name, group in by_target.items()
            for item in listed(group)[0]
        ]
        out.print(Listing([ListColumn("target"), *columns], rows), soft_wrap=True)
        return
    out.print(Text(title, style="italic"))
    for name, group in by_target.items():
        out.print()
        out.print(*hanging(out, Text(), shown(name), 4, out.width), sep="\n")
        lines, total = listed(group)
        out.print(Listing(columns, [row(item) for item in lines]))
        if total:
            out.print(Text(total, style="bold"))


def shown(text: str) -> Text:
    """Return a text on one line, with unprintable characters escaped and no markup."""
    return Text(one_line(text))


def difference_table(differences: Differences) -> Table:
    """Build a table with a row per differing value, identified by the row's key columns."""
    caption = f"rows are named by their {differences.naming()}"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=shown(caption))
    for name in differences.named_by:
        table.add_column(shown(name), style="bold", overflow="fold")
    for name in ("what", "column", "source", "target"):
        table.add_column(name, overflow="fold")
    for example in differences.examples:
        key = map(shown_value, example.row.values())
        cells = (*key, example.kind.replace("_", " "), example.column or "", *example.shown())
        table.add_row(*map(shown, cells))
    return table


def _outcomes(range_: RangeView) -> dict[str, str]:
    """Return how each check of a range ended: passed, WARNED or FAILED."""
    return {
        name: "passed" if passed else "WARNED" if name in range_.warned else "FAILED"
        for name, passed in range_.checks.items()
    }


def _named(range_: RangeView, outcome: str) -> list[str]:
    return [name for name, ended in _outcomes(range_).items() if ended == outcome]


def _tally(range_: RangeView) -> Text:
    for outcome, style in (("FAILED", "red"), ("WARNED", "yellow")):
        if names := _named(range_, outcome):
            return Text(f"{len(names)} of {len(range_.checks)} {outcome}", style=style)
    return Text(f"{len(range_.checks)} passed" if range_.checks else "", style="green")


def _each_check(range_: RangeView) -> Text:
    """Format verdicts, e.g. `row_count=passed,checksum=FAILED`."""
    return Text(",".join(f"{name}={outcome}" for name, outcome in _outcomes(range_).items()))


def _styled(state: str) -> Text:
    return Text(state, style=STYLES.get(state, ""))


def number(value: int | None) -> Text:
    """Format a number with thousands separators; None is empty."""
    return Text("" if value is None else f"{value:,}")


def _seconds(value: float | None) -> Text:
    return Text("" if value is None else f"{value:.2f}")
