"""Reads the transfer files of a folder: the good ones, and all that is wrong with the others.

What many of them have in common stands in `defaults.yaml` beside them.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from tableferry.assets.declaring.manifest import LENIENT, Transfer
from tableferry.assets.declaring.names import check_schedule_name, schedule_name
from tableferry.assets.declaring.sections import CONNECTIONS
from tableferry.assets.declaring.yaml_lines import (
    Location,
    Problem,
    Several,
    Unreadable,
    YamlFile,
)
from tableferry.resources.connecting.names import ENV_ONLY
from tableferry.resources.errors import InputError

DEFAULTS = "defaults.yaml"

NEVER_USUAL = ("transfer", "source", "hops")
"""What says which transfer it is, and so cannot be a default."""


@dataclass(frozen=True)
class Defaults:
    """What `defaults.yaml` of a folder says, if there is one."""

    file: YamlFile | None = None
    problems: tuple[Problem, ...] = ()
    """Why nobody can go by it."""

    @classmethod
    def of(cls, folder: Path) -> Defaults:
        """The defaults of a folder."""
        path = folder / DEFAULTS
        if not path.is_file():
            return cls()
        try:
            file = YamlFile.read(path, DEFAULTS, may_be_empty=True)
        except Unreadable as error:
            return cls(problems=error.problems)
        found = [*file.valueless, *file.repeated_keys()]
        found += [
            file.problem((name,), f"{name} belongs in each file, not into {DEFAULTS}")
            for name in NEVER_USUAL
            if name in file.data
        ]
        return cls(file, tuple(found))


@dataclass(frozen=True)
class InvalidFile:
    """A file that is no transfer, and all that is wrong with it."""

    path: Path
    problems: tuple[Problem, ...]
    transfer: str | None = None
    """The name that it gives, where that can be read."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


@dataclass(frozen=True)
class TransferFolder:
    """What the files of a folder declare, or Python code in their place."""

    path: Path
    transfers: dict[str, Transfer]
    """By name, in name order."""
    invalid: tuple[InvalidFile, ...] = ()
    files: Mapping[str, YamlFile] = field(default_factory=dict, repr=False)
    """Where the transfers are declared, by name."""

    @classmethod
    def of(cls, transfers: Iterable[Transfer]) -> TransferFolder:
        """Transfers that Python code has made; there is no folder.

        Raises:
            InputError: two of them have the same name or target.
        """
        found = sorted(transfers, key=lambda one: one.transfer)
        taken: set[str] = set()
        for transfer in found:
            for what, _ in _claims(transfer):
                if what in taken:
                    raise InputError(f"{what} of transfer {transfer.transfer!r} is taken")
                taken.add(what)
        return cls(Path(), {one.transfer: one for one in found})

    def only(self, name: str) -> TransferFolder:
        """The folder as if it held this one valid transfer."""
        return TransferFolder(self.path, {name: self.transfers[name]}, (), self.files)

    def transfer(self, name: str) -> Transfer:
        """The transfer of that name.

        Raises:
            InputError: there is none, or what is wrong with its file.
        """
        if name in self.transfers:
            return self.transfers[name]
        if wrong := [one for one in self.invalid if one.transfer == name or one.path.stem == name]:
            raise InputError("\n".join(map(str, wrong)))
        raise InputError(
            f"there is no transfer {name!r} in {self.path}; "
            f"there are {', '.join(self.transfers) or 'none'}"
        )


