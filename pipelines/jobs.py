"""The two jobs of a transfer: one moves its ranges, the other only checks them."""

from typing import Any

import dagster as dg

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import check_job_name, compare_op_name, move_job_name
from tableferry.assets.planning.resolve import Servers, resolve_hops, resources_of
from tableferry.assets.running.caller import Caller
from tableferry.assets.verifying.on_demand import closing_line, not_committed, verify
from tableferry.assets.verifying.whole_tables import check_whole_tables
from tableferry.checks.verdict import LEVELS
from tableferry.resources.errors import TableferryError


def move_job(transfer: Transfer, assets: dg.AssetsDefinition) -> Any:
    """Build the job that materializes all hops of a transfer, with their checks.

    Its type, an asset job that is not resolved yet, is private to Dagster.
    """
    return dg.define_asset_job(
        move_job_name(transfer.transfer),
        selection=dg.AssetSelection.assets(assets),
        description=f"Move {transfer.source} by ranges of {transfer.key} through all hops.",
        tags={"tableferry/transfer": transfer.transfer},
        executor_def=dg.in_process_executor,
    )


class CheckConfig(dg.Config):
    """What a check-only run compares."""

    level: str | None = None
    """One of count, checksum, sample_hash, full_hash; by default as the transfer declares."""
    ranges: list[str] = []  # noqa: RUF012  Dagster's config classes are pydantic models
    """Partition keys; if empty, all committed ranges, and the tables as a whole."""
    as_of_last_run: bool = False
    """Compare the targets with the recorded digests, without reading the source."""
    up_to_date: bool = False
    """Also fail where the source is newer than the last move."""


def check_job(
    transfer: Transfer, caller: Caller | None = None, bound: Servers | None = None
) -> dg.JobDefinition:
    """Build the job that reconciles the committed ranges of a transfer without moving data.

    The caller, if it is in this process, receives the verdicts; `bound` are servers to use instead
    of Dagster resources.
    """
    name = check_job_name(transfer.transfer)

    @dg.op(
        name=compare_op_name(transfer.transfer),
        description="Compare source and target of every committed range.",
        # concurrent with a move, a check would see some rows before it and some after
        pool=transfer.transfer,
        required_resource_keys=resources_of(transfer, bound),
    )
    def compare(context: dg.OpExecutionContext, config: CheckConfig) -> dict[str, int]:
        level = next((name for name in LEVELS if name == config.level), None)
        if config.level is not None and level is None:
            raise dg.Failure(f"level {config.level!r} should be one of {', '.join(LEVELS)}")
        servers = Servers.of(transfer, context.resources, bound)
        try:
            hops = (caller.hops if caller else None) or resolve_hops(transfer, servers)
            checked = verify(
                transfer,
                hops,
                servers,
                context,
                level=level,
                names=config.ranges,
                as_of_commit=config.as_of_last_run,
                up_to_date=config.up_to_date,
            )
            if not config.ranges and not config.as_of_last_run:
                checked += check_whole_tables(context, transfer, hops, servers)
        except TableferryError as error:
            if caller is not None:
                caller.error = error
            raise dg.Failure(str(error), allow_retries=False) from None
        if caller is not None:
            caller.checked += checked
        open_ranges = not_committed(transfer, context.instance, config.ranges)
        problems = [check.summary() for check in checked if check.failed]
        problems += [range_.summary() for range_ in open_ranges]
        for problem in problems:
            context.log.error(problem)
        if problems or not checked:
            raise dg.Failure(closing_line(checked, open_ranges), allow_retries=False)
        return {"checks": len(checked)}

    @dg.job(
        name=name,
        description=f"Reconcile {transfer.source} with its targets; nothing is moved.",
        executor_def=dg.in_process_executor,
    )
    def reconcile_only() -> None:
        compare()

    return reconcile_only
