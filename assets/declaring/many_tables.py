"""One declaration of many tables: patterns in a transfer file, and the tables that they stand for.

`ferry refresh` writes which tables these are, and what the catalog says about each, into a lock
file beside the declaration. Loading reads the two files and asks no server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from re import findall, sub
from typing import Any

from tableferry.assets.declaring.variables import escaped
from tableferry.assets.declaring.yaml_lines import MERGED, Problem, Unreadable, YamlFile, block_text
from tableferry.resources.connecting.names import table_of
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef

OWN_KEYS = ("tables", "exclude", "hops", "prefix", "overrides")
"""The keys of a declaration that mean something else in, or are not for, a single transfer."""

NOT_FOR_MANY = ("transfer", "source")
_WILDCARDS = set("*?[")
LOCK_SUFFIX = ".lock.yaml"
HEADER = """\
# Written by `ferry refresh {name}` from the catalog, for review: what {name} stands for.
# Change {name}, its `overrides` for single tables, and not this file.
"""


def is_lock(path: Path) -> bool:
    """Whether a file is the lock of a declaration, by its name."""
    return path.name.endswith(LOCK_SUFFIX)


def is_declaration(file: YamlFile) -> bool:
    """Whether a file declares many tables."""
    return "tables" in file.data


def is_pattern(table: TableRef) -> bool:
    """Whether a reference stands for all tables that fit it, and not for one of that name."""
    return not table.system.by_path and bool(_WILDCARDS & {*table.schema, *table.name})


def fits(table: TableRef, pattern: str) -> bool:
    """Whether a shell pattern of `schema.table`, or without a dot of the name, fits a table."""
    whole = f"{table.schema}.{table.name}"
    subject = whole if "." in pattern else table.name
    return pattern in (subject, whole) or fnmatchcase(subject, pattern)


def filled(text: str, table: TableRef) -> str:
    """Fill the names of a source table into `{schema}` and `{table}` of a target."""
    template = table_of(text)
    values = {"{schema}": table.schema, "{table}": table.name}

    def fill(part: str) -> str:
        return sub(r"\{schema\}|\{table\}", lambda match: values[match[0]], part)

    return str(replace(template, schema=fill(template.schema), name=fill(template.name)))


def unknown_placeholder(text: str) -> str | None:
    """Describe a placeholder of a target that means nothing."""
    if unknown := set(findall(r"\{(\w*)\}", text)) - {"schema", "table"}:
        return f"{{{min(unknown)}}} is unknown; there are {{schema}} and {{table}}"
    return None


@dataclass(frozen=True)
class Declaration:
    """A file that declares many tables."""

    file: YamlFile
    connection: str
    patterns: tuple[str, ...]
    """Shell patterns of `schema.table`."""
    exclude: tuple[str, ...]
    targets: tuple[str, ...]
    """The targets of the hops, with placeholders."""
    prefix: str
    """Distinguishes names of transfers that clash."""
    overrides: Mapping[str, Any]
    """What is said about single tables, by `table` or `schema.table`."""

    @property
    def lock(self) -> Path:
        """The path of the lock file."""
        return self.file.path.with_name(self.file.path.stem + LOCK_SUFFIX)

    @property
    def common(self) -> dict[str, Any]:
        """What is said about all tables."""
        return {name: value for name, value in self.file.data.items() if name not in OWN_KEYS}

    def override(self, table: TableRef) -> tuple[str, dict[str, Any]] | None:
        """Return the name and the content of a table's override."""
        for name in (f"{table.schema}.{table.name}", table.name):
            if isinstance(content := self.overrides.get(name), dict):
                return name, content
        return None

    def hops(self, table: TableRef) -> tuple[TableRef, ...]:
        """Return the targets of a table."""
        override = self.override(table)
        hops = (override[1] if override else {}).get("hops")
        targets = [_target(hop) for hop in hops] if isinstance(hops, list) else self.targets
        return tuple(table_of(filled(target, table)) for target in targets)

    def key(self, table: TableRef) -> str | None:
        """Return the key that is declared for a table."""
        override = self.override(table)
        key = (override[1] if override else {}).get("key", self.common.get("key"))
        return None if key is None else str(key)


