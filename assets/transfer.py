"""Turns a declared transfer into a Dagster multi-asset, with one asset per hop."""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from tableferry.assets.asset_keys import asset_key, group_of, rejected_key
from tableferry.assets.code_references import code_reference
from tableferry.assets.declaring.dagster_rules import move_op_name
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.sections import HopSpec
from tableferry.assets.declaring.yaml_lines import YamlFile
from tableferry.assets.log.queries import require_queries
from tableferry.assets.log.runs import ADOPT
from tableferry.assets.planning.resolve import Hop, checks_of
from tableferry.assets.planning.servers import Servers, resources_of
from tableferry.assets.planning.transfer_plan import TransferPlan, extend_ranges, plan_transfer
from tableferry.assets.running.adopting import adopt, unfit
from tableferry.assets.running.caller import Caller
from tableferry.assets.running.execute import check_tables, execute, ranges_asked_for
from tableferry.assets.running.processes import PROCESS
from tableferry.assets.running.runs import backfill_policy
from tableferry.assets.running.source_slots import sharing
from tableferry.assets.running.work import RangeOutcome
from tableferry.assets.verifying.checked import (
    Checked,
    CheckRequest,
    Findings,
    explain_unproven,
    not_committed,
    summarise,
)
from tableferry.assets.verifying.on_demand import verify
from tableferry.assets.verifying.whole_tables import whole_table_specs
from tableferry.checks.expectations import CHECK_NAME as EXPECTATIONS
from tableferry.checks.levels import BY_CHECK
from tableferry.resources.contract.target_names import quarantine_of
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.tables import TableRef
from tableferry.resources.types.steps import CHANGES

CHECK_DESCRIPTIONS = {check: level.description for check, level in BY_CHECK.items()} | {
    EXPECTATIONS: "The range's rows in the target meet every declared expectation.",
}


def check_description(transfer: Transfer, name: str) -> str | None:
    """What a check of a transfer's ranges means, and which columns it compares as changed."""
    text = CHECK_DESCRIPTIONS.get(name)
    changed = dict.fromkeys(
        f"{transfer.target_name(column, hop)} ({spec.on_overflow})"
        for hop in range(1, len(transfer.hops) + 1)
        for column, spec in transfer.columns_in(hop).items()
        if spec.on_overflow in CHANGES
    )
    if not text or not changed or name not in BY_CHECK or not BY_CHECK[name].values:
        return text
    columns = ", ".join(changed)
    return f"{text} Values that do not fit are compared as on_overflow makes them: {columns}."


def partitions_of(transfer: Transfer) -> dg.DynamicPartitionsDefinition:
    """The key ranges of a transfer, as Dagster's dynamic partitions."""
    return dg.DynamicPartitionsDefinition(name=transfer.partitions_name)


@dataclass(frozen=True)
class Origin:
    """Where a transfer is declared."""

    file: YamlFile
    link: str | None = None
    """Address of the folder for readers, see `code_reference`."""

    def metadata(self, *location: int | str) -> dict[str, Any]:
        """Metadata of the asset that a part of the file declares."""
        return code_reference(self.file.path, self.file.line(location), self.link)


def source_asset(transfer: Transfer, origin: Origin | None = None) -> dg.AssetSpec:
    """Return the source table as an external asset, which completes the lineage."""
    return dg.AssetSpec(
        asset_key(transfer.source),
        description=f"`{transfer.source}`: read by Tableferry, never written.",
        group_name=transfer.group or group_of(transfer.source),
        kinds={transfer.source.system_name},
        metadata={
            "dagster/table_name": f"{transfer.source.schema}.{transfer.source.name}",
            **(origin.metadata("source") if origin else {}),
        },
    )


def target_asset(transfer: Transfer, hop: HopSpec, origin: Origin | None = None) -> dg.AssetSpec:
    """Return the asset of a hop's target, which depends on the table that the hop reads."""
    number = transfer.hops.index(hop)
    source = transfer.tables[number]
    window = transfer.fresh_for
    return dg.AssetSpec(
        asset_key(hop.to),
        deps=[asset_key(source)],
        description=_description(transfer, source, hop.to),
        partitions_def=partitions_of(transfer),
        group_name=transfer.group or group_of(hop.to),
        kinds={hop.to.system_name},
        owners=transfer.owners,
        tags=transfer.tags,
        metadata={
            "dagster/table_name": f"{hop.to.schema}.{hop.to.name}",
            **(origin.metadata("hops", number) if origin else {}),
        },
        freshness_policy=dg.FreshnessPolicy.time_window(window) if window else None,
    )


def rejected_asset(transfer: Transfer, hop: HopSpec) -> dg.AssetSpec:
    """Return the table of the rows that a hop's target cannot hold as an external asset.

    It has no partitions: each run that moves ranges of the hop records how many rows it has.
    """
    table, window = quarantine_of(hop.to), transfer.fresh_for
    return dg.AssetSpec(
        rejected_key(hop.to),
        deps=[asset_key(hop.to)],
        description=f"Rows of `{transfer.source}` with values that `{hop.to}` cannot hold.",
        group_name=transfer.group or group_of(hop.to),
        kinds={hop.to.system_name},
        owners=transfer.owners,
        tags=transfer.tags,
        metadata={"dagster/table_name": f"{table.schema}.{table.name}"},
        freshness_policy=dg.FreshnessPolicy.time_window(window) if window else None,
    )


