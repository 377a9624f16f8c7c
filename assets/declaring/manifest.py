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

from tableferry.assets.declaring.dagster_rules import (
    cron_line,
    group_name,
    op_name,
    owner,
    tag_key,
    tag_value,
)
from tableferry.assets.declaring.freshness import BY_SCHEDULE, fresh_for
from tableferry.assets.declaring.movers import MoverName
from tableferry.assets.declaring.problems import InvalidParts, as_value_error
from tableferry.assets.declaring.profiles import DEFAULT, PROFILES, profile
from tableferry.assets.declaring.rules import (
    column_problems,
    deletes_problems,
    delta_problems,
    hop_column_problems,
    hop_problems,
    incremental_problems,
    most_rejected,
    name_in,
    quarantine_problems,
    settings_in,
    share,
)
from tableferry.assets.declaring.sections import (
    CheckSpec,
    ColumnSpec,
    DeclaredHop,
    DeclaredLevel,
    ExpectationDeclared,
    Fingerprint,
    Freshness,
    HopSpec,
    Incremental,
    IncrementalSpec,
    LimitsSpec,
    MarkSpec,
    ParallelSpec,
    RangesSpec,
    Section,
    Table,
    null_word,
)
from tableferry.checks.expectations import CHECK_NAME as EXPECTATIONS
from tableferry.checks.levels import CHECK_NAMES, GONE
from tableferry.checks.suites import ExpectationSpec
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.contract.hazards import PublishAudit
from tableferry.resources.contract.limits import Value
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import Place, Source, source_of
from tableferry.resources.contract.write_modes import WriteMode
from tableferry.resources.registry import systems
from tableferry.resources.tables import TableRef

SEES_MOVED_ROWS = ("auto", "content", "row_version")
"""Fingerprints that notice a row stored at another place, where any update may put it."""
MissingPolicy = Literal["keep", "delete"]
DeltaPolicy = Literal["auto", "never", "always"]
DeletesPolicy = Literal["keep", "apply"]
RowSecurity = Literal["refuse", "apply"]
ONLY_SHOWN = "only rows that row-level security shows to the login are moved, counted and proven"
RejectPolicy = Literal["fail", "quarantine"]

DroppedPolicy = Literal["keep", "null", "drop"]
DriftPolicy = Literal["fail", "add_columns", "evolve", "ignore_new"]

CHECKS = {*CHECK_NAMES.values(), *WHOLE_TABLE_CHECKS, EXPECTATIONS}
"""The names of all checks."""

LENIENT = "lenient"
"""Validation context: accept any route of hops, so that the rules after it are applied as well."""


def _source(info: ValidationInfo) -> Source | None:
    table = info.data.get("source")
    return source_of(table.system) if table is not None and table.system.source else None


def _own_key(info: ValidationInfo) -> str | None:
    """The key that the source brings with it, as files do."""
    source = _source(info)
    return source.file_key if source is not None else None


def _place(info: ValidationInfo) -> Place | None:
    """Where the source stores its rows, if the ranges are cut by that."""
    source, ranges = _source(info), info.data.get("ranges")
    return source.place if source is not None and ranges is not None and ranges.by else None


