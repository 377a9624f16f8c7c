"""Asset checks of whole target tables, after the ranges of a run."""

from __future__ import annotations

import dagster as dg

from assets.evidence import conclusion, latest_materialization, verdict_metadata
from assets.journey import ALL_CHECKS, Servers, asset_key, known_ranges, resolve_hops
from assets.kept import keeps_rows
from assets.ledger import committed
from assets.manifest import Transfer
from checks.verdict import Verdict
from checks.whole_table import TOTAL_ROWS, WHOLE_TABLE_CHECKS, whole_table

DESCRIPTIONS = {
    "total_rows": "Both tables hold the same number of rows, whatever their keys are.",
    "unique_key": "No two rows of the target share the source's primary key.",
    "no_stray_rows": "Every row of the target belongs to one of the key ranges.",
    "schema": "The target has the planned columns, with types that hold every planned value.",
}


def whole_table_specs(transfer: Transfer) -> list[dg.AssetCheckSpec]:
    """The checks that no range alone can answer, for every hop of a transfer."""
    return [
        dg.AssetCheckSpec(name, asset=asset_key(hop.to.path), description=DESCRIPTIONS[name])
        for hop in transfer.hops
        for name in WHOLE_TABLE_CHECKS
    ]


def check_whole_tables(
    context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers
) -> None:
    """Record the selected checks of whole tables in the event log.

    They belong to the op that moves the ranges, which yields no outputs: Dagster would skip an op
    of their own, as one that waits for outputs. While ranges are not committed yet, a failure is
    only a warning: the table is incomplete.
    """
    hops = resolve_hops(transfer, servers)
    ranges = known_ranges(transfer, hops[0].plan.key.source, context.instance)
    for hop in hops:
        selected = {
            key.name for key in context.selected_asset_check_keys if key.asset_key == hop.asset
        }
        if not selected & set(WHOLE_TABLE_CHECKS):
            continue
        done = committed(context.instance, hop.asset, ALL_CHECKS)
        open_ranges = [one.name for one in ranges if one.name not in done]
        source = servers.endpoint(hop.plan.source.system)
        target = servers.endpoint(hop.plan.target.system)
        for verdict in whole_table(hop.plan, source, target, ranges) if done else ():
            if verdict.check not in selected:
                continue
            if not verdict.passed:
                context.log.error(f"{hop.plan.target}: {verdict.summary()}")
            # the ranges' own checks tell whether a row of the source is missing
            kept = keeps_rows(hop) and verdict.check == TOTAL_ROWS and _more_in_target(verdict)
            warning = open_ranges or kept or transfer.check_spec(verdict.check).severity == "warn"
            context.log_event(
                dg.AssetCheckEvaluation(
                    asset_key=hop.asset,
                    check_name=verdict.check,
                    passed=verdict.passed,
                    severity=dg.AssetCheckSeverity.WARN if warning else dg.AssetCheckSeverity.ERROR,
                    target_materialization_data=latest_materialization(context.instance, hop.asset),
                    description=conclusion(verdict),
                    metadata={
                        **verdict_metadata(verdict),
                        "ranges_not_committed": len(open_ranges),
                    },
                )
            )


def _more_in_target(verdict: Verdict) -> bool:
    return int(verdict.target["rows"]) > int(verdict.source["rows"])
