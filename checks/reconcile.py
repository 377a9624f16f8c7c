"""Compares the two sides of a hop over key ranges, at a level."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tableferry.checks.levels import CHECK_NAMES, LEVELS, Level
from tableferry.checks.sides import Comparison
from tableferry.checks.table_side import SIDES, Digests
from tableferry.checks.verdict import FILTERED, FINAL, Verdict, with_limits
from tableferry.resources.contract.fields import Field
from tableferry.resources.contract.fingerprint import Figures, Way
from tableferry.resources.digest.fields import fields
from tableferry.resources.digest.measure import CHANGED, DIGEST, ROWS, empty

SOURCE_DIGEST = "source_digest"
"""Metadata of a checksum: how the source's figures were found, a `Way`."""

ASKED: Way = "asked of the server"

SAMPLE_ROWS = 1000
"""About how many rows of a range `sample_hash` reads: enough to see a fault in 0.7 % of all rows
with 99.9 % certainty."""


def reconcile(comparison: Comparison, level: Level) -> Verdict:
    """Compare the only range of a comparison; see `reconcile_all`."""
    (verdict,) = reconcile_all(comparison, level).values()
    return verdict


def reconcile_all(comparison: Comparison, level: Level) -> dict[str, Verdict]:
    """Compare key ranges; the levels of counts and sums ask each side once for all of them.

    Args:
        comparison: both sides.
        level: how strictly; see docs/reconciliation.md for what each level sees.

    Returns:
        Range name -> verdict. Ranges compared by one query all have the seconds of that query.

    Raises:
        TableferryError: a server cannot be asked. Differences are never an exception.
    """
    both = comparison.observed
    if LEVELS[level].row_by_row:
        return {each.name: _by_rows(both.only(each), level) for each in both.ranges}
    verdicts: dict[str, Verdict] = {}
    compares = LEVELS[level].compares == "sums"
    for part in both.stretches(len(fields(both.plan)) if compares else 0):
        verdicts |= _by_sums(both.only(*part), level)
    return verdicts


def target_digests(comparison: Comparison) -> dict[str, Verdict]:
    """Sum up the target's row digests, and compare them with nothing.

    Returns:
        Range name -> a verdict of `checksum` without the source's figures.
    """
    both = comparison.observed
    digests, target = both.digests, both.sides["target"]
    verdicts: dict[str, Verdict] = {}
    for part in target.at_once(both.ranges):
        began = time.monotonic()
        figures = target.measure(target.by_range(part), digest=digests.row["target"])
        seconds = time.monotonic() - began
        for number, key_range in enumerate(part):
            verdict = Verdict(
                check=CHECK_NAMES["checksum"],
                passed=True,
                source={},
                target=figures.get(number, empty(True, ())),
                seconds=seconds,
                ranges=len(part),
                **_ids(digests),
            )
            verdicts[key_range.name] = with_limits(verdict, both.plan, "checksum", {})
    return verdicts


def row_count_of(checksum: Verdict) -> Verdict:
    """The verdict on the row count that a checksum contains."""
    kept = {
        name: checksum.metadata[name] for name in ("where", "final") if name in checksum.metadata
    }
    return Verdict.of_figure(
        CHECK_NAMES["count"],
        ROWS,
        checksum.source[ROWS],
        checksum.target[ROWS],
        seconds=checksum.seconds,
        ranges=checksum.ranges,
        metadata=kept,
        remarks=tuple(each for each in checksum.remarks if each.startswith((FILTERED, FINAL))),
    )


def _ids(digests: Digests | None) -> dict[str, Any]:
    """The fields of a verdict that identify the digests of both sides."""
    if digests is None:
        return {}
    return {"digest": digests.row["target"].id, "source_digest": digests.row["source"].id}


def _by_sums(both: Comparison, level: Level) -> dict[str, Verdict]:
    """Compare as many ranges as one query can distinguish, by their figures."""
    digests = both.digests if LEVELS[level].compares == "sums" else None
    columns = tuple(
        field for field in fields(both.plan) if digests and field.name in both.plan.figures
    )
    began = time.monotonic()
    groups = {side: both.sides[side].by_range(both.ranges) for side in SIDES}
    known = _known_by_number(digests, columns, both)
    if known is not None:
        row = digests.row["target"] if digests else None
        source_figures = known
        target_figures = both.sides["target"].measure(groups["target"], digest=row, figures=columns)
    else:
        changes = both.changed if digests else None
        source_figures, target_figures = both.measure(groups, digests, columns, changes)
    seconds = time.monotonic() - began
    ways = {} if known is None else {name: each.way for name, each in both.known.items()}
    nothing = empty(digests is not None, columns)
    verdicts: dict[str, Verdict] = {}
    for number, key_range in enumerate(both.ranges):
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
            ranges=len(both.ranges),
            metadata={SOURCE_DIGEST: ways.get(key_range.name, ASKED)} if digests else {},
            **_ids(digests),
        )
        verdicts[key_range.name] = with_limits(verdict, both.plan, level, changed)
    return verdicts


def _known_by_number(
    digests: Digests | None, columns: Sequence[Field], both: Comparison
) -> dict[int, Figures] | None:
    """The source's known figures, if there are all that are needed, by the digest in use now."""
    digest = digests.row["source"].id if digests else None
    names = empty(digests is not None, columns)
    by_number: dict[int, Figures] = {}
    for number, key_range in enumerate(both.ranges):
        source = both.known.get(key_range.name)
        if source is None or digest not in (None, source.digest):
            return None
        if any(field.name not in source.figures for field in columns):
            return None
        by_number[number] = {name: source.figures[name] for name in names}
        if digests:
            # figures of values that a policy has changed would have another digest
            by_number[number][CHANGED] = dict.fromkeys(both.changed, 0)
    return by_number


def _by_rows(both: Comparison, level: Level) -> Verdict:
    """Compare the rows of one range by their digests, those that differ by their values."""
    began = time.monotonic()
    where, digests, sampled = both.where, both.digests, LEVELS[level].compares == "sample"
    source_figures: Figures = {}
    target_figures: Figures = {}
    if sampled:
        groups = {side: both.sides[side].by_range(both.ranges) for side in SIDES}
        source_rows, target_rows = (
            counts.get(0, {ROWS: 0})[ROWS] for counts in both.measure(groups)
        )
        one_in = max(1, source_rows // SAMPLE_ROWS)
        where = {
            side: f"({where[side]}) AND "
            f"{both.sides[side].in_sample(digests.identity[side], one_in)}"
            for side in SIDES
        }
        source_figures = {ROWS: source_rows, "one_in": one_in}
        target_figures = {ROWS: target_rows, "one_in": one_in}
    changed: Mapping[str, int] = {}
    if changes := both.changed:
        changed = both.sides["source"].total(where["source"], changes).get(CHANGED, {})
    compared = both.compare_rows(where, values=False)
    source_figures["hashed"] = compared.source_rows
    target_figures["hashed"] = compared.target_rows
    if not sampled:
        source_figures[DIGEST] = str(compared.source_digest)
        target_figures[DIGEST] = str(compared.target_digest)
    rows = source_figures.setdefault(ROWS, compared.source_rows)
    equal_rows = target_figures.setdefault(ROWS, compared.target_rows) == rows
    differences = compared.differences
    unexplained: Exception | None = None
    if differences.rows:
        try:
            explained = both.rows_that_differ(where)
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
        **({} if sampled else _ids(digests)),
    )
    verdict = with_limits(verdict, both.plan, level, changed)
    return verdict.unexplained(unexplained) if unexplained else verdict
