"""The declaration of a transfer: its keys and their rules, checked without any server."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from tableferry.assets.declaring import dagster_rules, rules, sections
from tableferry.assets.declaring.freshness import BY_SCHEDULE, fresh_for
from tableferry.assets.declaring.hop_columns import hop_column_problems, name_in, settings_in
from tableferry.assets.declaring.movers import MoverName
from tableferry.assets.declaring.profiles import DEFAULT, PROFILES
from tableferry.assets.declaring.yaml_lines import InvalidParts, as_value_error
from tableferry.checks.suites import ExpectationSpec
from tableferry.resources.contract.hazards import PublishAudit
from tableferry.resources.contract.limits import Value
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.target_options import WriteMode
from tableferry.resources.tables import TableRef

MissingPolicy = Literal["keep", "delete"]
DeltaPolicy = Literal["auto", "never", "always"]
DeletesPolicy = Literal["keep", "apply"]
RowSecurity = Literal["refuse", "apply"]
ONLY_SHOWN = "only rows that row-level security shows to the login are moved, counted and proven"
RejectPolicy = Literal["fail", "quarantine"]

DroppedPolicy = Literal["keep", "null", "drop"]
DriftPolicy = Literal["fail", "add_columns", "evolve", "ignore_new"]

LENIENT = "lenient"
"""Validation context: accept any route of hops, so that the rules after it are applied as well."""


class Transfer(sections.Section):
    """The declaration of one table: its source and targets, and how its rows get there.

    See docs/reference.md for each key.

    A rule about several fields belongs to the last of them, which sees the valid ones before it:
    so every problem is reported at once.
    """

    transfer: Annotated[str, AfterValidator(dagster_rules.op_name)]
    """Name of the transfer, its schedules and partitions."""
    description: str | None = None
    """Shown with Dagster's assets."""
    source: sections.Table
    """The table to move: system://schema.table, or connection://schema.table."""
    hops: Annotated[list[sections.DeclaredHop], Field(min_length=1)]
    """Target tables, in order; each is read from the one before."""
    where: Annotated[str, Field(min_length=1)] | None = None
    """SQL of the source: only rows that meet it are copied, counted and proven. Others leave the
    target when their range next runs."""
    row_security: RowSecurity = "refuse"
    """If row-level security hides rows from the login: refuse the table, or treat the visible rows
    as the whole table."""
    ranges: sections.RangesSpec = sections.RangesSpec(rows=250_000)
    """How the table is divided into key ranges. Each file is a range; Parquet files can be divided
    by `rows`, at row groups."""
    key: Annotated[str, Field(min_length=1, validate_default=True)] = ""
    """The column that divides the ranges: integer, decimal of scale 0, date, timestamp, uuid or
    text. None for files or `ranges: {by: ctid}`."""
    write: Annotated[WriteMode, WithJsonSchema({"enum": [*WriteMode], "type": "string"})] = (
        WriteMode.REPLACE
    )
    """What a range's new rows do to those in the target. `none` never writes, and only compares."""
    mover: Annotated[MoverName | None, Field(validate_default=True)] = None
    """`write: none`: who fills the target. Rows that this mover has marked as deleted, and older
    versions of rows, are left out."""
    final: Annotated[bool, Field(validate_default=True)] = False
    """ClickHouse: read the source, and under `write: none` the targets, with FINAL: only the newest
    version of each row."""
    on_missing: MissingPolicy = "keep"
    """Files: what happens to the rows of a file that no longer exists."""
    reconcile: sections.DeclaredLevel = "checksum"
    """How strictly each range is proven before it becomes visible."""
    publish_audit: PublishAudit = "auto"
    """When a range is compared again as readers will see it: if the target has triggers or the
    like, or always (visible)."""
    checks: dict[str, sections.CheckSpec] = {}
    """What a check's failure means, by its name. Checks block by default."""
    expectations: Annotated[
        list[sections.ExpectationDeclared],
        BeforeValidator(
            lambda value: [value] if isinstance(value, dict) else value,
            json_schema_input_type=list[sections.ExpectationDeclared]
            | sections.ExpectationDeclared,
        ),
    ] = []
    """Expectations and suite files of Great Expectations, and SQL of your own, for each range."""
    fingerprint: Annotated[sections.Fingerprint, Field(validate_default=True)] = "auto"
    """How a changed range is detected."""
    on_reject: Annotated[RejectPolicy, Field(validate_default=True)] = "fail"
    """If a target cannot hold a row's value: fail its range, or move the range without the
    row, which goes to `<target>__rejected`."""
    max_rejected: Annotated[
        str, BeforeValidator(rules.most_rejected, json_schema_input_type=int | str)
    ] = "100"
    """`on_reject: quarantine`: a range fails if it has more rejected rows, or a greater share such
    as 0.1%. At most 10,000 rows."""
    on_shrink: Literal["warn", "fail"] = "warn"
    """If the source has lost more rows than `max_shrink`: warn before publishing, or fail. Not for
    targets that keep such rows, nor below 1,000 rows."""
    max_shrink: Annotated[str, BeforeValidator(rules.share, json_schema_input_type=str)] = "50%"
    """The share of committed rows that a source may lose between runs."""
    figures: list[str] = []
    """Columns whose sum, least and greatest value a checksum also shows."""
    columns: Annotated[dict[str, sections.ColumnSpec], Field(validate_default=True)] = {}
    """A mapping describes single columns; a list selects columns. All by default."""
    only: list[str] | None = None
    exclude: list[str] = []
    """Columns to leave out."""
    incremental: sections.Incremental = None
    """Move only those rows of a changed range whose watermark is not below the last committed one.
    Needs `write: upsert` and `fingerprint: {watermark: column}`."""
    deletes: DeletesPolicy | sections.MarkSpec = "keep"
    """`write: upsert`: whether rows that the source has deleted stay, go when their range next runs
    (apply), or are marked in a column (mark)."""
    delta: DeltaPolicy = "auto"
    """Whether only the rows that differ in a changed range move: if they are few (auto), never, or
    up to 50,000 of them (always)."""
    parallel: sections.ParallelSpec = sections.ParallelSpec()
    """Ranges read and written at the same time (the profile's by default), and runs that share a
    table."""
    source_limits: sections.LimitsSpec = sections.LimitsSpec()
    """How long the source's statements and snapshots may last, and when to wait for it."""
    profile: Annotated[str, Field(json_schema_extra={"enum": [*PROFILES]})] = DEFAULT
    """How much is in progress at once."""
    on_schema_drift: DriftPolicy = "fail"
    """What to do if the columns of source and target differ."""
    dropped_columns: Annotated[DroppedPolicy | None, BeforeValidator(sections.null_word)] = None
    """If the source has lost a column: the target's keeps its values, becomes null in all rows, or
    is dropped. By default on_schema_drift decides."""
    tags: dict[
        Annotated[str, AfterValidator(dagster_rules.tag_key)],
        Annotated[str, AfterValidator(dagster_rules.tag_value)],
    ] = {}
    """Tags of Dagster's assets."""
    owners: list[Annotated[str, AfterValidator(dagster_rules.owner)]] = []
    """E-mail addresses, or team:name."""
    group: Annotated[str, AfterValidator(dagster_rules.group_name)] | None = None
    """Group of Dagster's assets; the schema of each table by default."""
    new_ranges: bool = True
    """Whether the sensor `new_ranges` includes this transfer."""
    retry_failed: bool = True
    """Whether the sensor `failed_ranges` includes this transfer."""
    schedule: Annotated[str, AfterValidator(dagster_rules.cron_line)] | None = None
    """Cron line (UTC): run what has changed."""
    check_schedule: Annotated[str, AfterValidator(dagster_rules.cron_line)] | None = None
    """Cron line (UTC): check the committed ranges, move nothing."""
    evidence: str | None = None
    """A folder in which runs that move leave what they did, as JSON and Markdown, and a trail."""
    freshness: sections.Freshness = BY_SCHEDULE
    """How old the newest range may be before Dagster calls the targets stale: by the schedule, an
    age such as 36h or 7d, or none."""

    @model_validator(mode="before")
    @classmethod
    def expand_columns(cls, data: Any) -> Any:
        """`columns` as a list is a subset; as a mapping it only describes the columns it names."""
        if isinstance(data, dict) and isinstance(listed := data.get("columns"), list):
            named: dict[Any, Any] = {}
            for item in listed:
                named.update(item if isinstance(item, dict) else {str(item): {}})
            return {**data, "columns": named, "only": list(named)}
        return data

    @field_validator(*rules.RULES)
    @classmethod
    def check_rules(cls, value: Any, info: ValidationInfo) -> Any:
        """Check a value by the rule for its key, which changes nothing."""
        assert info.field_name is not None
        default = cls.model_fields[info.field_name].default
        if info.field_name in rules.OPTIONAL and value == default:
            return value
        with as_value_error():
            problems = rules.RULES[info.field_name](value, info.data)
            InvalidParts.raise_any(
                ((), each) if isinstance(each, str) else each for each in problems
            )
        return value

    @field_validator("key", mode="before")
    @classmethod
    def check_key(cls, value: object, info: ValidationInfo) -> object:
        own, place = rules.own_key(info.data), rules.place_of(info.data)
        if place is not None:
            if value not in ("", None):
                raise ValueError(
                    f"cannot be declared with 'ranges: {{by: {place.column.name}}}', which is for "
                    "tables without a key; where there is one, ranges by key are better"
                )
            return place.column.name
        if value not in ("", None):
            if own not in (None, value):
                raise ValueError("is not needed: each file is a range")
            return value
        if own is None and {"source", "ranges"} <= set(info.data):
            raise ValueError("is required: the column that divides the ranges")
        return own or "key"

    @field_validator("hops")
    @classmethod
    def check_hops(
        cls, value: list[sections.HopSpec], info: ValidationInfo
    ) -> list[sections.HopSpec]:
        if not (info.context or {}).get(LENIENT):
            InvalidParts.raise_any(rules.hop_problems(info.data.get("source"), value))
        return value

    @field_validator("columns")
    @classmethod
    def check_columns(
        cls, value: dict[str, sections.ColumnSpec], info: ValidationInfo
    ) -> dict[str, sections.ColumnSpec]:
        hops = [hop.to.system for hop in info.data.get("hops", ())]
        source = info.data.get("source")
        if (place := rules.place_of(info.data)) is not None:
            declared = value.get(place.column.name, sections.ColumnSpec())
            renamed = declared.model_copy(update={"rename": declared.rename or place.name})
            value = {**value, place.column.name: renamed}
        watermark = info.data.get("fingerprint", "").partition("watermark:")[2]
        keys = {info.data.get("key"), watermark}
        InvalidParts.raise_any(rules.column_problems(value, hops, source and source.system, keys))
        return value

    @field_validator("only", "exclude")
    @classmethod
    def check_key_travels(cls, value: list[str] | None, info: ValidationInfo) -> list[str] | None:
        key, excludes = info.data.get("key"), info.field_name == "exclude"
        if value is not None and not excludes and (place := rules.place_of(info.data)) is not None:
            return [*dict.fromkeys((place.column.name, *value))]
        if key is not None and value is not None and (key in value) is excludes:
            raise ValueError(f"the key {key!r} should not be excluded")
        return value

    @model_validator(mode="after")
    def check_hop_columns(self) -> Transfer:
        InvalidParts.raise_any(hop_column_problems(self.hops, self.key, self.exclude, self.only))
        return self

    @property
    def keeps_rows(self) -> bool:
        """Whether targets keep rows that the source has no more."""
        return self.write.keeps_rows and not self.removes

    @property
    def removes(self) -> bool:
        """Whether rows go, or are marked, that the source has no more and the mode would keep."""
        return self.write.updates_known and self.deletes != "keep"

    @property
    def mark(self) -> str | None:
        """The column by which such rows are marked, if they are not deleted."""
        return self.deletes.mark if isinstance(self.deletes, sections.MarkSpec) else None

    def check_spec(self, name: str) -> sections.CheckSpec:
        """What the failure of a check means for this transfer."""
        return self.checks.get(name, sections.CheckSpec())

    @property
    def fresh_for(self) -> timedelta | None:
        """How long targets stay fresh after their newest range; None: no freshness is checked."""
        return fresh_for(self.freshness, self.schedule)

    @property
    def suite(self) -> tuple[ExpectationSpec, ...]:
        """The declared expectations."""
        return tuple(spec for declared in self.expectations for spec in declared.specs)

    @property
    def tables(self) -> tuple[TableRef, ...]:
        """The source and the targets, in order."""
        return (self.source, *(hop.to for hop in self.hops))

    @property
    def versioned(self) -> Collection[TableRef]:
        """The tables of which the newest version of each row is read, where they keep several."""
        compared = [] if self.write.moves else [hop.to for hop in self.hops]
        source = [self.source] if self.final else []
        return [*source, *(compared if self.final or self.mover else [])]

    def columns_in(self, hop: int) -> dict[str, sections.ColumnSpec]:
        """What holds for columns in one hop, by their names in the source; see `settings_in`."""
        return settings_in(self.columns, self.hops, hop)

    def target_name(self, column: str, hop: int = 1) -> str:
        """A source column's name in the target of a hop."""
        return name_in(self.columns, self.hops, column, hop)

    def hop_of(self, target: TableRef) -> int:
        """The 1-based position of the hop into a target."""
        return next(number for number, hop in enumerate(self.hops, 1) if hop.to == target)

    @property
    def by_place(self) -> bool:
        """Whether the ranges are cut by where rows are stored, for a table without a key."""
        return self.ranges.by is not None

    @property
    def read_in_one_state(self) -> str:
        """Why all ranges are read in one state of the source; empty if they need not be."""
        if self.by_place:
            return "an updated row may be stored in another range"
        return "a swap shows all ranges in one state" if self.write.whole_table else ""

    @property
    def rows_per_file_range(self) -> int | None:
        """The most rows that a range of a file has; None: each file is one range."""
        file_key = source_of(self.source.system).file_key
        return self.ranges.rows if file_key and "ranges" in self.model_fields_set else None

    @cached_property
    def key_place(self) -> str:
        """File and line of the key, with what follows a place; empty if Python code declares it."""
        return ""

    @property
    def partitions_name(self) -> str:
        """Name of the transfer's dynamic partitions definition."""
        return f"{self.transfer}_ranges"

    @property
    def sees_all_changes(self) -> bool:
        """Whether the fingerprint of a range changes with any value in it."""
        return self.fingerprint in ("auto", "content", "row_version")

    @property
    def limits(self) -> dict[str, Value]:
        """The limits that are declared for the source, by name."""
        return self.source_limits.declared

    @property
    def watermark(self) -> str | None:
        """The watermark column, where the fingerprint is one."""
        method, _, column = self.fingerprint.partition(":")
        return column if method == "watermark" else None
