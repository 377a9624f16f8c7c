"""Turns a declared transfer into Dagster assets: one multi-asset with an asset per hop."""

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from assets.asset_keys import asset_key
from assets.declaring.manifest import Transfer
from assets.declaring.profiles import profile
from assets.log.ledger import Writer, committed_schema
from assets.log.records import Reason, State
from assets.planning.decisions import Decision, decisions
from assets.planning.drift import (
    add_columns,
    new_columns,
    require_no_dropped,
    require_no_new,
    target_columns,
)
from assets.planning.resolve import (
    Hop,
    Journey,
    Servers,
    checks_of,
    connections_of,
    levels_of,
    resolve,
)
from assets.running.runs import FORCE, PROCESS, PROFILE, owner_name, run_is_alive, this_process
from assets.running.source_state import SourceState, shared_snapshot
from assets.running.swap import promote, swap_reasons
from assets.running.work import SETTLED, Outcome, Work
from assets.running.workers import run_ranges
from assets.verifying.on_demand import summarise, verify
from assets.verifying.whole_tables import check_whole_tables, whole_table_specs
from checks.expectations import CHECK_NAME as EXPECTATIONS
from resources.errors import TableferryError
from resources.tables import TableRef

CHECK_DESCRIPTIONS = {
    "row_count": "The range has as many rows in the target as in the source.",
    "checksum": "Row counts agree, and the exact sums of the row digests, of every column's value.",
    "in_flight": "The same of the target and of the rows as they streamed out of the source.",
    "sample_hash": "About 1000 rows, chosen by key over the whole range, agree value by value.",
    "full_hash": "All rows of the range agree value by value.",
    EXPECTATIONS: "The range's rows in the target meet every declared expectation.",
}


def partitions_of(transfer: Transfer) -> dg.DynamicPartitionsDefinition:
    """The key ranges of a transfer, as Dagster's dynamic partitions."""
    return dg.DynamicPartitionsDefinition(name=transfer.partitions_name)


def source_asset(transfer: Transfer) -> dg.AssetSpec:
    """The source table as an external asset, so that the lineage shows where the rows come from."""
    return dg.AssetSpec(
        asset_key(transfer.source),
        description=f"`{transfer.source}`: read by Tableferry, never written.",
        group_name=transfer.transfer,
        kinds={transfer.source.system},
        metadata={"dagster/table_name": f"{transfer.source.schema}.{transfer.source.name}"},
    )


def transfer_assets(transfer: Transfer) -> dg.AssetsDefinition:
    """The assets of all hops of one transfer, computed by one op.

    The op handles any set of the transfer's ranges in one run, takes each through all selected
    hops, and records each as it commits. It needs the connections of its tables as resources, by
    their names.
    """
    partitions = partitions_of(transfer)
    stations = [transfer.source, *(hop.to for hop in transfer.hops)]
    specs = [
        dg.AssetSpec(
            asset_key(hop.to),
            deps=[asset_key(before)],
            description=_description(transfer, before, hop.to),
            partitions_def=partitions,
            group_name=transfer.transfer,
            kinds={hop.to.system},
            owners=transfer.owners,
            tags=transfer.tags,
            metadata={"dagster/table_name": f"{hop.to.schema}.{hop.to.name}"},
        )
        for before, hop in zip(stations, transfer.hops, strict=False)
    ]
    with warnings.catch_warnings():
        # partitioned checks are a preview in this version of Dagster; the version is pinned
        warnings.simplefilter("ignore", dg.PreviewWarning)
        check_specs = [
            dg.AssetCheckSpec(
                name,
                asset=spec.key,
                partitions_def=partitions,
                blocking=transfer.check_spec(name).blocking,
                description=CHECK_DESCRIPTIONS.get(name),
            )
            for spec in specs
            for name in checks_of(transfer)
        ]
    check_specs += whole_table_specs(transfer)

    @dg.multi_asset(
        name=transfer.transfer,
        specs=specs,
        check_specs=check_specs,
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=transfer.transfer,
        required_resource_keys=connections_of(transfer),
    )
    def move(context: dg.AssetExecutionContext) -> Iterator[dg.Output[None]]:
        servers = Servers.of(transfer, context.resources)
        try:
            if context.selected_asset_keys:
                outcomes = execute(context, transfer, servers)
            else:  # "Execute" on the page of a check: compare, move nothing
                summarise(
                    context,
                    verify(transfer, servers, context),
                    context.selected_asset_check_keys,
                )
                _check_whole_tables(context, transfer, servers, None)
                outcomes = []
        except TableferryError as error:
            raise dg.Failure(str(error), allow_retries=False) from None
        failed = [outcome for outcome in outcomes if not outcome.good]
        if failed:
            raise dg.Failure(
                "\n".join(str(outcome.record.error) for outcome in failed),
                metadata={"failed_ranges": [outcome.record.range for outcome in failed]},
                allow_retries=False,
            )
        # the verdicts are recorded already; but Dagster's log would say that outputs are missing
        for name, spec in move.node_check_specs_by_output_name.items():
            if spec.key in context.selected_asset_check_keys:
                yield dg.Output(None, name)

    return move


