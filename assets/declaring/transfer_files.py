"""Reads the transfer files of a folder: the valid transfers, and every problem of the others.

`defaults.yaml` beside them holds what many of them have in common.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from tableferry.assets.declaring import many_tables
from tableferry.assets.declaring.dagster_rules import check_schedule_name, schedule_name
from tableferry.assets.declaring.manifest import LENIENT, Transfer
from tableferry.assets.declaring.namesakes import Namesake, namesakes_of
from tableferry.assets.declaring.sections import CONNECTIONS, FOLDER, SIMILAR
from tableferry.assets.declaring.yaml_lines import (
    PLAIN_WORDS,
    QUOTE_COMMAS,
    InvalidParts,
    Location,
    Problem,
    Unreadable,
    YamlFile,
)
from tableferry.resources.connecting.names import ENV_ONLY
from tableferry.resources.errors import InputError
from tableferry.resources.words import MOST_NAMES, counted, those_there

DEFAULTS = "defaults.yaml"

IDENTIFYING = ("transfer", "source", "hops")
"""Keys that tell transfers apart, and so have no defaults."""


@dataclass(frozen=True)
class Defaults:
    """The content of a folder's `defaults.yaml`, if there is one."""

    file: YamlFile | None = None
    problems: tuple[Problem, ...] = ()
    """Why no transfer can use it."""

    @classmethod
    def read(cls, folder: Path) -> Defaults:
        """Read the defaults of a folder."""
        path = folder / DEFAULTS
        if not path.is_file():
            return cls()
        try:
            file = YamlFile.read(path, DEFAULTS, may_be_empty=True)
        except Unreadable as error:
            return cls(problems=error.problems)
        misplaced = [
            file.problem((name,), f"{name} belongs in each file, not in {DEFAULTS}")
            for name in IDENTIFYING
            if name in file.data
        ]
        return cls(file, (*file.valueless, *file.repeated_keys(), *misplaced))


@dataclass(frozen=True)
class InvalidFile:
    """A file that is no valid transfer, and every problem of it."""

    path: Path
    problems: tuple[Problem, ...]
    transfer: str | None = None
    """The name that it declares, if that can be read."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


@dataclass(frozen=True)
class TransferFolder:
    """The transfers that the files of a folder, or Python code, declare."""

    path: Path
    transfers: dict[str, Transfer]
    """By name, in name order."""
    invalid: tuple[InvalidFile, ...] = ()
    files: Mapping[str, YamlFile] = field(default_factory=dict, repr=False)
    """Where the transfers are declared, by name."""
    namesakes: Mapping[str, Sequence[Namesake]] = field(default_factory=dict, repr=False)
    """The targets of other transfers that may be a transfer's own, by its name."""

    @classmethod
    def of(cls, transfers: Iterable[Transfer]) -> TransferFolder:
        """Collect transfers that Python code has made, without a folder.

        Raises:
            InputError: two of them have the same name or target.
        """
        ordered = sorted(transfers, key=lambda transfer: transfer.transfer)
        taken: set[str] = set()
        for transfer in ordered:
            for claim, _ in _claims(transfer):
                if claim in taken:
                    raise InputError(f"{claim} of transfer {transfer.transfer!r} is taken")
                taken.add(claim)
        by_name = {transfer.transfer: transfer for transfer in ordered}
        return cls(Path(), by_name, namesakes=namesakes_of(ordered))

    def only(self, name: str) -> TransferFolder:
        """The folder as if it held this valid transfer alone."""
        return replace(self, transfers={name: self.transfers[name]}, invalid=())

    def transfer(self, name: str) -> Transfer:
        """Return the transfer with this name.

        Raises:
            InputError: there is none, or its file is invalid.
        """
        if name in self.transfers:
            return self.transfers[name]
        if broken := [file for file in self.invalid if name in (file.transfer, file.path.stem)]:
            raise InputError("\n".join(map(str, broken)))
        message = (
            f"there is no transfer {name!r} in {self.path}; "
            f"{those_there(name, self.transfers, 'transfer', '`ferry status`')}"
        )
        if self.invalid:  # one of these may declare many transfers
            # the path of a lock file stands for many transfers
            names = list(dict.fromkeys(file.path.name for file in self.invalid))
            files = f"{counted(len(names), 'file')} left out as invalid"
            message += f"; {files} ({', '.join(names[:MOST_NAMES])}): see `ferry validate`"
        raise InputError(message)


