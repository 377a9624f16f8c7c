"""Lists that never truncate: laid out by the terminal's width, plain lines without a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

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
