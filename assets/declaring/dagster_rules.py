"""What Dagster accepts as a name, owner, tag or schedule: asked of Dagster itself.

It would refuse them, too, but for all transfers at once, and without a file or line.
"""

from __future__ import annotations

import re

import dagster as dg

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What Dagster allows as the name of an op, a group and a partitions definition."""


def op_name(value: str) -> str:
    """A name of a transfer, which becomes that of an op.

    Raises:
        ValueError: Dagster would not have it.
    """
    if not NAME.fullmatch(value):
        raise ValueError("should be letters, digits and underscores")
    try:
        dg.OpDefinition(lambda _: None, value)
    except dg.DagsterInvalidDefinitionError:
        raise ValueError("is a word that Dagster keeps for itself") from None
    return value


def cron_line(value: str) -> str:
    """A cron line.

    Raises:
        ValueError: Dagster would not have it.
    """
    try:
        dg.ScheduleDefinition("probe", cron_schedule=value, job_name="probe")
    except dg.DagsterInvalidDefinitionError:
        raise ValueError(
            "should be a cron line: minute, hour, day of month, month, day of week"
        ) from None
    return value


def owner(value: str) -> str:
    """An owner of assets.

    Raises:
        ValueError: Dagster would not have it.
    """
    try:
        dg.AssetSpec("probe", owners=[value])
    except dg.DagsterInvalidDefinitionError:
        raise ValueError("should be an e-mail address, or team:name") from None
    return value


def tag_key(value: str) -> str:
    """The name of a tag.

    Raises:
        ValueError: Dagster would not have it.
    """
    try:
        dg.AssetSpec("probe", tags={value: ""})
    except dg.DagsterInvalidDefinitionError:
        raise ValueError(
            "should be 1 to 63 letters, digits, '_', '-' and '.', perhaps after such a prefix and /"
        ) from None
    return value


def tag_value(value: str) -> str:
    """The value of a tag.

    Raises:
        ValueError: Dagster would not have it.
    """
    try:
        dg.AssetSpec("probe", tags={"probe": value})
    except dg.DagsterInvalidDefinitionError:
        raise ValueError("should be at most 63 letters, digits, '_', '-' and '.'") from None
    return value