def declaration_of(file: YamlFile) -> Declaration:
    """Read a declaration of many tables.

    Raises:
        Unreadable: names all that is wrong with its own keys, by line.
    """
    data, problems = file.data, list(file.repeated_keys())
    patterns: list[str] = []
    connections: dict[str, None] = {}
    for number, text in enumerate(_texts(data.get("tables"))):
        connection, found, pattern = text.partition("://")
        if not found or not pattern:
            problem = f"tables: {text!r} should be connection://schema.table, with * as you like"
            problems.append(file.problem(("tables", number), problem))
        connections[connection.lower()] = None
        patterns.append(pattern)
    if not patterns:
        problems.append(file.problem(("tables",), "tables: should be a pattern, or a list of them"))
    if len(connections) > 1:
        names = " and ".join(connections)
        problem = f"tables: should be of one connection, not of {names}: use a file for each"
        problems.append(file.problem(("tables",), problem))
    problems += [
        file.problem((name,), f"{name} is for files of one table; here are `tables`")
        for name in NOT_FOR_MANY
        if name in data
    ]
    hops = data.get("hops")
    targets = [_target(hop) for hop in hops] if isinstance(hops, list) else []
    if not targets or not all(targets):
        problem = "hops: should be a list of targets, as sqlserver://dbo.{table}"
        problems.append(file.problem(("hops",), problem))
    for number, target in enumerate(targets):
        try:
            unknown = unknown_placeholder(target) or (filled(target, _EXAMPLE) and None)
        except InputError as error:
            unknown = str(error)
        if unknown and target:
            problems.append(file.problem(("hops", number), f"hops.{number}: {unknown}"))
    overrides = data.get("overrides", {})
    if not isinstance(overrides, dict):
        problems.append(file.problem(("overrides",), "overrides: should be a mapping by table"))
        overrides = {}
    for name, content in overrides.items():
        wrong = [key for key in NOT_FOR_MANY if isinstance(content, dict) and key in content]
        if not isinstance(content, dict) or wrong:
            problem = f"overrides.{name}: should be a mapping with the keys of a transfer file"
            problem += f", but {' and '.join(wrong)}" * bool(wrong)
            problems.append(file.problem(("overrides", str(name), *wrong[:1]), problem))
    if problems:
        raise Unreadable(problems)
    return Declaration(
        file,
        next(iter(connections)),
        tuple(patterns),
        tuple(_texts(data.get("exclude"))),
        tuple(targets),
        str(data.get("prefix") or file.path.stem),
        {str(name): content for name, content in overrides.items()},
    )


_EXAMPLE = TableRef("postgres", "schema", "table")


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)] * bool(value)


def _target(hop: object) -> str:
    return str(hop.get("to", "")) if isinstance(hop, dict) else str(hop)


@dataclass(frozen=True)
class Lock:
    """The tables that a declaration stands for, as they were last refreshed."""

    entries: Mapping[str, YamlFile]
    """What the catalog said about each table, by its name in the source's connection."""
    left_out: Mapping[str, str]
    """Why the other tables that fit are not moved."""


def read_lock(path: Path) -> Lock:
    """Read a lock file.

    Raises:
        Unreadable: it is not there, or somebody has edited it.
    """
    if not path.is_file():
        raise Unreadable([Problem(path, 1, "is not there yet")])
    file = YamlFile.read(path, "a lock", fast=True)
    tables, left_out = file.data.get("tables"), file.data.get("left_out")
    if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
        raise Unreadable([Problem(path, 1, "should have a mapping `tables`")])
    reasons = left_out if isinstance(left_out, dict) else {}
    return Lock({name: file.inside(("tables", name)) for name in tables}, reasons)


def lock_text(
    name: str, entries: Mapping[str, Mapping[str, Any]], left_out: Mapping[str, str]
) -> str:
    """Return the text of a lock file, the same for the same tables."""
    data: dict[str, Any] = {"tables": {table: dict(entries[table]) for table in sorted(entries)}}
    if left_out:
        data["left_out"] = {table: left_out[table] for table in sorted(left_out)}
    return HEADER.format(name=name) + block_text(_escaped(data))


