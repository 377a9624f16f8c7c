"""A YAML file whose parts know their lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tableferry.assets.declaring.variables import expand

Location = tuple[int | str, ...]
"""The way to a part of the file: keys of mappings, and positions or items of lists."""


class Several(ValueError):
    """More than one thing is wrong with a value: where in it, and what."""

    def __init__(self, found: list[tuple[Location, str]]) -> None:
        self.found = found
        super().__init__("; ".join(message for _, message in found))

    @classmethod
    def check(cls, found: Iterator[tuple[Location, str]]) -> None:
        """Raise if there is anything."""
        if problems := list(found):
            raise cls(problems)


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


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say of whatever keeps a file from being read where in it that is."""
    try:
        yield
    except (yaml.YAMLError, UnicodeDecodeError, OSError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        parts = (getattr(error, name, None) for name in ("context", "problem", "strerror"))
        message = ", ".join(str(part) for part in parts if part) or str(error)
        raise Unreadable([Problem(path, mark.line + 1 if mark else 1, message)]) from None


MERGED = ("tags", "checks", "parallel")
"""Mappings of which a file and its defaults may each give a part."""


@dataclass(frozen=True)
class YamlFile:
    """One mapping, and where its parts stand."""

    path: Path
    data: dict[Any, Any]
    """With the values of variables, and what the defaults add."""
    node: yaml.MappingNode
    valueless: tuple[Problem, ...] = ()
    """Variables that have no value; they stand in `data` as they are written."""
    defaults: YamlFile | None = None

    @classmethod
    def read(cls, path: Path, what: str = "a transfer", *, may_be_empty: bool = False) -> YamlFile:
        """Read a file.

        Args:
            path: of the file.
            what: it is, for messages.
            may_be_empty: nothing but comments counts as an empty mapping.

        Raises:
            Unreadable: it cannot be read, is not YAML, or holds something else than one mapping.
        """
        with _readable(path):
            loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
            node = loader.get_single_node()
            if node is None and may_be_empty:
                node = yaml.compose("{}", yaml.SafeLoader)
            if not isinstance(node, yaml.MappingNode):
                raise Unreadable([Problem(path, 1, f"{what} should be a mapping")])
            return cls._of(path, node, loader)

    @classmethod
    def listed(cls, path: Path, start: int, location: Location) -> list[YamlFile]:
        """Read the mappings of a list inside of a file, each as if it were a file.

        Args:
            path: of the file.
            start: 1-based line at which the list's document begins.
            location: the way to the list.

        Raises:
            Unreadable: the file is not YAML any more, or something in the list is no mapping.
        """
        with _readable(path):
            loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
            node: yaml.Node | None = None
            while loader.check_node():
                document = loader.get_node()
                if document and document.start_mark.line + 1 == start:
                    node = document
            for part in location:
                inside = _inside(node, part)
                node = inside[1] if inside else None
            items = node.value if isinstance(node, yaml.SequenceNode) else []
            if wrong := [one for one in items if not isinstance(one, yaml.MappingNode)]:
                message = "a transfer should be a mapping"
                raise Unreadable([Problem(path, one.start_mark.line + 1, message) for one in wrong])
            return [cls._of(path, one, loader) for one in items]

    @classmethod
    def _of(cls, path: Path, node: yaml.MappingNode, loader: yaml.SafeLoader) -> YamlFile:
        valueless = tuple(Problem(path, *found) for found in expand(node, loader))
        return cls(path, loader.construct_document(node), node, valueless)

    @property
    def start(self) -> tuple[Path, int]:
        """What tells it from others: the file, and the line at which it begins there."""
        return self.path, self.line(())

    def over(self, defaults: YamlFile | None) -> YamlFile:
        """The file with what it does not say itself out of its defaults."""
        if defaults is None:
            return self
        data = {**defaults.data, **self.data}
        for name in MERGED:
            usual, own = defaults.data.get(name), self.data.get(name)
            if isinstance(usual, dict) and isinstance(own, dict):
                data[name] = {**usual, **own}
        return replace(self, data=data, defaults=defaults)

    def holder(self, location: Location) -> YamlFile:
        """The file that a part stands in: this one, or its defaults."""
        if self.defaults is None or not location:
            return self
        deep = location[: 2 if location[0] in MERGED else 1]
        # a part that neither has is missing here
        return self if self._depth(deep) >= self.defaults._depth(deep) else self.defaults

    def problem(self, location: Location, message: str) -> Problem:
        """That something is wrong there."""
        holder = self.holder(location)
        return Problem(holder.path, holder.line(location), message)

    def place(self, location: Location) -> str:
        """File and line of a part."""
        holder = self.holder(location)
        return f"{holder.path}:{holder.line(location)}"

    def _depth(self, location: Location) -> int:
        """How many steps of the way this file has."""
        node: yaml.Node | None = self.node
        for number, part in enumerate(location):
            found = _inside(node, part)
            if found is None:
                return number
            node = found[1]
        return len(location)

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
