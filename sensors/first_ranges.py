"""The sensor that cuts newly declared tables into ranges, so that the UI can materialize them."""

from collections.abc import Iterator, Mapping
from math import inf

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import about
from tableferry.assets.log.ranges import ranges_by_name
from tableferry.assets.log.records import NOT_COMMITTED
from tableferry.assets.planning.servers import Servers, resources_of
from tableferry.assets.planning.transfer_plan import extend_ranges
from tableferry.assets.running.source_slots import sharing
from tableferry.checks.whole_table import TOTAL_ROWS
from tableferry.resources.connecting.bounds import bounded
from tableferry.resources.errors import TableferryError
from tableferry.resources.words import counted
from tableferry.sensors.rounds import TickBudget, alone, in_turn


def first_ranges_sensor(
    transfers: Mapping[str, Transfer], name: str = "first_ranges", bound: Servers | None = None
) -> dg.SensorDefinition:
    """Build the sensor that creates each transfer's first partitions; it moves no rows.

    It runs by default: without partitions, Dagster's *Materialize* offers nothing. It queries only
    the sources of transfers that have none, in turn, beginning after the last one of the tick
    before.

    Args:
        transfers: all transfers of the code location, by name.
        name: the sensor's name.
        bound: the servers to use instead of Dagster resources.
    """

    @dg.sensor(
        name=name,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Cuts newly declared tables into key ranges. It moves no rows.",
        required_resource_keys=set().union(
            *(resources_of(transfer, bound) for transfer in transfers.values())
        ),
    )
    def first_ranges(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        instance = context.instance
        names = [transfer.partitions_name for transfer in transfers.values()]
        cut_already = ranges_by_name(instance, names)
        new = [
            name
            for name, transfer in transfers.items()
            if transfer.partitions_name not in cut_already
        ]
        last, budget = context.cursor or "", TickBudget(cpu=inf)
        cut: dict[str, int] = {}
        failed: dict[str, str] = {}
        unproven: list[dg.AssetCheckEvaluation] = []
        for name in in_turn(new, last):
            if budget.spent:
                break
            transfer, last = transfers[name], name
            try:
                servers = Servers.of(transfer, context.resources, bound, sharing(context.instance))
                with alone(name), bounded(budget.until):
                    plan = extend_ranges(transfer, servers, instance)
            except TableferryError as error:
                failed[name] = str(error)
                context.log.warning(about(name, str(error)))
            else:
                cut[name] = len(plan.ranges)
                unproven += _unproven(transfer, len(plan.ranges))
        parts = [f"{name} has {counted(ranges, 'key range')} now" for name, ranges in cut.items()]
        parts += [f"{name} cannot be cut yet: {error}" for name, error in failed.items()]
        reason = dg.SkipReason("; ".join(parts) or "all transfers have key ranges")
        return dg.SensorResult(skip_reason=reason, cursor=last, asset_events=unproven)

    return first_ranges


def _unproven(transfer: Transfer, ranges: int) -> Iterator[dg.AssetCheckEvaluation]:
    """Fail a check of each target with a warning: Dagster shows checks without verdict as good."""
    done = "moved" if transfer.write.moves else "compared"
    for hop in transfer.hops:
        yield dg.AssetCheckEvaluation(
            asset_key=asset_key(hop.to),
            check_name=TOTAL_ROWS,
            passed=False,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"not {done} yet: none of {ranges} key ranges is committed",
            metadata={NOT_COMMITTED: ranges},
        )
