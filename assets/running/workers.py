"""Takes the key ranges of a run through its hops, in parallel, and retries what is transient."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.states import State
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.decision import Action
from tableferry.assets.running.actions import act
from tableferry.assets.running.audit import CheckFailed
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.assets.running.work import RangeOutcome, Work
from tableferry.assets.verifying.as_committed import proven_figures
from tableferry.resources.connecting import guard, retry
from tableferry.resources.connecting.retry import is_transient, retrying
from tableferry.resources.contract.target import TargetMoved
from tableferry.resources.crash_points import reached
from tableferry.resources.errors import InputError, ValueRefused, describe

M_ARENA_MAX, ARENAS = -8, 2
"""Arguments of glibc's mallopt(3)."""

VALUES = "; `ferry plan {} --values` lists all such values, and what can be declared"
"""What to do about a value that does not fit, by the transfer's name."""


def run_ranges(work: Work, hops: tuple[Hop, ...]) -> list[RangeOutcome]:
    """Take every range of the plan through the hops, in parallel, and return all outcomes.

    A range that fails in a hop goes no further; the others continue.
    """

    _share_arenas()
    retry.forget_outages()

    def outcomes_of(name: str) -> list[RangeOutcome]:
        try:
            return through_hops(name)
        finally:
            work.ended.append(name)

    def through_hops(name: str) -> list[RangeOutcome]:
        outcomes: list[RangeOutcome] = []
        for hop in hops:
            if work.stop.is_set():
                break
            if work.plan.intent.adopt and work.plan.decision(hop, name).reason.needs_no_move:
                continue
            outcomes.append(_through(work, hop, name))
            if not outcomes[-1].good:
                break
            reached("between_hops")
        return outcomes

    with ThreadPoolExecutor(work.workers, thread_name_prefix="range") as pool:
        futures = [pool.submit(outcomes_of, name) for name in work.plan.ranges]
        try:
            return [outcome for future in futures for outcome in future.result()]
        except BaseException:
            work.stop.set()
            guard.stop_waiting()
            for future in futures:
                future.cancel()
            raise


def _share_arenas() -> None:
    """Let threads share few of malloc's arenas, as each keeps the memory of its largest batch."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)


def _through(work: Work, hop: Hop, name: str) -> RangeOutcome:
    """Take one range through one hop, and retry after transient errors."""
    attempts = 0
    tables = (hop.plan.source, hop.plan.target)
    addresses = {work.servers.endpoint(table).settings().address for table in tables}
    try:
        for again in retrying():
            with again:
                attempts += 1
                for address in addresses:
                    retry.require_reachable(address)
                try:
                    outcome = _attempt(work, hop, name, attempts)
                except TargetMoved:
                    work.refresh(hop, work.plan.ranges[name])
                    raise
                for address in addresses:
                    retry.note_reached(address)
                return outcome
        raise AssertionError("a retry loop ends with a result or an error")
    except Exception as error:
        rejected = error.rejected if isinstance(error, CheckFailed) else None
        problem = describe(error)
        remedy = VALUES.format(work.plan.transfer.transfer)
        failed = RangeRecord(
            range=name,
            state=State.FAILED,
            data_version=str(work.plan.version(hop, work.source.latest(name).fingerprint)),
            run_id=work.run_id,
            error=work.message(hop, name, problem)
            + (remedy if isinstance(error, ValueRefused) else ""),
            why=problem,
            attempts=attempts,
            rejected=rejected.name if rejected else None,
        )
        if not work.plan.intent.adopt:  # what is left is as it was
            work.writers[hop.number].progress(failed)
        work.tell(hop, name, "failed")
        return RangeOutcome(hop, failed, work.plan.decision(hop, name).reason)


def _attempt(work: Work, hop: Hop, name: str, number: int) -> RangeOutcome:
    """Do what was decided about a range, with what is read of its source now."""
    if refused := work.refused.get((hop.number, name)):
        raise InputError(refused)
    with work.source.turn(hop, partial(work.tell, hop, name)) as waited:
        return _in_turn(work, hop, name, number, waited)


def _in_turn(
    work: Work, hop: Hop, name: str, number: int, waited: dict[str, float]
) -> RangeOutcome:
    key_range = work.plan.ranges[name]
    decision, reading = work.plan.decision(hop, name), work.source.reading(hop, key_range)
    as_planned = reading.fingerprint == work.plan.fingerprints[name]
    if not hop.first and not (as_planned and decision.action is Action.SKIP):
        # asked before the rows are read
        before = work.recorded_before(hop, name)
        figures = proven_figures(before.target_digest) if before else None
        reading = replace(reading, before=before, source_figures=figures)
    attempt = RangeAttempt(
        work, hop, key_range, reading, decision, number, decision.proven, waited=waited
    )
    try:
        return act(attempt)
    except Exception as error:
        if not is_transient(error):
            # the source may have lost a column or rows, which a snapshot does not keep
            attempt.require_snapshot()
        raise
