"""The sensors that cut new tables into ranges, add ranges for new keys, and have them moved."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from time import time

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import ASSET_JOB, about
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.attention import with_empty_range, with_untouched_ranges
from tableferry.assets.log.ledger import records
from tableferry.assets.log.ranges import ranges_by_name
from tableferry.assets.log.records import NOT_COMMITTED
from tableferry.assets.planning.ranges.growing import has_more_rows, not_growing
from tableferry.assets.planning.servers import Servers, resources_of
from tableferry.assets.planning.transfer_plan import TransferPlan, extend_ranges
from tableferry.assets.running.runs import run_requests, run_under_way, runs_under_way
from tableferry.assets.running.source_slots import sharing
from tableferry.checks.whole_table import TOTAL_ROWS
from tableferry.resources.connecting.waiting import bounded
from tableferry.resources.errors import TableferryError
from tableferry.resources.keys.range import WHOLE_NAME
from tableferry.resources.words import counted
from tableferry.sensors import rounds
from tableferry.sensors.rounds import TickBudget, alone, in_turn


def new_ranges_sensor(
    transfers: Mapping[str, Transfer], name: str = "new_ranges", bound: Servers | None = None
) -> dg.SensorDefinition:
    """Build the sensor that adds partitions as the sources of transfers grow.

    A requested range that no run has recorded is retried as failed ranges are: its run ended
    before it got there.

    Args:
        transfers: the transfers of the code location, by name.
        name: the sensor's name.
        bound: the servers to use instead of Dagster resources.
    """
    watched = {
        name: transfer
        for name, transfer in transfers.items()
        if transfer.new_ranges and transfer.write.moves
    }

    @dg.sensor(
        name=name,
        job_name=ASSET_JOB,
        minimum_interval_seconds=rounds.INTERVAL_SECONDS,
        description="Adds key ranges for new keys of the sources, and moves them.",
        required_resource_keys=set().union(
            *(resources_of(transfer, bound) for transfer in watched.values())
        ),
    )
    def new_ranges(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        moving = runs_under_way(context.instance)

        def look(transfer: Transfer, tries: Mapping[str, rounds.Tries]) -> rounds.Look:
            servers = Servers.of(transfer, context.resources, bound, sharing(context.instance))
            with rounds.alone(transfer.transfer):
                return _look(context, transfer, servers, tries, moving)

        def survey(batch: Sequence[Transfer]) -> dict[str, rounds.Look | TableferryError]:
            servers = {
                transfer.transfer: Servers.of(
                    transfer, context.resources, bound, sharing(context.instance)
                )
                for transfer in batch
            }
            return _settled(context.instance, batch, servers)

        return rounds.look_round(context, watched, look, survey)

    return new_ranges


def _settled(
    instance: dg.DagsterInstance, transfers: Sequence[Transfer], servers: Mapping[str, Servers]
) -> dict[str, rounds.Look | TableferryError]:
    """Find the transfers without new keys of which runs have recorded all ranges."""
    by_partitions = ranges_by_name(instance, [transfer.partitions_name for transfer in transfers])
    ranges = {
        transfer.transfer: by_partitions.get(transfer.partitions_name, ()) for transfer in transfers
    }
    untouched = with_untouched_ranges(instance, transfers)
    complete = [transfer for transfer in transfers if transfer.transfer not in untouched]
    whole = [transfer for transfer in complete if WHOLE_NAME in ranges[transfer.transfer]]
    settled = not_growing(complete, servers, ranges, with_empty_range(instance, whole))
    return {
        transfer.transfer: settled[transfer.transfer] or rounds.Look(_no_keys(transfer))
        for transfer in complete
        if transfer.transfer in settled
    }


def _no_keys(transfer: Transfer) -> str:
    return f"no keys of {transfer.source} beyond the known ranges"


def _look(
    context: dg.SensorEvaluationContext,
    transfer: Transfer,
    servers: Servers,
    earlier: Mapping[str, rounds.Tries],
    moving: Mapping[dg.AssetKey | None, str],
) -> rounds.Look:
    """Add the ranges of a transfer's new keys, and find those that no run has recorded."""
    if running := run_under_way(transfer, moving):
        return rounds.Look(
            f"run {running} is under way; new ranges wait for its end", tries=earlier
        )
    plan = extend_ranges(transfer, servers, context.instance)
    order = context.instance.get_dynamic_partitions(transfer.partitions_name)
    # the daemon may have died between adding ranges and starting their run
    missing = {range_.name for range_ in plan.growth.add} | _untouched(transfer, context, order)
    if emptied := _filled(plan, servers, context.instance, order):
        missing.add(WHOLE_NAME)
    now = time()
    never = dict.fromkeys(missing, 0.0)
    tries, due = rounds.due_retries(context, transfer, never, earlier, now)
    if not due:
        reason = _no_keys(transfer)
        given_up = [name for name in tries if tries[name].reported]
        if waiting := len(tries) - len(given_up):
            reason += f"; {waiting} ranges wait for a retry"
        return rounds.Look(reason + rounds.given_up_reason(given_up), tries=tries)
    occasion = f"{transfer.transfer}:new{f':{emptied}' if emptied else ''}"
    requests = [
        request
        for count in sorted({tries[name].count for name in due})
        # a repeated tick requests the same runs; a further retry requests new ones
        for request in run_requests(
            transfer,
            order,
            {name for name in due if tries[name].count == count},
            key=f"{occasion}{f':{count}' if count else ''}",
        )
    ]
    tries |= {name: rounds.Tries(tries[name].count + 1, now) for name in due}
    return rounds.Look(requests=requests, tries=tries)


def _filled(
    plan: TransferPlan, servers: Servers, instance: dg.DagsterInstance, order: Sequence[str]
) -> str:
    """Return the run that found a table's only range empty, if it has rows now; else ''.

    Of a failed attempt since then, `failed_ranges` takes care.
    """
    transfer, first = plan.transfer, plan.hops[0]
    if WHOLE_NAME not in order:
        return ""
    record = records(instance, asset_key(first.spec.to), [WHOLE_NAME]).get(WHOLE_NAME)
    if record is None or record.rows != 0 or record.quarantined or not record.state.in_target:
        return ""
    filled = has_more_rows(transfer, first.plan.key.source, servers, 0)
    return (record.run_id or "") if filled else ""


def _untouched(
    transfer: Transfer, context: dg.SensorEvaluationContext, order: Sequence[str]
) -> set[str]:
    """Find the ranges without any record in the first hop, or in a later hop that has begun."""
    untouched: set[str] = set()
    for index, hop in enumerate(transfer.hops):
        touched = records(context.instance, asset_key(hop.to), order)
        if touched or index == 0:
            untouched |= set(order) - set(touched)
    return untouched


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
