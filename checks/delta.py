"""Finds the rows by which a range differs, and proves the range once they have been written."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.checks.reconcile import reconcile
from tableferry.checks.rowhash import (
    DIGEST,
    IDENTITY,
    Chunk,
    RowLayout,
    chunks_that_differ,
    summed,
)
from tableferry.checks.sides import BUCKETS, Comparison
from tableferry.checks.table_side import SIDES, TableSide
from tableferry.checks.verdict import Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.delta import Delta
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.fingerprint import Figures, KnownFigures
from tableferry.resources.contract.table_sql import predicate
from tableferry.resources.digest.definition import shown
from tableferry.resources.digest.fields import key_field
from tableferry.resources.digest.measure import DIGEST as DIGEST_SUM
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.keys import text as texts
from tableferry.resources.keys.cover import to_bound
from tableferry.resources.keys.range import Bound, KeyKind, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.words import counted

SHOWN_KEY = "c0"
"""The column of `Layout.columns` with the key."""

ROWS_PER_STATEMENT, KEYS_LENGTH = 500, 20_000
"""Maximum rows that a condition selects, and length of the keys that it lists: bcp takes its query
from the command line, of which Linux limits each argument to 128 KiB."""

NEAR = dt.timedelta(seconds=1)
"""How much further a range of times reaches than the times that it is to have."""


def shown_key(key: Field, value: bytes | None) -> str | None:
    """Return a key, as a server has sent it, in the form that people read."""
    return None if value is None else shown(key, value.decode(errors="backslashreplace"))


def conditions(side: TableSide, identity: str, kind: KeyKind, rows: pa.Table) -> Iterator[str]:
    """Write conditions in the SQL of a side that each select some of the rows of a range.

    Args:
        side: the table.
        identity: the SQL of its rows' identities.
        kind: the kind of the key.
        rows: the rows, with their `IDENTITY` and `SHOWN_KEY`.
    """
    for at in range(0, len(rows), ROWS_PER_STATEMENT):
        part = rows.slice(at, ROWS_PER_STATEMENT)
        bounds = _bounds(key_field(side.plan), kind, part[SHOWN_KEY].to_pylist())
        near = _near(side, bounds, kind)
        identities = ", ".join(map(str, part[IDENTITY].to_pylist()))
        exactly = f"{identity} IN ({identities})"
        yield f"({near}) AND {exactly}" if near else exactly


def _near(side: TableSide, bounds: Sequence[Bound], kind: KeyKind) -> str:
    """Write a condition on the key column that all of some keys meet, and few others."""
    column, system = side.key, side.table.system
    if not bounds:
        return ""
    if kind == "timestamp":
        # constants may have other digits than the column, or be rounded otherwise
        times = [bound for bound in bounds if isinstance(bound, dt.datetime)]
        with suppress(OverflowError):
            around = KeyRange(kind, min(times) - NEAR, max(times) + NEAR)
            return predicate(column, around, system)
        return ""
    listed = ", ".join(system.dialect.bound(bound, column) for bound in dict.fromkeys(bounds))
    return f"{system.quote(column.name)} IN ({listed})" if len(listed) <= KEYS_LENGTH else ""


def _bounds(field: Field, kind: KeyKind, keys: Sequence[bytes | None]) -> list[Bound]:
    """Read keys; return none if one of them cannot be written as a constant everywhere."""
    bounds = []
    for key in keys:
        try:
            bound = to_bound(shown_key(field, key), kind)
        except InputError:
            return []
        if isinstance(bound, str) and texts.problem(bound):
            return []
        bounds.append(bound)
    return bounds


ROWS_PER_BUCKET, MOST_BUCKETS = 32, 16_384
"""A bucket has about so many rows, so that few rows are read where few differ; but the figures of
all buckets are held in memory."""


class TooManyDiffer(TableferryError):
    """So many rows of a range differ that it is moved as a whole."""


class NotUnique(TableferryError):
    """Several rows of a side share a primary key, so that no row can be told by it."""


class StillDiffers(TableferryError):
    """The range would not agree with its source once its delta is written."""


@dataclass(kw_only=True)
class FoundDelta(Delta):
    """A delta that proves its range: by all of the rows, never by those that differ alone."""

    comparison: Comparison
    """Both sides, as they were when it was found."""
    staged: KnownFigures
    """The source's figures of the rows to insert or update."""
    source: KnownFigures
    """The source's figures of all rows of the range."""
    kept: tuple[int, int] = (0, 0)
    """The rows that only the target has and that stay: their number, and the sum of their
    digests."""
    proven: Verdict | None = None
    """The comparison of the whole range, once it has passed."""

    def require_staged(self, plan: CopyPlan) -> None:
        """Require the staging table of a plan to hold the rows that were compared.

        Raises:
            StillDiffers: it does not.
        """
        names = {column.target.name for column in self.comparison.plan.columns}
        columns = tuple(column for column in plan.columns if column.target.name in names)
        plan = replace(plan, columns=columns, figures=())
        verdict = self._compared(plan, self.staged, self.comparison.target)
        if not verdict.passed:
            raise StillDiffers(f"the staged rows are not those that differ: {verdict.summary()}")

    def prove(self, reader: Endpoint, table: TableRef) -> int:
        """Compare the whole range as a session sees it in a table; see `Delta.prove`.

        Raises:
            StillDiffers: it has other rows than the source's and those kept.
        """
        verdict = self._compared(replace(self.comparison.plan, target=table), self.source, reader)
        beyond = tuple(
            int(verdict.target[name]) - int(verdict.source[name]) for name in (ROWS, DIGEST_SUM)
        )
        if beyond != self.kept or not (verdict.passed or self.kept[0]):
            raise StillDiffers(f"with its changed rows written: {verdict.summary()}")
        self.proven = replace(verdict, passed=True, disagreeing=())
        return int(verdict.target[ROWS])

    def _compared(self, plan: CopyPlan, known: KnownFigures, target: Endpoint) -> Verdict:
        (key_range,) = self.comparison.ranges
        both = replace(self.comparison, plan=plan, known={key_range.name: known}, target=target)
        return reconcile(both, "checksum")


