"""Decides which ranges are run, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tableferry.assets.log.ledger import Committed, committed, committed_schema, records
from tableferry.assets.log.queries import Log
from tableferry.assets.log.records import DataVersion, Proven, Reason, State
from tableferry.assets.planning.drift import new_columns, schema_changes, target_columns
from tableferry.assets.planning.increments import increment, intact, now
from tableferry.assets.planning.resolve import (
    Hop,
    Servers,
    checks_of,
)
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.checks.counts import count_by_range
from tableferry.checks.expectations import ALL_CHECKS
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Marker, Published
from tableferry.resources.errors import concerning
from tableferry.resources.words import counted

COMPARED_FIRST = (Reason.DIGEST_CHANGED, Reason.SOURCE_REPLACED)
"""What is moved only if a comparison shows that it differs."""


@dataclass(frozen=True)
class Decision:
    """Why a range is run, or that it is not."""

    reason: Reason
    detail: str = ""
    """What exactly is the matter, where there is more to say."""
    since: str | None = None
    """`incremental`: only the rows with this watermark, or a later one, are to be moved."""
    proven: Proven | None = None
    """`incremental`: what was recorded of the range, if nothing has called it into question."""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else str(self.reason)


def decisions(
    plan: TransferPlan,
    hop: Hop,
    servers: Servers,
    log: Log,
    *,
    force: bool = False,
) -> dict[str, Decision]:
    """Why each fingerprinted range of a hop is run, or that it is unchanged.

    Takes a constant number of queries, however many ranges there are.
    """
    with concerning(f"{plan.transfer.transfer}: {hop.plan.target}"):
        found = _each_alone(plan, hop, servers, log, force=force)
    if not plan.transfer.write.whole_table:
        return found
    reasons = {name: one.reason for name, one in found.items()}
    return {
        name: found[name] if reason is reasons[name] else Decision(reason)
        for name, reason in _swap_reasons(plan, hop, servers, log, reasons).items()
    }


def _each_alone(
    plan: TransferPlan, hop: Hop, servers: Servers, log: Log, *, force: bool
) -> dict[str, Decision]:
    """Why each range would run if it were replaced alone."""
    transfer = plan.transfer
    blocking = [name for name in ALL_CHECKS if transfer.check_spec(name).blocking]
    previous = committed(log, hop.spec.to, blocking, declared=checks_of(transfer))
    rows: dict[str, int] | None = None
    lost: list[str] = []
    if previous:
        lost = [column.name for column in new_columns(hop.plan, hop.existing)]
        if hop.existing is not None:
            endpoint = servers.endpoint(hop.plan.target)
            before = [one for name, one in plan.ranges.items() if name in previous]
            rows = {} if lost else count_by_range(hop.plan, endpoint, "target", before)
    found = decide(
        plan.versions(hop),
        previous,
        target_rows=rows,
        expected_rows=None if transfer.write.keeps_rows else plan.rows(),
        lost_columns=lost,
        published=plan.published.get(hop.number),
        force=force,
    )
    if any(one.reason is Reason.SCHEMA_CHANGED for one in found.values()):
        detail = schema_changes(hop.plan, committed_schema(log, hop.spec.to))
        found = {
            name: replace(one, detail=detail) if one.reason is Reason.SCHEMA_CHANGED else one
            for name, one in found.items()
        }
    return _increments(plan, hop, log, found, previous) if transfer.incremental else found


def _increments(
    plan: TransferPlan,
    hop: Hop,
    log: Log,
    found: Mapping[str, Decision],
    previous: Mapping[str, Committed],
) -> dict[str, Decision]:
    """The decisions about ranges that are moved from their watermarks on, where that is enough."""
    declared, column = plan.transfer.incremental, plan.transfer.watermark
    assert declared is not None and column is not None
    seen = [records(log, one.spec.to, found) for one in plan.hops[: hop.number]]
    published = plan.published.get(hop.number)
    markers = published.of_target if published else None
    decided = {}
    for name, one in found.items():
        of_range = [of_hop.get(name) for of_hop in seen]
        # a table that is not there has no older rows
        failed = hop.existing is None or name not in previous or bool(previous[name].failed)
        what = increment(
            one.reason,
            of_range,
            failed=failed,
            column=column,
            full_check=declared.full_check_seconds,
            at=now(),
        )
        # what somebody else has published need not have all rows below the log's watermark
        moved = name in previous and _moved(markers, name, previous[name].data_version)
        since = None if moved else what.since
        detail = f"{column} >= {since}" if since else one.detail
        proven = intact(of_range[-1], column)
        decided[name] = Decision(what.reason, detail, since, proven)
    return decided


def _swap_reasons(
    plan: TransferPlan,
    hop: Hop,
    servers: Servers,
    log: Log,
    reasons: Mapping[str, Reason],
) -> dict[str, Reason]:
    """What a swap has to do: nothing if no range changed, else every range that is not gathered.

    A run may have died after it had put the shadow in place, before it recorded that. The ranges
    say which table they were gathered in: if that is the target now, they are to be recorded only.

    Args:
        plan: the transfer's.
        hop: the hop that swaps.
        servers: where the shadow table is.
        log: whose event log says which ranges are gathered, and of which data version.
        reasons: why each range would run if it were replaced alone.
    """
    same = {name for name, reason in reasons.items() if reason.needs_no_move}
    if same == set(reasons):
        return dict(reasons)
    versions, seen = plan.versions(hop), records(log, hop.spec.to, reasons)
    gathered = {
        name: record.shadow
        for name, record in seen.items()
        if record.state is State.SHADOWED
        and record.data_version == str(versions[name])
        and reasons[name] is not Reason.FORCED
    }
    sound = {
        name: table
        for name, table in gathered.items()
        if reasons[name] is not Reason.LAST_CHECK_FAILED
    }
    promoted = _held_by(hop.in_place, sound, plan, servers)
    if same | promoted == set(reasons):
        return {**reasons, **dict.fromkeys(promoted, Reason.PROMOTED)}
    shadowed = _held_by(hop, gathered, plan, servers)
    return {
        name: Reason.SHADOWED if name in shadowed else Reason.SWAP if name in same else reason
        for name, reason in reasons.items()
    }


def _held_by(
    hop: Hop, gathered: Mapping[str, str | None], plan: TransferPlan, servers: Servers
) -> set[str]:
    """Of ranges and the tables they were gathered in, those in the table that the hop writes to."""
    written = hop.written_plan
    table = servers.target(written.target).identity(written.target) if gathered else None
    if table is None or table not in gathered.values():
        return set()
    rows, expected = _target_rows(plan, written, servers) or {}, plan.rows()
    published, versions = plan.published.get(hop.number), plan.versions(hop)
    # another home may have gathered its own in the same table
    markers = published.markers.get(table, {}) if published else None
    return {
        name
        for name, gathered_in in gathered.items()
        if gathered_in == table
        and rows.get(name, 0) == expected[name]
        and not _moved(markers, name, versions[name])
    }


def _target_rows(plan: TransferPlan, copy: CopyPlan, servers: Servers) -> dict[str, int] | None:
    """Rows per range in the copy's target; None if there is no such table, or a column is gone."""
    endpoint = servers.endpoint(copy.target)
    actual = target_columns(endpoint, copy.target)
    if actual is None or new_columns(copy, actual):
        return None
    return count_by_range(copy, endpoint, "target", list(plan.ranges.values()))


