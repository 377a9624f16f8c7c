"""What Dagster accepts as a name, owner, tag or schedule: asked of Dagster itself.

It would refuse them, too, but for all transfers at once, and without a file or line.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import dagster as dg

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What Dagster allows as the name of an op, a group and a partitions definition."""

Rule = Callable[[str], str]
"""Returns a value as it is, or raises `ValueError` where Dagster would not have it."""


def _accepted(define: Callable[[str], object], problem: str) -> Rule:
    """The rule that a definition can be made with a value."""

    def check(value: str) -> str:
        try:
            define(value)
        except dg.DagsterInvalidDefinitionError:
            raise ValueError(problem) from None
        return value

    return check


_free = _accepted(
    lambda value: dg.OpDefinition(lambda _: None, value), "is a word that Dagster keeps for itself"
)


def op_name(value: str) -> str:
    """A name of a transfer, which becomes that of an op.

    Raises:
        ValueError: Dagster would not have it.
    """
    if not NAME.fullmatch(value):
        raise ValueError("should be letters, digits and underscores")
    return _free(value)


cron_line = _accepted(
    lambda value: dg.ScheduleDefinition("probe", cron_schedule=value, job_name="probe"),
    "should be a cron line: minute, hour, day of month, month, day of week",
)
owner = _accepted(
    lambda value: dg.AssetSpec("probe", owners=[value]),
    "should be an e-mail address, or team:name",
)
tag_key = _accepted(
    lambda value: dg.AssetSpec("probe", tags={value: ""}),
    "should be 1 to 63 letters, digits, '_', '-' and '.', perhaps after such a prefix and /",
)
tag_value = _accepted(
    lambda value: dg.AssetSpec("probe", tags={"probe": value}),
    "should be at most 63 letters, digits, '_', '-' and '.'",
)
