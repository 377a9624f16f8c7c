"""What a run that only checks is asked to compare, as the run's tags say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.run_tags import (
    ADOPT,
    AS_OF_LAST_RUN,
    COMPLETE,
    LEVEL,
    RANGES,
    RECHECK,
    UP_TO_DATE,
    checked_ranges,
)
from tableferry.assets.planning.resolve import checks_of
from tableferry.checks.levels import CHECK_NAMES, LEVELS, Level, require_level
from tableferry.checks.recheck import ONCE, Recheck
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.errors import InputError


@dataclass(frozen=True)
class CheckRequest:
    """What a run that selects checks alone compares; by default everything that is committed."""

    level: Level | None = None
    """How strict; by default as the transfer declares."""
    ranges: tuple[str, ...] = ()
    """Partition keys; if empty, all committed ranges, and the tables as a whole."""
    as_of_last_run: bool = False
    """Compare the targets with the recorded digests, without reading the source."""
    up_to_date: bool = False
    """Also fail where the source is newer than the last move."""
    complete: bool = False
    """Also fail if ranges are not committed, or nothing is."""
    adopt: bool = False
    """Compare what is not committed, and record it as committed where it is equal."""
    recheck: Recheck = ONCE
    """How often rows that differ are compared again before they are called different."""

    def __post_init__(self) -> None:
        if self.level is not None:
            require_level(self.level)

    @property
    def whole_tables(self) -> bool:
        """Whether the checks of whole tables belong to it."""
        return not self.ranges and not self.as_of_last_run

    def checks(self, transfer: Transfer) -> list[dg.AssetCheckKey]:
        """Return the declared checks that a run should select, at least one per target."""
        declared = checks_of(transfer)
        name = CHECK_NAMES[self.level] if self.level else None
        names = [check for check in declared if name in (None, check)] or declared[:1]
        tables = WHOLE_TABLE_CHECKS if self.whole_tables else ()
        return [
            dg.AssetCheckKey(asset_key(hop.to), check)
            for hop in transfer.hops
            for check in (*names, *tables)
        ]

    def tags(self) -> dict[str, str]:
        """Return the run tags that say the same."""
        given = {
            LEVEL: self.level,
            RANGES: json.dumps(self.ranges) if self.ranges else None,
            AS_OF_LAST_RUN: "true" if self.as_of_last_run else None,
            UP_TO_DATE: "true" if self.up_to_date else None,
            COMPLETE: "true" if self.complete else None,
            ADOPT: "true" if self.adopt else None,
            RECHECK: str(self.recheck) if self.recheck != ONCE else None,
        }
        return {tag: value for tag, value in given.items() if value}

    @classmethod
    def parse(cls, transfer: Transfer, tags: Mapping[str, str], known: list[str]) -> CheckRequest:
        """Read the tags of a run.

        Args:
            transfer: the transfer that the run checks.
            tags: the run's tags.
            known: the transfer's partition keys.

        Raises:
            InputError: a tag has an invalid value.
        """
        level = next((level for level in LEVELS if level == tags.get(LEVEL)), None)
        if LEVEL in tags and level is None:
            raise _invalid(transfer, LEVEL, tags, f"one of {', '.join(LEVELS)}")
        ranges = checked_ranges(tags)
        if ranges is None:
            raise _invalid(transfer, RANGES, tags, 'a JSON list of key ranges, as ["1..5"]')
        if unknown := [name for name in ranges if name not in known]:
            raise InputError(
                f"{transfer.transfer}: the run tag {RANGES} names {unknown[0]!r}, which is no key "
                f"range of it; `ferry status {transfer.transfer}` lists them"
            )
        as_of_last_run, up_to_date, complete, adopt = (
            _flag(transfer, tag, tags) for tag in (AS_OF_LAST_RUN, UP_TO_DATE, COMPLETE, ADOPT)
        )
        try:
            recheck = Recheck.parse(tags[RECHECK]) if RECHECK in tags else ONCE
        except InputError as error:
            raise InputError(f"{transfer.transfer}: the run tag {RECHECK}: {error}") from None
        return cls(level, ranges, as_of_last_run, up_to_date, complete, adopt, recheck)


def _flag(transfer: Transfer, tag: str, tags: Mapping[str, str]) -> bool:
    value = tags.get(tag, "false")
    if value not in ("true", "false"):
        raise _invalid(transfer, tag, tags, "true or false")
    return value == "true"


def _invalid(transfer: Transfer, tag: str, tags: Mapping[str, str], expected: str) -> InputError:
    return InputError(
        f"{transfer.transfer}: the run tag {tag} is {tags[tag]!r}; it should be {expected}"
    )
