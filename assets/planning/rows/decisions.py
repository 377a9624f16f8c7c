"""Decides which ranges run, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tableferry.assets.log.declared import (
    asked_of,
    changes,
    declaration_of,
    has_other_source,
    too_many_rejected,
)
from tableferry.assets.log.ledger import (
    Committed,
    committed,
    committed_records,
    records,
)
from tableferry.assets.log.queries import Log
from tableferry.assets.log.states import Reason, State
from tableferry.assets.log.written_columns import committed_schema
from tableferry.assets.planning.changes.drift import only_fewer_columns, schema_changes
from tableferry.assets.planning.columns.hop_columns import new_columns, target_columns
from tableferry.assets.planning.resolve import Hop, checks_of
from tableferry.assets.planning.rows.actions import with_actions
from tableferry.assets.planning.rows.decision import Action, Decision, decide, moved_by_others
from tableferry.assets.planning.rows.deltas import changed_parts, increment, intact, now
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.checks.expectations import ALL_CHECKS
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.errors import concerning
from tableferry.resources.keys.range import KeyRange

SEES_CONTENTS = ("auto", "content")
"""Fingerprints of a table's contents, equal in another table only if its rows are."""

ONLY_DIFFERING = "only rows that differ"
"""The detail of a decision to compare a range and to move its rows that differ, if they are few."""


def with_decisions(plan: TransferPlan, servers: Servers, log: Log) -> TransferPlan:
    """Return the plan with decisions about all of its ranges, which are fingerprinted.

    Args:
        plan: the plan; what it has decided already stays.
        servers: the servers of its tables.
        log: the event log.
    """
    decided: dict[int, Mapping[str, Decision]] = {}
    for hop in plan.hops:
        known = plan.decided.get(hop.number, {})
        rest = plan.only(set(plan.ranges) - set(known))
        if hop not in plan.selected:
            rest = replace(rest, intent=plan.intent.of_hops_that_are_read)
        before = decided.get(hop.number - 1)
        new = decisions(rest, hop, servers, log, before=before) if rest.ranges else {}
        decided[hop.number] = {name: known.get(name) or new[name] for name in plan.ranges}
    return replace(plan, decided=decided)


def decisions(
    plan: TransferPlan,
    hop: Hop,
    servers: Servers,
    log: Log,
    *,
    before: Mapping[str, Decision] | None = None,
) -> dict[str, Decision]:
    """Decide why each fingerprinted range of a hop runs, or that it is unchanged.

    Takes a constant number of queries, however many ranges there are.

    Args:
        plan: the plan of the transfer.
        hop: one of its hops.
        servers: the servers of its tables.
        log: the event log.
        before: what was decided about the hop before; None for the first one.
    """
    transfer = plan.transfer
    blocking = [name for name in ALL_CHECKS if transfer.check_spec(name).blocking]
    previous = committed(
        log,
        hop.spec.to,
        blocking,
        declared=checks_of(transfer),
        asked=asked_of(transfer),
        origins=True,
    )
    decided = _decided(plan, hop, servers, log, previous, before=before)
    decided = _with_details(plan, hop, log, with_actions(plan, hop, servers, decided))
    for name in decided.keys() & previous.keys():
        last = previous[name]
        decided[name] = replace(
            decided[name],
            written_by=last.written_by,
            taken_from=last.taken_from,
            failed=last.failed,
        )
    return decided


def _decided(
    plan: TransferPlan,
    hop: Hop,
    servers: Servers,
    log: Log,
    previous: Mapping[str, Committed],
    *,
    before: Mapping[str, Decision] | None,
) -> dict[str, Decision]:
    if plan.intent.recreate:
        alone = dict.fromkeys(plan.versions(hop), Decision(Reason.RECREATED))
    else:
        with concerning(f"{plan.transfer.transfer}: {hop.plan.target}"):
            alone = _each_alone(plan, hop, servers, log, previous)
        if before is not None:
            alone = _after_mends(hop, alone, previous, before)
    if plan.intent.repair:
        # what another tool has moved need never have been equal
        done = previous if plan.declared.write.moves else alone
        return {name: Decision(Reason.REPAIR) if name in done else alone[name] for name in alone}
    return _of_swap(plan, hop, servers, log, alone) if plan.transfer.write.whole_table else alone


def _with_details(
    plan: TransferPlan, hop: Hop, log: Log, decided: Mapping[str, Decision]
) -> dict[str, Decision]:
    """Say of decisions that only rows that differ move, and where these are, if that is known."""
    differing = {
        name: each for name, each in decided.items() if each.action is Action.MOVE_DIFFERING
    }
    segmented = [
        name
        for name, each in differing.items()
        if each.reason is Reason.SOURCE_CHANGED and plan.fingerprints[name].segments
    ]
    before = committed_records(log, hop.spec.to, segmented) if segmented else {}
    detailed = dict(decided)
    for name, each in differing.items():
        detail = ", ".join(filter(None, (each.detail, ONLY_DIFFERING)))
        changed: tuple[KeyRange, ...] = ()
        if name in before:
            segments = before[name].segments, plan.fingerprints[name].segments
            changed = changed_parts(plan.ranges[name], *segments)
        detailed[name] = replace(each, detail=detail, changed=changed)
    return detailed


