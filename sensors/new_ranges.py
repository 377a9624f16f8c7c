"""Finds keys beyond the known ranges, and adds and moves ranges for them."""

import dagster as dg

from assets.journey import Servers, apply_growth, find_growth
from assets.manifest import Transfer
from assets.runs import move_job_name, run_requests
from resources.clickhouse import ClickHouseResource
from resources.errors import TableferryError
from resources.postgres import PostgresResource
from resources.sqlserver import SqlServerResource


def new_ranges_sensor(transfer: Transfer) -> dg.SensorDefinition:
    """The sensor that keeps one transfer's partitions up with its source."""

    @dg.sensor(
        name=f"{transfer.transfer}_new_ranges",
        job_name=move_job_name(transfer.transfer),
        minimum_interval_seconds=60,
        description=f"Adds key ranges for new keys of {transfer.source}, and moves them.",
    )
    def new_ranges(
        context: dg.SensorEvaluationContext,
        postgres: PostgresResource,
        sqlserver: SqlServerResource,
        clickhouse: ClickHouseResource,
    ) -> list[dg.RunRequest] | dg.SkipReason:
        servers = Servers(postgres, sqlserver, clickhouse)
        try:
            growth = find_growth(transfer, servers, context.instance)
        except TableferryError as error:
            return dg.SkipReason(str(error))
        if not growth.add:
            return dg.SkipReason(f"no keys of {transfer.source} beyond the known ranges")
        apply_growth(transfer, growth, servers, context.instance)
        order = context.instance.get_dynamic_partitions(transfer.partitions_name)
        added = {key_range.name for key_range in growth.add}
        return run_requests(transfer, order, added, key="new")

    return new_ranges
