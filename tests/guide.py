"""The pages of the guide, and what stands in their code blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<options>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_OPTION = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Block:
    """A fenced code block.

    Its options stand behind the language, as in `sql title="shop.sql"`:

    - `title` is the file that it is;
    - `run` the server that is to execute it;
    - `notest` why no test runs or reads it.
    """

    page: str
    language: str
    options: Mapping[str, str]
    text: str

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The commands of a console block, each with what it should print ('' if that is open)."""
        found: list[tuple[str, str]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], ""))
                continue
            command, printed = found[-1]
            if not printed and (command.endswith("\\") or line.startswith("> ")):
                found[-1] = (f"{command}\n{line.removeprefix('> ')}", "")
            else:
                found[-1] = (command, f"{printed}{line}\n")
        return found


def pages() -> list[str]:
    """The pages' files in the order of the site."""
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)
    site = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), loader)
    return [*_pages(site["nav"])]


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for one in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages(one)


def blocks(page: str) -> list[Block]:
    """The fenced code blocks of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        indent = len(fence["indent"])
        lines = "".join(line[indent:] for line in fence["text"].splitlines(keepends=True))
        options = dict(_OPTION.findall(fence["options"]))
        found.append(Block(page, fence["language"], options, lines))
    return found
