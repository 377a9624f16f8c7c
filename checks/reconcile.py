"""Compare the two sides of a hop over key ranges, at a level."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from tableferry.checks.checksum import Digests, both_sides, disagreeing, in_sample
from tableferry.checks.drilldown import rows_that_differ
from tableferry.checks.limits import with_limits
from tableferry.checks.rowhash import compare_rows
from tableferry.checks.verdict import CHECK_NAMES, Level, Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.fingerprint import Figures, KnownFigures
from tableferry.resources.digest.fields import fields, observed
from tableferry.resources.digest.measure import CHANGED, ROWS, Grouped, empty, measure
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.ranges.sql import MOST_RANGES

DIGESTED = ("in_flight", "checksum")
"""Levels that compare sums of digests."""

COMPARED = "compared with"
PROVEN = "the table between two hops, as the hop before proved it"
BOTH_TABLES = "the source table, as no rows streamed"

SAMPLE_ROWS = 1000
"""About as many rows of a range `sample_hash` reads: enough to see a fault of 0.7 % of all rows
with 99.9 % certainty."""


def reconcile(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    key_range: KeyRange,
    level: Level,
    *,
    snapshot: str | None = None,
    source_figures: KnownFigures | None = None,
    reader: Endpoint | None = None,
) -> Verdict:
    """Compare one key range.

    Args:
        plan: the hop.
        source: where `plan.source` is.
        target: where `plan.target` is.
        key_range: the rows to compare.
        level: how strictly; see docs/reconciliation.md for what each level sees.
        snapshot: of a PostgreSQL source, to compare with what was exported.
        source_figures: what is known of the source's rows already, so that `checksum` and `count`
            need not read them; for `in_flight`, of the rows as they streamed. Without it both
            tables are compared.
        reader: what alone sees the target's rows, if not all connections do; for no level that
            compares rows.

    Raises:
        TableferryError: a server cannot be asked. What differs is never an exception.
    """
    known = {key_range.name: source_figures} if source_figures else {}
    return reconcile_all(
        plan,
        source,
        target,
        [key_range],
        level,
        snapshot=snapshot,
        source_figures=known,
        reader=reader,
    )[key_range.name]


def reconcile_all(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    ranges: Sequence[KeyRange],
    level: Level,
    *,
    snapshot: str | None = None,
    source_figures: Mapping[str, KnownFigures] | None = None,
    reader: Endpoint | None = None,
) -> dict[str, Verdict]:
    """Compare many key ranges; `count` and `checksum` ask each side once for all of them.

    The arguments are those of `reconcile`; `source_figures` is by range name.

    Returns:
        Range name -> verdict. The seconds of one query for many ranges are those of all of them.
    """
    plan = observed(plan, target)
    if level in ("sample_hash", "full_hash"):
        return {
            key_range.name: _by_rows(plan, source, target, key_range, level, snapshot)
            for key_range in ranges
        }
    digests: Digests | None = None
    columns: tuple[Field, ...] = ()
    if level in DIGESTED:
        digests = _digests(plan, source, target, level)
        columns = figure_fields(plan)
    verdicts: dict[str, Verdict] = {}
    for start in range(0, len(ranges), MOST_RANGES):
        chunk = ranges[start : start + MOST_RANGES]
        began = time.monotonic()
        groups: dict[Side, Grouped] = {
            "source": Grouped.by_range(chunk, plan.key.source, plan.source.system, plan.where),
            "target": Grouped.by_range(chunk, plan.key.target, plan.target.system),
        }
        own = _known_by_number(digests, columns, chunk, source_figures)
        how = _how(chunk, source_figures) if own else BOTH_TABLES
        if own is not None:
            other = measure(
                reader or target,
                plan.target,
                "target",
                groups["target"],
                digest=digests.row["target"] if digests else None,
                figures=columns,
            )
        else:
            own, other = both_sides(
                plan,
                source,
                reader or target,
                groups,
                digests=digests,
                figures=columns,
                changed=digests.changed if digests else None,
                snapshot=snapshot,
            )
        seconds = time.monotonic() - began
        for number, key_range in enumerate(chunk):
            nothing = empty(digests is not None, columns)
            figures = {**own.get(number, nothing)}
            changed = figures.pop(CHANGED, {})
            verdict = _verdict(level, figures, other.get(number, nothing), seconds)
            verdict = with_limits(verdict, plan, level, changed)
            if level == "in_flight":
                verdict = replace(verdict, metadata={**verdict.metadata, COMPARED: how})
            named = _named(digests) if digests else None
            verdicts[key_range.name] = replace(verdict, ranges=len(chunk), digest=named)
    return verdicts


def target_digests(
    plan: CopyPlan, source: Endpoint, target: Endpoint, ranges: Sequence[KeyRange]
) -> dict[str, Verdict]:
    """Sum up the target's row digests, and compare them with nothing.

    Returns:
        Range name -> a verdict of `checksum` without the source's figures.
    """
    plan = observed(plan, target)
    digests = Digests.of(plan, source, target)
    found: dict[str, Verdict] = {}
    for start in range(0, len(ranges), MOST_RANGES):
        chunk = ranges[start : start + MOST_RANGES]
        began = time.monotonic()
        grouped = Grouped.by_range(chunk, plan.key.target, plan.target.system)
        digest = digests.row["target"]
        figures = measure(target, plan.target, "target", grouped, digest=digest)
        seconds = time.monotonic() - began
        for number, key_range in enumerate(chunk):
            verdict = Verdict(
                check=CHECK_NAMES["checksum"],
                passed=True,
                source={},
                target=figures.get(number, empty(True, ())),
                seconds=seconds,
                ranges=len(chunk),
                digest=_named(digests),
            )
            found[key_range.name] = with_limits(verdict, plan, "checksum", {})
    return found


def figure_fields(plan: CopyPlan) -> tuple[Field, ...]:
    """The columns of which a checksum also shows figures."""
    return tuple(field for field in fields(plan) if field.name in plan.figures)


def proven_figures(
    plan: CopyPlan, source: Endpoint, target: Endpoint, verdict: Verdict, level: Level
) -> KnownFigures:
    """What a check at a level of `DIGESTED` found out about the target's rows, for those who read
    them next."""
    digests = _digests(observed(plan, target), source, target, level)
    return KnownFigures(str(digests.row["target"]), verdict.target, PROVEN)


def _digests(plan: CopyPlan, source: Endpoint, target: Endpoint, level: Level) -> Digests:
    return Digests.of(plan, source, target, streamed=level == "in_flight")


def _named(digests: Digests) -> str:
    """The target's row digest, for `Verdict.digest`."""
    return blake2b(str(digests.row["target"]).encode(), digest_size=8).hexdigest()


