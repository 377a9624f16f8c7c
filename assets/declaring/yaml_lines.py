"""YAML files that know the line of each of their parts, and problems that name it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tableferry.assets.declaring.variables import expand
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError

Location = tuple[int | str, ...]
"""The path to a part of a file: keys of mappings, and positions or items of lists."""


@dataclass(frozen=True)
class Problem:
    """A problem at one line of a file."""

    path: Path
    line: int
    """1-based."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class _Dumper(yaml.SafeDumper):
    """Writes texts so that they mean themselves when they are read."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        # in another style, PyYAML writes this line break as it is, and reads it as another
        style = '"' if "\x85" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)


def block_text(data: object) -> str:
    """Write data as YAML, a line for each part, in its own order."""
    text = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=1 << 30,
        default_flow_style=False,
    )
    return str(text)


class Unreadable(Exception):
    """The file is no YAML that could be read; `problems` says why."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Report whatever keeps a file from being read as a `Problem`, with its line."""
    try:
        yield
    except (yaml.YAMLError, UnicodeDecodeError, OSError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        parts = (getattr(error, name, None) for name in ("context", "problem", "strerror"))
        message = ", ".join(str(part) for part in parts if part) or str(error)
        raise Unreadable([Problem(path, mark.line + 1 if mark else 1, message)]) from None


MERGED = ("tags", "checks", "parallel")
"""Mappings that are merged with those of the defaults, key by key."""


@dataclass(frozen=True)
class YamlFile:
    """One mapping, with the lines of its parts."""

    path: Path
    data: dict[Any, Any]
    """With the values of variables, and with what the defaults add."""
    node: yaml.MappingNode
    valueless: tuple[Problem, ...] = ()
    """Variables without a value; `data` has them as they are written."""
    defaults: YamlFile | None = None
    merged: Sequence[str] = MERGED
    """The mappings of which the file and its defaults may each give a part."""

    @classmethod
    def read(
        cls,
        path: Path,
        what: str = "a transfer",
        *,
        may_be_empty: bool = False,
        fast: bool = False,
    ) -> YamlFile:
        """Read a file that should hold one mapping.

        Args:
            path: the file.
            what: what it should be, for messages.
            may_be_empty: take a file of nothing but comments for an empty mapping.
            fast: use libyaml where it is installed, whose messages say less.

        Raises:
            Unreadable: it cannot be read, is not YAML, or does not hold one mapping.
        """
        with _readable(path):
            parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if fast else yaml.SafeLoader
            loader = parser(path.read_text(encoding="utf-8"))
            node = loader.get_single_node()
            if node is None and may_be_empty:
                node = yaml.compose("{}", yaml.SafeLoader)
            if not isinstance(node, yaml.MappingNode):
                raise Unreadable([Problem(path, 1, f"{what} should be a mapping")])
            return cls._of(path, node, loader)

    @classmethod
    def listed(cls, path: Path, start: int, location: Location) -> list[YamlFile]:
        """Read the mappings of a list inside a file, each as if it were a file.

        Args:
            path: the file.
            start: 1-based line at which the list's document begins.
            location: the path to the list.

        Raises:
            Unreadable: the file is no longer YAML, or an item of the list is no mapping.
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
            if problems := [
                Problem(path, item.start_mark.line + 1, "a transfer should be a mapping")
                for item in items
                if not isinstance(item, yaml.MappingNode)
            ]:
                raise Unreadable(problems)
            return [cls._of(path, item, loader) for item in items]

    @classmethod
    def _of(cls, path: Path, node: yaml.MappingNode, loader: yaml.SafeLoader) -> YamlFile:
        valueless = tuple(Problem(path, line, why) for line, why in expand(node, loader))
        return cls(path, loader.construct_document(node), node, valueless)

    @property
    def start(self) -> tuple[Path, int]:
        """The file, and the line at which the mapping begins there; unique."""
        return self.path, self.line(())

    def inside(self, location: Location) -> YamlFile:
        """Return a mapping inside of the file as if it were a file."""
        node: yaml.Node | None = self.node
        data: Any = self.data
        for part in location:
            found = _inside(node, part)
            node = found[1] if found else None
            data = data[part]
        if not isinstance(node, yaml.MappingNode):  # an alias of what is merged into a mapping
            node = self.node
        return replace(self, data=data, node=node)

    def without(self, names: Collection[str]) -> YamlFile:
        """Return the file without some of its keys."""
        rest = [pair for pair in self.node.value if pair[0].value not in names]
        start, end = self.node.start_mark, self.node.end_mark
        node = yaml.MappingNode(self.node.tag, rest, start, end)
        data = {name: value for name, value in self.data.items() if name not in names}
        return replace(self, data=data, node=node)

    def over(self, defaults: YamlFile | None, merged: Sequence[str] = MERGED) -> YamlFile:
        """Return the file with its missing parts taken from the defaults."""
        if defaults is None:
            return self
        data = {**defaults.data, **self.data}
        for name in merged:
            base, override = defaults.data.get(name), self.data.get(name)
            if isinstance(base, dict) and isinstance(override, dict):
                data[name] = {**base, **override}
        return replace(self, data=data, defaults=defaults, merged=merged)

    def chain(self) -> Iterator[YamlFile]:
        """Yield the file, its defaults and theirs."""
        yield self
        if self.defaults is not None:
            yield from self.defaults.chain()

    def problem(self, location: Location, message: str) -> Problem:
        """A problem at a part of the file, or of its defaults."""
        holder = self._holder(location)
        return Problem(holder.path, holder.line(location), message)

    def place(self, location: Location) -> str:
        """File and line of a part."""
        holder = self._holder(location)
        return f"{holder.path}:{holder.line(location)}"

    def line(self, location: Location) -> int:
        """1-based line of the innermost part of `location` that the file holds."""
        return self._innermost(location)[1]

    def _holder(self, location: Location) -> YamlFile:
        """The file that holds a part: this one, or its defaults."""
        if self.defaults is None or not location:
            return self
        decisive = location[: 2 if location[0] in self.merged else 1]
        # a part that neither has is missing here
        rest = self.defaults._holder(location)
        mine, theirs = self._innermost(decisive)[0], rest._innermost(decisive)[0]
        return self if mine >= theirs else rest

    def _innermost(self, location: Location) -> tuple[int, int]:
        """How many steps towards `location` the file has, and the line of the last one."""
        depth, line = 0, self.node.start_mark.line + 1
        node: yaml.Node | None = self.node
        for part in location:
            inside = _inside(node, part)
            if inside is None:
                break
            depth += 1
            line, node = inside
        return depth, line

    def repeated_keys(self) -> Iterator[Problem]:
        """Keys that one mapping has twice, of which YAML would silently keep the last one."""
        for key in _repeated(self.node, set()):
            yield Problem(self.path, key.start_mark.line + 1, f"{key.value} is given twice")


def _inside(node: yaml.Node | None, part: int | str) -> tuple[int, yaml.Node | None] | None:
    """Line and value of a part of a mapping or list; a list's item may be named by its text."""
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
            if isinstance(item, yaml.MappingNode) and (inside := _inside(item, part)):
                return inside
    return None


def _repeated(node: yaml.Node, seen: set[int]) -> Iterator[yaml.Node]:
    if id(node) in seen:  # an alias, perhaps of a mapping around it
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


QUOTE_COMMAS = 'a type that has a comma is to be quoted: {type: "decimal(12,2)"}'
"""In braces, YAML takes what follows a comma for another key."""

PLAIN_WORDS = {
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "string_type": "should be a text",
    "list_type": "should be a list",
    "dict_type": "should be keys with values",
    "model_type": "should be keys with values",
}
"""What users are told for pydantic's kinds of errors."""


class InvalidParts(ValueError):
    """Reports several problems of one value, each with its location inside the value."""

    def __init__(self, problems: list[tuple[Location, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(message for _, message in problems))

    @classmethod
    def raise_any(cls, problems: Iterable[tuple[Location, str]]) -> None:
        """Raise if there are any problems."""
        if listed := list(problems):
            raise cls(listed)


@contextmanager
def as_value_error() -> Iterator[None]:
    """Raise an `InputError` as the `ValueError` that pydantic reports with its location."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from None


def not_fillable(type_: str, target: System) -> str:
    """Say why columns of a target cannot have a declared type."""
    if type_.count("(") > type_.count(")"):
        return f"{type_!r} is the beginning of a type: {QUOTE_COMMAS}"
    kind = target.types.read(target.types.plain(type_)).kind
    like = target.types.default(kind) if kind else None
    instead = f"; {like} is one" if like else ""
    return f"{type_!r} is not a {target} type that can be filled{instead}"
