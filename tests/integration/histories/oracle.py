"""What should be where, computed from a plain model of the source and from what was read past us.

The oracle knows nothing of fingerprints, digests or events. It knows which rows the source has, as
it has put them there, which rows each target had before a command and has after it, and what
`docs/guarantees.md` promises of the difference. Of the event log and the markers it keeps what they
may say: all that a killed command can have left.
"""

from __future__ import annotations

import copy
import datetime as dt
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.integration.histories.tables import Values

Content = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]
"""Columns, and rows in an order of their own."""

CHANGED = ("the source has changed", "the number of rows differs")
"""Why a range moves of which `incremental` reads only the newer rows."""


class Fault(AssertionError):
    """A promise was not kept.

    Args:
        kind: what a shrunk history has to share with the one that was found.
        text: what was expected, and what was there.
    """

    def __init__(self, kind: str, text: object = "") -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


def hold(condition: bool, kind: str, text: object = "") -> None:
    """Raise a fault unless a promise is kept."""
    if not condition:
        raise Fault(kind, text)


@dataclass(frozen=True)
class Range:
    """A key range by its name, as `docs/ranges.md` has it."""

    name: str

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        bare = re.sub(r"^[-+\w]*:", "", self.name)
        lower, upper = bare.split("..")
        return int(lower) if lower else None, int(upper) if upper else None

    def holds(self, key: int | None) -> bool:
        if self.name == "null" or key is None:
            return self.name == "null" and key is None
        lower, upper = self.bounds
        return (lower is None or lower <= key) and (upper is None or key < upper)


def require_whole(ranges: Sequence[Range]) -> None:
    """Hold that ranges leave no key out, and none to two of them."""
    bounds = [one.bounds for one in ranges if one.name != "null"]
    bounds.sort(key=lambda each: (each[0] is not None, each[0] or 0))
    ends = [None, *(upper for _, upper in bounds)]
    starts = [*(lower for lower, _ in bounds), None]
    hold(bool(bounds) and ends == starts, "ranges do not cover the keys once", bounds)


def content(rows: Iterable[Values], columns: Sequence[str]) -> Content:
    """The values of rows in some columns, to be equal or not."""
    found = [tuple(plain(row.get(name)) for name in columns) for row in rows]
    return tuple(columns), tuple(sorted(found, key=repr))


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Decimal):
        return f"{value.quantize(Decimal('0.01'))}"
    return value.isoformat() if isinstance(value, dt.datetime) else value


def different(one: Content, other: Content) -> str:
    """Say how two contents differ, in short."""
    if one[0] != other[0]:
        return f"columns {one[0]} and {other[0]}"
    ours, theirs = Counter(one[1]), Counter(other[1])
    return f"{one[0]}: only here {[*(ours - theirs)][:4]}, only there {[*(theirs - ours)][:4]}"


@dataclass
class Record:
    """What the event log may say of a range in a hop."""

    contents: set[Content]
    """What it may be committed with: of the source's rows, one of these."""
    settings: tuple[str, ...] = ()
    failed: bool = False
    """Whether a check has failed for sure, and nothing has mended it since."""
    sure: bool = True
    """Whether there is a record at all."""
    digests: bool = True
    """Whether all commits that it may be of have a digest of the target's rows."""
    newer: bool = True
    """Whether it may be of a commit after the last change of columns."""


@dataclass
class Seen:
    """All tables at one moment."""

    source: list[Values]
    columns: list[str]
    """Of the source."""
    targets: list[list[Values]]
    target_columns: list[list[str]]
    """None of a table that is not there."""

    def copied(self, hop: int) -> list[str]:
        """The columns that both the source and a target have."""
        return [name for name in self.columns if name in self.target_columns[hop]]