def load_transfers(folder: Path, connections: Mapping[str, str] = ENV_ONLY) -> TransferFolder:
    """Read every `*.yaml` and `*.yml` of a folder.

    A file with a problem is left out. So are all files that claim the same transfer or target,
    because none of them has a better claim. A problem of the defaults is one of every file.

    Args:
        folder: the folder of the files.
        connections: systems by name of connection, for those that the environment does not name.

    Raises:
        InputError: there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} should be a folder of transfer files (TABLEFERRY_TRANSFERS)")
    defaults = Defaults.read(folder)
    outcomes = [
        outcome for path in _declaring(folder) for outcome in _read(path, defaults, connections)
    ]
    return _collected(folder, outcomes)


def transfers_in(
    path: Path, parts: Iterable[YamlFile], connections: Mapping[str, str]
) -> TransferFolder:
    """Read transfers that are parts of one file, as `load_transfers` reads files.

    Several `InvalidFile` may then have its path.
    """
    return _collected(path, [_validated(part, Defaults(), connections) for part in parts])


_Outcome = tuple[YamlFile, Transfer] | InvalidFile


def _collected(folder: Path, outcomes: Sequence[_Outcome]) -> TransferFolder:
    declared = [outcome for outcome in outcomes if not isinstance(outcome, InvalidFile)]
    invalid = [outcome for outcome in outcomes if isinstance(outcome, InvalidFile)]
    conflicts = _conflicts(declared)
    valid: dict[str, tuple[YamlFile, Transfer]] = {}
    for file, transfer in declared:
        if problems := conflicts.get(file.start):
            invalid.append(InvalidFile(file.path, tuple(problems), transfer.transfer))
        else:
            valid[transfer.transfer] = file, transfer
    return TransferFolder(
        folder,
        {name: valid[name][1] for name in sorted(valid)},
        tuple(sorted(invalid, key=lambda file: file.path)),
        {name: file for name, (file, _) in valid.items()},
        namesakes_of(transfer for _, transfer in valid.values()),
    )


def invalid_file(path: Path) -> InvalidFile | None:
    """What is wrong with a file now, together with its neighbours; None if it is valid."""
    return next((file for file in load_transfers(path.parent).invalid if file.path == path), None)


def load_transfer(path: Path) -> Transfer:
    """Read the file of one transfer.

    Raises:
        InputError: all that is wrong with it, one line each, by file and line.
    """
    (outcome,) = _read(path, Defaults.read(path.parent), ENV_ONLY)
    if isinstance(outcome, InvalidFile):
        raise InputError(str(outcome))
    return outcome[1]


def _read(path: Path, defaults: Defaults, connections: Mapping[str, str]) -> Iterator[_Outcome]:
    """Read a transfer, or the transfers of many tables that a file declares."""
    try:
        file = YamlFile.read(path)
        if not many_tables.is_declaration(file):
            yield _validated(file.over(defaults.file), defaults, connections)
            return
        parts = list(many_tables.transfers_of(many_tables.declaration_of(file), defaults.file))
    except Unreadable as error:
        yield InvalidFile(path, error.problems)
        return
    for part in parts:
        if isinstance(part, Problem):
            yield InvalidFile(path, (part,))
        else:
            yield _validated(part, defaults, connections)


def declarations_in(folder: Path) -> list[many_tables.Declaration]:
    """Return the valid declarations of many tables in a folder, by file name."""
    declarations = []
    for path in _declaring(folder):
        with suppress(Unreadable):
            file = YamlFile.read(path)
            if many_tables.is_declaration(file):
                declarations.append(many_tables.declaration_of(file))
    return declarations


def _declaring(folder: Path) -> list[Path]:
    """The files of a folder that declare transfers."""
    # the names of editors' lock and swap files begin with a dot
    return [
        path
        for path in sorted(folder.glob("*.y*ml"))
        if not (path.name.startswith(".") or path.name == DEFAULTS or many_tables.is_lock(path))
    ]


def _validated(file: YamlFile, defaults: Defaults, connections: Mapping[str, str]) -> _Outcome:
    path, similar = file.path, dict[str, str]()
    context = {CONNECTIONS: connections, FOLDER: path.parent, SIMILAR: similar}
    problems = [*file.repeated_keys(), *defaults.problems, *file.valueless]
    # what is wrong there is that there is no value
    unclear = {(problem.path, problem.line) for problem in (*defaults.problems, *file.valueless)}
    try:
        transfer = Transfer.model_validate(file.data, context=context)
    except ValidationError as error:
        details = [*error.errors(), *_further_errors(file.data, error, context)]
        explained = [each for detail in details for each in _explained(detail, similar)]
        invalid = [file.problem(*each) for each in dict.fromkeys(explained)]
        problems += [problem for problem in invalid if (problem.path, problem.line) not in unclear]
    else:
        if not problems:
            vars(transfer)["key_place"] = f"{file.place(('key',))}: "
            return file, transfer
    name = file.data.get("transfer")
    problems.sort(key=lambda problem: (problem.path != path, problem.line))
    return InvalidFile(path, tuple(problems), name if isinstance(name, str) else None)


def _further_errors(
    data: dict[Any, Any], error: ValidationError, context: Mapping[str, Any]
) -> list[Any]:
    """Errors of rules that pydantic skips while a field is malformed.

    Validates again without the malformed parts.
    """
    rest = copy.deepcopy(data)
    removed: set[Location] = set()
    for detail in error.errors():
        location = detail["loc"]
        if not location:  # of rules about the file as a whole, which come last
            continue
        # of hops and columns only the malformed one, the others are valid by themselves
        depth = len(location) if location[:1] in (("hops",), ("columns",)) else 1
        removed.add(_remove(rest, location[:depth]))
    details: list[Any] = []
    for lenient in (False, True):
        try:
            Transfer.model_validate(rest, context={**context, LENIENT: lenient})
        except ValidationError as second:
            details += [detail for detail in second.errors() if detail["loc"] not in removed]
    return details


def _remove(data: Any, location: Location) -> Location:
    """Delete the innermost key on the way to a location, and return that key's location."""
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


