"""Jobs: per transfer one that moves its ranges, and one that only reconciles them."""

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
    """The job that materializes all hops of a transfer, with their checks.

    Dagster keeps its type to itself: a job of assets that is not resolved yet.
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
    """One of count, checksum, sample_hash, full_hash; the transfer's own when not given."""
    ranges: list[str] = []  # noqa: RUF012  Dagster's config classes are pydantic models
    """Partition keys; all committed ranges, and the tables as a whole, when empty."""
    as_of_last_run: bool = False
    """Compare the targets with what was committed, and do not read the source."""
    up_to_date: bool = False
    """Fail where the source is newer than the last move, too."""


def check_job(
    transfer: Transfer, caller: Caller | None = None, bound: Servers | None = None
) -> dg.JobDefinition:
    """The job that reconciles the committed ranges of a transfer without moving data.

    Args:
        transfer: the declaration.
        caller: who runs it in this process, and is handed the verdicts.
        bound: the servers of its connections, in place of resources.
    """
    name = check_job_name(transfer.transfer)

    @dg.op(
        name=compare_op_name(transfer.transfer),
        description="Compare source and target of every committed range.",
        # a check beside a move would see some of its rows before and some after
        pool=transfer.transfer,
        required_resource_keys=resources_of(transfer, bound),
    )
    def compare(context: dg.OpExecutionContext, config: CheckConfig) -> dict[str, int]:
        level = next((known for known in LEVELS if known == config.level), None)
        if config.level is not None and level is None:
            raise dg.Failure(f"level {config.level!r} should be one of {', '.join(LEVELS)}")
        servers = Servers.of(transfer, context.resources, bound)
        try:
            hops = (caller.hops if caller else None) or resolve_hops(transfer, servers)
            found = verify(
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
                found += check_whole_tables(context, transfer, hops, servers)
        except TableferryError as error:
            if caller is not None:
                caller.error = error
            raise dg.Failure(str(error), allow_retries=False) from None
        if caller is not None:
            caller.checked += found
        open_ranges = not_committed(transfer, context.instance, config.ranges)
        problems = [one.summary() for one in found if one.failed]
        problems += [one.summary() for one in open_ranges]
        for problem in problems:
            context.log.error(problem)
        if problems or not found:
            raise dg.Failure(closing_line(found, open_ranges), allow_retries=False)
        return {"checks": len(found)}

    @dg.job(
        name=name,
        description=f"Reconcile {transfer.source} with its targets; nothing is moved.",
        executor_def=dg.in_process_executor,
    )
    def reconcile_only() -> None:
        compare()

    return reconcile_only
