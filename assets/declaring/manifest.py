"""The YAML declaration of a transfer: what it may say, checked without any server."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from tableferry.assets.declaring.dagster_rules import cron_line, op_name, owner, tag_key, tag_value
from tableferry.assets.declaring.freshness import AGE, BY_SCHEDULE, NEVER_STALE, age, fresh_for
from tableferry.assets.declaring.profiles import DEFAULT, PROFILES, profile
from tableferry.assets.declaring.rules import (
    column_problems,
    hop_problems,
    incremental_problems,
)
from tableferry.assets.declaring.sections import (
    CheckSpec,
    ColumnSpec,
    ExpectationDeclared,
    HopSpec,
    IncrementalSpec,
    ParallelSpec,
    RangesSpec,
    Section,
    Table,
)
from tableferry.assets.declaring.yaml_lines import (
    Several,
)
from tableferry.checks.expectations import CHECK_NAME as EXPECTATIONS
from tableferry.checks.expectations import ExpectationSpec
from tableferry.checks.verdict import CHECK_NAMES, Level
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.contract.hazards import PublishAudit
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import Place, source_of
from tableferry.resources.contract.write_modes import WriteMode
from tableferry.resources.errors import InputError
from tableferry.resources.registry import systems
from tableferry.resources.tables import TableRef

FINGERPRINTS = ("content", "row_version", "count_minmax", "none")
OF_PLACES = ("content", "row_version")
"""Those that see a row that was stored elsewhere, as every updated row may be."""
Watermark = Annotated[dict[Literal["watermark"], str], Field(min_length=1)]
FingerprintInput = Literal["content", "row_version", "count_minmax", "none"] | Watermark
FreshnessInput = Literal["schedule", "none"] | Annotated[str, Field(pattern=AGE)]
MissingPolicy = Literal["keep", "delete"]
RowSecurity = Literal["refuse", "apply"]
ONLY_SHOWN = "only rows that row-level security shows to the login are moved, counted and proven"
DriftPolicy = Literal["fail", "add_columns", "ignore_new"]

CHECKS = {*CHECK_NAMES.values(), *WHOLE_TABLE_CHECKS, EXPECTATIONS}
"""The names of all checks."""

LENIENT = "lenient"
"""In the context of a validation: let the way of the hops pass, so that later rules are asked."""


def _own_key(info: ValidationInfo) -> str | None:
    """The key that the source's tables have by themselves, if they do."""
    source = info.data.get("source")
    if source is None or source.system.source is None:
        return None
    return source_of(source.system).own_key


def _place(info: ValidationInfo) -> Place | None:
    """Where the source stores its rows, where that is what the ranges are cut by."""
    ranges, source = info.data.get("ranges"), info.data.get("source")
    if source is None or ranges is None or ranges.by is None:
        return None
    return source_of(source.system).place if source.system.source is not None else None


UNDECIDED = "decide"
"""`key: {decide: [columns]}`: what `ferry init` writes where it takes somebody to choose."""


def _undecided(choices: object) -> str:
    if not isinstance(choices, list) or not choices:
        return (
            "is to be decided, and no column of this table can be it: add an identity column, or "
            "make a view that has such a column the source"
        )
    names = ", ".join(map(str, choices))
    return f"is to be decided: write one of these columns in its place: {names}"


HopsInput = Annotated[list[str | HopSpec], Field(min_length=1)]


