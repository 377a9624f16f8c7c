"""Reconciles committed ranges without moving data, and records the verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from assets.journey import ALL_CHECKS, Hop, Servers, known_ranges, levels_of, resolve_hops
from assets.kept import allowing_kept
from assets.ledger import EventLogger, Writer, committed
from assets.manifest import Transfer
from checks.drilldown import drill_down
from checks.expectations import CHECK_NAME as EXPECTATIONS
from checks.reconcile import reconcile_all
from checks.verdict import Level, Verdict
from resources.keyrange import KeyRange
from resources.plan import CopyPlan


@dataclass(frozen=True)
class Checked:
    """One verdict about one range of one hop, or about a whole target table."""

    hop: Hop
    range: str | None
    """None of a whole table."""
    verdict: Verdict
    warning: bool = False
    """A failure is no more than a hint, e.g. because ranges are not committed yet."""

    @property
    def failed(self) -> bool:
        return not self.verdict.passed and not self.warning


_collected: ContextVar[list[Checked] | None] = ContextVar("collected", default=None)


@contextmanager
def collecting() -> Iterator[list[Checked]]:
    """What is `collected` in this thread meanwhile, for whoever started the run in-process."""
    found: list[Checked] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def collected(found: Sequence[Checked]) -> None:
    """Tell these verdicts also to whoever started the run in-process."""
    if (listening := _collected.get()) is not None:
        listening += found


def verify(
    transfer: Transfer,
    servers: Servers,
    context: EventLogger,
    *,
    level: Level | None = None,
    names: Sequence[str] = (),
) -> list[Checked]:
    """Compare source and target of committed ranges now; a failed verdict makes the range suspect.

    The next run moves suspect ranges again. A range whose source changed since it was committed
    fails too: both sides do not agree, whatever the reason.

    Args:
        transfer: whose ranges.
        servers: where its tables are.
        context: of the run that reports the verdicts. (Dagster keeps but one verdict per check and
            range of all that is reported outside of runs.)
        level: how strict; the transfer's own levels when None.
        names: these ranges only; all committed ones when empty.

    Returns:
        The verdicts, in order of hops and ranges.
    """
    instance = context.instance
    hops = resolve_hops(transfer, servers)
    ranges = known_ranges(transfer, hops[0].plan.key.source, instance)
    found: list[Checked] = []
    for hop in hops:
        done = committed(instance, hop.asset, ALL_CHECKS)
        chosen = [
            key_range
            for key_range in ranges
            if key_range.name in done and (not names or key_range.name in names)
        ]
        if not chosen:
            continue
        writer = Writer(context, hop.asset, transfer)
        for one_level in (level,) if level else levels_of(transfer):
            verdicts = _verdicts(hop, servers, chosen, one_level)
            found += [Checked(hop, name, verdict) for name, verdict in verdicts.items()]
            # failed ones last: the check's page opens with the latest
            for name in sorted(verdicts, key=lambda name: not verdicts[name].passed):
                writer.checked(name, verdicts[name])
    collected(found)
    return found


def _verdicts(
    hop: Hop, servers: Servers, ranges: list[KeyRange], level: Level
) -> dict[str, Verdict]:
    source = servers.endpoint(hop.plan.source.system)
    target = servers.endpoint(hop.plan.target.system)
    found = reconcile_all(hop.plan, source, target, ranges, level)
    verdicts = {}
    for key_range in ranges:
        (verdict,) = allowing_kept(hop, servers, key_range, [found[key_range.name]])
        verdicts[key_range.name] = explained(hop.plan, servers, key_range, verdict)
    return verdicts


def explained(
    plan: CopyPlan,
    servers: Servers,
    key_range: KeyRange,
    verdict: Verdict,
    *,
    snapshot: str | None = None,
) -> Verdict:
    """A failed comparison with the rows that differ, where the check itself did not find them."""
    if verdict.passed or verdict.differences is not None or verdict.check == EXPECTATIONS:
        return verdict
    return replace(
        verdict,
        differences=drill_down(
            plan,
            servers.endpoint(plan.source.system),
            servers.endpoint(plan.target.system),
            key_range,
            snapshot=snapshot,
        ),
    )