class Transfer(Section):
    """The declaration of one table: its source and targets, and how its rows get there.

    See docs/reference.md for each key.

    A rule about several fields belongs to the last of them, which sees the valid ones before it:
    so every problem is reported at once.
    """

    transfer: Annotated[str, AfterValidator(op_name)]
    """Name of the transfer, its schedules and partitions."""
    description: str | None = None
    """Shown with Dagster's assets."""
    source: Table
    """The table to move: system://schema.table, or connection://schema.table."""
    hops: Annotated[list[DeclaredHop], Field(min_length=1)]
    """Target tables, in order; each is read from the one before."""
    where: Annotated[str, Field(min_length=1)] | None = None
    """SQL of the source: only rows that meet it are copied, counted and proven. Others leave the
    target when their range next runs."""
    row_security: RowSecurity = "refuse"
    """If row-level security hides rows from the login: refuse the table, or treat the visible rows
    as the whole table."""
    ranges: RangesSpec = RangesSpec(rows=250_000)
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
    reconcile: DeclaredLevel = "checksum"
    """How strictly each range is proven before it becomes visible."""
    publish_audit: PublishAudit = "auto"
    """When a range is compared again as readers will see it: if the target has triggers or the
    like, or always (visible)."""
    checks: dict[str, CheckSpec] = {}
    """What a check's failure means, by its name. Checks block by default."""
    expectations: Annotated[
        list[ExpectationDeclared],
        BeforeValidator(
            lambda value: [value] if isinstance(value, dict) else value,
            json_schema_input_type=list[ExpectationDeclared] | ExpectationDeclared,
        ),
    ] = []
    """Expectations and suite files of Great Expectations, and SQL of your own, for each range."""
    fingerprint: Annotated[Fingerprint, Field(validate_default=True)] = "auto"
    """How a changed range is detected."""
    on_reject: Annotated[RejectPolicy, Field(validate_default=True)] = "fail"
    """If a target cannot hold a row's value: fail its range, or move the range without the
    row, which goes to `<target>__rejected`."""
    max_rejected: Annotated[
        str, BeforeValidator(most_rejected, json_schema_input_type=int | str)
    ] = "100"
    """`on_reject: quarantine`: a range fails if it has more rejected rows, or a greater share such
    as 0.1%. At most 10,000 rows."""
    on_shrink: Literal["warn", "fail"] = "warn"
    """If the source has lost more rows than `max_shrink`: warn before publishing, or fail. Not for
    targets that keep such rows, nor below 1,000 rows."""
    max_shrink: Annotated[str, BeforeValidator(share, json_schema_input_type=str)] = "50%"
    """The share of committed rows that a source may lose between runs."""
    figures: list[str] = []
    """Columns whose sum, least and greatest value a checksum also shows."""
    columns: Annotated[dict[str, ColumnSpec], Field(validate_default=True)] = {}
    """A mapping describes single columns; a list selects columns. All by default."""
    only: list[str] | None = None
    exclude: list[str] = []
    """Columns to leave out."""
    incremental: Incremental = None
    """Move only those rows of a changed range whose watermark is not below the last committed one.
    Needs `write: upsert` and `fingerprint: {watermark: column}`."""
    deletes: DeletesPolicy | MarkSpec = "keep"
    """`write: upsert`: whether rows that the source has deleted stay, go when their range next runs
    (apply), or are marked in a column (mark)."""
    delta: DeltaPolicy = "auto"
    """Whether only the rows that differ in a changed range move: if they are few (auto), never, or
    up to 50,000 of them (always)."""
    parallel: ParallelSpec = ParallelSpec()
    """Ranges read and written at the same time (the profile's by default), and runs that share a
    table."""
    source_limits: LimitsSpec = LimitsSpec()
    """How long the source's statements and snapshots may last, and when to wait for it."""
    profile: Annotated[str, Field(json_schema_extra={"enum": [*PROFILES]})] = DEFAULT
    """How much is in progress at once."""
    on_schema_drift: DriftPolicy = "fail"
    """What to do if the columns of source and target differ."""
    dropped_columns: Annotated[DroppedPolicy | None, BeforeValidator(null_word)] = None
    """If the source has lost a column: the target's keeps its values, becomes null in all rows, or
    is dropped. By default on_schema_drift decides."""
    tags: dict[
        Annotated[str, AfterValidator(tag_key)], Annotated[str, AfterValidator(tag_value)]
    ] = {}
    """Tags of Dagster's assets."""
    owners: list[Annotated[str, AfterValidator(owner)]] = []
    """E-mail addresses, or team:name."""
    group: Annotated[str, AfterValidator(group_name)] | None = None
    """Group of Dagster's assets; the schema of each table by default."""
    new_ranges: bool = True
    """Whether the sensor `new_ranges` includes this transfer."""
    retry_failed: bool = True
    """Whether the sensor `failed_ranges` includes this transfer."""
    schedule: Annotated[str, AfterValidator(cron_line)] | None = None
    """Cron line (UTC): run what has changed."""
    check_schedule: Annotated[str, AfterValidator(cron_line)] | None = None
    """Cron line (UTC): check the committed ranges, move nothing."""
    freshness: Freshness = BY_SCHEDULE
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

    @field_validator("parallel")
    @classmethod
    def check_runs(cls, value: ParallelSpec, info: ValidationInfo) -> ParallelSpec:
        ranges, write = info.data.get("ranges"), info.data.get("write", WriteMode.REPLACE)
        why = ""
        if write.whole_table:
            why = "is for one run alone with 'write: swap', which puts all ranges in place at once"
        elif ranges is not None and ranges.by is not None:
            why = "is for one run alone with 'by: ctid', whose ranges are read under one snapshot"
        if value.runs > 1 and why:
            raise InvalidParts([(("runs",), why)])
        return value

    @field_validator("source_limits")
    @classmethod
    def check_limits(cls, value: LimitsSpec, info: ValidationInfo) -> LimitsSpec:
        if (source := _source(info)) is not None:
            title = info.data["source"].system.title
            unknown = sorted(source.unlimited() & {*value.declared})
            InvalidParts.raise_any(((name,), f"{title} has no such limit") for name in unknown)
        return value

    @field_validator("profile")
    @classmethod
    def check_profile(cls, value: str) -> str:
        with as_value_error():
            profile(value)
        return value

    @field_validator("source")
    @classmethod
    def check_source(cls, value: TableRef) -> TableRef:
        if value.system.source is None:
            names = [f"{each.name}://" for each in systems() if each.source]
            raise ValueError(f"the source should be {' or '.join(names)}")
        with as_value_error():
            source_of(value.system).require_installed(value)
        return value

    @field_validator("ranges")
    @classmethod
    def check_ranges(cls, value: RangesSpec, info: ValidationInfo) -> RangesSpec:
        table, source = info.data.get("source"), _source(info)
        if table is None or source is None:
            return value
        if source.file_key is not None:
            with as_value_error():
                source.require_cuttable(table)
            if value.rows is None or value.bounds is not None:
                raise ValueError("files are cut by rows alone; without rows each file is a range")
        if value.by is not None and source.place is None:
            titles = [each.title for each in systems() if each.source and source_of(each).place]
            raise ValueError(f"by: {value.by} is for {' and '.join(titles)} tables, not {table}")
        return value

    @field_validator("key", mode="before")
    @classmethod
    def check_key(cls, value: object, info: ValidationInfo) -> object:
        own, place = _own_key(info), _place(info)
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

    @field_validator("write")
    @classmethod
    def check_write(cls, value: WriteMode, info: ValidationInfo) -> WriteMode:
        if value.needs_identity and (place := _place(info)) is not None:
            raise ValueError(
                f"upsert needs a key that stays with its row, and 'ranges: {{by: "
                f"{place.column.name}}}' has none: an updated row is stored elsewhere"
            )
        for hop in info.data.get("hops", ()) if value.moves else ():
            modes = loader_of(hop.to.system).modes if hop.to.system.loader else (value,)
            if value not in modes:
                raise ValueError(f"{hop.to} takes only {', '.join(modes)}, not {value}")
        return value

    @field_validator("mover")
    @classmethod
    def check_mover(cls, value: MoverName | None, info: ValidationInfo) -> MoverName | None:
        if value is None:
            return value
        if info.data.get("write", WriteMode.NONE).moves:
            raise ValueError("is for 'write: none': it says who fills the target instead")
        if len(info.data.get("hops", ())) > 1:
            raise ValueError("is for one hop: declare a transfer for each table that it fills")
        return value

    @field_validator("final")
    @classmethod
    def check_final(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("mover") is not None:
            raise ValueError("is what `mover` means for ClickHouse: leave it out")
        return value

    @field_validator("on_missing")
    @classmethod
    def check_on_missing(cls, value: MissingPolicy, info: ValidationInfo) -> MissingPolicy:
        if _own_key(info) is None:
            raise ValueError("is for files; rows gone from another source go with their range")
        write = info.data.get("write", WriteMode.REPLACE)
        if value == "delete" and not write.replaces_in_place:
            raise ValueError("delete requires 'write: replace'")
        return value

    @field_validator("hops")
    @classmethod
    def check_hops(cls, value: list[HopSpec], info: ValidationInfo) -> list[HopSpec]:
        if not (info.context or {}).get(LENIENT):
            InvalidParts.raise_any(hop_problems(info.data.get("source"), value))
        return value

    @field_validator("checks")
    @classmethod
    def check_checks(cls, value: dict[str, CheckSpec]) -> dict[str, CheckSpec]:
        why = f"there is no such check; there are {', '.join(sorted(CHECKS))}"
        InvalidParts.raise_any(
            ((name,), GONE.get(name, why)) for name in value if name not in CHECKS
        )
        return value

    @field_validator("fingerprint")
    @classmethod
    def check_fingerprint(cls, value: str, info: ValidationInfo) -> str:
        file_key, place = _own_key(info), _place(info)
        if file_key is not None and value not in ("auto", "content", "none"):
            raise ValueError(f"{value!r} should be auto, content or none for files")
        if place is not None and value not in SEES_MOVED_ROWS:
            raise ValueError(
                f"{value!r} should be one of {', '.join(SEES_MOVED_ROWS)} with 'ranges: {{by: "
                f"{place.column.name}}}': the others miss rows that an update stores elsewhere"
            )
        return value

    @field_validator("on_reject")
    @classmethod
    def check_on_reject(cls, value: str, info: ValidationInfo) -> str:
        if value == "quarantine":
            InvalidParts.raise_any(((), why) for why in quarantine_problems(info.data))
        return value

    @field_validator("columns")
    @classmethod
    def check_columns(
        cls, value: dict[str, ColumnSpec], info: ValidationInfo
    ) -> dict[str, ColumnSpec]:
        hops = [hop.to.system for hop in info.data.get("hops", ())]
        source = info.data.get("source")
        if (place := _place(info)) is not None:
            declared = value.get(place.column.name, ColumnSpec())
            renamed = declared.model_copy(update={"rename": declared.rename or place.name})
            value = {**value, place.column.name: renamed}
        watermark = info.data.get("fingerprint", "").partition("watermark:")[2]
        keys = {info.data.get("key"), watermark}
        InvalidParts.raise_any(column_problems(value, hops, source and source.system, keys))
        return value

    @field_validator("only", "exclude")
    @classmethod
    def check_key_travels(cls, value: list[str] | None, info: ValidationInfo) -> list[str] | None:
        key, excludes = info.data.get("key"), info.field_name == "exclude"
        if value is not None and not excludes and (place := _place(info)) is not None:
            return [*dict.fromkeys((place.column.name, *value))]
        if key is not None and value is not None and (key in value) is excludes:
            raise ValueError(f"the key {key!r} should not be excluded")
        return value

    @field_validator("incremental")
    @classmethod
    def check_incremental(
        cls, value: IncrementalSpec | None, info: ValidationInfo
    ) -> IncrementalSpec | None:
        if value is not None:
            InvalidParts.raise_any(((), why) for why in incremental_problems(info.data))
        return value

    @field_validator("deletes")
    @classmethod
    def check_deletes(
        cls, value: DeletesPolicy | MarkSpec, info: ValidationInfo
    ) -> DeletesPolicy | MarkSpec:
        if value != "keep":
            InvalidParts.raise_any(((), why) for why in deletes_problems(info.data))
        return value

    @field_validator("delta")
    @classmethod
    def check_delta(cls, value: DeltaPolicy, info: ValidationInfo) -> DeltaPolicy:
        if value == "always":
            InvalidParts.raise_any(((), why) for why in delta_problems(info.data))
        return value

    @model_validator(mode="after")
    def check_hop_columns(self) -> Transfer:
        InvalidParts.raise_any(hop_column_problems(self.hops, self.key, self.exclude, self.only))
        return self

    @field_validator("schedule")
    @classmethod
    def check_schedule_moves(cls, value: str | None, info: ValidationInfo) -> str | None:
        write = info.data.get("write", WriteMode.REPLACE)
        if value is not None and not write.moves:
            raise ValueError("is for runs that move rows: 'write: none' takes check_schedule")
        return value

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
        return self.deletes.mark if isinstance(self.deletes, MarkSpec) else None

    def check_spec(self, name: str) -> CheckSpec:
        """What the failure of a check means for this transfer."""
        return self.checks.get(name, CheckSpec())

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

    def columns_in(self, hop: int) -> dict[str, ColumnSpec]:
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