Body = Callable[[dg.AssetExecutionContext, Servers], Iterable[Any]]
"""The body of the op that computes a transfer's assets."""


def transfer_assets(
    transfer: Transfer,
    caller: Caller | None = None,
    origin: Origin | None = None,
    *,
    bound: Servers | None = None,
    specs: Sequence[dg.AssetSpec] = (),
    body: Body | None = None,
    op: Mapping[str, Any] | None = None,
) -> dg.AssetsDefinition:
    """Return the assets of all hops of a transfer, computed by one op.

    Of a transfer that moves nothing (`write: none`) they are the checks alone, but for a repair.

    The op moves any set of the transfer's ranges in one run, takes each through all selected hops,
    and records each as it commits. It requires the connections of its tables as resources, by name.

    Args:
        transfer: the declaration.
        caller: exchanges plans and results with the op, if it runs in the same process.
        origin: where the transfer is declared, if in a file.
        bound: the servers to use instead of resources.
        specs: the assets of the hops' targets, in order; by default those of `target_asset`.
        body: what the op runs, by default `move_ranges`.
        op: arguments of `dagster.multi_asset` that are about its op, instead of ours: `name`,
            `description`, `op_tags`, `pool`, `backfill_policy`, `hooks`.
    """
    of_op = {"name": move_op_name(transfer.transfer), "pool": transfer.transfer, **(op or {})}
    if not transfer.write.moves and not (caller is not None and caller.intent.repair):
        of_op.pop("backfill_policy", None)  # checks are no partitions
        return _watched(transfer, caller, bound, of_op)
    specs = specs or [target_asset(transfer, hop, origin) for hop in transfer.hops]

    @dg.multi_asset(
        specs=specs,
        check_specs=_check_specs(transfer, [spec.key for spec in specs]),
        can_subset=True,
        required_resource_keys=resources_of(transfer, bound),
        **{"backfill_policy": backfill_policy(transfer), **of_op},
    )
    def move(context: dg.AssetExecutionContext) -> Iterator[Any]:
        servers = _servers(context, transfer, bound)
        if body is None or not context.selected_asset_keys:
            move_ranges(context, transfer, servers, caller)
        else:
            yield from body(context, servers)

    return move


def _watched(
    transfer: Transfer,
    caller: Caller | None,
    bound: Servers | None,
    of_op: Mapping[str, Any],
) -> dg.AssetsDefinition:
    """Return the checks of a transfer that moves nothing, of the external assets of its targets."""

    @dg.multi_asset_check(
        specs=_check_specs(transfer, [asset_key(hop.to) for hop in transfer.hops]),
        can_subset=True,
        required_resource_keys=resources_of(transfer, bound),
        **of_op,
    )
    def compare(context: dg.OpExecutionContext) -> Iterator[Any]:
        whole_context = dg.AssetExecutionContext(context)
        move_ranges(whole_context, transfer, _servers(whole_context, transfer, bound), caller)
        yield from ()

    return compare


def _servers(
    context: dg.AssetExecutionContext, transfer: Transfer, bound: Servers | None
) -> Servers:
    """Return the servers of an op, whose log keeps only what is of use."""
    context.log.addFilter(_is_of_use)
    # the process of a command outlives its runs
    own = PROCESS in context.run.tags and not context.run.parent_run_id
    run_id = None if own else context.run.run_id
    return Servers.of(transfer, context.resources, bound, sharing(context.instance, run_id))


def _check_specs(transfer: Transfer, targets: Sequence[dg.AssetKey]) -> list[dg.AssetCheckSpec]:
    """Return the checks of each target: of its ranges, and of the whole table."""
    with warnings.catch_warnings():
        # partitioned checks are a preview in this version of Dagster, which is pinned
        warnings.simplefilter("ignore", dg.PreviewWarning)
        of_ranges = [
            dg.AssetCheckSpec(
                name,
                asset=key,
                partitions_def=partitions_of(transfer),
                blocking=transfer.check_spec(name).blocking,
                description=check_description(transfer, name),
            )
            for key in targets
            for name in checks_of(transfer)
        ]
    return [*of_ranges, *whole_table_specs(transfer)]


def _is_of_use(message: logging.LogRecord) -> bool:
    """Whether a message is about more than that the op yields nothing for its checks.

    It records their verdicts itself, by range. To yield an output for each would store an event of
    1.5 KB that holds nothing.
    """
    return "did not yield or return expected outputs" not in message.getMessage()


