"""Which rows are digested while they stream, so that their table need not be read for it."""

from __future__ import annotations

from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.checks.in_flight import Flight
from tableferry.resources.delimited import Framing
from tableferry.resources.digest.fields import relaxed_fields
from tableferry.resources.digest.placement import client_computes


def flight_of(attempt: RangeAttempt, framing: Framing | None) -> Flight | None:
    """What digests the rows of an attempt as they stream; None where nothing is saved by it.

    With `in_flight` all rows are digested so. With `checksum` only those are that come out of the
    table between two hops, if the client would have to read them again for their digest. Nothing is
    to be done where the hop before has just proven the same digest of that table.
    """
    *_, level = attempt.work.levels
    hop, reading = attempt.hop, attempt.reading
    in_the_middle = level == "checksum" and not hop.first
    if level != "in_flight" and not in_the_middle:
        return None
    plan = attempt.work.observed(hop, hop.written_plan.target)
    if in_the_middle and relaxed_fields(plan):
        # what the export makes of values is to be compared with what the source's server does
        return None
    flight = Flight(plan, attempt.source, attempt.target, hop.wire, framing)
    if reading.taken and reading.taken.digest == str(flight.digest):
        return None
    if in_the_middle and not client_computes(attempt.source, flight.digest.dialect):
        return None
    return flight