def decide(
    current: Mapping[str, DataVersion],
    previous: Mapping[str, Committed],
    *,
    target_rows: Mapping[str, int] | None = None,
    expected_rows: Mapping[str, int] | None = None,
    lost_columns: Sequence[str] = (),
    published: Published | None = None,
    force: bool = False,
) -> dict[str, Decision]:
    """Why each range is run, or `UNCHANGED` where it is skipped.

    Args:
        current: the data version that each range would be committed with now.
        previous: what `committed` found.
        target_rows: rows in the target per range, None when the target table does not exist.
        expected_rows: rows in the source per range.
        lost_columns: planned columns that the target has no more.
        published: the target's markers; None if it has none.
        force: run all.
    """
    decisions: dict[str, Decision] = {}
    markers = published.of_target if published else None
    for name, version in current.items():
        before = previous.get(name)
        if before is None:
            decisions[name] = Decision(Reason.MISSING)
        elif force:
            decisions[name] = Decision(Reason.FORCED)
        elif (change := version.change_since(before.data_version)) and change not in COMPARED_FIRST:
            decisions[name] = Decision(change)
        elif before.failed:
            decisions[name] = Decision(Reason.LAST_CHECK_FAILED, ", ".join(before.failed))
        elif target_rows is None:
            decisions[name] = Decision(Reason.TARGET_MISSING, "no such table")
        elif lost_columns:
            decisions[name] = Decision(
                Reason.TARGET_CHANGED, f"{', '.join(map(repr, lost_columns))} is gone"
            )
        elif expected_rows is not None and target_rows.get(name, 0) != expected_rows[name]:
            decisions[name] = _row_count_differs(target_rows.get(name, 0), expected_rows[name])
        elif moved := _moved(markers, name, before.data_version):
            decisions[name] = Decision(Reason.TARGET_MOVED, moved)
        elif change:
            decisions[name] = Decision(change)
        elif before.unchecked:
            decisions[name] = Decision(Reason.UNCHECKED)
        else:
            decisions[name] = Decision(Reason.UNCHANGED)
    return decisions


def _moved(markers: Mapping[str, Marker] | None, name: str, committed: DataVersion) -> str:
    """What the target's marker says of a committed range, if it is not what the log says."""
    if markers is None:
        return ""
    marker = markers.get(name)
    if marker is None:
        return "the target does not say what was published last"
    if DataVersion.parse(marker.version) == committed:
        return ""
    return f"published by {marker}"


def _row_count_differs(found: int, expected: int) -> Decision:
    if not found:
        return Decision(Reason.TARGET_MISSING, f"all {counted(expected, 'row')} missing")
    if found < expected:
        detail = f"{expected - found:,} of {counted(expected, 'row')} missing"
    else:
        detail = f"{counted(found - expected, 'row')} more than the source's {expected:,}"
    return Decision(Reason.ROW_COUNT_DIFFERS, detail)
