"""The YAML declaration of a transfer, read and checked without any server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from assets.profiles import DEFAULT, profile
from checks.expectations import CHECK_NAME as EXPECTATIONS
from checks.expectations import ExpectationSpec
from checks.verdict import CHECK_NAMES, Level
from checks.whole_table import WHOLE_TABLE_CHECKS
from resources.errors import InputError
from resources.plan import OverflowPolicy, WireFormat, WriteMode
from resources.tables import System, TableRef

FingerprintMethod = Literal["content", "row_version", "count_minmax", "none"]
DriftPolicy = Literal["fail", "add_columns", "ignore_new"]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What Dagster allows as the name of an op, a group and a partitions definition."""


class Declared(BaseModel):
    """Base of all parts of the file: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RangesSpec(Declared):
    """How the key space is cut: by `rows`, `count` or `width`, or at given `bounds`.

    With `width` or `count`, two bounds give the span that is divided; alone, the bounds are the
    cuts themselves.
    """

    rows: Annotated[int, Field(gt=0)] | None = None
    count: Annotated[int, Field(gt=0)] | None = None
    width: Annotated[int, Field(gt=0)] | Literal["day", "month", "year"] | None = None
    bounds: list[Any] | None = None

    @model_validator(mode="after")
    def one_measure(self) -> Self:
        given = [name for name in ("rows", "count", "width") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of rows, count and width, not {' and '.join(given)}")
        if not given and not self.bounds:
            raise ValueError("give one of rows, count, width and bounds")
        if self.bounds is not None:
            if len(self.bounds) < 2:
                raise ValueError("bounds should hold at least two values")
            if any(
                not lower < upper
                for lower, upper in zip(self.bounds, self.bounds[1:], strict=False)
            ):
                raise ValueError(f"bounds overlap: {self.bounds} should be strictly ascending")
        return self


class ColumnSpec(Declared):
    """What is special about one column."""

    rename: str | None = None
    type: str | dict[System, str] | None = None
    """Target type of the first hop, or one per system."""
    on_overflow: OverflowPolicy = "refuse"
    low_cardinality: bool = False


class HopSpec(Declared):
    """One target of the journey, and how it is reached."""

    to: TableRef
    wire: WireFormat = "arrow"
    engine: str | None = None
    order_by: list[str] | None = None
    partition_by: str | None = None

    @field_validator("to", mode="before")
    @classmethod
    def parse_table(cls, value: object) -> object:
        return _table(value)


class ParallelSpec(Declared):
    """Workers: how many ranges are exported, and how many loaded, at the same time.

    What is not given is the profile's.
    """

    export: Annotated[int, Field(ge=1, le=64)] | None = None
    load: Annotated[int, Field(ge=1, le=64)] | None = None


class ExpectationDeclared(Declared):
    """One expectation of Great Expectations, or `sql`: see docs/guide.md."""

    type: str
    kwargs: dict[str, Any] = {}


class CheckSpec(Declared):
    """What a failed check means."""

    severity: Literal["error", "warn"] = "error"
    blocking: bool = True
    """Whether a range with this check failed stays uncommitted, and out of the later hops."""


class Transfer(Declared):
    """One table's declared journey. See docs/guide.md for each key."""

    transfer: str
    description: str | None = None
    source: TableRef
    hops: Annotated[list[HopSpec], Field(min_length=1)]
    key: str
    ranges: RangesSpec = RangesSpec(rows=250_000)
    write: WriteMode = "replace"
    reconcile: Level = "checksum"
    checks: dict[str, CheckSpec] = {}
    expectations: list[ExpectationDeclared] = []
    fingerprint: str = "content"
    columns: dict[str, ColumnSpec] = {}
    only: list[str] | None = None
    exclude: list[str] = []
    parallel: ParallelSpec = ParallelSpec()
    profile: str = DEFAULT
    on_schema_drift: DriftPolicy = "fail"
    tags: dict[str, str] = {}
    owners: list[str] = []
    schedule: str | None = None
    check_schedule: str | None = None

    @field_validator("transfer")
    @classmethod
    def check_name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError(f"{value!r} should be letters, digits and underscores")
        return value

    @field_validator("profile")
    @classmethod
    def check_profile(cls, value: str) -> str:
        try:
            profile(value)
        except InputError as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("source", mode="before")
    @classmethod
    def parse_source(cls, value: object) -> object:
        return _table(value)

    @field_validator("hops", mode="before")
    @classmethod
    def expand_hops(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        return [{"to": hop} if isinstance(hop, str) else hop for hop in value]

    @model_validator(mode="before")
    @classmethod
    def expand_columns(cls, data: Any) -> Any:
        """`columns` as a list is a subset; as a mapping it only describes the columns it names."""
        if isinstance(data, dict) and isinstance(listed := data.get("columns"), list):
            named: dict[str, Any] = {}
            for item in listed:
                named.update(item if isinstance(item, dict) else {item: {}})
            return {**data, "columns": named, "only": list(named)}
        return data

    @field_validator("fingerprint", mode="before")
    @classmethod
    def check_fingerprint(cls, value: object) -> object:
        if isinstance(value, dict) and list(value) == ["watermark"]:
            return f"watermark:{value['watermark']}"
        methods = ("content", "row_version", "count_minmax", "none")
        if value not in methods and not str(value).startswith("watermark:"):
            raise ValueError(
                f"{value!r} should be one of {', '.join(methods)}, {{watermark: column}}"
            )
        return value

    @model_validator(mode="after")
    def check_checks(self) -> Self:
        known = {*CHECK_NAMES.values(), *WHOLE_TABLE_CHECKS, EXPECTATIONS}
        if unknown := sorted(set(self.checks) - known):
            raise ValueError(
                f"there is no check {unknown[0]!r}; there are {', '.join(sorted(known))}"
            )
        return self

    @model_validator(mode="after")
    def check_journey(self) -> Self:
        if self.source.system == "clickhouse":
            raise ValueError("the source should be postgres:// or sqlserver://")
        stations = [self.source, *(hop.to for hop in self.hops)]
        if len({str(table) for table in stations}) < len(stations):
            raise ValueError("a table stands twice in source and hops")
        for before, hop in zip(stations, self.hops, strict=False):
            if before.system == "clickhouse" or hop.to.system not in ("sqlserver", "clickhouse"):
                raise ValueError(f"{before} -> {hop.to} is not a hop that Tableferry can make")
            if hop.to.system == before.system:
                raise ValueError(f"{before} -> {hop.to} stays in one system")
        if self.key in self.exclude or (self.only is not None and self.key not in self.only):
            raise ValueError(f"the key {self.key!r} should not be excluded")
        return self

    def check_spec(self, name: str) -> CheckSpec:
        """What the failure of a check means for this transfer."""
        return self.checks.get(name, CheckSpec())

    @property
    def suite(self) -> tuple[ExpectationSpec, ...]:
        """The declared expectations."""
        return tuple(ExpectationSpec(one.type, one.kwargs) for one in self.expectations)

    @property
    def key_name(self) -> str:
        """The key column's name in the targets."""
        return self.columns.get(self.key, ColumnSpec()).rename or self.key

    @property
    def partitions_name(self) -> str:
        """Name of the transfer's dynamic partitions definition."""
        return f"{self.transfer}_ranges"

    @property
    def watermark(self) -> str | None:
        """The watermark column, where the fingerprint is one."""
        method, _, column = self.fingerprint.partition(":")
        return column if method == "watermark" else None


def load_transfers(folder: Path) -> dict[str, Transfer]:
    """Read every `*.yaml` of a folder, by transfer name, in name order.

    Raises:
        InputError: a file is not a valid transfer; the message names file and line, one error per
            line of the message.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} should be a folder of transfer files (TABLEFERRY_TRANSFERS)")
    found: dict[str, tuple[Transfer, Path]] = {}
    for path in sorted(folder.glob("*.y*ml")):
        transfer = load_transfer(path)
        if transfer.transfer in found:
            raise InputError(
                f"{path}: transfer {transfer.transfer!r} is also in {found[transfer.transfer][1]}"
            )
        for hop in transfer.hops:
            for other, where in found.values():
                if any(hop.to == taken.to for taken in other.hops):
                    raise InputError(f"{path}: {hop.to} is also a target of {where}")
        found[transfer.transfer] = (transfer, path)
    return {name: transfer for name, (transfer, _) in sorted(found.items())}


def load_transfer(path: Path) -> Transfer:
    """Read one file.

    Raises:
        InputError: as `load_transfers`.
    """
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or error
        raise InputError(f"{where}: {problem}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}:1: a transfer should be a mapping")
    for line, name in _repeated_keys(node):
        raise InputError(f"{path}:{line}: {name} is given twice")
    try:
        return Transfer.model_validate(data)
    except ValidationError as error:
        raise InputError(
            "\n".join(
                f"{path}:{_line(node, detail['loc'])}: {_problem(detail)}"
                for detail in error.errors()
            )
        ) from None


def _table(value: object) -> object:
    if isinstance(value, str):
        try:
            return TableRef.parse(value)
        except InputError as error:
            raise ValueError(str(error)) from None
    return value


def _problem(detail: Any) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"unknown key {where}"
    message = detail["msg"].removeprefix("Value error, ")
    given = detail["input"]
    shown = (
        "" if isinstance(given, dict | list | BaseModel) or given is None else f" (got {given!r})"
    )
    return f"{where}: {message}{shown}" if where else message


def _line(node: yaml.Node | None, location: tuple[int | str, ...]) -> int:
    """1-based line of the innermost part of `location` that the file holds."""
    line = 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    line, node = key.start_mark.line + 1, value
                    break
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value)
        ):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def _repeated_keys(node: yaml.Node | None) -> Iterator[tuple[int, str]]:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated_keys(item)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield key.start_mark.line + 1, key.value
            seen.add(key.value)
            yield from _repeated_keys(value)
