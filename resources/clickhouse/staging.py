"""The staging table of a range, defined like the table that the range goes into."""

from __future__ import annotations

import re

from tableferry.resources.clickhouse.ddl import range_hash, shape
from tableferry.resources.clickhouse.dialect import RANGE_COLUMN
from tableferry.resources.clickhouse.locks import Owner
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef

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