class Transfer(Section):
    """What is declared of one table: its source and targets, and how its rows get there.

    See docs/reference.md for each key.

    A rule that concerns several fields belongs to the last of them, which sees those before it
    that are valid by themselves: so that everything that is wrong is found at once.
    """

    transfer: Annotated[str, AfterValidator(op_name)]
    """Name of the transfer, its asset group, job and partitions."""
    description: str | None = None
    """Shown with Dagster's assets."""
    source: Table
    """The table to move: system://schema.table, or connection://schema.table."""
    hops: Annotated[list[HopSpec], Field(min_length=1)]
    """Target tables, in order; each is read from the one before."""
    where: Annotated[str, Field(min_length=1)] | None = None
    """Only the rows that meet this condition, in the source's SQL, are copied, counted and proven;
    one that meets it no more leaves the target with the next run of its range. A view as `source`
    goes further: it may join and compute."""
    row_security: RowSecurity = "refuse"
    """What to do where row-level security would hide rows of a table from the login: refuse the
    table, or take the rows that its policies show for all there are."""
    ranges: RangesSpec = RangesSpec(rows=250_000)
    """How the table is cut into key ranges, the unit of work, retry, proof and commit. Of Parquet
    files `rows` alone, by whole row groups; without it each file is a range."""
    key: Annotated[str, Field(min_length=1, validate_default=True)] = ""
    """Integer (or decimal of scale 0), date, timestamp, uuid or text column that the ranges are
    cut by; of a composite primary key the first. Of files, and with `ranges: {by: ctid}`, none."""
    write: Annotated[WriteMode, WithJsonSchema({"enum": [*WriteMode], "type": "string"})] = (
        WriteMode.REPLACE
    )
    """What a range's new rows do to those that are in the target."""
    on_missing: MissingPolicy = "keep"
    """Files: what becomes of the rows of one that is there no more."""
    reconcile: Level = "checksum"
    """How strictly each range is proven before it becomes visible."""
    publish_audit: PublishAudit = "auto"
    """When a range is compared once more, as its readers are about to see it: where the target has
    triggers or the like, or always (visible)."""
    checks: dict[str, CheckSpec] = {}
    """What the failure of a check means, by its name. All of them block, unless it says so."""
    expectations: list[ExpectationDeclared] = []
    """A suite of Great Expectations, and SQL of your own, on each range."""
    fingerprint: Annotated[str, Field(validate_default=True)] = "content"
    """How a changed range is noticed."""
    figures: list[str] = []
    """Columns of which a checksum also shows sum, least and greatest value."""
    columns: Annotated[dict[str, ColumnSpec], Field(validate_default=True)] = {}
    """A mapping describes single columns; a list is a subset. By default all."""
    only: list[str] | None = None
    exclude: list[str] = []
    """Columns to leave out."""
    incremental: IncrementalSpec | None = None
    """Of a changed range, move only the rows whose watermark is not below the last committed one.
    Needs `write: upsert` and `fingerprint: {watermark: column}`."""
    parallel: ParallelSpec = ParallelSpec()
    """Ranges read and written at the same time; the profile's, where it is not given. And the runs
    that share a table."""
    profile: Annotated[str, Field(json_schema_extra={"enum": [*PROFILES]})] = DEFAULT
    """How much is in flight at once."""
    on_schema_drift: DriftPolicy = "fail"
    """What to do when source and target no longer have the same columns."""
    tags: dict[
        Annotated[str, AfterValidator(tag_key)], Annotated[str, AfterValidator(tag_value)]
    ] = {}
    """Of Dagster's assets."""
    owners: list[Annotated[str, AfterValidator(owner)]] = []
    """E-mail addresses, or team:name."""
    schedule: Annotated[str, AfterValidator(cron_line)] | None = None
    """Cron line (UTC): plan, and run what changed."""
    check_schedule: Annotated[str, AfterValidator(cron_line)] | None = None
    """Cron line (UTC): reconcile the committed ranges, move nothing."""
    freshness: str = BY_SCHEDULE
    """How old the newest range may be before Dagster calls the targets stale: as the schedule has
    it, an age such as 36h or 7d, or none."""

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
        ranges = info.data.get("ranges")
        write = info.data.get("write", WriteMode.REPLACE)
        if value.runs > 1 and write.whole_table:
            why = "is for one run alone with 'write: swap', which puts all ranges in place at once"
        elif value.runs > 1 and ranges is not None and ranges.by is not None:
            why = "is for one run alone with 'by: ctid', whose ranges are read under one snapshot"
        else:
            return value
        raise Several([(("runs",), why)])

    @field_validator("profile")
    @classmethod
    def check_profile(cls, value: str) -> str:
        try:
            profile(value)
        except InputError as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("source")
    @classmethod
    def check_source(cls, value: TableRef) -> TableRef:
        if value.system.source is None:
            names = [f"{one.name}://" for one in systems() if one.source]
            raise ValueError(f"the source should be {' or '.join(names)}")
        try:
            source_of(value.system).require_installed(value)
        except InputError as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("key", mode="before")
    @classmethod
    def check_key(cls, value: object, info: ValidationInfo) -> object:
        own, place = _own_key(info), _place(info)
        if place is not None:
            if value not in ("", None):
                raise ValueError(
                    f"is not declared with 'ranges: {{by: {place.column.name}}}', which is for "
                    "tables without one; ranges by key are better where there is one"
                )
            return place.column.name
        if isinstance(value, dict) and set(value) == {UNDECIDED}:
            raise ValueError(_undecided(value[UNDECIDED]))
        if value not in ("", None):
            if own not in (None, value):
                raise ValueError("is not needed: each file is a range")
            return value
        if own is None and {"source", "ranges"} <= set(info.data):
            raise ValueError("is needed: the column that the ranges are cut by")
        return own or "key"

    @field_validator("ranges")
    @classmethod
    def check_ranges(cls, value: RangesSpec, info: ValidationInfo) -> RangesSpec:
        source = info.data.get("source")
        if source is not None and _own_key(info) is not None:
            try:
                source_of(source.system).require_cuttable(source)
            except InputError as error:
                raise ValueError(str(error)) from None
            if value.rows is None or value.bounds is not None:
                raise ValueError("of files are cut by rows alone; else each file is a range")
        if value.by is not None and source is not None:
            places = [one for one in systems() if one.source and source_of(one).place]
            if source.system not in places:
                having = " and ".join(one.title for one in places)
                raise ValueError(f"by: {value.by} is for {having} tables, not for {source}")
        return value

    @field_validator("write")
    @classmethod
    def check_write(cls, value: WriteMode, info: ValidationInfo) -> WriteMode:
        if value.needs_identity and (place := _place(info)) is not None:
            raise ValueError(
                f"upsert needs a key that stays with its row, and 'ranges: {{by: "
                f"{place.column.name}}}' has none: an updated row is stored elsewhere"
            )
        for hop in info.data.get("hops", ()):
            if hop.to.system.loader is None:
                continue
            modes = loader_of(hop.to.system).modes
            if value not in modes:
                raise ValueError(f"{value} is not for {hop.to}, only {', '.join(modes)}")
        return value

    @field_validator("on_missing")
    @classmethod
    def check_on_missing(cls, value: MissingPolicy, info: ValidationInfo) -> MissingPolicy:
        if _own_key(info) is None:
            raise ValueError("is for files; rows that a source has no more go with their range")
        write = info.data.get("write", WriteMode.REPLACE)
        if value == "delete" and not write.replaces_in_place:
            raise ValueError("delete goes with 'write: replace'")
        return value

    @field_validator("hops", mode="before", json_schema_input_type=HopsInput)
    @classmethod
    def expand_hops(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        return [{"to": hop} if isinstance(hop, str) else hop for hop in value]

    @field_validator("hops")
    @classmethod
    def check_hops(cls, value: list[HopSpec], info: ValidationInfo) -> list[HopSpec]:
        if not (info.context or {}).get(LENIENT):
            Several.check(hop_problems(info.data.get("source"), value))
        return value

    @field_validator("checks")
    @classmethod
    def check_checks(cls, value: dict[str, CheckSpec]) -> dict[str, CheckSpec]:
        Several.check(
            ((name,), f"there is no such check; there are {', '.join(sorted(CHECKS))}")
            for name in value
            if name not in CHECKS
        )
        return value

    @field_validator("fingerprint", mode="before", json_schema_input_type=FingerprintInput)
    @classmethod
    def check_fingerprint(cls, value: object) -> object:
        if isinstance(value, dict) and list(value) == ["watermark"]:
            value = f"watermark:{value['watermark'] or ''}"
        method, _, column = str(value).partition(":")
        if value not in FINGERPRINTS and not (method == "watermark" and column):
            raise ValueError(
                f"{value!r} should be one of {', '.join(FINGERPRINTS)}, {{watermark: column}}"
            )
        return value

    @field_validator("fingerprint")
    @classmethod
    def check_of_files(cls, value: str, info: ValidationInfo) -> str:
        if _own_key(info) is not None and value not in ("content", "none"):
            raise ValueError(f"{value!r} should be content or none, of files")
        if value not in OF_PLACES and (place := _place(info)) is not None:
            raise ValueError(
                f"{value!r} should be {' or '.join(OF_PLACES)} with 'ranges: {{by: "
                f"{place.column.name}}}': the others miss rows that an update stores elsewhere"
            )
        return value

    @field_validator("fingerprint", "figures")
    @classmethod
    def check_in_flight(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("reconcile") != "in_flight":
            return value
        # that of files is a hash of their bytes
        if value == "content" and _own_key(info) is None:
            raise ValueError(
                "content reads and digests all rows of the source, so that 'reconcile: checksum' "
                "costs no more; with in_flight declare row_version, {watermark: column}, "
                "count_minmax or none"
            )
        if info.field_name == "figures" and value:
            raise ValueError("are computed by the source's server, which in_flight does not ask")
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
        Several.check(column_problems(value, hops, source and source.system))
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

    @field_validator("incremental", mode="before", json_schema_input_type=bool | IncrementalSpec)
    @classmethod
    def expand_incremental(cls, value: object) -> object:
        return ({} if value else None) if isinstance(value, bool) else value

    @field_validator("incremental")
    @classmethod
    def check_incremental(
        cls, value: IncrementalSpec | None, info: ValidationInfo
    ) -> IncrementalSpec | None:
        if value is not None:
            Several.check(((), why) for why in incremental_problems(info.data))
        return value

    @field_validator("freshness", mode="before", json_schema_input_type=FreshnessInput)
    @classmethod
    def check_freshness(cls, value: object) -> object:
        if value in (BY_SCHEDULE, NEVER_STALE):
            return value
        try:
            given = age(str(value))
        except ValueError as error:
            raise ValueError(f"{error}".replace("an age", "schedule, none or an age", 1)) from None
        if not given:
            raise ValueError("should be longer than nothing")
        return value

    def check_spec(self, name: str) -> CheckSpec:
        """What the failure of a check means for this transfer."""
        return self.checks.get(name, CheckSpec())

    @property
    def fresh_for(self) -> timedelta | None:
        """How long its targets count as fresh after their newest range; None: nobody asks."""
        return fresh_for(self.freshness, self.schedule)

    @property
    def suite(self) -> tuple[ExpectationSpec, ...]:
        """The declared expectations."""
        return tuple(one.spec for one in self.expectations)

    def target_name(self, column: str) -> str:
        """A source column's name in the targets."""
        return self.columns.get(column, ColumnSpec()).rename or column

    @property
    def key_name(self) -> str:
        """The key column's name in the targets."""
        return self.columns.get(self.key, ColumnSpec()).rename or self.key

    @property
    def placed(self) -> bool:
        """Whether the ranges are cut by where rows are stored, of a table without a key."""
        return self.ranges.by is not None

    @property
    def rows_of_stretch(self) -> int | None:
        """At most how many rows a range of a file has; None: each file is one."""
        own = source_of(self.source.system).own_key
        return self.ranges.rows if own and "ranges" in self.model_fields_set else None

    @property
    def partitions_name(self) -> str:
        """Name of the transfer's dynamic partitions definition."""
        return f"{self.transfer}_ranges"

    @property
    def watermark(self) -> str | None:
        """The watermark column, where the fingerprint is one."""
        method, _, column = self.fingerprint.partition(":")
        return column if method == "watermark" else None