def load_transfers(folder: Path, connections: Mapping[str, str] = ENV_ONLY) -> TransferFolder:
    """Read every `*.yaml` and `*.yml` of a folder.

    A file with an error in it is left out, as are files that claim the same transfer or target:
    none of them is more right than the other. What is wrong with the defaults is wrong with every
    file that goes by them.

    Args:
        folder: of the files.
        connections: systems by the names of connections that the environment need not know.

    Raises:
        InputError: there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} should be a folder of transfer files (TABLEFERRY_TRANSFERS)")
    found: list[tuple[YamlFile, Transfer]] = []
    invalid: list[InvalidFile] = []
    defaults = Defaults.of(folder)
    for path in sorted(folder.glob("*.y*ml")):
        # an editor's lock or swap file begins with a dot
        if path.name.startswith(".") or path.name == DEFAULTS:
            continue
        outcome = _read(path, defaults, connections)
        if isinstance(outcome, InvalidFile):
            invalid.append(outcome)
        else:
            found.append(outcome)
    return _without_conflicts(folder, found, invalid)


def transfers_in(
    path: Path, parts: Iterable[YamlFile], connections: Mapping[str, str]
) -> TransferFolder:
    """The same of transfers that are parts of one file; `path` is its.

    Several `InvalidFile` may then have its path.
    """
    found: list[tuple[YamlFile, Transfer]] = []
    invalid: list[InvalidFile] = []
    for part in parts:
        outcome = _checked(part, Defaults(), connections)
        if isinstance(outcome, InvalidFile):
            invalid.append(outcome)
        else:
            found.append(outcome)
    return _without_conflicts(path, found, invalid)


def _without_conflicts(
    folder: Path, found: Sequence[tuple[YamlFile, Transfer]], invalid: list[InvalidFile]
) -> TransferFolder:
    conflicts = _conflicts(found)
    for file, transfer in found:
        if problems := conflicts.get(file.start):
            invalid.append(InvalidFile(file.path, tuple(problems), transfer.transfer))
    good = {
        transfer.transfer: (file, transfer)
        for file, transfer in found
        if file.start not in conflicts
    }
    return TransferFolder(
        folder,
        {name: good[name][1] for name in sorted(good)},
        tuple(sorted(invalid, key=lambda one: one.path)),
        {name: file for name, (file, _) in good.items()},
    )


def invalid_file(path: Path) -> InvalidFile | None:
    """What is wrong with a file now, also with regard to its neighbours; None if it is valid."""
    declared = load_transfers(path.parent)
    return next((one for one in declared.invalid if one.path == path), None)


def load_transfer(path: Path) -> Transfer:
    """Read one file.

    Raises:
        InputError: it is not a valid transfer; all that is wrong, one line each, by file and line.
    """
    outcome = _read(path, Defaults.of(path.parent), ENV_ONLY)
    if isinstance(outcome, InvalidFile):
        raise InputError(str(outcome))
    return outcome[1]


def _read(
    path: Path, defaults: Defaults, connections: Mapping[str, str]
) -> tuple[YamlFile, Transfer] | InvalidFile:
    try:
        file = YamlFile.read(path).over(defaults.file)
    except Unreadable as error:
        return InvalidFile(path, error.problems)
    return _checked(file, defaults, connections)


def _checked(
    file: YamlFile, defaults: Defaults, connections: Mapping[str, str]
) -> tuple[YamlFile, Transfer] | InvalidFile:
    path, context = file.path, {CONNECTIONS: connections}
    problems = [*file.repeated_keys(), *defaults.problems, *file.valueless]
    unclear = {(one.path, one.line) for one in (*defaults.problems, *file.valueless)}
    try:
        transfer = Transfer.model_validate(file.data, context=context)
    except ValidationError as error:
        further = _further(file.data, error, context)
        found = [_explained(detail) for detail in (*error.errors(), *further)]
        wrong = [file.problem(*one) for one in dict.fromkeys(chain.from_iterable(found))]
        problems += [one for one in wrong if (one.path, one.line) not in unclear]
    else:
        if not problems:
            return file, transfer
    name = file.data.get("transfer")
    problems.sort(key=lambda problem: (problem.path != path, problem.line))
    return InvalidFile(path, tuple(problems), name if isinstance(name, str) else None)


def _further(data: dict[Any, Any], error: ValidationError, context: Mapping[str, Any]) -> list[Any]:
    """What else is wrong: rules about all hops or columns are not asked while one is malformed."""
    rest = copy.deepcopy(data)
    gone: set[Location] = set()
    for detail in error.errors():
        location = detail["loc"]
        # the other parts have told all about themselves
        depth = len(location) if location[:1] in (("hops",), ("columns",)) else 1
        gone.add(_without(rest, location[:depth]))
    found: list[Any] = []
    for lenient in (False, True):
        try:
            Transfer.model_validate(rest, context={**context, LENIENT: lenient})
        except ValidationError as second:
            found += [detail for detail in second.errors() if detail["loc"] not in gone]
    return found


def _without(data: Any, location: Location) -> Location:
    """Delete the innermost key on the way to a place; returns where that was."""
    holder, key = data, location[0]
    deepest: Location = location[:1]
    for number, part in enumerate(location[:-1], start=1):
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
        if isinstance(data, dict) and location[number] in data:
            holder, key, deepest = data, location[number], location[: number + 1]
    holder.pop(key, None)
    return deepest


def _explained(detail: Any) -> Iterator[tuple[Location, str]]:
    """Where and what, for people; pydantic's marks of keys and alternatives are left out."""
    location = tuple(part for part in detail["loc"] if part != "[key]")
    if location[:1] == ("only",):
        location = ("columns",)
    reason = detail.get("ctx", {}).get("error")
    if isinstance(reason, Several):
        for inside, message in reason.found:
            yield (*location, *inside), _named((*location, *inside), message)
    elif detail["type"] == "extra_forbidden":
        like = get_close_matches(str(location[0]), Transfer.model_fields, n=1)
        hint = f": did you mean {like[0]}?" if like and len(location) == 1 else ""
        yield location, f"unknown key {_dotted(location)}{hint}"
    else:
        message = detail["msg"].removeprefix("Value error, ")
        given = detail["input"]
        plain = not isinstance(given, dict | list | BaseModel) and given is not None
        shown = f" (got {given!r})" if plain and repr(given) not in message else ""
        yield location, _named(location, f"{message}{shown}")


def _named(location: Location, message: str) -> str:
    return f"{_dotted(location)}: {message}" if location else message


def _dotted(location: Location) -> str:
    return ".".join(str(part) for part in location)


def _conflicts(
    found: Iterable[tuple[YamlFile, Transfer]],
) -> dict[tuple[Path, int], list[Problem]]:
    """What several files claim, by the start of each: a name, a target, a name in Dagster."""
    claims: dict[str, list[tuple[YamlFile, Location]]] = defaultdict(list)
    for file, transfer in found:
        for what, location in _claims(transfer):
            claims[what].append((file, location))
    conflicts: dict[tuple[Path, int], list[Problem]] = defaultdict(list)
    known: set[tuple[tuple[Path, int], Location, str]] = set()
    for what, claimants in claims.items():
        for file, location in claimants:
            others = ", ".join(
                other.place(place) for other, place in claimants if other.start != file.start
            )
            # two transfers of one name have all names in Dagster in common
            if others and (file.start, location, others) not in known:
                known.add((file.start, location, others))
                message = f"{what} is also in {others}"
                conflicts[file.start].append(file.problem(location, message))
    return conflicts


def _claims(transfer: Transfer) -> Iterator[tuple[str, Location]]:
    """What no other transfer may have, and where it is declared."""
    name = transfer.transfer
    yield f"transfer {name!r}", ("transfer",)
    for number, hop in enumerate(transfer.hops):
        yield f"the target {hop.to}", ("hops", number)
    if transfer.schedule:
        yield f"the name {schedule_name(name)!r} in Dagster", ("schedule",)
    if transfer.check_schedule:
        yield f"the name {check_schedule_name(name)!r} in Dagster", ("check_schedule",)