def _description(transfer: Transfer, source: TableRef, target: TableRef) -> str:
    """Markdown for the asset's page."""
    how = (
        f"`{source}` -> `{target}`, range by range of `{transfer.key}`; "
        f"write `{transfer.write}`, reconcile `{transfer.reconcile}`."
    )
    return f"{transfer.description}\n\n{how}" if transfer.description else how


def execute(
    context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers
) -> list[Outcome]:
    """Run the context's ranges through its selected hops.

    Raises:
        TableferryError: the run as a whole cannot start (a server down, a missing table, drift).
    """
    instance, run = context.instance, context.run
    instance.add_run_tags(run.run_id, {PROCESS: this_process()})
    alive = run_is_alive(instance)
    with shared_snapshot(transfer, servers) as shared:
        snapshot = shared.name() if shared else None
        journey = resolve(
            transfer, servers, instance, names=context.partition_keys, snapshot=snapshot
        )
        selected = tuple(hop for hop in journey.hops if hop.asset in context.selected_asset_keys)
        force = run.tags.get(FORCE) == "true"
        reasons = {
            hop.number: {
                name: found.reason
                for name, found in decisions_of(
                    journey, hop, servers, instance, force=force and hop in selected
                ).items()
            }
            for hop in journey.hops
        }
        shadows: dict[int, str | None] = {}
        for hop in selected:
            target = servers.target(hop.plan.target)
            # a shadow, a copy of the whole target, only if ranges are to be gathered in it
            moves = any(reason not in SETTLED for reason in reasons[hop.number].values())
            written = hop if moves else hop.in_place
            for note in _prepare(transfer, written, servers, instance):
                context.log.warning(note)
            for name in target.clean(hop.plan.target, alive, rejected=False):
                context.log.info(f"{hop.plan.target}: dropped {name}, which a dead run left")
            context.log.info(summary(hop.asset, reasons[hop.number]))
            if transfer.write == "swap":
                shadows[hop.number] = target.identity(written.written_plan.target)
        knobs = profile(run.tags.get(PROFILE, transfer.profile))
        parallel = transfer.parallel
        work = Work(
            journey=journey,
            servers=servers,
            run_id=run.run_id,
            owner=owner_name(run.run_id),
            alive=alive,
            source=SourceState(journey, servers, shared, snapshot),
            levels=levels_of(transfer),
            batch_rows=knobs.batch_rows,
            workers=max(parallel.export or knobs.export, parallel.load or knobs.load),
            identities={
                name: servers.identity(table)
                for name, table in {
                    table.connection: table
                    for hop in selected
                    for table in (hop.plan.source, hop.plan.target)
                }.items()
            },
            shadows=shadows,
            refused=_stale_sources(journey, selected, reasons),
            writers={hop.number: Writer(context, hop.asset, transfer) for hop in selected},
            exports=threading.BoundedSemaphore(parallel.export or knobs.export),
            loads=threading.BoundedSemaphore(parallel.load or knobs.load),
        )
        if transfer.write == "swap":
            known = instance.get_dynamic_partitions(transfer.partitions_name)
            outcomes = _swap(work, selected, reasons, known)
        else:
            outcomes = run_ranges(work, selected, reasons)
        if all(outcome.good for outcome in outcomes):
            # a new one, should the run's have been lost with its server
            snapshot = shared.name() if shared else None
            _check_whole_tables(context, transfer, servers, snapshot)
        return outcomes


