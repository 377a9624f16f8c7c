"""Why a run would refuse to write into a target as it is: what `validate`, `plan` and `run` say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.queries import Log
from tableferry.assets.log.written_columns import committed_schema
from tableferry.assets.planning.changes.drift import ADDING, Unplanned, foreseen
from tableferry.assets.planning.changes.evolving import alterations, made_anew, unmended
from tableferry.assets.planning.columns.hop_columns import new_columns
from tableferry.assets.planning.hazards import require_harmless
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.resources.columns.conversions import NoConversion, conversion_between
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.target import Target
from tableferry.resources.errors import InputError, SchemaDrift
from tableferry.resources.types.column import Column


def refusals(
    transfer: Transfer, hop: Hop, servers: Servers, log: Log, gone: Unplanned
) -> Iterator[str]:
    """Yield why a run would write nothing into a hop's target, each reason with its remedy.

    Args:
        transfer: the transfer.
        hop: the hop, with the hazards of its target: see `with_hazards`.
        servers: the servers of its tables.
        log: the event log.
        gone: the columns of the target that the hop lacks.
    """
    if hop.existing is None:
        return
    try:
        require_harmless([hop])
    except InputError as error:
        yield str(error)
    target = servers.target(hop.plan.target)
    if made_anew(hop, servers, log):
        return
    policy, handled = transfer.on_schema_drift, transfer.dropped_columns
    before = committed_schema(log, hop.spec.to)
    drifted, _ = foreseen(hop.plan, hop.existing, before, gone, policy, handled)
    problems = [*filter(None, [drifted]), *too_narrow(transfer, hop, target)]
    yield from problems
    if not problems:
        try:
            target.verify(hop.plan, hop.options, _altered(transfer, hop, target, gone))
        except (SchemaDrift, InputError) as error:
            yield str(error)


def _altered(transfer: Transfer, hop: Hop, target: Target, gone: Unplanned) -> list[Column]:
    """Return the columns that a target has once a run has altered it, before it writes to it."""
    columns = dict(hop.existing or {})
    if transfer.on_schema_drift == "evolve":
        altered = alterations(hop.plan, hop.existing, target)
        columns |= {each.after.name: each.after for each in altered}
    if transfer.on_schema_drift in ADDING:
        new = new_columns(hop.plan, hop.existing)
        columns |= {column.name: replace(column, nullable=True) for column in new}
    if transfer.dropped_columns == "drop":
        for name in gone.removed("drop"):
            del columns[name]
    return [*columns.values()]


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
