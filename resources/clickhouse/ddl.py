"""The statements of the ClickHouse target, as text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence

from tableferry.resources.clickhouse.dialect import DIALECT, RANGE_COLUMN
from tableferry.resources.clickhouse.locks import Owner
from tableferry.resources.clickhouse.types import declared_type
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef

ENGINE = re.compile(
    r"(Replicated|Shared)?(Replacing|Summing|Aggregating|Collapsing|VersionedCollapsing|Coalescing|"
    r"Graphite)?MergeTree\s*(?P<arguments>\(.*\))?",
    re.DOTALL,
)
CONDITIONS_LENGTH = 100_000
"""Characters of conditions in a statement: by default ClickHouse parses at most 262,144 bytes.
https://clickhouse.com/docs/operations/settings/settings#max_query_size"""

_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)


def range_hash(key_range: KeyRange) -> int:
    """The value of `_range` for the rows of a key range: 64 bits of a hash of its name.

    It must depend on nothing but the range, so it is no counter. Among 10,000 ranges, two have the
    same hash with a probability of 3e-12.
    """
    return range_number(key_range.name)


def range_number(name: str) -> int:
    """See `range_hash`."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())


def partition(key_range: KeyRange) -> str:
    """The partition clause; the ID of a partition by one UInt64 column is its decimal digits."""
    return f"PARTITION ID '{range_hash(key_range)}'"


def in_partition(key_range: KeyRange) -> str:
    """The condition that a row is in the partition of a key range, whatever its key.

    It uses the partitioning column, because a user's column may have the name `_partition_id`.
    """
    return f"{RANGE_COLUMN} = {range_hash(key_range)}"


def create_table(plan: CopyPlan, options: TargetOptions) -> str:
    """CREATE TABLE for the target, with the hidden range column unless partitioned otherwise."""
    return f"CREATE TABLE {qualified(plan.target)} {'0'.join(shape(plan, options))}"


def shape(plan: CopyPlan, options: TargetOptions) -> tuple[str, ...]:
    """The rest of CREATE TABLE after the target's name, in two parts, between which the default of
    the hidden range column belongs; in one part if there is no such column.
    """
    lines = [
        f"{DIALECT.quote(column.name)} {declared_type(column)}" for column in plan.target_columns
    ]
    order_by = options.order_by
    if order_by is None:
        order_by = f"({names(sorting_key(plan))})"
    # without the setting a sorting key must not be nullable, but rows may have NULL keys
    tail = f" ORDER BY {order_by} SETTINGS allow_nullable_key = 1"
    engine = f") ENGINE = {options.engine or 'MergeTree'}"
    if options.partition_by is None:
        lines.append(f"{RANGE_COLUMN} UInt64 MATERIALIZED ")
        return f"({', '.join(lines)}", f"{engine} PARTITION BY {RANGE_COLUMN}{tail}"
    if options.partition_by:
        engine += f" PARTITION BY {options.partition_by}"
    return (f"({', '.join(lines)}{engine}{tail}",)


def engine_problem(engine: str) -> str | None:
    """Why a declared engine cannot be used, to be put after its name; None if it can."""
    match = ENGINE.fullmatch(engine.strip())
    if match is None:
        return (
            "should be an engine of the MergeTree family, which can delete and replace rows, "
            'for example "ReplacingMergeTree(version)"'
        )
    if match["arguments"] and not balanced(match["arguments"]):
        return "has parentheses that do not match"
    return None


def balanced(text: str) -> bool:
    """Whether the parentheses of an expression match, outside of its text constants."""
    depth = 0
    for char in _QUOTED.sub("", text):
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0 and "'" not in _QUOTED.sub("", text)


def without_texts(sql: str) -> str:
    """SQL with its text constants emptied, so that it can be searched for keywords."""
    return _QUOTED.sub("''", sql)


def sorting_key(plan: CopyPlan) -> list[str]:
    """The key column first, so that ranges are read without a scan; then the primary key."""
    key = plan.key.target.name
    return [key, *(name for name in plan.row_identity if name != key)]


def names(columns: Sequence[str]) -> str:
    """Quoted column names, separated by commas."""
    return ", ".join(DIALECT.quote(column) for column in columns)


def copy_columns(plan: CopyPlan) -> str:
    """The names of the plan's columns, quoted and separated by commas."""
    return names([column.name for column in plan.target_columns])