def _check_whole_tables(
    context: dg.AssetExecutionContext, transfer: Transfer, servers: Servers, snapshot: str | None
) -> None:
    for checked in check_whole_tables(
        context,
        transfer,
        servers,
        selected=context.selected_asset_check_keys,
        snapshot=snapshot,
    ):
        if not checked.verdict.passed:
            context.log.error(f"{checked.hop.plan.target}: {checked.verdict.summary()}")


def _prepare(
    transfer: Transfer, hop: Hop, servers: Servers, instance: dg.DagsterInstance
) -> list[str]:
    """Create or verify a hop's target, by the transfer's drift policy; returns notes for the user.

    Raises:
        SchemaDrift: source and target no longer go together, and the policy does not mend it.
    """
    endpoint = servers.endpoint(hop.plan.target)
    actual, policy = target_columns(endpoint, hop.plan.target), transfer.on_schema_drift
    before = committed_schema(instance, hop.asset)
    notes = require_no_dropped(hop.plan, actual, before, policy)
    if policy == "add_columns":
        notes += add_columns(endpoint, hop.plan.target, new_columns(hop.plan, actual))
    else:
        require_no_new(hop.plan, actual, before, policy)
    return notes + servers.target(hop.plan.target).prepare(hop.plan, hop.options)


def _swap(
    work: Work,
    hops: Sequence[Hop],
    reasons: Mapping[int, Mapping[str, Reason]],
    known: Sequence[str],
) -> list[Outcome]:
    """Hop by hop: a later hop reads the table that the one before has put in its place."""
    done: list[Outcome] = []
    for hop in hops:
        outcomes = run_ranges(work, (hop,), reasons)
        if all(outcome.good for outcome in outcomes) and any(
            outcome.record.state is State.SHADOWED for outcome in outcomes
        ):
            outcomes = promote(work, hop, known, outcomes)
        done += outcomes
        if not all(outcome.good for outcome in outcomes):
            break
    return done


def decisions_of(
    journey: Journey,
    hop: Hop,
    servers: Servers,
    instance: dg.DagsterInstance,
    *,
    force: bool = False,
) -> dict[str, Decision]:
    """Why each range of a hop is run, or that it is unchanged."""
    found = decisions(journey, hop, servers, instance, force=force)
    if journey.transfer.write != "swap":
        return found
    reasons = {name: one.reason for name, one in found.items()}
    return {
        name: found[name] if reason is reasons[name] else Decision(reason)
        for name, reason in swap_reasons(journey, hop, servers, instance, reasons).items()
    }


def summary(asset: dg.AssetKey, reasons: Mapping[str, Reason]) -> str:
    """One line: how many ranges run, and why, and how many are skipped."""
    counts: dict[Reason, int] = {}
    for reason in reasons.values():
        counts[reason] = counts.get(reason, 0) + 1
    parts = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()))
    return f"{asset.to_user_string()}: {len(reasons)} ranges: {parts or 'none'}"


def _stale_sources(
    journey: Journey, selected: Sequence[Hop], reasons: Mapping[int, Mapping[str, Reason]]
) -> dict[tuple[int, str], str]:
    """Ranges that a hop cannot take, and why: the hop before is not part of the run nor current."""
    numbers = {hop.number for hop in selected}
    return {
        (hop.number, name): f"hop {hop.number} needs {hop.plan.source} to be current ({reason} "
        f"there); run hop {hop.number - 1} first, or both together"
        for hop in selected
        if not hop.first and hop.number - 1 not in numbers
        for name, reason in reasons[hop.number - 1].items()
        if reason is not Reason.UNCHANGED
    }
