"""How old a transfer's newest materialization may be: by its schedule, or as declared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise

BY_SCHEDULE, NEVER_STALE = "schedule", "none"
AGE = r"(\d+)\s*([hdw])"
GRACE = timedelta(hours=1)
"""Allowance for a late tick, and for its run to record the first range."""

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_START = datetime(2024, 1, 1)  # UTC, of a leap year
_YEAR, _TWO_LEAP_YEARS = timedelta(days=400), timedelta(days=9 * 365)
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FORMAT = "%Y-%m-%d %H:%M"


def age(text: str) -> timedelta:
    """Parse an age such as `36h`, `90d` or `12w`.

    Raises:
        ValueError: it is no age.
    """
    match = re.fullmatch(AGE, text.strip().lower())
    if match is None:
        raise ValueError(f"should be an age such as 36h, 90d or 12w; found {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def fresh_for(declared: str, schedule: str | None) -> timedelta | None:
    """How long a target is fresh after its newest materialization; None: freshness is not checked.

    Args:
        declared: `schedule`, `none` or an age.
        schedule: the transfer's cron line.
    """
    if declared == BY_SCHEDULE:
        return longest_pause(schedule) + GRACE if schedule else None
    return None if declared == NEVER_STALE else age(declared)


@cache
def longest_pause(cron: str) -> timedelta:
    """The longest time between two ticks of a valid cron line, in UTC.

    Computed from days, hours and minutes apart, because a year may have too many ticks to list.
    """
    fields = cron.split()
    if len(fields) != 5:
        fields = _NICKNAMES[cron.strip().lower()].split()
    minute, hour, *days = fields
    minutes = {tick.minute for tick in _ticks(f"{minute} * * * *", timedelta(hours=2))}
    hours = {tick.hour for tick in _ticks(f"0 {hour} * * *", timedelta(days=2))}
    times = [_START.replace(hour=h, minute=m) for h in sorted(hours) for m in sorted(minutes)]
    pause = timedelta(days=1)
    if days != ["*"] * 3:
        dates = f"0 0 {' '.join(days)}"
        ticks = _ticks(dates, _YEAR)
        pause = _longest(ticks if len(ticks) > 1 else _ticks(dates, _TWO_LEAP_YEARS))
    overnight = pause - (times[-1] - times[0])
    return max(overnight, _longest(times))


def _ticks(cron: str, period: timedelta) -> list[datetime]:
    """All ticks that are followed by another one within the period."""
    import dagster as dg

    windows = dg.TimeWindowPartitionsDefinition(_START, _FORMAT, cron_schedule=cron)
    keys = windows.get_partition_keys(current_time=_START + period)
    return [datetime.strptime(key, _FORMAT) for key in keys]


def _longest(ticks: Sequence[datetime]) -> timedelta:
    return max((later - earlier for earlier, later in pairwise(ticks)), default=timedelta())
