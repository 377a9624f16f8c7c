"""What Dagster accepts as a name, owner, tag or schedule: asked of Dagster itself.

It would refuse them, too, but for all transfers at once, and without a file or line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What Dagster allows as the name of an op, a group and a partitions definition."""

Rule = Callable[[str], str]
"""Returns a value as it is, or raises `ValueError` where Dagster would not have it."""


_accepted_before: ContextVar[bool] = ContextVar("accepted_before", default=False)


@contextmanager
def accepted_before() -> Iterator[None]:
    """Take values as Dagster has accepted them already, which takes seconds to import."""
    token = _accepted_before.set(True)
    try:
        yield
    finally:
        _accepted_before.reset(token)


def _accepted(define: Callable[[Any, str], object], problem: str) -> Rule:
    """The rule that a definition can be made with a value.

    Args:
        define: makes it, given Dagster and the value.
        problem: what is wrong with the value if that fails.
    """

    def check(value: str) -> str:
        if _accepted_before.get():
            return value
        import dagster as dg

        try:
            define(dg, value)
        except dg.DagsterInvalidDefinitionError:
            raise ValueError(problem) from None
        return value

    return check


_free = _accepted(
    lambda dg, value: dg.OpDefinition(lambda _: None, value),
    "is a word that Dagster keeps for itself",
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
    lambda dg, value: dg.ScheduleDefinition("probe", cron_schedule=value, job_name="probe"),
    "should be a cron line: minute, hour, day of month, month, day of week",
)
owner = _accepted(
    lambda dg, value: dg.AssetSpec("probe", owners=[value]),
    "should be an e-mail address, or team:name",
)
tag_key = _accepted(
    lambda dg, value: dg.AssetSpec("probe", tags={value: ""}),
    "should be 1 to 63 letters, digits, '_', '-' and '.', perhaps after such a prefix and /",
)
tag_value = _accepted(
    lambda dg, value: dg.AssetSpec("probe", tags={"probe": value}),
    "should be at most 63 letters, digits, '_', '-' and '.'",
)
