"""Distinguishes a damaged target from a source that has changed since a range was committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, Self

from tableferry.assets.log.records import RangeRecord
from tableferry.assets.planning.resolve import Hop
from tableferry.checks.verdict import CHECK_NAMES, Verdict
from tableferry.resources.contract.fields import Side
from tableferry.resources.contract.target import keeps_rows
from tableferry.resources.digest.measure import DIGEST, ROWS

UNKNOWN = (
    "whether the source has changed or the target cannot be told, as the event log has no digest "
    "of these rows"
)


def target_digest_of(hop: Hop, verdicts: Iterable[Verdict]) -> str | None:
    """Return `RangeRecord.target_digest` of a range's verdicts.

    None for a target that keeps rows of its own: it has more than was audited.
    """
    if keeps_rows(hop.plan, hop.options):
        return None
    return next((str(found) for verdict in verdicts if (found := _digest(verdict))), None)


def changed_side(
    verdict: Verdict, record: RangeRecord | None, now: Verdict | None = None
) -> Side | None:
    """Return which side has changed since the range was committed.

    Args:
        verdict: a failed verdict about both sides as they are now.
        record: the range's newest commit.
        now: a verdict with the digest of the target's rows, if `verdict` has none.

    Returns:
        `target` also if both have changed; None if that cannot be determined.
    """
    if record is None or record.target_digest is None:
        return None
    if verdict.check == CHECK_NAMES["count"]:
        return "source" if verdict.target[ROWS] == record.rows else "target"
    same = _same(record.target_digest, _digest(now or verdict))
    return None if same is None else "source" if same else "target"


def source_is_newer(verdict: Verdict) -> Verdict:
    """Change a verdict to say that the target holds what was committed."""
    source, target = verdict.source.get(ROWS), verdict.target.get(ROWS)
    note = "the source has changed since; the target holds what was committed"
    if source != target:
        note = (
            f"the source has {source} rows now; the target holds the {target} rows that were "
            "committed"
        )
    return replace(verdict, source_newer=True, note=note)


def side_unknown(verdict: Verdict) -> Verdict:
    """Change a verdict to say that it is unknown which side has changed."""
    return replace(verdict, note=f"{verdict.conclusion()}; {UNKNOWN}", remarks=())


def as_committed(verdict: Verdict, record: RangeRecord) -> Verdict:
    """Compare a target, by a verdict with its digest, with its newest commit, not its source."""
    now = _digest(verdict)
    same = _same(record.target_digest, now)
    stored = _TargetDigest.read(record.target_digest)
    committed = {ROWS: stored.rows, DIGEST: stored.total} if stored else {}
    return replace(
        verdict,
        passed=bool(same),
        source=committed,
        disagreeing=() if same else tuple(committed),
        note=UNKNOWN if same is None else "",
        metadata={"compared with": "what was committed, by the event log"},
    )


class _TargetDigest(NamedTuple):
    """What `RangeRecord.target_digest` holds."""

    definition: str
    """Identifies the row digest, see `Verdict.digest`."""
    rows: int
    total: str
    """The sum of the row digests."""

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        if text is None:
            return None
        definition, rows, total = text.split(":")
        return cls(definition, int(rows), total)

    def __str__(self) -> str:
        return f"{self.definition}:{self.rows}:{self.total}"


def _digest(verdict: Verdict) -> _TargetDigest | None:
    if verdict.digest is None or DIGEST not in verdict.target:
        return None
    return _TargetDigest(verdict.digest, int(verdict.target[ROWS]), str(verdict.target[DIGEST]))


def _same(committed: str | None, now: _TargetDigest | None) -> bool | None:
    """Whether two digests are equal; None if they cannot be compared."""
    before = _TargetDigest.read(committed)
    if before is None or now is None or before.definition != now.definition:
        return None
    return before == now
