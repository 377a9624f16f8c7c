"""Lists in which nothing is cut: laid out by the screen's width, plain lines without a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

GAP = "  "
"""Between columns: two blanks, so that a line can be taken apart where a name has one."""
INDENT = 4
SHORTEST_SENTENCE = 30
"""Cells of the screen below which a sentence is not put beside other columns."""


@dataclass(frozen=True)
class Column:
    """A column's name, and how its cells are laid out."""

    name: str
    right: bool = False
    """Numbers: aligned at their end."""
    sentence: bool = False
    """The last column may take several lines."""


@dataclass(frozen=True)
class Row:
    """A cell per column, and what is to be said on lines below them."""

    cells: Sequence[Text]
    notes: Sequence[Text] = ()


@dataclass(frozen=True)
class Listing:
    """Rows under the names of their columns.

    One line per row if all of them fit; else the first cell on a line, and the others beneath it by
    their names. What is longer than a line goes on in the next. Without a terminal every row is
    one line, however long.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width if console.is_terminal else None
        heads = Row([Text(column.name, style="bold") for column in self.columns])
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
        self, console: Console, row: Row, widths: Sequence[int], width: int | None
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
        beginning = cell_len(line.plain)
        yield from hanging(console, line, cell, beginning, width)
        for note in row.notes:
            yield from hanging(console, Text(" " * INDENT), note, INDENT, width)

    def _stacked(self, console: Console, row: Row, width: int) -> Iterator[Text]:
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
    """A text after its head, continued at `indent`; words are split only if longer than a line."""
    if width is None:
        lines = [text]
    else:
        lines = list(text.wrap(console, max(width - indent, 1), overflow="fold")) or [text]
    for number, line in enumerate(lines):
        whole = Text.assemble(head if number == 0 else " " * indent, line)
        whole.rstrip()
        whole.no_wrap, whole.overflow = True, "ignore"
        yield whole