def delta_of(
    comparison: Comparison,
    *,
    rows: int,
    most: int,
    keeps: bool,
    parts: Sequence[KeyRange] = (),
    known: KnownFigures | None = None,
) -> FoundDelta:
    """Find the rows by which both sides of a range differ, in at most two scans of each.

    The first scan sums up the digests in buckets by the rows' identity; the second reads identities
    and digests, without values, of the buckets whose sums differ. Memory holds figures of buckets,
    a few batches, and the identities of at most `most` rows. Where the parts of the range that have
    changed are known, these alone are read: the proof of the range has to show that others agree.

    Args:
        comparison: both sides of the range, observed.
        rows: about how many rows the range has.
        most: maximum number of rows that may differ.
        keeps: whether rows stay that only the target has.
        parts: the parts of the range that have changed, if they are known.
        known: the source's figures of the whole range, without which all of it is read.

    Raises:
        TooManyDiffer: more rows differ.
        NotUnique: an identity that differs is not unique on a side.
    """
    definition = comparison.digests.row["source"].id
    if parts and known is not None and known.digest == definition:
        differing = _DifferingRows(comparison.plan, most, int(known.figures[ROWS]))
        # rows between the parts are not read, however many there are
        where = {
            side: " OR ".join(f"({table.rows_in([part])})" for part in parts)
            for side, table in comparison.sides.items()
        }
        _read(comparison, where, differing)
        return _delta(comparison, differing, known, keeps=keeps)
    number = min(MOST_BUCKETS, max(BUCKETS, rows // ROWS_PER_BUCKET))
    buckets = comparison.buckets(comparison.where, number)
    both = buckets.source, buckets.target
    differing = _DifferingRows(comparison.plan, most, max(_total(side, ROWS) for side in both))
    if buckets.unequal:
        # those of rows that stay may all be unequal
        differing.require_few(
            least_differing(len(buckets.unequal), number, differing.rows) if not keeps else 0
        )
        _read(comparison, buckets.rows_of_unequal(), differing)
    sums = _figures(_total(buckets.source, ROWS), _total(buckets.source, DIGEST_SUM))
    return _delta(comparison, differing, KnownFigures(definition, sums), keeps=keeps)


def _delta(
    comparison: Comparison, differing: _DifferingRows, known: KnownFigures, *, keeps: bool
) -> FoundDelta:
    """Put together the rows that were found, and how to select them.

    Args:
        comparison: both sides.
        differing: the rows that differ.
        known: the source's figures of the whole range.
        keeps: whether rows stay that only the target has.
    """
    (key_range,), identity = comparison.ranges, comparison.digests.identity
    inserted, updated, extra = differing.split()
    moved = pa.concat_tables([inserted, updated])
    deleted = extra.slice(0, 0) if keeps else extra
    in_target = comparison.plan.target_range(key_range)
    read, delete = (
        [*conditions(comparison.sides[side], identity[side], key_range.kind, rows)]
        for side, rows in zip(SIDES, (moved, deleted), strict=True)
    )
    return FoundDelta(
        comparison=comparison,
        inserted=len(inserted),
        updated=len(updated),
        deleted=len(deleted),
        read=tuple(read),
        delete=tuple(f"({in_target}) AND {condition}" for condition in delete),
        staged=KnownFigures(known.digest, _figures(len(moved), summed(moved[DIGEST]))),
        source=known,
        kept=(len(extra), summed(extra[DIGEST])) if keeps else (0, 0),
    )


def _figures(rows: int, digest: int) -> Figures:
    return {ROWS: rows, DIGEST_SUM: str(digest)}


def _total(figures: Mapping[int, Figures], name: str) -> int:
    return sum(int(group[name]) for group in figures.values())


def least_differing(unequal: int, buckets: int, rows: int) -> int:
    """Return how many rows differ at least, most probably, if so many buckets are unequal.

    Rows get into buckets by chance. So of n buckets, m rows leave n * exp(-m / n) untouched, with a
    standard deviation of less than a third of the square root of n. Fewer than `unequal` cannot
    differ.
    """
    untouched = buckets - unequal + 2 * math.isqrt(buckets)
    return max(unequal, min(rows, int(buckets * math.log(buckets / min(untouched, buckets)))))


def _read(comparison: Comparison, where: Mapping[Side, str], differing: _DifferingRows) -> None:
    """Read identities, digests and keys of both sides, and gather what differs."""
    key = key_field(comparison.plan)
    layout = RowLayout.of(replace(comparison.plan, primary_key=()), (key,))
    with comparison.rows(layout, where) as (source, target):
        for chunk in chunks_that_differ(layout, source, target):
            differing.add(chunk)


class _DifferingRows:
    """The rows that differ, chunk by chunk."""

    def __init__(self, plan: CopyPlan, most: int, rows: int) -> None:
        self._plan, self._most, self.rows = plan, most, rows
        self._inserted: list[pa.Table] = []
        self._updated: list[pa.Table] = []
        self._extra: list[pa.Table] = []
        self._number = 0

    def require_few(self, number: int) -> None:
        """Raise `TooManyDiffer` if this many rows are too many."""
        if number > self._most:
            raise TooManyDiffer(f"more than {self._most:,} of {counted(self.rows, 'row')} differ")

    def add(self, chunk: Chunk) -> None:
        """Add the rows of a chunk."""
        kinds = (
            (self._inserted, chunk.rows("missing_in_target", "source")),
            (self._updated, chunk.rows("different", "source")),
            (self._extra, chunk.rows("extra_in_target", "target")),
        )
        columns = [IDENTITY, DIGEST, SHOWN_KEY]
        differing = pa.concat_tables([rows.select([IDENTITY]) for _, rows in kinds])[IDENTITY]
        self._require_unique(chunk.source, differing, self._plan.source)
        self._require_unique(chunk.target, differing, self._plan.target)
        for listed, rows in kinds:
            if len(rows):
                listed.append(rows.select(columns))
                self._number += len(rows)
        self.require_few(self._number)

    def split(self) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Return the rows to insert, to update, and those that only the target has.

        A row whose key column is not part of its primary key may have another key on each side: it
        is one to update.
        """
        numbers = [(name, pa.int64()) for name in (IDENTITY, DIGEST)]
        schema = pa.schema([*numbers, (SHOWN_KEY, pa.large_binary())])
        inserted, updated, extra = (
            pa.concat_tables([schema.empty_table(), *tables])
            for tables in (self._inserted, self._updated, self._extra)
        )
        both = pc.is_in(inserted[IDENTITY], value_set=extra[IDENTITY].combine_chunks())
        updated = pa.concat_tables([updated, inserted.filter(both)])
        gone = pc.is_in(extra[IDENTITY], value_set=inserted[IDENTITY].combine_chunks())
        inserted, extra = inserted.filter(pc.invert(both)), extra.filter(pc.invert(gone))
        moved = pa.concat_tables([inserted, updated])
        self._require_unique(moved, moved[IDENTITY], self._plan.source)
        self._require_unique(extra, extra[IDENTITY], self._plan.target)
        return inserted, updated, extra

    def _require_unique(self, rows: pa.Table, differing: pa.ChunkedArray, table: TableRef) -> None:
        """Refuse identities that several rows share.

        Raises:
            NotUnique: names the key of one of them.
        """
        rows = rows.filter(pc.is_in(rows[IDENTITY], value_set=differing.combine_chunks()))
        if pc.count_distinct(rows[IDENTITY]).as_py() == len(rows):
            return
        counts = rows.group_by(IDENTITY).aggregate([([], "count_all")])
        repeated = counts.filter(pc.greater(counts["count_all"], 1))[IDENTITY][0]
        sharing, key = rows.filter(pc.equal(rows[IDENTITY], repeated)), key_field(self._plan)
        raise NotUnique(
            f"{table}: {len(sharing)} rows share a primary key "
            f"({', '.join(self._plan.primary_key)}): "
            f"{key.name} = {shown_key(key, sharing[SHOWN_KEY][0].as_py())}"
        )