def _after_mends(
    hop: Hop,
    decided: Mapping[str, Decision],
    previous: Mapping[str, Committed],
    before: Mapping[str, Decision],
) -> dict[str, Decision]:
    """Have ranges compared whose rows the hop before has written anew, or will.

    That the source has not changed says nothing about them: they may have been taken from rows that
    were damaged. Where they were not, a range whose check failed as the hop's source was damaged
    needs no move. For the same reason newer rows are not enough of a range that the hop before
    moves or compares as a whole.
    """
    after = dict(decided)
    for name, decision in decided.items():
        earlier = before.get(name)
        if earlier is None:
            continue
        if decision.since and earlier.reason is not Reason.UNCHANGED and not earlier.since:
            after[name] = replace(decision, since=None, detail="")
        if decision.reason not in _UNMOVED_AT_SOURCE:
            continue
        if earlier.reason is not Reason.UNCHANGED:
            why = f"{hop.plan.source}: {earlier.reason}"
        elif earlier.written_by != previous[name].taken_from:
            why = f"{hop.plan.source} was rewritten since"
        else:
            continue
        after[name] = replace(decision, reason=Reason.SOURCE_REWRITTEN, detail=why)
    return after


_UNMOVED_AT_SOURCE = (Reason.UNCHANGED, Reason.UNCHECKED, Reason.LAST_CHECK_FAILED)
"""Reasons of ranges whose source is the same as when they were committed."""


def _each_alone(
    plan: TransferPlan,
    hop: Hop,
    servers: Servers,
    log: Log,
    previous: Mapping[str, Committed],
) -> dict[str, Decision]:
    """Decide as if each range were replaced alone."""
    transfer = plan.transfer
    rows: Mapping[str, int] | Decision = Decision(Reason.TARGET_MISSING, "no such table")
    if previous and hop.lacking:
        gone = f"{', '.join(map(repr, hop.lacking))} is gone"
        rows = Decision(Reason.TARGET_CHANGED, gone)
    elif previous and hop.existing is not None:
        before = [range_ for name, range_ in plan.ranges.items() if name in previous]
        rows = servers.side(hop.plan, "target").counts(before)
    expected: Mapping[str, int] | None = None if transfer.keeps_rows else plan.rows()
    rejecting = transfer.on_reject == "quarantine"
    moved = committed_records(log, hop.spec.to, previous) if rejecting else {}
    if expected is not None:
        # a target does without the rows that were rejected on the way
        recorded = {name: each.rows for name, each in moved.items() if each.rows is not None}
        expected = {**expected, **recorded}
    explained = dict.fromkeys(_from_elsewhere(plan, hop, previous), Reason.SOURCE_REPLACED)
    explained |= dict.fromkeys(_with_fewer_columns(plan, hop, log, previous), Reason.FEWER_COLUMNS)
    decided = decide(
        plan.versions(hop),
        previous,
        target_rows=rows,
        expected_rows=expected,
        published=plan.published.get(hop.number),
        explained=explained,
        force=plan.intent.force,
    )
    for name, record in moved.items():
        too_many = too_many_rejected(transfer, record)
        if too_many and name in decided and not decided[name].runs:
            decided[name] = Decision(Reason.SETTINGS_CHANGED, too_many)
    now_declared = declaration_of(plan.declared, hop.number)
    for name, each in decided.items():
        if not each.runs and (why := "; ".join(changes(previous[name].declared, now_declared))):
            decided[name] = Decision(Reason.UNCHECKED, why)
    if hop.first:
        same = [name for name, each in decided.items() if each.reason is Reason.UNCHANGED]
        decided |= {
            name: replace(decided[name], detail=plan.fingerprints[name].found_by or "")
            for name in same
        }
    columns_changed = (Reason.SCHEMA_CHANGED, Reason.FEWER_COLUMNS)
    changed = [name for name, each in decided.items() if each.reason in columns_changed]
    if changed:
        detail = schema_changes(hop.plan, committed_schema(log, hop.spec.to))
        decided |= {name: replace(decided[name], detail=detail) for name in changed}
    return _increments(plan, hop, log, decided, previous) if transfer.incremental else decided


def _from_elsewhere(plan: TransferPlan, hop: Hop, previous: Mapping[str, Committed]) -> set[str]:
    """Return the ranges that were proven by another source, which no fingerprint may tell."""
    if plan.transfer.fingerprint in SEES_CONTENTS:
        return set()
    now = declaration_of(plan.declared, hop.number)
    return {name for name, each in previous.items() if has_other_source(each.declared, now)}


