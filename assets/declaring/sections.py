"""The parts of a transfer file: ranges, columns, hops, checks."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tableferry.assets.declaring.bounds import MAX_RANGES, bounds_problems
from tableferry.assets.declaring.freshness import AGE, BY_SCHEDULE, NEVER_STALE, age
from tableferry.assets.declaring.yaml_lines import InvalidParts, as_value_error, not_fillable
from tableferry.checks.levels import GONE, Level
from tableferry.checks.suites import ExpectationSpec, kind_problem, read_suite
from tableferry.resources.columns.planner import is_target_type
from tableferry.resources.connecting.names import ENV_ONLY, table_of
from tableferry.resources.contract import limits, loader
from tableferry.resources.contract.copy_plan import WireChoice
from tableferry.resources.contract.system import System
from tableferry.resources.registry import systems
from tableferry.resources.tables import TableRef
from tableferry.resources.types.steps import OverflowPolicy

CONNECTIONS = "connections"
"""Validation context: the systems of the project's own connections, by the connections' names."""

FOLDER = "folder"
"""Validation context: the folder that paths are relative to; by default the working folder."""

SIMILAR = "similar"
"""Validation context: gets the known keys, by unknown ones beside them that resemble them."""

FINGERPRINTS = ("auto", "content", "row_version", "none")


def _table(value: object, info: ValidationInfo) -> object:
    if isinstance(value, TableRef):
        return value
    with as_value_error():
        return table_of(str(value), (info.context or {}).get(CONNECTIONS) or ENV_ONLY)


def _width(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not whole and value not in ("day", "month", "year"):
        raise ValueError(
            "should be a number of keys, days or seconds greater than 0, or day, month or year"
        )
    return value


def _type(value: object) -> object:
    if not isinstance(value, str | dict):
        raise ValueError("should be a type of the target, or one type per system")
    if isinstance(value, dict):
        InvalidParts.raise_any(
            ((system,), f"should be a text (got {type_!r})")
            for system, type_ in value.items()
            if not isinstance(type_, str)
        )
    return value


def _fingerprint(value: object) -> object:
    if isinstance(value, dict) and list(value) == ["watermark"]:
        value = f"watermark:{value['watermark'] or ''}"
    method, _, column = str(value).partition(":")
    if method == "count_minmax":
        raise ValueError(
            "count_minmax is gone, as it missed every update: take auto, or {watermark: column}; "
            "none, if nothing should be noticed"
        )
    if value not in FINGERPRINTS and not (method == "watermark" and column):
        raise ValueError(
            f"{value!r} should be one of {', '.join(FINGERPRINTS)}, {{watermark: column}}"
        )
    return value


def _level(value: object) -> object:
    """Refuse a level that is gone by what to declare instead."""
    if isinstance(value, str) and value in GONE:
        raise ValueError(GONE[value])
    return value


def null_word(value: object) -> object:
    """Take YAML's null, which `on_overflow: null` is without quotes, as the word."""
    return "null" if value is None else value


def _check_overflow(value: OverflowPolicy, info: ValidationInfo) -> OverflowPolicy:
    if value == "text" and info.data.get("type") is not None:
        raise ValueError("text chooses the type itself; leave type out")
    return value


def _freshness(value: object) -> object:
    if value in (BY_SCHEDULE, NEVER_STALE):
        return value
    try:
        window = age(str(value))
    except ValueError as error:
        raise ValueError(f"{error}".replace("an age", "schedule, none or an age", 1)) from None
    if not window:
        raise ValueError("should be longer than zero")
    return value


Count = Annotated[int, Field(gt=0)]
Table = Annotated[TableRef, BeforeValidator(_table, json_schema_input_type=str)]
Watermark = Annotated[dict[Literal["watermark"], str], Field(min_length=1)]
Fingerprint = Annotated[
    str,
    BeforeValidator(
        _fingerprint,
        json_schema_input_type=Literal["auto", "content", "row_version", "none"] | Watermark,
    ),
]
DeclaredType = Annotated[
    str | dict[str, str], PlainValidator(_type, json_schema_input_type=str | dict[str, str])
]
Overflow = Annotated[
    OverflowPolicy,
    BeforeValidator(null_word, json_schema_input_type=OverflowPolicy | None),
    AfterValidator(_check_overflow),
]
DeclaredLevel = Annotated[Level, BeforeValidator(_level)]
Freshness = Annotated[
    str,
    BeforeValidator(
        _freshness,
        json_schema_input_type=Literal["schedule", "none"] | Annotated[str, Field(pattern=AGE)],
    ),
]


