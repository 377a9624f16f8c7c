"""Distinguishes a damaged target from a source that has changed since a range was committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tableferry.assets.log.records import RangeRecord
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.checks.levels import CHECK_NAMES
from tableferry.checks.reconcile import target_digests
from tableferry.checks.verdict import Verdict
from tableferry.resources.contract.fields import Side
from tableferry.resources.contract.fingerprint import KnownFigures
from tableferry.resources.digest.measure import DIGEST, ROWS
from tableferry.resources.keys.range import KeyRange

UNKNOWN = (
    "whether the source has changed or the target cannot be told, as the event log has no digest "
    "of these rows"
)

BY_THE_LOG = {"compared with": "what was committed, by the event log"}
"""The metadata of verdicts that compare a target with its commits."""


def with_digest(record: RangeRecord, hop: Hop, verdicts: Sequence[Verdict]) -> RangeRecord:
    """Record the target's digest of a range's verdicts, if they have one.

    A target that keeps rows of its own has more than was audited.
    """
    digest = next(filter(None, (digest_of(verdict, "target") for verdict in verdicts)), None)
    if digest is None:
        return record
    if hop.options.keeps_rows(hop.plan):
        return replace(record, left_digest=digest)
    return replace(record, target_digest=digest)


def proven_figures(target_digest: str | None) -> KnownFigures | None:
    """Return the figures in a `RangeRecord.target_digest`, for the hop that reads the rows next."""
    if target_digest is None:
        return None
    definition, rows, total = target_digest.split(":")
    figures = {ROWS: int(rows), DIGEST: total}
    return KnownFigures(definition, figures, "recorded by the hop before")


def digest_text(figures: KnownFigures) -> str:
    """Write a digest's definition, the rows and their sum as `RangeRecord.target_digest` is."""
    return f"{figures.digest}:{figures.figures[ROWS]}:{figures.figures[DIGEST]}"


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
    if record is None or not (record.target_digest or record.left_digest):
        return None
    same: bool | None = verdict.target.get(ROWS) == record.rows
    if verdict.check != CHECK_NAMES["count"]:
        committed = record.target_digest or record.left_digest
        same = _same(committed, digest_of(now or verdict, "target"))
    if same:
        return "source"
    # others than these may be rows that the target keeps
    return "target" if same is False and record.target_digest else None


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


def explained(verdict: Verdict, why: str) -> Verdict:
    """Add to a failed verdict what is known of the sides, or that nothing is."""
    return replace(verdict, note=f"{verdict.conclusion()}; {why}", remarks=())


def compared_with_commit(
    hop: Hop,
    servers: Servers,
    ranges: Sequence[KeyRange],
    records: Mapping[str, RangeRecord],
) -> dict[str, Verdict]:
    """Compare what a hop's target has now with what was committed, by range.

    Args:
        hop: the hop.
        servers: the servers of its tables.
        ranges: the ranges.
        records: the newest commit of each.
    """
    now = target_digests(servers.comparison(hop.found_plan, ranges))
    return {name: as_committed(verdict, records[name]) for name, verdict in now.items()}


def changed_since(
    hop: Hop,
    servers: Servers,
    ranges: Sequence[KeyRange],
    records: Mapping[str, RangeRecord],
) -> dict[str, Verdict]:
    """Return the verdicts of ranges in which a hop's target has other rows than were committed.

    Ranges without a digest in the log are held against their number of rows. The arguments are
    those of `compared_with_commit`.
    """
    digested: list[KeyRange] = []
    counted: list[KeyRange] = []
    for key_range in ranges:
        if record := records.get(key_range.name):
            (digested if record.target_digest else counted).append(key_range)
    verdicts: dict[str, Verdict] = {}
    if digested:
        verdicts |= compared_with_commit(hop, servers, digested, records)
    if counted:
        verdicts |= _counted_since(hop, servers, counted, records)
    return {
        name: verdict
        for name, verdict in verdicts.items()
        if not verdict.passed and verdict.note != UNKNOWN
    }


def may_be_as_committed(hop: Hop, record: RangeRecord, rows: int) -> bool:
    """Whether a range of a hop's target may still have what was committed, by its row count.

    A target that keeps rows of its own has at least those that were committed.
    """
    if record.rows is None:
        return True
    return rows == record.rows or (rows > record.rows and hop.options.keeps_rows(hop.plan))


def _counted_since(
    hop: Hop, servers: Servers, ranges: Sequence[KeyRange], records: Mapping[str, RangeRecord]
) -> dict[str, Verdict]:
    verdicts = {}
    for name, rows in servers.side(hop.found_plan, "target").counts(ranges).items():
        record = records[name]
        if record.rows is None:
            continue
        verdict = Verdict.of_figure(
            CHECK_NAMES["count"], ROWS, record.rows, rows, seconds=0.0, metadata=BY_THE_LOG
        )
        verdicts[name] = replace(verdict, passed=may_be_as_committed(hop, record, rows))
    return verdicts


def as_committed(verdict: Verdict, record: RangeRecord) -> Verdict:
    """Compare a target, by a verdict with its digest, with its newest commit, not its source."""
    same = _same(record.target_digest, digest_of(verdict, "target"))
    stored = proven_figures(record.target_digest)
    committed = stored.figures if stored else {}
    return replace(
        verdict,
        passed=bool(same),
        source=committed,
        disagreeing=() if same else tuple(committed),
        note=UNKNOWN if same is None else "",
        metadata=BY_THE_LOG,
    )


def digest_of(verdict: Verdict, side: Side) -> str | None:
    """Return the digest of one side of a verdict, as `RangeRecord.target_digest` has it."""
    figures = verdict.target if side == "target" else verdict.source
    definition = verdict.digest if side == "target" else verdict.source_digest
    if definition is None or DIGEST not in figures:
        return None
    return digest_text(KnownFigures(definition, figures))


def _same(committed: str | None, now: str | None) -> bool | None:
    """Whether two digests are equal; None if they cannot be compared."""
    if committed is None or now is None:
        return None
    definitions = (text.partition(":")[0] for text in (committed, now))
    return committed == now if len({*definitions}) == 1 else None