def not_in(plan: CopyPlan, table: str, where: str = "1") -> str:
    """The condition that no row of `table` has this row's primary key."""
    identity = names(plan.row_identity)
    return f"({identity}) NOT IN (SELECT {identity} FROM {table} WHERE {where})"


def is_in(plan: CopyPlan, table: str) -> str:
    """The condition that some row of `table` has this row's primary key."""
    identity = names(plan.row_identity)
    return f"({identity}) IN (SELECT {identity} FROM {table})"


def delete_from(table: str, condition: str) -> str:
    """Remove rows, also from projections: a lightweight DELETE that is to rebuild these leaves them
    there (https://github.com/ClickHouse/ClickHouse/issues/111791)."""
    return f"ALTER TABLE {table} DELETE WHERE {condition} SETTINGS mutations_sync = 2"


def complete(
    publication: Publication,
    options: TargetOptions,
    columns: str,
    target: str,
    staged: str,
    in_range: str,
    which: str = "",
) -> list[str]:
    """Copy the target's rows that stay into staging, so that one REPLACE publishes all.

    With `append`, staged rows that the target has in any range give way to these. `in_range` is the
    condition that a row of the target is in the range; `which` may be `DISTINCT `.
    """
    plan, gone = publication.plan, [*batched_conditions(publication.delta.delete)]
    kept, before = f"{in_range} AND {not_in(plan, staged)}", list[str]()
    if options.appends(plan):
        kept, before = in_range, [is_in(plan, _known(plan, target, staged))]
    elif not options.mode.keeps_rows:
        kept = f"({plan.target_range(publication.key_range)}) AND {kept}"
    kept = " AND ".join((kept, *(f"NOT ifNull({condition}, 0)" for condition in gone[:1])))
    return [
        *(delete_from(staged, condition) for condition in before),
        f"INSERT INTO {staged} ({columns}) SELECT {which}{columns} FROM {target} WHERE {kept}",
        *(delete_from(staged, condition) for condition in gone[1:]),
    ]


def batched_conditions(conditions: Sequence[str]) -> Iterator[str]:
    """Join conditions by OR, each time as many as a statement has room for."""
    batch: list[str] = []
    for condition in conditions:
        if batch and sum(map(len, batch)) + len(condition) > CONDITIONS_LENGTH:
            yield _any_of(batch)
            batch = []
        batch.append(condition)
    if batch:
        yield _any_of(batch)


def _any_of(conditions: Sequence[str]) -> str:
    return " OR ".join(f"({condition})" for condition in conditions).join("()")


def replace_partition(target: str, staged: str, key_range: KeyRange) -> str:
    """Publish a range."""
    return f"ALTER TABLE {target} REPLACE {partition(key_range)} FROM {staged}"


def strays_of(plan: CopyPlan, key_range: KeyRange) -> str:
    """The condition that a row of the target has a key of this range, in another's partition."""
    return f"({plan.target_range(key_range)}) AND {RANGE_COLUMN} != {range_hash(key_range)}"


def gather_strays(plan: CopyPlan, columns: str, target: str, key_range: KeyRange) -> str:
    """Copy the strays of a range to its partition, but for those that it has already."""
    identity, there = names(plan.row_identity), not_in(plan, target, in_partition(key_range))
    return (
        f"INSERT INTO {target} ({columns}, {RANGE_COLUMN}) "
        f"SELECT {columns}, {range_hash(key_range)} FROM {target} "
        f"WHERE {strays_of(plan, key_range)} AND {there} LIMIT 1 BY {identity}"
    )


def rewrite(
    publication: Publication, options: TargetOptions, target: str, staged: str, in_range: str
) -> list[str]:
    """Publish a range in a table that is partitioned otherwise: DELETEs, if any, and an INSERT.

    `in_range` is the condition that a row of the target is in the range.
    """
    plan, added = publication.plan, "1"
    deletes = [*batched_conditions(publication.delta.delete)]
    if options.appends(plan):
        added = f"NOT ({is_in(plan, _known(plan, target, staged))})"
    elif options.replaces(plan):
        deletes = [in_range]
    elif options.written_by(plan).updates:
        deletes.append(is_in(plan, staged))
    columns = copy_columns(plan)
    return [
        *(f"ALTER TABLE {target} DELETE WHERE {condition}" for condition in deletes),
        f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {staged} WHERE {added}",
    ]