class Section(BaseModel):
    """Base of all parts of the file: unknown keys are errors, values do not change."""

    # a docstring below a field describes it in the JSON Schema as well
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def note_similar(cls, data: Any, info: ValidationInfo) -> Any:
        """Note which key may be meant by an unknown one."""
        if isinstance(data, dict) and info.context:
            for key in set(map(str, data)) - set(cls.model_fields):
                for known in get_close_matches(key, cls.model_fields, n=1):
                    info.context.setdefault(SIMILAR, {})[key] = known
        return data


class RangesSpec(Section):
    """How the key space is divided: by `rows`, `count` or `width`, or at given `bounds`.

    With `width` or `count`, two bounds are the ends of the span to divide. `by: ctid` with a
    `count` divides a table without a key into spans of blocks.
    """

    by: Literal["ctid"] | None = None
    """PostgreSQL: by where rows are stored, for a table without a usable key."""
    rows: Count | None = None
    """Rows per range."""
    count: Annotated[int, Field(gt=0, le=MAX_RANGES)] | None = None
    """Number of ranges, with about as many rows each."""
    width: Annotated[int | Literal["day", "month", "year"], BeforeValidator(_width)] | None = None
    """Keys, days of a date key or seconds of a timestamp key per range; or day, month, year."""
    bounds: Annotated[list[Any] | None, Field(validate_default=True)] = None
    """Where ranges begin; with `width` or `count` the two ends of the span to divide."""

    @field_validator("bounds")
    @classmethod
    def check_all(cls, value: list[Any] | None, info: ValidationInfo) -> list[Any] | None:
        """Check the fields together: the last one sees all others that are valid."""
        fields = {**info.data, "bounds": value}
        measures = {
            name: fields[name]
            for name in ("rows", "count", "width")
            if fields.get(name) is not None
        }
        if fields.get("by") is not None:
            extra = [name for name in ("rows", "width", "bounds") if fields.get(name) is not None]
            if "count" in fields and (extra or "count" not in measures):
                beside = f", not {' and '.join(extra)}" if extra else ""
                raise ValueError(f"by: {fields['by']} goes with count{beside}")
            return value
        problems: list[str] = []
        if len(measures) > 1:
            problems.append(f"give one of rows, count and width, not {' and '.join(measures)}")
        if value is not None:
            problems += bounds_problems(value, measures)
        elif not measures and {"rows", "count", "width"} <= set(fields):
            problems.append("give one of rows, count, width and bounds")
        InvalidParts.raise_any(((), message) for message in problems)
        return value


