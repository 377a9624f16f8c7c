"""The parts of a transfer file: ranges, columns, hops, checks."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tableferry.assets.declaring.bounds import (
    MAX_RANGES,
    bounds_problems,
)
from tableferry.assets.declaring.freshness import AGE, age
from tableferry.assets.declaring.yaml_lines import (
    Several,
)
from tableferry.checks.expectations import ExpectationSpec, kind_problem
from tableferry.resources.connecting.names import ENV_ONLY, table_of
from tableferry.resources.contract.copy_plan import WireChoice
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.errors import InputError
from tableferry.resources.registry import systems
from tableferry.resources.tables import TableRef
from tableferry.resources.types.steps import OverflowPolicy

Count = Annotated[int, Field(gt=0)]


CONNECTIONS = "connections"
"""In the context of a validation: systems by the names of connections that are the project's."""


def _table(value: object, info: ValidationInfo) -> object:
    if isinstance(value, TableRef):
        return value
    try:
        return table_of(str(value), (info.context or {}).get(CONNECTIONS) or ENV_ONLY)
    except InputError as error:
        raise ValueError(str(error)) from None


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
    return value


Table = Annotated[TableRef, BeforeValidator(_table, json_schema_input_type=str)]


class Section(BaseModel):
    """Base of all parts of the file: unknown keys are errors, values do not change."""

    # what stands below a field describes it in the JSON Schema, too
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RangesSpec(Section):
    """How the key space is cut: by `rows`, `count` or `width`, or at given `bounds`.

    With `width` or `count`, two bounds give the span that is divided; alone, the bounds are the
    cuts themselves. `by: ctid` with a `count` cuts a table without a key into stretches of blocks.
    """

    by: Literal["ctid"] | None = None
    """PostgreSQL: by where rows are stored, of a table without a usable key."""
    rows: Count | None = None
    """Rows of a range."""
    count: Annotated[int, Field(gt=0, le=MAX_RANGES)] | None = None
    """Number of ranges, of even row counts."""
    width: Annotated[int | Literal["day", "month", "year"], BeforeValidator(_width)] | None = None
    """Keys, days (of a date) or seconds (of a timestamp) of a range; or day, month, year."""
    bounds: Annotated[list[Any] | None, Field(validate_default=True)] = None
    """The cuts; with `width` or `count` the two ends of the span that is divided."""

    @field_validator("bounds")
    @classmethod
    def check_all(cls, value: list[Any] | None, info: ValidationInfo) -> list[Any] | None:
        """The last of the fields, so that it sees the others, but for those that are wrong."""
        names = ("rows", "count", "width")
        if info.data.get("by") is not None:
            given = {**info.data, "bounds": value}
            others = [name for name in ("rows", "width", "bounds") if given.get(name) is not None]
            if "count" in info.data and (others or info.data["count"] is None):
                beside = f", not {' and '.join(others)}" if others else ""
                raise ValueError(f"by: {info.data['by']} goes with count{beside}")
            return value
        measures = {name: info.data[name] for name in names if info.data.get(name) is not None}
        found: list[str] = []
        if len(measures) > 1:
            found.append(f"give one of rows, count and width, not {' and '.join(measures)}")
        if value is None and not measures and set(names) <= set(info.data):
            found.append("give one of rows, count, width and bounds")
        if value is not None:
            found += bounds_problems(value, measures)
        Several.check(((), message) for message in found)
        return value


