"""A YAML file whose parts know their lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Location = tuple[int | str, ...]
"""The way to a part of the file: keys of mappings, and positions or items of lists."""


@dataclass(frozen=True)
class Problem:
    """What is wrong at one place of a file."""

    path: Path
    line: int
    """1-based."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class Unreadable(Exception):
    """The file is no YAML that could be looked into; has the `problems`."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


@dataclass(frozen=True)
class YamlFile:
    """One mapping, and where its parts stand."""

    path: Path
    data: dict[Any, Any]
    node: yaml.MappingNode

    @classmethod
    def read(cls, path: Path) -> YamlFile:
        """Read a file.

        Raises:
            Unreadable: it cannot be read, is not YAML, or holds something else than one mapping.
        """
        try:
            loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
            node = loader.get_single_node()
            if not isinstance(node, yaml.MappingNode):
                raise Unreadable([Problem(path, 1, "a transfer should be a mapping")])
            data = loader.construct_document(node)
        except (yaml.YAMLError, UnicodeDecodeError, OSError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            parts = (getattr(error, name, None) for name in ("context", "problem", "strerror"))
            message = ", ".join(str(part) for part in parts if part) or str(error)
            raise Unreadable([Problem(path, mark.line + 1 if mark else 1, message)]) from None
        return cls(path, data, node)

    def problem(self, location: Location, message: str) -> Problem:
        """That something is wrong there."""
        return Problem(self.path, self.line(location), message)

    def line(self, location: Location) -> int:
        """1-based line of the innermost part of `location` that the file holds."""
        line = self.node.start_mark.line + 1
        node: yaml.Node | None = self.node
        for part in location:
            found = _inside(node, part)
            if found is None:
                break
            line, node = found
        return line

    def repeated_keys(self) -> Iterator[Problem]:
        """Keys that stand twice in one mapping: YAML would keep the last one silently."""
        for key in _repeated(self.node, set()):
            yield Problem(self.path, key.start_mark.line + 1, f"{key.value} is given twice")


def _inside(node: yaml.Node | None, part: int | str) -> tuple[int, yaml.Node | None] | None:
    """Line and value of a part of a mapping or list; an item of a list may go by its name."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode):
        if isinstance(part, int):
            items = node.value[part : part + 1]
            return (items[0].start_mark.line + 1, items[0]) if items else None
        for item in node.value:
            if item.value == part:
                return item.start_mark.line + 1, None
            if isinstance(item, yaml.MappingNode) and (found := _inside(item, part)):
                return found
    return None


def _repeated(node: yaml.Node, seen: set[int]) -> Iterator[yaml.Node]:
    if id(node) in seen:  # an alias, perhaps of what it is inside of
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated(item, seen)
    elif isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in names:
                    yield key
                names.add(key.value)
            yield from _repeated(value, seen)