def _known(plan: CopyPlan, target: str, staged: str) -> str:
    """The target's rows, in any range, whose primary key was staged, too.

    The condition limits the set of keys that the server holds in memory to those of the range.
    """
    return f"(SELECT * FROM {target} WHERE {is_in(plan, staged)})"


DEDUP_WINDOW = 1000
"""Blocks whose dedup tokens a staging table remembers; a range of 250,000 rows has one or two."""

Image = tuple[str, ...]
"""The rest of a staging table's CREATE TABLE after its name, before and after the range's number;
empty if only the server can derive it."""

_DEFAULT = re.compile(rf"^    `{RANGE_COLUMN}` UInt64 MATERIALIZED \d+(?=,?$)", re.MULTILINE)
_PATHS = re.compile(
    r"^(\)\s*ENGINE = (?:Replicated|Shared)\w*MergeTree)"
    r"\(\s*'[^']*'\s*,\s*'[^']*'\s*(?:(?P<end>\))|,\s*)",
    re.MULTILINE,
)
"""A path in Keeper and a replica's name, which are one table's; another has the server's own."""
_ENGINE = re.compile(r"^\)\nENGINE = (\w+)", re.MULTILINE)
_SETTINGS = re.compile(r"^SETTINGS (?!.*\bnon_replicated_deduplication_window\b).*$", re.MULTILINE)
_COMMENT = re.compile(r"^COMMENT '.*'\Z", re.MULTILINE)
_WINDOW = f", non_replicated_deduplication_window = {DEDUP_WINDOW}"


def planned_image(plan: CopyPlan, options: TargetOptions) -> Image:
    """The image of a table that we create."""
    parts = shape(plan, options)
    if len(parts) == 1:
        return ()
    return (*parts[:-1], _without_paths(parts[-1]) + _WINDOW)


def defined_image(definition: str) -> Image:
    """The image of an existing table, by the result of SHOW CREATE TABLE, which has each column and
    clause on a line, and no line breaks in literals."""
    _, _, body = definition.strip().partition("\n")
    body, settings = _SETTINGS.subn(rf"\g<0>{_WINDOW}", _COMMENT.sub("", body).rstrip())
    engine = _ENGINE.findall(body)
    parts = _DEFAULT.split(body)
    if len(parts) != 2 or settings != 1 or len(engine) != 1:
        return ()
    return f"{parts[0]}    `{RANGE_COLUMN}` UInt64 MATERIALIZED ", _without_paths(parts[1])


def _without_paths(definition: str) -> str:
    return _PATHS.sub(lambda match: match[1] + ("" if match["end"] else "("), definition)


def staging_table(
    like: TableRef, staging: str, owner: Owner, key_range: KeyRange | None, image: Image = ()
) -> list[str]:
    """The statements that create the staging table of a range.

    From it REPLACE PARTITION can take the range: it differs from `like` only in the default of the
    range column, the range's number, so that rows of every wire format get it without naming it.
    With an image of `like` one statement is enough: the ALTER costs the server more than the rest.
    Without a range, the target is one that somebody else partitioned: only its columns matter.
    """
    table = qualified(like, staging)
    comment, copied = f"COMMENT {owner.comment()}", f"CREATE TABLE {table} AS {qualified(like)}"
    window = f"non_replicated_deduplication_window = {DEDUP_WINDOW}"
    if key_range is None:
        return [f"{copied} ENGINE = MergeTree ORDER BY tuple() SETTINGS {window} {comment}"]
    number = range_hash(key_range)
    if image:
        return [f"CREATE TABLE {table} {str(number).join(image)} {comment}"]
    return [
        f"{copied} {comment}",
        f"ALTER TABLE {table} "
        f"MODIFY COLUMN {RANGE_COLUMN} UInt64 MATERIALIZED {number}, MODIFY SETTING {window}",
    ]