def _how(ranges: Sequence[KeyRange], source_figures: Mapping[str, KnownFigures] | None) -> str:
    """What is known of the source's rows, and from where."""
    return (
        ", ".join(sorted({source_figures[one.name].how for one in ranges}))
        if source_figures
        else ""
    )


def _known_by_number(
    digests: Digests | None,
    columns: Sequence[Field],
    ranges: Sequence[KeyRange],
    source_figures: Mapping[str, KnownFigures] | None,
) -> dict[int, Figures] | None:
    """The source's figures, if all of them were computed by the digest that is wanted now."""
    names = {field.name for field in columns}
    wanted = str(digests.row["source"]) if digests else None
    found: dict[int, Figures] = {}
    for number, key_range in enumerate(ranges):
        one = source_figures.get(key_range.name) if source_figures else None
        if one is None or wanted not in (None, one.digest):
            return None
        if not names <= one.figures.keys():
            return None
        found[number] = {name: one.figures[name] for name in empty(digests is not None, columns)}
        if digests and digests.changed:
            found[number][CHANGED] = {name: one.changed.get(name, 0) for name in digests.changed}
    return found


def _by_rows(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    key_range: KeyRange,
    level: Level,
    snapshot: str | None,
) -> Verdict:
    began = time.monotonic()
    where: dict[Side, str] = {
        "source": plan.source_range(key_range),
        "target": plan.target_range(key_range),
    }
    digests = Digests.of(plan, source, target)
    own: Figures = {}
    other: Figures = {}
    if level == "sample_hash":
        groups: dict[Side, Grouped] = {side: Grouped("0", sql) for side, sql in where.items()}
        counts = both_sides(plan, source, target, groups, snapshot=snapshot)
        own[ROWS], other[ROWS] = (count.get(0, {ROWS: 0})[ROWS] for count in counts)
        one_in = max(1, own[ROWS] // SAMPLE_ROWS)
        for side, sql in where.items():
            where[side] = f"({sql}) AND {in_sample(plan, side, digests.identity[side], one_in)}"
        own["one_in"] = other["one_in"] = one_in
    compared = compare_rows(plan, source, target, digests, where, values=False, snapshot=snapshot)
    own["hashed"], other["hashed"] = compared.source_rows, compared.target_rows
    own.setdefault(ROWS, compared.source_rows)
    other.setdefault(ROWS, compared.target_rows)
    found = compared.differences
    if found.rows:
        shown = rows_that_differ(plan, source, target, digests, where, snapshot=snapshot)
        # a source that moves may have become equal meanwhile
        found = shown if shown.rows else found
    changed: Mapping[str, int] = {}
    if digests.changed:
        group = Grouped("0", where["source"])
        counted = measure(
            source, plan.source, "source", group, changed=digests.changed, snapshot=snapshot
        )
        changed = counted.get(0, {}).get(CHANGED, {})
    rows_differ = own[ROWS] != other[ROWS] or found.missing_in_target or found.extra_in_target
    verdict = Verdict(
        check=CHECK_NAMES[level],
        passed=not found.rows and own[ROWS] == other[ROWS],
        source=own,
        target=other,
        seconds=time.monotonic() - began,
        disagreeing=(*((ROWS,) if rows_differ else ()), *found.by_column),
        differences=found,
    )
    return with_limits(verdict, plan, level, changed)


def _verdict(level: Level, own: Figures, other: Figures, seconds: float) -> Verdict:
    differing = disagreeing(own, other)
    return Verdict(
        check=CHECK_NAMES[level],
        passed=not differing,
        source=own,
        target=other,
        seconds=seconds,
        disagreeing=differing,
    )