def _escaped(value: Any) -> Any:
    """Escape what would be taken for variables in the values of a file."""
    if isinstance(value, dict):
        return {key: _escaped(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_escaped(part) for part in value]
    return escaped(value) if isinstance(value, str) else value


def transfers_of(
    declaration: Declaration, defaults: YamlFile | None
) -> Iterator[YamlFile | Problem]:
    """Yield each transfer of a declaration as if it were a file of its own, or what is wrong."""
    file = declaration.file
    try:
        lock = read_lock(declaration.lock)
    except Unreadable as error:
        for problem in error.problems:
            message = f"{problem}: run `ferry refresh {file.path.name}`"
            yield file.problem(("tables",), message)
        return
    common = replace(file, data=declaration.common).over(defaults)
    used: set[str] = set()
    for name, entry in lock.entries.items():
        try:
            table = table_of(str(entry.data.get("source")))
            shortened = _shortened(entry)
            hops = [_filled_hop(hop, table, shortened) for hop in file.data["hops"]]
        except InputError as error:
            yield Problem(declaration.lock, entry.line(()), f"{name}: {error}")
            continue
        override = declaration.override(table)
        name_of_override, content = override or ("", {})
        declared = {**declaration.common, **content}
        shared = replace(common, data={**common.data, "hops": hops})
        gone = {"shortened", *_given_way(entry.data, declared)}
        part = entry.without(gone).over(shared, _MERGED)
        if override is not None:
            used.add(name_of_override)
            columns = content.get("columns")
            if isinstance(columns, dict) and "exclude" in part.data:
                left = [column for column in part.data["exclude"] if column not in columns]
                part = replace(part, data={**part.data, "exclude": left})
            if isinstance(content.get("hops"), list):
                hops = [_filled_hop(hop, table, shortened) for hop in content["hops"]]
                content = {**content, "hops": hops}
            above = replace(file.inside(("overrides", name_of_override)), data=content)
            part = above.over(part, _MERGED)
        yield part
    for name in declaration.overrides:
        if name not in used:
            message = (
                f"overrides.{name}: {declaration.lock.name} has no such table; correct the name, "
                f"or run `ferry refresh {file.path.name}`"
            )
            yield file.problem(("overrides", name), message)


_MERGED = (*MERGED, "columns")


def _given_way(entry: Mapping[str, Any], declared: Mapping[str, Any]) -> set[str]:
    """Return the keys out of the catalog that give way to what is declared."""
    ranges = entry.get("ranges")
    placed = isinstance(ranges, dict) and "by" in ranges
    if placed and "key" in declared:
        return {"ranges", "write"}
    if not placed and isinstance(ours := declared.get("ranges"), dict):
        return {"ranges", "key"} if "by" in ours else {"ranges"}
    return {"key"} & set(declared)


def _shortened(entry: YamlFile) -> Mapping[str, str]:
    """Return the targets of a lock's entry that have shorter names than the declaration's."""
    shortened = entry.data.get("shortened")
    return shortened if isinstance(shortened, dict) else {}


def _filled_hop(hop: Any, table: TableRef, shortened: Mapping[str, str]) -> Any:
    """Return a hop for a table, with a name that its server takes."""
    if isinstance(hop, dict) and "to" in hop:
        return {**hop, "to": _filled_hop(hop["to"], table, shortened)}
    target = filled(str(hop), table)
    return shortened.get(target, target)


def matching(
    tables: Sequence[TableRef], patterns: Sequence[str], exclude: Sequence[str]
) -> list[TableRef]:
    """Return the tables that a declaration's patterns stand for."""
    chosen = {table for fitting in by_pattern(tables, patterns).values() for table in fitting}
    chosen -= {table for fitting in by_pattern(tables, exclude).values() for table in fitting}
    return [table for table in tables if table in chosen]


def by_pattern(tables: Sequence[TableRef], patterns: Sequence[str]) -> dict[str, list[TableRef]]:
    """Return the tables that each pattern fits; a plain name is looked up, not compared."""
    named: dict[str, list[TableRef]] = {}
    for table in tables:
        named.setdefault(f"{table.schema}.{table.name}", []).append(table)
        if "." not in table.name:
            named.setdefault(table.name, []).append(table)
    return {
        pattern: [table for table in tables if fits(table, pattern)]
        if _WILDCARDS & set(pattern)
        else named.get(pattern, [])
        for pattern in patterns
    }