def _explained(detail: Any, similar: Mapping[str, str]) -> Iterator[tuple[Location, str]]:
    """Location and message of a pydantic error, without its marks of keys.

    Args:
        detail: the error.
        similar: known keys by unknown ones that resemble them.
    """
    location = tuple(part for part in detail["loc"] if part != "[key]")
    if location[:1] == ("only",):
        location = ("columns",)
    reason = detail.get("ctx", {}).get("error")
    problems = reason.problems if isinstance(reason, InvalidParts) else [((), _message(detail))]
    for inside, message in problems:
        place = (*location, *inside)
        dotted, last = ".".join(map(str, place)), str(place[-1]) if place else ""
        if last.count("(") < last.count(")"):
            yield place[:-1], f"{dotted} is the rest of a type: {QUOTE_COMMAS}"
        elif detail["type"] == "extra_forbidden":
            known = similar.get(last)
            yield place, f"unknown key {dotted}" + (f": did you mean {known}?" if known else "")
        else:
            yield place, f"{dotted}: {message}" if place else message


def _message(detail: Any) -> str:
    message, value = detail["msg"].removeprefix("Value error, "), detail["input"]
    message = PLAIN_WORDS.get(detail["type"], message).removeprefix("Input ")
    plain = not isinstance(value, dict | list | BaseModel) and value is not None
    return f"{message} (got {value!r})" if plain and repr(value) not in message else message


def _conflicts(
    declared: Iterable[tuple[YamlFile, Transfer]],
) -> dict[tuple[Path, int], list[Problem]]:
    """Claims that several files make, by the start of each file."""
    claims: dict[str, list[tuple[YamlFile, Location]]] = defaultdict(list)
    for file, transfer in declared:
        for claim, location in _claims(transfer):
            claims[claim].append((file, location))
    conflicts: dict[tuple[Path, int], list[Problem]] = defaultdict(list)
    reported: set[tuple[tuple[Path, int], Location, str]] = set()
    for claim, claimants in claims.items():
        for file, location in claimants:
            others = ", ".join(
                other.place(place) for other, place in claimants if other.start != file.start
            )
            # transfers with one name have all their names in Dagster in common as well
            if others and (file.start, location, others) not in reported:
                reported.add((file.start, location, others))
                message = f"{claim} is also in {others}"
                conflicts[file.start].append(file.problem(location, message))
    return conflicts


def _claims(transfer: Transfer) -> Iterator[tuple[str, Location]]:
    """Names and targets that no other transfer may have, and where they are declared."""
    name = transfer.transfer
    yield f"transfer {name!r}", ("transfer",)
    for number, hop in enumerate(transfer.hops):
        yield f"the target {hop.to}", ("hops", number)
    if transfer.schedule:
        yield f"the name {schedule_name(name)!r} in Dagster", ("schedule",)
    if transfer.check_schedule:
        yield f"the name {check_schedule_name(name)!r} in Dagster", ("check_schedule",)
