"""What the event log tells a reviewer: which run moved each range, and how the runs ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.names import check_job_name
from tableferry.assets.log import answers
from tableferry.assets.log.records import NOT_COMMITTED, ROWS_SINCE
from tableferry.assets.log.run_tags import (
    RANGE_END,
    RANGE_START,
)
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS

RECENT_RUNS = 20
MOST_RUNS_READ = 2_000
"""Newest runs of the whole instance among which those of a transfer are looked for."""
PAGE = 500

PARTITION = "dagster/partition"
ENDED_BADLY = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
LAUNCHERS = {
    "dagster/schedule_name": "schedule",
    "dagster/sensor_name": "sensor",
    "dagster/backfill": "backfill",
    "dagster/from_ui": "web UI",
}
"""What Dagster tags a run with, and who launched it then."""

Outcome = Literal["succeeded", "failed", "canceled", "unfinished"]


@dataclass(frozen=True)
class PastRun:
    """One Dagster run of a transfer."""

    run_id: str
    kind: Literal["move", "check"]
    outcome: Outcome
    launched_by: str
    ranges: str
    """Partition key, or first and last of them; empty means all."""
    targets: frozenset[dg.AssetKey]
    """The targets that it covers: a later success for them answers an earlier failure."""
    started_at: float | None = None
    ended_at: float | None = None
    error: str = ""
    """Why it failed, one line per reason."""


def past_runs(
    instance: dg.DagsterInstance, transfer: Transfer, also: Iterable[str] = ()
) -> list[PastRun]:
    """The runs that moved or checked a transfer, the newest first.

    The last `RECENT_RUNS`, more of them until the last success of every target is among them, and
    those named.

    Args:
        instance: whose runs.
        transfer: the transfer.
        also: ids of runs that should be among them.
    """
    targets = frozenset(asset_key(hop.to) for hop in transfer.hops)
    found: dict[str, PastRun] = {}
    cursor: str | None = None
    for _ in range(MOST_RUNS_READ // PAGE):
        records = instance.get_run_records(limit=PAGE, cursor=cursor)
        for record in records:
            if run := _past_run(instance, transfer, targets, record):
                found[run.run_id] = run
            answered = {
                one for run in found.values() if run.outcome == "succeeded" for one in run.targets
            }
            if len(found) >= RECENT_RUNS and answered >= targets:
                break
        else:
            if len(records) == PAGE:
                cursor = records[-1].dagster_run.run_id
                continue
        break
    missing = [run_id for run_id in dict.fromkeys(also) if run_id not in found]
    if missing:
        for record in instance.get_run_records(dg.RunsFilter(run_ids=missing)):
            if run := _past_run(instance, transfer, targets, record):
                found[run.run_id] = run
    return list(found.values())


def unanswered(runs: Sequence[PastRun]) -> list[PastRun]:
    """The runs that failed or were refused, and that no later success for their targets answers.

    Args:
        runs: the newest first.
    """
    answered: set[dg.AssetKey] = set()
    found = []
    for run in runs:
        if run.outcome == "succeeded":
            answered |= run.targets
        elif run.outcome in ("failed", "canceled") and not run.targets <= answered:
            found.append(run)
    return found


def failed_checks(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    """The checks that failed in a run, one line each: target, range, check, what was found.

    Those of tables that lack ranges are left out: the ranges tell of themselves.
    """
    found = {}
    evaluated = {dg.DagsterEventType.ASSET_CHECK_EVALUATION}
    for entry in instance.all_logs(run_id, of_type=evaluated):
        event = entry.get_dagster_event().asset_check_evaluation_data
        # of a check that was done again, the last verdict
        found[event.asset_key, event.partition, event.check_name] = event
    return [
        f"{one.asset_key.to_user_string()} {one.partition or '(whole table)'}: "
        f"{one.check_name} failed: {one.description or ''}".rstrip(": ")
        for one in found.values()
        if not one.passed
        and (one.partition or one.check_name in WHOLE_TABLE_CHECKS)
        and not _incomplete(one)
    ]


def _incomplete(event: dg.AssetCheckEvaluation) -> bool:
    """Whether it is about a table that lacks ranges, or what the source has gained since."""
    missing = (event.metadata.get(name) for name in (NOT_COMMITTED, ROWS_SINCE))
    return any(found is not None and bool(found.value) for found in missing)


def covered(
    run: dg.DagsterRun, transfer: Transfer, targets: frozenset[dg.AssetKey]
) -> tuple[Literal["move", "check"], frozenset[dg.AssetKey]] | None:
    """What a run of a transfer does, and for which targets its success answers.

    Args:
        run: any run.
        transfer: whose it may be.
        targets: all of the transfer's.

    Returns:
        None if it is another's.
    """
    return answers.covered(
        transfer.transfer,
        targets,
        run.job_name,
        frozenset(run.asset_selection or ()),
        {key.asset_key for key in run.asset_check_selection or ()},
        some_ranges=bool(_checked_ranges(run)),
    )


def _past_run(
    instance: dg.DagsterInstance,
    transfer: Transfer,
    targets: frozenset[dg.AssetKey],
    record: dg.RunRecord,
) -> PastRun | None:
    """A run as one of the transfer's; None if it is another's."""
    run = record.dagster_run
    about = covered(run, transfer, targets)
    if about is None:
        return None
    kind, answered = about
    bounds = [run.tags.get(tag, "") for tag in (RANGE_START, RANGE_END)]
    ranges = run.tags.get(PARTITION) or " to ".join(dict.fromkeys(filter(None, bounds)))
    if run.job_name == check_job_name(transfer.transfer):
        ranges = ", ".join(_checked_ranges(run))
    return PastRun(
        run_id=run.run_id,
        kind=kind,
        outcome=_outcome(run.status),
        launched_by=next(
            (who for tag, who in LAUNCHERS.items() if tag in run.tags), "command line"
        ),
        ranges=ranges,
        targets=answered,
        started_at=record.start_time or record.create_timestamp.timestamp(),
        ended_at=record.end_time,
        error=_error(instance, run.run_id) if run.status in ENDED_BADLY else "",
    )


def _checked_ranges(run: dg.DagsterRun) -> list[str]:
    """The ranges that a run of the check job was restricted to; it has one op."""
    ops: Any = run.run_config.get("ops") or {}
    return [name for op in ops.values() for name in (op.get("config") or {}).get("ranges") or ()]


def _outcome(status: dg.DagsterRunStatus) -> Outcome:
    if status is dg.DagsterRunStatus.SUCCESS:
        return "succeeded"
    if status is dg.DagsterRunStatus.FAILURE:
        return "failed"
    return "canceled" if status is dg.DagsterRunStatus.CANCELED else "unfinished"


def _error(instance: dg.DagsterInstance, run_id: str) -> str:
    """The lines that say why a run failed: those of its steps, else Dagster's own."""
    failures = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    lines: list[str] = []
    for entry in failures:
        data = entry.get_dagster_event().step_failure_data
        if data.user_failure_data and data.user_failure_data.description:
            lines += data.user_failure_data.description.splitlines()
        elif data.error:
            cause = data.error.cause or data.error
            lines.append(cause.message.strip().splitlines()[0])
    if not lines:
        ended = {dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_CANCELED}
        for entry in instance.all_logs(run_id, of_type=ended):
            lines += (entry.get_dagster_event().message or entry.user_message).splitlines()[:1]
    return "\n".join(dict.fromkeys(lines))
