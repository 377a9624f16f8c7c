"""Records for the checks of a failed run what they found, and which ranges they did not compare."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.ledger import evaluations, verdicts
from tableferry.assets.log.writer import EventLogger, Writer
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS

if TYPE_CHECKING:
    import dagster as dg


def explain_unproven(
    context: EventLogger,
    transfer: Transfer,
    selected: Collection[dg.AssetCheckKey],
    ranges: Sequence[str],
    good: Mapping[dg.AssetKey, Collection[str]],
    problem: str,
) -> None:
    """Record an outcome of each check that a failed run had planned.

    Dagster shows a planned check without an outcome as failed. A check that found no fault becomes
    a warning: it has not seen all ranges.

    Args:
        context: the run's context.
        transfer: the run's transfer.
        selected: the planned checks.
        ranges: the run's partition keys.
        good: the ranges in each target.
        problem: why the run failed, in one line.
    """
    for hop in transfer.hops:
        asset = asset_key(hop.to)
        names = [key.name for key in selected if key.asset_key == asset]
        of_ranges = [name for name in names if name not in WHOLE_TABLE_CHECKS]
        writer = Writer(context, asset, transfer)
        found = verdicts(context.instance, asset, of_ranges)
        unseen = sum(name not in good.get(asset, ()) for name in ranges)
        for check in of_ranges:
            failed = sum(found.get(name, {}).get(check) is False for name in ranges)
            writer.summarised(
                check, ranges=len(ranges), failed=failed, unseen=unseen - failed, problem=problem
            )
        of_table = [name for name in names if name in WHOLE_TABLE_CHECKS]
        standing = evaluations(context.instance, asset, of_table).get(None, {})
        for check in of_table:
            writer.checked_no_table(check, standing.get(check), problem)