def _with_fewer_columns(
    plan: TransferPlan, hop: Hop, log: Log, previous: Mapping[str, Committed]
) -> set[str]:
    """Return the ranges that are as committed, as far as is known, but for columns that are no
    longer copied, in this hop or in one before.

    Ranges that only a move could record are not among them.
    """
    versions = plan.versions(hop)
    committed_with = {
        name: each.data_version.schema for name, each in previous.items() if name in versions
    }
    if hop.plan.target.system.by_path or hop.only_moved:
        return set()
    schemas = only_fewer_columns(hop, log, set(committed_with.values()))
    fewer = {name for name, schema in committed_with.items() if schema in schemas}
    behind = {
        name
        for name in committed_with
        if versions[name].change_since(previous[name].data_version) is Reason.SOURCE_CHANGED
    }
    if behind and not hop.first:
        before = plan.hops[hop.number - 2]
        fewer |= behind & _with_fewer_columns(plan, before, log, committed(log, before.spec.to, ()))
    return fewer


def _increments(
    plan: TransferPlan,
    hop: Hop,
    log: Log,
    decided: Mapping[str, Decision],
    previous: Mapping[str, Committed],
) -> dict[str, Decision]:
    """Restrict decisions to the rows from a watermark on, where that is enough."""
    declared, column = plan.transfer.incremental, plan.transfer.watermark
    assert declared is not None and column is not None
    by_hop = [records(log, each.spec.to, decided) for each in plan.hops[: hop.number]]
    published = plan.published.get(hop.number)
    markers = published.of_target if published else None
    increments = {}
    for name, decision in decided.items():
        of_range = [by_name.get(name) for by_name in by_hop]
        # a missing table has no older rows
        failed = hop.existing is None or name not in previous or bool(previous[name].failed)
        moved = increment(
            decision.reason,
            of_range,
            failed=failed,
            column=column,
            full_check=declared.full_check_seconds,
            at=now(),
        )
        # what others have published may lack rows below the log's watermark
        elsewhere = name in previous and moved_by_others(markers, name, previous[name].data_version)
        since = None if elsewhere else moved.since
        detail = f"{column} >= {since}" if since else decision.detail
        increments[name] = Decision(moved.reason, detail, since, intact(of_range[-1], column))
    return increments


def _of_swap(
    plan: TransferPlan, hop: Hop, servers: Servers, log: Log, alone: dict[str, Decision]
) -> dict[str, Decision]:
    """Decide for a swap: nothing if no range changed, else every range that is not gathered.

    A run may have died after it put the shadow in place, before it recorded that. The records say
    which table ranges were gathered in: if that is the target now, they only need to be recorded.
    `alone` says why each range would run if it were replaced alone.
    """
    same = {name for name, decision in alone.items() if decision.reason.needs_no_move}
    if same == set(alone):
        return alone
    versions = plan.versions(hop)
    gathered = {
        name: record.shadow
        for name, record in records(log, hop.spec.to, alone).items()
        if record.state is State.SHADOWED
        and record.data_version == str(versions[name])
        and alone[name].reason is not Reason.FORCED
    }
    sound = {
        name: table
        for name, table in gathered.items()
        if alone[name].reason is not Reason.LAST_CHECK_FAILED
    }
    target = servers.target(hop.plan.target)
    table = target.identity(hop.plan.target) if sound else None
    promoted = _held_by(table, hop.in_place, sound, plan, servers)
    if same | promoted == set(alone):
        return alone | dict.fromkeys(promoted, Decision(Reason.PROMOTED))
    decided = alone | dict.fromkeys(same, Decision(Reason.SWAP))
    table = target.gathered_in(hop.plan, hop.options) if gathered else None
    shadowed = _held_by(table, hop, gathered, plan, servers)
    return decided | dict.fromkeys(shadowed, Decision(Reason.SHADOWED))


def _held_by(
    table: str | None,
    hop: Hop,
    gathered: Mapping[str, str | None],
    plan: TransferPlan,
    servers: Servers,
) -> set[str]:
    """The ranges, of those gathered in some table, that the table that the hop writes to holds."""
    if table is None or table not in gathered.values():
        return set()
    rows, expected = _target_rows(plan, hop.written_plan, servers), plan.rows()
    published, versions = plan.published.get(hop.number), plan.versions(hop)
    # another home may have gathered its ranges in the same table
    markers = published.markers.get(table, {}) if published else None
    return {
        name
        for name, gathered_in in gathered.items()
        if gathered_in == table
        and rows.get(name, 0) == expected[name]
        and not moved_by_others(markers, name, versions[name])
    }


def _target_rows(plan: TransferPlan, copy: CopyPlan, servers: Servers) -> dict[str, int]:
    """Rows per range in the copy's target; none if there is no such table, or it lacks columns."""
    target = servers.side(copy, "target")
    actual = target_columns(target.endpoint, copy.target)
    if actual is None or new_columns(copy, actual):
        return {}
    return target.counts(list(plan.ranges.values()))
