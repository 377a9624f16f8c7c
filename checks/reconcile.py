"""Compare the two sides of a hop over key ranges, at a level."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tableferry.checks.checksum import Digests, both_sides, in_sample
from tableferry.checks.drilldown import rows_that_differ
from tableferry.checks.limits import with_limits
from tableferry.checks.row_tally import compare_rows
from tableferry.checks.verdict import CHECK_NAMES, Level, Verdict
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.fingerprint import Figures, KnownFigures
from tableferry.resources.contract.table_sql import MOST_RANGES
from tableferry.resources.digest.fields import fields, observed
from tableferry.resources.digest.measure import CHANGED, DIGEST, ROWS, Grouped, empty, measure
from tableferry.resources.keys.range import KeyRange

DIGESTED = ("in_flight", "checksum")
"""The levels that compare sums of digests."""

COMPARED = "compared with"
PROVEN = "the table between two hops, as the hop before proved it"
BOTH_TABLES = "the source table, as no rows streamed"

SAMPLE_ROWS = 1000
"""About how many rows of a range `sample_hash` reads: enough to see a fault in 0.7 % of all rows
with 99.9 % certainty."""


def reconcile(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    key_range: KeyRange,
    level: Level,
    *,
    snapshot: str | None = None,
    known: KnownFigures | None = None,
    reader: Endpoint | None = None,
) -> Verdict:
    """Compare one key range.

    Args:
        plan: the hop.
        source: the server of `plan.source`.
        target: the server of `plan.target`.
        key_range: the rows to compare.
        level: how strictly; see docs/reconciliation.md for what each level sees.
        snapshot: the snapshot that a PostgreSQL source was exported under.
        known: the source's figures, so that `checksum` and `count` need not read its rows; for
            `in_flight`, the figures of the rows as they streamed. Without them both tables are
            compared.
        reader: the only connection that sees the target's rows, if others do not; not for levels
            that compare rows.

    Raises:
        TableferryError: a server cannot be asked. Differences are never an exception.
    """
    known_by_name = {key_range.name: known} if known else {}
    return reconcile_all(
        plan,
        source,
        target,
        [key_range],
        level,
        snapshot=snapshot,
        known=known_by_name,
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
    known: Mapping[str, KnownFigures] | None = None,
    reader: Endpoint | None = None,
) -> dict[str, Verdict]:
    """Compare many key ranges; `count` and `checksum` ask each side once for all of them.

    The arguments are those of `reconcile`; `known` is by range name.

    Returns:
        Range name -> verdict. Ranges compared by one query all have the seconds of that query.
    """
    plan, known = observed(plan, target), known or {}
    if level in ("sample_hash", "full_hash"):
        return {
            key_range.name: _by_rows(plan, source, target, key_range, level, snapshot)
            for key_range in ranges
        }
    digests: Digests | None = None
    columns: tuple[Field, ...] = ()
    if level in DIGESTED:
        digests = _digests(plan, source, target, level)
        columns = tuple(field for field in fields(plan) if field.name in plan.figures)
    verdicts: dict[str, Verdict] = {}
    for start in range(0, len(ranges), MOST_RANGES):
        chunk = ranges[start : start + MOST_RANGES]
        began = time.monotonic()
        groups: dict[Side, Grouped] = {
            "source": Grouped.by_range(chunk, plan.key.source, plan.source.system, plan.condition),
            "target": Grouped.by_range(
                chunk, plan.key.target, plan.target.system, plan.target_where
            ),
        }
        source_figures = _known_by_number(digests, columns, chunk, known)
        compared_with = BOTH_TABLES
        if source_figures is not None:
            compared_with = ", ".join(sorted({known[key_range.name].how for key_range in chunk}))
            target_figures = measure(
                reader or target,
                plan.target,
                "target",
                groups["target"],
                digest=digests.row["target"] if digests else None,
                figures=columns,
            )
        else:
            source_figures, target_figures = both_sides(
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
            expected = {**source_figures.get(number, nothing)}
            changed = expected.pop(CHANGED, {})
            actual = target_figures.get(number, nothing)
            differing = tuple(name for name in expected if expected[name] != actual.get(name))
            verdict = Verdict(
                check=CHECK_NAMES[level],
                passed=not differing,
                source=expected,
                target=actual,
                seconds=seconds,
                disagreeing=differing,
                metadata={COMPARED: compared_with} if level == "in_flight" else {},
                ranges=len(chunk),
                **_ids(digests),
            )
            verdicts[key_range.name] = with_limits(verdict, plan, level, changed)
    return verdicts


def target_digests(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    ranges: Sequence[KeyRange],
    level: Level = "checksum",
) -> dict[str, Verdict]:
    """Sum up the target's row digests as a level does, and compare them with nothing.

    Returns:
        Range name -> a verdict of `checksum` without the source's figures.
    """
    plan = observed(plan, target)
    digests = _digests(plan, source, target, level)
    verdicts: dict[str, Verdict] = {}
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
                **_ids(digests),
            )
            verdicts[key_range.name] = with_limits(verdict, plan, "checksum", {})
    return verdicts


def _digests(plan: CopyPlan, source: Endpoint, target: Endpoint, level: Level) -> Digests:
    return Digests.of(plan, source, target, streamed=level == "in_flight")


def _ids(digests: Digests | None) -> dict[str, Any]:
    """The fields of a verdict that identify the digests of both sides."""
    if digests is None:
        return {}
    return {"digest": digests.row["target"].id, "source_digest": digests.row["source"].id}


def _known_by_number(
    digests: Digests | None,
    columns: Sequence[Field],
    ranges: Sequence[KeyRange],
    known: Mapping[str, KnownFigures],
) -> dict[int, Figures] | None:
    """The source's known figures, if there are all that are needed, by the digest in use now."""
    digest = digests.row["source"].id if digests else None
    names = empty(digests is not None, columns)
    by_number: dict[int, Figures] = {}
    for number, key_range in enumerate(ranges):
        source = known.get(key_range.name)
        if source is None or digest not in (None, source.digest):
            return None
        if any(field.name not in source.figures for field in columns):
            return None
        by_number[number] = {name: source.figures[name] for name in names}
        if digests and digests.changed:
            changed = {name: source.changed.get(name, 0) for name in digests.changed}
            by_number[number][CHANGED] = changed
    return by_number


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
    source_figures: Figures = {}
    target_figures: Figures = {}
    if level == "sample_hash":
        groups: dict[Side, Grouped] = {side: Grouped("0", sql) for side, sql in where.items()}
        counts = both_sides(plan, source, target, groups, snapshot=snapshot)
        source_rows, target_rows = (count.get(0, {ROWS: 0})[ROWS] for count in counts)
        one_in = max(1, source_rows // SAMPLE_ROWS)
        for side, sql in where.items():
            where[side] = f"({sql}) AND {in_sample(plan, side, digests.identity[side], one_in)}"
        source_figures = {ROWS: source_rows, "one_in": one_in}
        target_figures = {ROWS: target_rows, "one_in": one_in}
    changed: Mapping[str, int] = {}
    if digests.changed:
        group = Grouped("0", where["source"])
        counted = measure(
            source, plan.source, "source", group, changed=digests.changed, snapshot=snapshot
        )
        changed = counted.get(0, {}).get(CHANGED, {})
    compared = compare_rows(plan, source, target, digests, where, values=False, snapshot=snapshot)
    source_figures["hashed"] = compared.source_rows
    target_figures["hashed"] = compared.target_rows
    if level == "full_hash":
        source_figures[DIGEST] = str(compared.source_digest)
        target_figures[DIGEST] = str(compared.target_digest)
    rows = source_figures.setdefault(ROWS, compared.source_rows)
    equal_rows = target_figures.setdefault(ROWS, compared.target_rows) == rows
    differences = compared.differences
    unexplained: Exception | None = None
    if differences.rows:
        try:
            explained = rows_that_differ(plan, source, target, digests, where, snapshot=snapshot)
        except Exception as error:
            explained, unexplained = differences, error
        # a source that is written to may have become equal meanwhile
        differences = explained if explained.rows else differences
    one_sided = differences.missing_in_target or differences.extra_in_target
    rows_differ = not equal_rows or one_sided
    verdict = Verdict(
        check=CHECK_NAMES[level],
        passed=not differences.rows and equal_rows,
        source=source_figures,
        target=target_figures,
        seconds=time.monotonic() - began,
        disagreeing=(*((ROWS,) if rows_differ else ()), *differences.by_column),
        differences=differences,
        **(_ids(digests) if level == "full_hash" else {}),
    )
    verdict = with_limits(verdict, plan, level, changed)
    return verdict.unexplained(unexplained) if unexplained else verdict
