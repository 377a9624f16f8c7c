"""Reconciles committed ranges without moving data, and records the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import dagster as dg

from assets.journey import Hop, Servers, known_ranges, levels_of, resolve_hops
from assets.ledger import Writer, committed
from assets.manifest import Transfer
from checks import CHECK_NAMES, Level, Verdict, drill_down, reconcile_all
from resources.keyrange import KeyRange


@dataclass(frozen=True)
class Checked:
    """One verdict about one range of one hop."""

    hop: Hop
    range: str
    verdict: Verdict


@dataclass(frozen=True)
class RunlessLogger:
    """Reports events outside of any run's own log."""

    instance: dg.DagsterInstance

    def log_event(
        self, event: dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
    ) -> None:
        """Store the event at once."""
        self.instance.report_runless_asset_event(event)


def verify(
    transfer: Transfer,
    servers: Servers,
    instance: dg.DagsterInstance,
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
        instance: whose event log says what is committed and gets the verdicts.
        level: how strict; the transfer's own levels when None.
        names: these ranges only; all committed ones when empty.

    Returns:
        The verdicts, in order of hops and ranges.
    """
    hops = resolve_hops(transfer, servers)
    ranges = known_ranges(transfer, hops[0].plan.key.source, instance)
    found: list[Checked] = []
    for hop in hops:
        done = committed(instance, hop.asset, list(CHECK_NAMES.values()))
        chosen = [
            key_range
            for key_range in ranges
            if key_range.name in done and (not names or key_range.name in names)
        ]
        if not chosen:
            continue
        writer = Writer(RunlessLogger(instance), hop.asset)
        for one_level in (level,) if level else levels_of(transfer):
            for name, verdict in _verdicts(hop, servers, chosen, one_level).items():
                writer.checked(name, verdict)
                found.append(Checked(hop, name, verdict))
    return found


def _verdicts(
    hop: Hop, servers: Servers, ranges: list[KeyRange], level: Level
) -> dict[str, Verdict]:
    source = servers.endpoint(hop.plan.source.system)
    target = servers.endpoint(hop.plan.target.system)
    found = reconcile_all(hop.plan, source, target, ranges, level)
    return {
        key_range.name: explained(hop, servers, key_range, found[key_range.name])
        for key_range in ranges
    }


def explained(
    hop: Hop,
    servers: Servers,
    key_range: KeyRange,
    verdict: Verdict,
    *,
    snapshot: str | None = None,
) -> Verdict:
    """A failed verdict with the rows that differ, where the check itself did not find them."""
    if verdict.passed or verdict.differences is not None:
        return verdict
    return replace(
        verdict,
        differences=drill_down(
            hop.plan,
            servers.endpoint(hop.plan.source.system),
            servers.endpoint(hop.plan.target.system),
            key_range,
            snapshot=snapshot,
        ),
    )