class ColumnSpec(Section):
    """Settings of one column."""

    rename: Annotated[str, Field(min_length=1)] | None = None
    """Its name in the targets."""
    was: Annotated[str, Field(min_length=1)] | None = None
    """Its earlier name in the targets, which rename that column."""
    type: DeclaredType | None = None
    """Target type in the first hop, or one type per system."""
    on_overflow: Overflow = "refuse"
    """For a value that does not fit: an error, NULL, the nearest value, or the column as text; in
    hops where that can happen."""
    low_cardinality: bool = False
    """ClickHouse stores repeated values once."""
    expression: Annotated[str, Field(min_length=1)] | None = None
    """SQL of the source that computes the value from the row. `type` must then name the value's
    type in the source, alone or by system."""

    @field_validator("expression")
    @classmethod
    def check_expression(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("type") is None:
            raise ValueError("needs type: that of its value, in the source's SQL")
        return value

    cast: bool = False
    """Whether the source casts values to `type` even if some lose precision, such as floats to
    decimals. Losses are counted."""

    @field_validator("cast")
    @classmethod
    def check_cast(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("type") is None:
            raise ValueError("needs the type to cast to")
        if value and info.data.get("expression") is not None:
            raise ValueError("is for a column's own values; the expression can cast its own")
        return value


class HopColumnSpec(Section):
    """Settings of one column in one hop, which override those of the transfer."""

    rename: Annotated[str, Field(min_length=1)] | None = None
    """Its name in the target and in later hops."""
    type: str | None = None
    """Target type."""
    on_overflow: Overflow = "refuse"
    """For a value that does not fit: an error, NULL, the nearest value, or the column as text."""
    low_cardinality: bool = False
    """ClickHouse stores repeated values once."""


def _column_problems(
    columns: dict[str, HopColumnSpec], target: System
) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, column in columns.items():
        if column.low_cardinality and target.types.low_cardinality is None:
            yield (name, "low_cardinality"), f"{target.title} has no type for it"
        if column.type is not None and not is_target_type(target, column.type):
            yield (name, "type"), not_fillable(column.type, target)


class HopSpec(Section):
    """One hop: its target, and how it is reached."""

    to: Table
    """The target: system://schema.table, or files://folder/. A hop without other settings may be
    written as its target."""
    wire: WireChoice = "auto"
    """How rows travel: `auto` takes the first format whose probe was exact."""
    engine: str | None = None
    """ClickHouse: engine of a table to create, of the MergeTree family."""
    order_by: list[str] | None = None
    """ClickHouse: sorting key of a table to create."""
    partition_by: str | None = None
    """ClickHouse: partitioning of a table to create. Ranges are then not published atomically."""
    columns: dict[str, HopColumnSpec] = {}
    """Settings of columns in this hop, by their names in the transfer's source."""
    exclude: list[str] = []
    """Columns that this hop and later hops leave out, by the same names."""

    @field_validator("columns")
    @classmethod
    def check_columns(
        cls, value: dict[str, HopColumnSpec], info: ValidationInfo
    ) -> dict[str, HopColumnSpec]:
        if (to := info.data.get("to")) is not None:
            InvalidParts.raise_any(_column_problems(value, to.system))
        return value

    @field_validator("engine", "order_by", "partition_by")
    @classmethod
    def check_option(cls, value: Any, info: ValidationInfo) -> Any:
        to, option = info.data.get("to"), str(info.field_name)
        if value is None or to is None or to.system.loader is None:
            return value
        options = loader.loader_of(to.system).options
        if option not in options:
            titles = [
                each.title
                for each in systems()
                if each.loader and option in loader.loader_of(each).options
            ]
            raise ValueError(f"is for {' and '.join(titles)} targets, not for {to}")
        if why := options[option](value):
            raise ValueError(why)
        return value


DeclaredHop = Annotated[
    HopSpec,
    BeforeValidator(
        lambda value: {"to": value} if isinstance(value, str) else value,
        json_schema_input_type=str | HopSpec,
    ),
]


def _limit(value: object, info: ValidationInfo) -> object:
    return limits.read(str(info.field_name), value)


Duration = Annotated[
    float | None, BeforeValidator(_limit, json_schema_input_type=str | float | None)
]
Most = Annotated[float | None, BeforeValidator(_limit, json_schema_input_type=int | str | None)]


class LimitsSpec(Section):
    """How long the source's statements and snapshots may last, and when to wait for it.

    The stricter of the connection's limit and this one holds. `none` is no limit, if the connection
    declares none either.
    """

    longest_statement: Duration = None
    """About how long a statement that fingerprints, counts or digests rows may take (3s)."""
    oldest_snapshot: Duration = None
    """PostgreSQL: how old a run's snapshot may be before a new one replaces it between ranges
    (15m)."""
    parallel_workers: Most = None
    """PostgreSQL: parallel workers of a statement; a lower setting of server or role applies
    (1)."""
    active_sessions: Most = None
    """PostgreSQL: wait while more sessions of others run statements."""
    replica_lag: Duration = None
    """PostgreSQL: wait while a replica, or the standby that is read, lags further behind."""
    oldest_xmin: Most = None
    """PostgreSQL: wait while others make VACUUM keep rows of more transactions."""
    probe: Annotated[str | None, BeforeValidator(_limit, json_schema_input_type=str)] = None
    """A query of the source that returns a number: wait while it is above `probe_above`."""
    probe_above: Annotated[float | None, BeforeValidator(_limit, json_schema_input_type=float)] = (
        None
    )
    """The limit of that number."""
    longest_wait: Duration = None
    """How long to wait before the range fails (30m)."""

    @model_validator(mode="after")
    def check_probe(self) -> Self:
        limits.require_together(dict.fromkeys(self.model_fields_set))
        return self

    @property
    def declared(self) -> dict[str, limits.Value]:
        """The limits that are given, by name."""
        return {name: getattr(self, name) for name in limits.NAMES if name in self.model_fields_set}


class ParallelSpec(Section):
    """How many ranges a run exports and loads at the same time, and how many runs share the work.

    `export` and `load` default to the profile's.
    """

    export: Annotated[int, Field(ge=1, le=64)] | None = None
    """Ranges read at the same time."""
    load: Annotated[int, Field(ge=1, le=64)] | None = None
    """Ranges written at the same time."""
    runs: Annotated[int, Field(ge=1, le=64)] = 1
    """The most runs that share the ranges at a time; each is a process with its own `export` and
    `load` workers."""


class IncrementalSpec(Section):
    """How often a range that moves by its newer rows is proven as a whole."""

    full_check: Annotated[str, Field(pattern=AGE)] = "7d"
    """An age such as 24h, 7d or 4w: a range not moved or compared as a whole for so long is
    compared."""

    @field_validator("full_check", mode="before")
    @classmethod
    def check_full_check(cls, value: object) -> object:
        if not age(str(value)):
            raise ValueError("should be longer than zero")
        return value

    @property
    def full_check_seconds(self) -> float:
        """`full_check` in seconds."""
        return age(self.full_check).total_seconds()


Incremental = Annotated[
    IncrementalSpec | None,
    BeforeValidator(
        lambda value: ({} if value else None) if isinstance(value, bool) else value,
        json_schema_input_type=bool | IncrementalSpec,
    ),
]


class MarkSpec(Section):
    """How rows that the source has deleted are marked."""

    mark: Annotated[str, Field(min_length=1)]
    """A column that only the targets have: a timestamp, date, boolean or integer."""


class ExpectationDeclared(Section):
    """An expectation or suite file of Great Expectations, or `sql`, a query that should return no
    rows."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["type"]}, {"required": ["suite"]}]}
    )

    name: Annotated[str, Field(min_length=1)] | None = None
    """Shown in reports."""
    type: str = ""
    """A type of Great Expectations, such as expect_column_values_to_not_be_null, or sql."""
    kwargs: dict[str, Any] = {}
    """Its arguments."""
    suite: Annotated[str, Field(min_length=1)] | None = None
    """Instead of these: a suite file of Great Expectations 1.x (JSON), relative to the transfer
    file."""

    _specs: tuple[ExpectationSpec, ...] = PrivateAttr(default=())

    @model_validator(mode="after")
    def check_kind(self, info: ValidationInfo) -> Self:
        if self.suite is None:
            spec = ExpectationSpec(self.type, self.kwargs, self.name)
            if problem := kind_problem(spec) if self.type else "type is required":
                raise ValueError(problem)
            self._specs = (spec,)
            return self
        if extra := [name for name in ("name", "type", "kwargs") if name in self.model_fields_set]:
            raise ValueError(f"suite stands alone, without {' and '.join(extra)}")
        with as_value_error():
            self._specs = (*read_suite((info.context or {}).get(FOLDER, Path()) / self.suite),)
        return self

    @property
    def specs(self) -> tuple[ExpectationSpec, ...]:
        """The expectation, or those of the suite, as the checks take them."""
        return self._specs


class CheckSpec(Section):
    """What the failure of a check means."""

    severity: Literal["error", "warn"] = "error"
    """How a failure is recorded."""
    blocking: bool = True
    """Whether a failure prevents the range from being committed, and from later hops."""
