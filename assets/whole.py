"""Asset checks of whole target tables, after the ranges of a run."""

from collections.abc import Iterator

import dagster as dg

from assets.evidence import verdict_metadata
from assets.journey import ALL_CHECKS, Servers, asset_key, known_ranges, resolve_hops
from assets.ledger import committed
from assets.manifest import Transfer
from checks import WHOLE_TABLE_CHECKS, whole_table
from resources.clickhouse import ClickHouseResource
from resources.postgres import PostgresResource
from resources.sqlserver import SqlServerResource

DESCRIPTIONS = {
    "total_rows": "Both tables hold the same number of rows, whatever their keys are.",
    "unique_key": "No two rows of the target share the source's primary key.",
    "no_stray_rows": "Every row of the target belongs to one of the key ranges.",
    "schema": "The target has the planned columns, with types that hold every planned value.",
}


def whole_table_checks(transfer: Transfer) -> dg.AssetChecksDefinition:
    """The checks that no range alone can answer, for every hop of a transfer.

    While ranges are not committed yet, a failure is only a warning: the table is incomplete.
    """
    specs = [
        dg.AssetCheckSpec(name, asset=asset_key(hop.to.path), description=DESCRIPTIONS[name])
        for hop in transfer.hops
        for name in WHOLE_TABLE_CHECKS
    ]

    @dg.multi_asset_check(name=f"{transfer.transfer}_whole_table", specs=specs, can_subset=True)
    def check_whole_tables(
        context: dg.AssetCheckExecutionContext,
        postgres: PostgresResource,
        sqlserver: SqlServerResource,
        clickhouse: ClickHouseResource,
    ) -> Iterator[dg.AssetCheckResult]:
        servers = Servers(postgres, sqlserver, clickhouse)
        hops = resolve_hops(transfer, servers)
        ranges = known_ranges(transfer, hops[0].plan.key.source, context.instance)
        for hop in hops:
            selected = {
                key.name for key in context.selected_asset_check_keys if key.asset_key == hop.asset
            }
            if not selected:
                continue
            done = committed(context.instance, hop.asset, ALL_CHECKS)
            open_ranges = [one.name for one in ranges if one.name not in done]
            source = servers.endpoint(hop.plan.source.system)
            target = servers.endpoint(hop.plan.target.system)
            for verdict in whole_table(hop.plan, source, target, ranges):
                if verdict.check not in selected:
                    continue
                yield dg.AssetCheckResult(
                    asset_key=hop.asset,
                    check_name=verdict.check,
                    passed=verdict.passed,
                    severity=dg.AssetCheckSeverity.WARN
                    if open_ranges or transfer.check_spec(verdict.check).severity == "warn"
                    else dg.AssetCheckSeverity.ERROR,
                    description=verdict.summary(),
                    metadata={
                        **verdict_metadata(verdict),
                        "ranges_not_committed": len(open_ranges),
                    },
                )

    return check_whole_tables
