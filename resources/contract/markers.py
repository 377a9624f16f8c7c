"""Markers: which data version of each key range was published last, in a table beside the target.

It is no checkpoint: the event log alone says what is committed. A marker is written with the rows,
by whoever publishes them, and so tells an event log of what others did: another home, an older
backup of this one, or a process that was stopped for an hour.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.tables import TableRef

MARKERS = "__ferry_ranges"
"""The table, one for each schema that has targets."""


@dataclass(frozen=True)
class Marker:
    """What was published of one key range."""

    range: str
    version: str
    """The data version; empty where the range was retired."""
    key: str = ""
    """The key column that the range is cut by."""
    owner: str = ""
    """The run that published it, with its process."""
    home: str = ""
    """The home of that run's event log."""
    at: str = ""
    token: str = ""
    """Tells one publication from the next, where the target has no transactions."""

    def __str__(self) -> str:
        run = self.owner.partition(" ")[0] or "unknown"
        return f"run {run}{f' of {self.home}' if self.home else ''}, {self.at}"

    def overlaps(self, plan: CopyPlan, key_range: KeyRange) -> bool:
        """Whether a row may be in both ranges; so too if nobody can tell."""
        if self.key != plan.key.target.name:
            return True
        found = parsed(self.range, key_range.kind, key_range.digits)
        return found is None or found.overlaps(key_range)


@dataclass(frozen=True)
class Published:
    """The markers of a target, as they were at one moment."""

    table: str | None = None
    """Identity of the target, see `Target.identity`; None if there is no such table."""
    markers: Mapping[str, Mapping[str, Marker]] = field(default_factory=dict)
    """By identity of the table that the rows are in, the target or its shadow, and by range."""
    newest: Mapping[str, int] = field(default_factory=dict)
    """The greatest number of a publication, by identity of the table."""
    cuts_matter: bool = False
    """Rows of ranges that are cut otherwise would stay beside the new ones until they are found."""
    with_rows: bool = False
    """A marker is written with its rows only: `Target.marking` cannot change it."""
    own: frozenset[str] = frozenset()
    """The ranges of the transfer."""

    @property
    def of_target(self) -> Mapping[str, Marker]:
        """The markers of the ranges that readers see."""
        found = self.markers.get(self.table or "", {})
        return {name: one for name, one in found.items() if one.version}

    def token(self, table: str, key_range: KeyRange) -> str:
        """The token of what a table has of a range; empty if it has nothing."""
        found = self.markers.get(table, {}).get(key_range.name)
        return found.token if found else ""

    def foreign(self, table: str, plan: CopyPlan, key_range: KeyRange) -> list[Marker]:
        """Markers of ranges that are none of the transfer's, but may have rows of this one."""
        found = self.markers.get(table, {}).values()
        others = [one for one in found if one.version and one.range not in self.own]
        others = [one for one in others if one.range != key_range.name]
        return [one for one in others if one.overlaps(plan, key_range)]


@dataclass(frozen=True)
class Publication:
    """A range that an attempt is to publish, and what its marker will say."""

    plan: CopyPlan
    """The hop, as given to `Target.prepare`."""
    key_range: KeyRange
    version: str
    """The data version: fingerprint of the rows; part of an insert's dedup token."""
    owner: str
    """The run that publishes it, with its process."""
    home: str = ""
    """The home of that run's event log."""
    known: Published | None = None
    """The markers that the attempt goes by: it publishes nothing if somebody else has published
    the range since they were read. None publishes whatever they say."""

    @property
    def key(self) -> str:
        """The key column that the range is cut by."""
        return self.plan.key.target.name

    def overlapped(self, table: str) -> list[str]:
        """Ranges whose markers are not true any more once this one is published."""
        foreign = self.known.foreign(table, self.plan, self.key_range) if self.known else ()
        return [one.range for one in foreign]


def beside(table: TableRef) -> TableRef:
    """The table with the markers of a target."""
    return replace(table, name=MARKERS)


def range_key(range_name: str) -> str:
    """A range's name as an index holds it: names of texts may be long, and differ in case alone."""
    return hashlib.blake2b(range_name.encode(), digest_size=16).hexdigest()


def now() -> str:
    """When something is published, for people."""
    return dt.datetime.now(dt.UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")


@functools.lru_cache(maxsize=20_000)
def parsed(name: str, kind: KeyKind, digits: int) -> KeyRange | None:
    """The range of that name; None if it is none of keys of such a kind."""
    try:
        return KeyRange.parse(name, kind, digits)
    except InputError:
        return None


def cover_all(ranges: Iterable[KeyRange]) -> bool:
    """Whether ranges hold each possible key, NULL aside, and none of them twice."""
    bounds: Sequence[KeyRange] = [one for one in ranges if not one.null]
    starts = {one.lower: one for one in bounds}
    if len(starts) != len(bounds):
        return False
    at = starts.pop(None, None)
    while at is not None and at.upper is not None:
        at = starts.pop(at.upper, None)
    return at is not None and not starts