@dataclass
class Oracle:
    """What is known of a transfer, by hop from 0."""

    key: str
    hops: int
    systems: Sequence[str]
    log: dict[tuple[int, str], Record] = field(default_factory=dict)
    published: dict[tuple[int, str], set[Content]] = field(default_factory=dict)
    """What the targets' markers may say; no entry: nothing."""
    mended: set[tuple[int, str]] = field(default_factory=set)
    """Ranges whose source, a target itself, was rewritten since they were taken from it."""
    altered: bool = False
    """Whether the source's columns, or what becomes of them, changed since the last good run."""
    write: str = "replace"
    deletes: str = "keep"
    incremental: bool = False
    ignores: bool = False
    """Whether columns that a target has not are left out."""
    digests: bool = True
    """Whether commits have a digest of the target's rows, by the present settings."""
    expects: bool = False
    """Whether no row may have an `id` below -1000."""

    def backup(self) -> dict[tuple[int, str], Record]:
        return copy.deepcopy(self.log)

    def alter(self) -> None:
        """Note that the columns are others from now on."""
        self.altered = True
        for record in self.log.values():
            record.newer = False

    def restore(self, log: dict[tuple[int, str], Record]) -> None:
        self.log = copy.deepcopy(log)
        self.mended.clear()

    @property
    def keeps(self) -> bool:
        """Whether a target keeps rows that the source has no more."""
        return self.write == "append" or (self.write == "upsert" and self.deletes == "keep")

    @property
    def settings(self) -> tuple[str, ...]:
        return ("keeps" if self.keeps else "follows", self.write if self.keeps else "")

    def rows_of(self, range_: Range, rows: Iterable[Values]) -> list[Values]:
        return [row for row in rows if range_.holds(row[self.key])]

    def wanted(self, there: list[Values], source: list[Values]) -> list[Values]:
        """What a target is to hold that held `there`."""
        if not self.keeps:
            return source
        if self.write == "append":
            known = {row["n"] for row in there}
            return [*there, *(row for row in source if row["n"] not in known)]
        ours = {row["n"] for row in source}
        return [*source, *(row for row in there if row["n"] not in ours)]

    # --- runs -----------------------------------------------------------------------------------

    def why_right(self, hop: int, range_: Range, before: Seen, forced: bool) -> str:
        """Why a run may not skip a range; empty if it may."""
        place = hop, range_.name
        record = self.log.get(place)
        source = content(self.rows_of(range_, before.source), before.copied(hop))
        there = self.rows_of(range_, before.targets[hop])
        if forced:
            return "it was forced"
        if record is None or not record.sure:
            return "it is not recorded" if record is None else ""
        if record.failed:
            return "a check has failed"
        if (self.altered and not record.newer) or record.settings != self.settings:
            return "columns or settings have changed"
        has = {*before.target_columns[hop]}
        if not has or not (self.ignores or {*before.columns} <= has):
            return "the table or a column is gone"
        if source not in record.contents:
            return CHANGED[0]
        if source not in self.published.get(place, {source}) or place not in self.published:
            return "the target's marker says something else"
        if not self.keeps and len(there) != len(source[1]):
            return CHANGED[1]
        if place in self.mended:
            return "the table before it was mended"
        return ""

    def after_run(
        self,
        before: Seen,
        after: Seen,
        ranges: Sequence[Range],
        *,
        good: bool,
        states: dict[tuple[int, str], str],
        forced: bool = False,
        repaired: bool = False,
        only: Collection[str] = (),
    ) -> None:
        """Hold what a run promises that ended well, or ended otherwise.

        `only`: the names of its ranges, if these are not all.
        """
        must = {
            (hop, one.name): self.why_right(hop, one, before, forced)
            or ("it was repaired" if repaired else "")
            for hop in range(self.hops)
            for one in ranges
        }
        for hop in range(1, self.hops):
            for one in ranges:
                columns = after.copied(hop - 1)
                was, now = (
                    content(self.rows_of(one, seen.targets[hop - 1]), columns)
                    for seen in (before, after)
                )
                if was != now:
                    self.mended.add((hop, one.name))
                    must[hop, one.name] = must[hop, one.name] or "the table before it was mended"
        if self.write == "swap":
            for hop in range(self.hops):
                whys = [why for (number, _), why in must.items() if number == hop and why]
                if whys:
                    must |= {(hop, one.name): f"swap: {whys[0]}" for one in ranges}
        for hop in range(self.hops):
            self._after_hop(hop, before, after, ranges, good, must, states, only)
        if good and not only:
            self.altered = False

    def _after_hop(
        self,
        hop: int,
        before: Seen,
        after: Seen,
        ranges: Sequence[Range],
        good: bool,
        must: dict[tuple[int, str], str],
        states: dict[tuple[int, str], str],
        only: Collection[str],
    ) -> None:
        there, now = before.targets[hop], after.targets[hop]
        taken = after.targets[hop - 1] if hop and self.keeps else after.source
        wanted = self.wanted(there, taken)
        columns = after.copied(hop)
        if not good:
            self._rows_of_either(hop, before, after, wanted)
        moved = self._moved(hop, ranges, there, wanted)
        for one in ranges:
            place = hop, one.name
            is_, was, want, source = (
                content(self.rows_of(one, rows), columns)
                for rows in (now, there, wanted, after.source)
            )
            where = f"hop {hop + 1} range {one.name}"
            if good and (not only or one.name in only):
                why = must[place]
                partly = (
                    self.incremental
                    and why in CHANGED
                    and was not in {*self.published.get(place, ())}
                )
                if why and partly:
                    hold({*is_[1]} <= {*was[1]} | {*want[1]}, "a row from nowhere", where)
                elif why:
                    hold(
                        is_ == want,
                        "not as the source after a good run",
                        f"{where}, though {why}: {different(is_, want)}",
                    )
                    hold(
                        states.get(place) != "skipped_unchanged" or was == want,
                        "skipped",
                        f"{where}, though {why}",
                    )
                hold(
                    partly or is_ in (was, want),
                    "neither old nor new after a good run",
                    f"{where}: {different(is_, want)}",
                )
                skipped = states.get(place) == "skipped_unchanged" and self.log.get(place)
                digests = self.digests and (not skipped or skipped.digests)
                self.log[place] = Record({source}, self.settings, digests=digests)
                self.published[place] = {source}
                self.mended.discard(place)
                continue
            if not self.keeps and place not in moved and self._whole(hop, ranges, place):
                earlier = self.published.get((hop - 1, one.name), set()) if hop else set()
                either = is_ in (was, want) or any(
                    each[0] == tuple(columns) and each == is_ for each in earlier
                )
                hold(
                    either,
                    "neither old nor new after a run that failed",
                    f"{where}: {different(is_, want)}",
                )
            if is_ == want:
                self.mended.discard(place)
            record = self.log.get(place)
            if record is None:
                self.log[place] = Record({source}, self.settings, sure=False)
            else:
                record.contents.add(source)
                record.digests = record.digests and self.digests
                record.newer = True
                record.failed = record.failed and is_ != want
                if record.settings != self.settings:
                    record.sure = False
            if place in self.published or is_ == want:
                self.published.setdefault(place, set()).add(source)

    def _whole(self, hop: int, ranges: Sequence[Range], place: tuple[int, str]) -> bool:
        """Whether a range is the same as before the run, so that its rows change at once."""
        return self.systems[hop] != "clickhouse" or place in self.log

    def _moved(
        self, hop: int, ranges: Sequence[Range], there: list[Values], wanted: list[Values]
    ) -> set[tuple[int, str]]:
        """Ranges out of which or into which rows go, each of which is published by itself."""

        def places(rows: list[Values]) -> set[tuple[Any, str]]:
            return {
                (row["n"], one.name) for row in rows for one in ranges if one.holds(row[self.key])
            }

        old, new = places(there), places(wanted)
        stay = {number for number, _ in old & new}
        both = {number for number, _ in old} & {number for number, _ in new}
        return {(hop, name) for number, name in old ^ new if number in both - stay}

    def _rows_of_either(self, hop: int, before: Seen, after: Seen, wanted: list[Values]) -> None:
        """Hold that no row is lost that was there and is to be there, and none is invented."""
        columns = [name for name in after.copied(hop) if name in before.target_columns[hop]]
        if not columns:
            return
        there, now, want, source = (
            {*content(rows, columns)[1]}
            for rows in (before.targets[hop], after.targets[hop], wanted, after.source)
        )
        earlier = {*content(before.targets[hop - 1], columns)[1]} if hop else set()
        for (number, _), contents in self.published.items():
            if number == hop - 1:
                earlier |= {
                    row for each in contents if each[0] == tuple(columns) for row in each[1]
                }
        invented = now - there - want - source - earlier
        hold(
            not invented,
            "a row from nowhere after a run that failed",
            f"hop {hop + 1}: {[*invented][:4]}",
        )
        lost = (there & want) - now
        hold(not lost, "a row lost by a run that failed", f"hop {hop + 1}: {[*lost][:4]}")

    def unexpected(self, rows: Iterable[Values]) -> bool:
        """Whether rows fail what is expected of them."""
        return self.expects and any((row["id"] or 0) < -1000 for row in rows)

    def damaged(self, hop: int, range_: Range, seen: Seen) -> bool:
        """Whether a target's range is known not to be what was put there."""
        place = hop, range_.name
        if place not in self.published:
            return True
        there = content(self.rows_of(range_, seen.targets[hop]), seen.copied(hop))
        if self.keeps:
            ours = {*content(self.rows_of(range_, seen.source), seen.copied(hop))[1]}
            return not ours <= {*there[1]} or len(there[1]) != len({row[0] for row in there[1]})
        return there not in self.published[place]

    def adopted(self, hop: int, range_: Range, seen: Seen) -> None:
        """Hold that a range is as its source, which is recorded now."""
        columns = seen.copied(hop)
        there, source = (
            content(self.rows_of(range_, rows), columns)
            for rows in (seen.targets[hop], seen.targets[hop - 1] if hop else seen.source)
        )
        same = {*source[1]} <= {*there[1]} if self.keeps else there == source
        hold(same, "adopted", f"hop {hop + 1} range {range_.name}: {different(there, source)}")
        whole = content(self.rows_of(range_, seen.source), columns)
        self.log[hop, range_.name] = Record({whole}, self.settings, digests=self.digests)
        self.published[hop, range_.name] = {whole}

    def uneven(self, seen: Seen) -> bool:
        """Whether rows are twice in a target, as those that change their range may be for a while,
        or are not as many as the source's."""
        return any(
            len(rows) != len({row["n"] for row in rows}) or len(rows) != len(seen.source)
            for rows in seen.targets
        )

    # --- checks ---------------------------------------------------------------------------------

    def verdict(self, hop: int, range_: Range, seen: Seen) -> str:
        """What a check has to say of a range: passed, failed, behind, or anything ("")."""
        record = self.log.get((hop, range_.name))
        columns = seen.copied(hop)
        before = seen.targets[hop - 1] if hop else seen.source
        there, source = (
            content(self.rows_of(range_, rows), columns) for rows in (seen.targets[hop], before)
        )
        lost = any(not {*seen.columns} <= {*there} for there in seen.target_columns)
        if self.altered or lost or (hop and columns != seen.copied(hop - 1)):
            return ""
        if self.keeps:
            numbers = [row[0] for row in there[1]]
            if len(numbers) != len({*numbers}):
                return "failed"
            return "passed" if {*source[1]} <= {*there[1]} else ""
        if there == source:
            return "passed"
        if record is None or not record.sure:
            return ""
        if there not in record.contents:
            return "failed"
        certain = len(record.contents) == 1 and not record.failed and record.digests
        return "behind" if certain and not hop else ""
