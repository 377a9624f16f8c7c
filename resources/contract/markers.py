"""Markers: the data version that was last published of each key range, in a table of the target.

They are no checkpoints: only the event log says what is committed. A publication writes its marker
with its rows. From the markers an event log learns of publications that it lacks: those of another
home, those since the backup from which it was restored, or those of a process that was suspended.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tableferry.resources.contract.copy_plan import CopyPlan, Format
from tableferry.resources.contract.delimited import Framing
from tableferry.resources.contract.delta import Delta
from tableferry.resources.contract.target_names import Quarantine
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange, parse_range
from tableferry.resources.tables import TableRef

MARKERS = "__ferry_ranges"
"""The name of the table, of which each schema with targets has one."""


ANNOUNCED = "!"
"""Begins the version of a marker that is written before its rows, until these are there."""


@dataclass(frozen=True)
class Marker:
    """The last publication of a key range."""

    range: str
    version: str
    """The data version; empty if the range was retired, behind `ANNOUNCED` if its rows need not be
    there yet."""
    key: str = ""
    """The key column by which the range is cut."""
    owner: str = ""
    """The run that published it, with its process."""
    home: str = ""
    """The home of that run's event log."""
    at: str = ""
    token: str = ""
    """Identifies the publication, if the target has no transactions."""
    written_as: str = ""
    """The name by which the run writes to the table, if each range says so for itself."""

    def __str__(self) -> str:
        run = self.owner.partition(" ")[0] or "unknown"
        return f"run {run}{f' of {self.home}' if self.home else ''}, {self.at}"

    @property
    def announced(self) -> bool:
        """Whether its rows may still be missing, and may still come if its run lives."""
        return self.version.startswith(ANNOUNCED)

    def overlaps(self, plan: CopyPlan, key_range: KeyRange) -> bool:
        """Whether a row may be in both ranges; also if that is unknown."""
        if self.key != plan.key.target.name:
            return True
        published = parse_range(self.range, key_range.kind, key_range.digits)
        return published is None or published.overlaps(key_range)


@dataclass(frozen=True)
class Published:
    """The markers of a target at one moment."""

    table: str | None = None
    """The target's identity, see `Target.identity`; None if the table does not exist."""
    markers: Mapping[str, Mapping[str, Marker]] = field(default_factory=dict)
    """By identity of the table with the rows, which is the target or its shadow, and by range."""
    newest: Mapping[str, int] = field(default_factory=dict)
    """The greatest number of a publication by identity of the table."""
    cuts_matter: bool = False
    """Whether rows of ranges with other bounds would stay beside the new ones until found."""
    transfer_ranges: frozenset[str] = frozenset()
    """The ranges of the transfer."""
    written_as: str = ""
    """The name by which runs write to the table; empty if none has told."""

    @property
    def of_target(self) -> Mapping[str, Marker]:
        """The markers of the ranges that readers see."""
        markers = self.markers.get(self.table or "", {})
        return {name: marker for name, marker in markers.items() if marker.version}

    def token(self, table: str, key_range: KeyRange) -> str:
        """The token of a range's last publication in a table; empty if there is none."""
        marker = self.markers.get(table, {}).get(key_range.name)
        return marker.token if marker else ""

    def foreign(self, table: str, plan: CopyPlan, key_range: KeyRange) -> list[Marker]:
        """The markers of other transfers' ranges that may share rows with this one."""
        transfer = {*self.transfer_ranges, key_range.name}
        markers = self.markers.get(table, {}).values()
        others = [marker for marker in markers if marker.version and marker.range not in transfer]
        return [marker for marker in others if marker.overlaps(plan, key_range)]


@dataclass
class Publication:
    """A range that an attempt is to publish, and what its marker will say."""

    plan: CopyPlan
    """The hop, as given to `Target.prepare`."""
    key_range: KeyRange
    version: str
    """The data version: fingerprint of the rows; part of an insert's dedup token. Another stands
    for one that only the rows show, as they are sent, until they are staged."""
    owner: str
    """The run that publishes it, with its process."""
    home: str = ""
    """The home of that run's event log."""
    known: Published | None = None
    """The markers that the attempt goes by: it publishes nothing if somebody else has published
    the range since they were read. None publishes whatever they say."""
    format: Format | None = None
    """The format in which the rows arrive, if the target accepts several."""
    framing: Framing | None = None
    """SQL Server only: the terminators of their text."""
    batch_rows: int = 65_536
    """Rows per batch of a SQL Server bulk copy; a ClickHouse insert streams and has no batches."""
    delta: Delta = field(default_factory=Delta)
    """The rows by which the range differs: those to insert or update are staged, and all others
    stay as they are."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    """What is kept beside the target instead of in it."""
    displaced: Callable[[Sequence[str]], None] | None = None
    """Is called with the names of other ranges that are about to lose rows, since these have moved
    to this one. None: a primary key that is in another range fails it."""

    @property
    def key(self) -> str:
        """The key column by which the range is cut."""
        return self.plan.key.target.name

    def overlapped(self, table: str) -> list[str]:
        """The ranges whose markers are wrong once this one is published."""
        foreign = self.known.foreign(table, self.plan, self.key_range) if self.known else ()
        return [marker.range for marker in foreign]


def require_written_as(table: TableRef, name: str) -> None:
    """Refuse a target that runs write to by another name.

    Args:
        table: the target.
        name: the name that its markers say; empty if they say none.

    Raises:
        InputError: says what to do.
    """
    if name not in ("", str(table)):
        remedy = "have its markers forgotten: ferry clean TRANSFER --markers"
        if table.system.by_path:
            remedy = "move its files, which say so, away"
        raise InputError(
            f"{table} is written as {name}, by its markers: two transfers into one table replace "
            "each other's rows. Give one of them another target. If no transfer writes to it by "
            f"that name any more, {remedy}"
        )


def other_rows(table: TableRef, gathered: Mapping[str, str], markers: Iterable[Marker]) -> str:
    """Say which range of a table has another data version than was gathered there; empty if none
    has."""
    by_range = {marker.range: marker for marker in markers}
    for name, version in gathered.items():
        marker = by_range.get(name)
        if marker is None or marker.version != version:
            by = f": {marker}" if marker else ""
            return f"{table} range {name}: another run has put other rows there{by}"
    return ""


def replaced_newer(table: TableRef, marker: Marker) -> str:
    """Say that a swap would replace rows that were published after it was planned."""
    return (
        f"{table} range {marker.range}: somebody else has published rows since this run was "
        f"planned, which it would replace by older ones: {marker}"
    )


def markers_of(table: TableRef) -> TableRef:
    """The table with the markers of a target."""
    return replace(table, name=MARKERS)


def range_key(range_name: str) -> str:
    """Hash a range's name for an index: names of texts may be long, or differ only in case."""
    return hashlib.blake2b(range_name.encode(), digest_size=16).hexdigest()


def now() -> str:
    """The present time, to be read by people."""
    return dt.datetime.now(dt.UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")
