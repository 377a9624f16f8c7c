"""The pictures of the documentation: where they go, and those of a terminal."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURES = "TABLEFERRY_SCREENSHOTS"
"""The folder that pictures go to; a test's own when not set."""
WEB_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
"""What a reader's browser would fetch from elsewhere."""
CHANGING = (
    (re.compile(r"\b(?=\w*\d)[0-9a-f]{8}\b"), "RUN"),
    (re.compile(r"\d+(?:[.,:-]\d+)*"), "0"),
    (re.compile("─+"), "─"),
    (re.compile(r"\s+"), ""),
)
"""What of a line is another in each run (ids, numbers and times), and how wide that makes it."""


def folder_or(folder: Path) -> Path:
    """The folder that pictures go to: that of the environment, or else this one."""
    return Path(os.environ.get(PICTURES, folder))


def of_terminal(steps: Sequence[tuple[str, str]], *, title: str, columns: int) -> str:
    """A terminal with commands and what they have printed, as SVG.

    Args:
        steps: commands, each with its output; ANSI sequences colour it.
        title: what stands above.
        columns: the terminal's width.
    """
    console = Console(record=True, width=columns, file=io.StringIO(), highlight=False)
    for command, printed in steps:
        console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        if printed:
            console.print(Text.from_ansi(printed.rstrip()), "", sep="\n", soft_wrap=True)
    form = WEB_FONTS.sub("", CONSOLE_SVG_FORMAT)
    svg = console.export_svg(title=title, theme=MONOKAI, code_format=form, unique_id="terminal")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def lines_of(svg: str) -> list[str]:
    """The lines of a terminal's picture, blanks aside."""
    found: dict[str, list[str]] = {}
    for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        if line := element.get("clip-path"):
            found.setdefault(line, []).append((element.text or "").replace("\xa0", " "))
    lines = (" ".join(" ".join(parts).split()) for parts in found.values())
    return [line for line in lines if line]


def shape(line: str) -> str:
    """A line without what is another in each run."""
    for pattern, stands_for in CHANGING:
        line = pattern.sub(stands_for, line)
    return line