def move_ranges(
    context: dg.AssetExecutionContext,
    transfer: Transfer,
    servers: Servers,
    caller: Caller | None = None,
) -> None:
    """Take a run's ranges through its selected hops, and record each as it commits.

    A run that selects checks alone compares what is committed instead.

    Raises:
        Failure: a range or a check failed, or the run could not begin.
    """
    outcomes: list[RangeOutcome] = []
    try:
        require_queries(context.instance)
    except InputError as error:  # then nothing can be told of the run's checks, either
        raise dg.Failure(str(error), allow_retries=False) from None
    try:
        if context.selected_asset_keys:
            outcomes = execute(context, transfer, servers, caller or Caller())
        else:
            _compare(context, transfer, servers, caller or Caller())
    except TableferryError as error:
        _explain(context, transfer, outcomes, str(error))
        raise dg.Failure(str(error), allow_retries=False) from None
    failed = [outcome for outcome in outcomes if not outcome.good]
    if failed:
        errors = [str(outcome.record.error) for outcome in failed]
        _explain(context, transfer, outcomes, errors[0])
        raise dg.Failure(
            "\n".join(errors),
            metadata={"failed_ranges": [outcome.record.range for outcome in failed]},
            allow_retries=False,
        )


def _compare(
    context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers, caller: Caller
) -> None:
    """Compare the committed ranges as the run's tags ask, and move nothing.

    Raises:
        TableferryError: the comparison could not begin.
        Failure: a check has failed.
    """
    instance = context.instance
    try:
        if context.run.tags.get(ADOPT) == "true" or not transfer.write.moves:
            extend_ranges(transfer, servers, instance, replaces=False)
        known = list(instance.get_dynamic_partitions(transfer.partitions_name))
        request = CheckRequest.parse(transfer, context.run.tags, known)
        plan = caller.plan or plan_transfer(transfer, servers, instance, purpose="compare")
        if request.adopt:
            _adopt(context, plan, servers, caller, request)
            return
        if not transfer.write.moves:
            _require_comparable(transfer, plan.hops)
        caller.checked += verify(plan, servers, context, request)
        summarise(transfer, context, caller.checked, context.selected_asset_check_keys)
        if request.whole_tables:
            check_tables(context, plan, servers, caller)
    except TableferryError as error:
        caller.error = error
        raise
    open_ranges = not_committed(transfer, instance, request.ranges) if request.complete else []
    found = Findings(transfer.transfer, caller.checked, open_ranges)
    if found.errors and (request.complete or caller.checked):
        text = "\n".join(dict.fromkeys([found.closing, *found.errors]))
        raise dg.Failure(text, allow_retries=False)


def _require_comparable(transfer: Transfer, hops: Sequence[Hop]) -> None:
    """Refuse targets that another tool has made otherwise than a move would.

    Raises:
        InputError: names the transfer, and why its tables cannot be compared.
    """
    if reasons := [reason for hop in hops if (reason := unfit(transfer, hop))]:
        raise InputError(f"{transfer.transfer}: {'; '.join(reasons)}")


def _adopt(
    context: dg.AssetExecutionContext,
    plan: TransferPlan,
    servers: Servers,
    caller: Caller,
    request: CheckRequest,
) -> None:
    """Adopt ranges as the run's tags ask, and check the tables that have some as a whole."""
    adopt(context, plan.declared, servers, caller, request)
    checked = [
        Checked(outcome.hop, outcome.record.range, verdict)
        for outcome in caller.compared
        if outcome.good
        for verdict in outcome.verdicts
    ]
    summarise(plan.declared, context, checked, context.selected_asset_check_keys)
    if request.whole_tables:
        check_tables(context, plan, servers, caller)


def _explain(
    context: dg.AssetExecutionContext,
    transfer: Transfer,
    outcomes: Sequence[RangeOutcome],
    problem: str,
) -> None:
    """Tell the pages of the run's checks what became of them; see `explain_unproven`."""
    ranges = ranges_asked_for(context, transfer)
    ranges = ranges or list(context.instance.get_dynamic_partitions(transfer.partitions_name))
    good: dict[dg.AssetKey, set[str]] = {}
    for outcome in outcomes:
        if outcome.good:
            good.setdefault(outcome.hop.asset, set()).add(outcome.record.range)
    checks = context.selected_asset_check_keys
    explain_unproven(context, transfer, checks, ranges, good, problem)


def _description(transfer: Transfer, source: TableRef, target: TableRef) -> str:
    """Return Markdown for the asset's page."""
    how = (
        f"`{source}` -> `{target}`, range by range of `{transfer.key}`; "
        f"write `{transfer.write}`, reconcile `{transfer.reconcile}`."
    )
    if not transfer.write.moves:
        how = (
            f"`{target}`: compared with `{source}` by Tableferry, never written, range by range of "
            f"`{transfer.key}`; reconcile `{transfer.reconcile}`."
        )
    # Dagster does not see what a schedule of all assets selects, and names no automation
    for schedule, does in ((transfer.schedule, "Run"), (transfer.check_schedule, "Checked")):
        how += f" {does} by the schedule `{schedule}` (UTC)." if schedule else ""
    return f"{transfer.description}\n\n{how}" if transfer.description else how
