"""Names, owners, tags and schedules: those that Dagster accepts, as it decides, and our own.

It would refuse them later, but for all transfers at once and without file or line. Importing it
takes longer than many commands, so only values that are not plainly valid are tried with it.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import Any

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What Dagster allows as the name of an op and a partitions definition."""

GROUP = re.compile(r"[A-Za-z0-9_]+")

RESERVED = {
    *keyword.kwlist,
    *("context", "conf", "config", "meta", "arg_dict", "dict", "input_arg_dict", "output_arg_dict"),
    *("int", "str", "float", "bool", "input", "output", "type"),
}
"""Words that Dagster does not accept as names."""

Rule = Callable[[str], str]
"""Returns a value as it is, or raises `ValueError` if Dagster refuses it."""


def _cron_field(value: str) -> str:
    return rf"(?:\*|\*/(?!0\b)(?:{value})|(?:{value})(?:,(?:{value}))*)"


# no month may have a day after the 28th: Dagster decides
_FIELDS = (r"[1-5]?\d", r"1?\d|2[0-3]", r"[1-9]|1\d|2[0-8]", r"[1-9]|1[0-2]", r"[0-6]")
PLAIN_CRON = re.compile(" ".join(map(_cron_field, _FIELDS)))
PLAIN_OWNER = re.compile(
    r"team:[A-Za-z0-9_.-]+|[A-Za-z0-9][A-Za-z0-9_.+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}"
)
PLAIN_TAG_KEY = re.compile(r"[A-Za-z0-9_.-]{1,63}")
PLAIN_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{0,63}")


def _accepted(plain: re.Pattern[str], define: Callable[[Any, str], object], problem: str) -> Rule:
    """Return the rule that Dagster accepts a definition with a value.

    Args:
        plain: values that are known to be accepted.
        define: makes the definition, given the Dagster module and the value.
        problem: what is wrong with the value if that fails.
    """

    def check(value: str) -> str:
        if plain.fullmatch(value):
            return value
        import dagster as dg

        try:
            define(dg, value)
        except dg.DagsterInvalidDefinitionError:
            raise ValueError(problem) from None
        return value

    return check


def op_name(value: str) -> str:
    """Check the name of a transfer, which becomes that of an op.

    Raises:
        ValueError: Dagster would refuse it.
    """
    if not NAME.fullmatch(value):
        raise ValueError("should be letters, digits and underscores")
    if value in RESERVED:
        raise ValueError("is a word that Dagster reserves")
    return value


def group_name(value: str) -> str:
    """A group of assets.

    Raises:
        ValueError: Dagster would refuse it.
    """
    if not GROUP.fullmatch(value):
        raise ValueError("should be letters, digits and underscores")
    return value


cron_line = _accepted(
    PLAIN_CRON,
    lambda dg, value: dg.ScheduleDefinition("probe", cron_schedule=value, job_name="probe"),
    "should be a cron line: minute, hour, day of month, month, day of week",
)
owner = _accepted(
    PLAIN_OWNER,
    lambda dg, value: dg.AssetSpec("probe", owners=[value]),
    "should be an e-mail address, or team:name",
)
tag_key = _accepted(
    PLAIN_TAG_KEY,
    lambda dg, value: dg.AssetSpec("probe", tags={value: ""}),
    "should be 1 to 63 letters, digits, '_', '-' and '.', perhaps after such a prefix and /",
)
tag_value = _accepted(
    PLAIN_TAG_VALUE,
    lambda dg, value: dg.AssetSpec("probe", tags={"probe": value}),
    "should be at most 63 letters, digits, '_', '-' and '.'",
)


CODE_LOCATION = "tableferry"
"""Name of the code location in workspace.yaml, `ferry dev` and the runs of commands."""


ASSET_JOB = "__ASSET_JOB"
"""Dagster's job of all assets and checks. A run of it selects those of one transfer or several."""


def about(transfer: str, text: str) -> str:
    """Prefix a message with its transfer's name, unless it has that prefix."""
    return text if text.startswith(f"{transfer}: ") else f"{transfer}: {text}"


def move_op_name(transfer: str) -> str:
    """Name of the op that moves a transfer; an asset may have the transfer's own name."""
    return f"transfer_{transfer}"


def schedule_name(transfer: str) -> str:
    """Name of the schedule that moves a transfer."""
    return f"{transfer}_schedule"


def check_schedule_name(transfer: str) -> str:
    """Name of the schedule that only reconciles a transfer."""
    return f"{transfer}_check_schedule"