class ColumnSpec(Section):
    """What is special about one column."""

    rename: Annotated[str, Field(min_length=1)] | None = None
    """Its name in the targets."""
    type: Annotated[str | dict[str, str], BeforeValidator(_type)] | None = None
    """Target type of the first hop, or one per system."""
    on_overflow: OverflowPolicy = "refuse"
    """What becomes of a value that does not fit: refused by name, or null, clamp, text."""
    low_cardinality: bool = False
    """ClickHouse stores repeated values once."""

    @field_validator("on_overflow", mode="before", json_schema_input_type=OverflowPolicy | None)
    @classmethod
    def read_null(cls, value: object) -> object:
        """YAML's own null, which is what `on_overflow: null` says without quotes."""
        return "null" if value is None else value

    @field_validator("on_overflow")
    @classmethod
    def check_overflow(cls, value: OverflowPolicy, info: ValidationInfo) -> OverflowPolicy:
        if value == "text" and info.data.get("type") is not None:
            raise ValueError("text chooses the type itself; leave type out")
        return value


class HopSpec(Section):
    """One hop: its target, and how it is reached."""

    to: Table
    """The target: system://schema.table, or files://folder/. A hop that is nothing but its target
    is a text."""
    wire: WireChoice = "auto"
    """How the rows travel: `auto` takes the first way that is believed."""
    engine: str | None = None
    """ClickHouse: engine of a table that is created, of the MergeTree family."""
    order_by: list[str] | None = None
    """ClickHouse: sorting key of a table that is created."""
    partition_by: str | None = None
    """ClickHouse: partitioning of a table that is created; its ranges are not published at once."""

    @field_validator("engine", "order_by", "partition_by")
    @classmethod
    def check_option(cls, value: Any, info: ValidationInfo) -> Any:
        to, option = info.data.get("to"), str(info.field_name)
        if value is None or to is None or to.system.loader is None:
            return value
        options = loader_of(to.system).options
        if option not in options:
            having = [
                one.title for one in systems() if one.loader and option in loader_of(one).options
            ]
            raise ValueError(f"is for {' and '.join(having)} targets, not for {to}")
        if why := options[option](value):
            raise ValueError(why)
        return value


class ParallelSpec(Section):
    """How many ranges a run exports and loads at the same time, and how many runs share the work.

    What is not given of `export` and `load` is the profile's.
    """

    export: Annotated[int, Field(ge=1, le=64)] | None = None
    """Ranges read at the same time."""
    load: Annotated[int, Field(ge=1, le=64)] | None = None
    """Ranges written at the same time."""
    runs: Annotated[int, Field(ge=1, le=64)] = 1
    """Runs that take a stretch of the ranges each, in processes of their own; at most so many go
    at a time. Each has `export` and `load` workers of its own."""


class IncrementalSpec(Section):
    """How a changed range is moved by its newer rows alone, and how often it is proven whole."""

    full_check: Annotated[str, Field(pattern=AGE)] = "7d"
    """Age, as 24h, 7d or 4w: a range that was neither moved nor compared as a whole for so long is
    compared by the next run, and moved as a whole if it differs."""

    @field_validator("full_check", mode="before")
    @classmethod
    def check_full_check(cls, value: object) -> object:
        if not age(str(value)):
            raise ValueError("should be longer than nothing")
        return value

    @property
    def full_check_seconds(self) -> float:
        """The same in seconds."""
        return age(self.full_check).total_seconds()


class ExpectationDeclared(Section):
    """One expectation of Great Expectations, or `sql`, a query that should return no rows."""

    name: Annotated[str, Field(min_length=1)] | None = None
    """Shown in reports."""
    type: str
    """Kind of Great Expectations, e.g. expect_column_values_to_not_be_null; or sql."""
    kwargs: dict[str, Any] = {}
    """Its arguments."""

    @model_validator(mode="after")
    def check_kind(self) -> Self:
        if problem := kind_problem(self.spec):
            raise ValueError(problem)
        return self

    @property
    def spec(self) -> ExpectationSpec:
        """For the checks."""
        return ExpectationSpec(self.type, self.kwargs, self.name)


class CheckSpec(Section):
    """What a failed check means."""

    severity: Literal["error", "warn"] = "error"
    """What a failure is recorded as."""
    blocking: bool = True
    """Whether a range with this check failed stays uncommitted, and out of the later hops."""
