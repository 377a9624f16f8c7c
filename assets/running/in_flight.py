"""Decides which rows are digested while they stream, which saves reading a table."""

from __future__ import annotations

from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.checks.in_flight import StreamDigest
from tableferry.resources.contract.delimited import Framing
from tableferry.resources.digest.fields import relaxed_fields
from tableferry.resources.digest.placement import client_computes


def stream_digest_of(attempt: RangeAttempt, framing: Framing | None) -> StreamDigest | None:
    """Return the digest of an attempt's rows as they stream; None where that would save nothing.

    The level `in_flight` digests all rows so. The level `checksum` does so with rows that leave the
    table between two hops, if the client would otherwise read them again, and if the previous hop
    has not just proven the same digest of that table.
    """
    *_, level = attempt.work.levels
    hop, reading = attempt.hop, attempt.reading
    if attempt.proof is not None:
        return None
    in_the_middle = level == "checksum" and not hop.first
    if level != "in_flight" and not in_the_middle:
        return None
    plan = attempt.work.observed(hop, hop.written_plan.target)
    if in_the_middle and relaxed_fields(plan):
        return None  # the check compares the export's conversion of values with the server's
    stream_digest = StreamDigest(plan, attempt.source, attempt.target, hop.wire, framing)
    if reading.source_figures and reading.source_figures.digest == stream_digest.digest.id:
        return None
    if in_the_middle and not client_computes(attempt.source, stream_digest.digest.dialect):
        return None
    return stream_digest
