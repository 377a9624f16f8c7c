"""Why a run would refuse to write into a target as it is: what `validate`, `plan` and `run` say."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.queries import Log
from tableferry.assets.log.written_columns import committed_schema
from tableferry.assets.planning.changes.drift import Unplanned, foreseen
from tableferry.assets.planning.changes.evolving import altered, made_anew, unmended
from tableferry.assets.planning.changes.unplanned import unplanned_columns
from tableferry.assets.planning.hazards import require_harmless, with_hazards
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.resources.columns.conversions import NoConversion, conversion_between
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.target import Target
from tableferry.resources.errors import InputError, SchemaDrift


def refusals(
    transfer: Transfer,
    hop: Hop,
    servers: Servers,
    log: Log,
    gone: Unplanned,
    *,
    moves: bool = True,
) -> Iterator[str]:
    """Yield why a run would write nothing into a hop's target, each reason with its remedy.

    Args:
        transfer: the transfer.
        hop: the hop, with the hazards of its target: see `with_hazards`.
        servers: the servers of its tables.
        log: the event log.
        gone: the columns of the target that the hop lacks.
        moves: whether rows are to be moved, which hazards might show otherwise.
    """
    if hop.existing is None:
        return
    if moves:
        try:
            require_harmless([hop])
        except InputError as error:
            yield str(error)
    target, columns = servers.target(hop.plan.target), [*hop.existing.values()]
    if hop.options.recreate is None:
        if made_anew(hop, servers, log):
            return
        policy, handled = transfer.on_schema_drift, transfer.dropped_columns
        before = committed_schema(log, hop.spec.to)
        drifted, _ = foreseen(hop.plan, hop.existing, before, gone, policy, handled)
        problems = [*filter(None, [drifted]), *too_narrow(transfer, hop, target)]
        yield from problems
        if problems:
            return
        columns = altered(transfer, hop, target, gone)
    try:
        target.verify(hop.plan, hop.options, columns)
    except (SchemaDrift, InputError) as error:
        yield str(error)


def require_allowed(
    transfer: Transfer,
    hops: Sequence[Hop],
    servers: Servers,
    log: Log,
    gone: Mapping[int, Unplanned],
    moving: Collection[int],
) -> None:
    """Refuse a run of some hops before it writes anything: arguments as in `refusals`.

    Raises:
        SchemaDrift: names all reasons of all hops, with their remedies.
    """
    problems = [
        why
        for hop in hops
        for why in refusals(
            transfer, hop, servers, log, gone[hop.number], moves=hop.number in moving
        )
    ]
    if problems:
        raise SchemaDrift("; ".join(problems))


def require_growth_allowed(plan: TransferPlan, servers: Servers, log: Log) -> None:
    """Refuse to take ranges away from targets that the run could not write to afterwards.

    Raises:
        SchemaDrift: see `require_allowed`.
    """
    if plan.growth.retire or plan.growth.remove:
        hops = with_hazards(plan.hops, servers)
        gone = unplanned_columns(plan.hops, log)
        require_allowed(plan.transfer, hops, servers, log, gone, {hop.number for hop in hops})


def too_narrow(transfer: Transfer, hop: Hop, target: Target) -> list[str]:
    """Say which columns of a target cannot hold what is planned, with the remedies."""
    declared = fitting_declaration(transfer, hop)
    remedy = f"; or declare {declared}: values that do not fit are refused" if declared else ""
    problems = unmended(hop.plan, hop.existing, target, transfer.on_schema_drift)
    return [f"{problem}{remedy}" for problem in problems]


def fitting_declaration(transfer: Transfer, hop: Hop) -> str:
    """Write the `columns:` with which a target is filled as it is; '' if nothing helps.

    A column that cannot hold every value of its source may hold those that there are.
    """
    plan, system, types = hop.plan, hop.plan.target.system, []
    for column in plan.columns:
        existing = (hop.existing or {}).get(column.target.name)
        if existing is None or not incompatibility(system, column.target, existing):
            continue
        type_ = system.types.plain(existing.own_type or existing.type)
        if incompatibility(system, replace(column.target, type=type_), existing):
            continue
        try:
            conversion_between(
                plan.source.system, column.source.type, system, type_, plan.target_version
            )
        except NoConversion:
            continue
        declared = _yaml(type_)
        if len(transfer.hops) > 1:
            declared = f"{{{system.name}: {declared}}}"
        types.append(f"{_yaml(column.source.name)}: {{type: {declared}}}")
    return f"columns: {{{', '.join(types)}}}" if types else ""


def _yaml(text: str) -> str:
    return text if text.isidentifier() else json.dumps(text, ensure_ascii=False)
