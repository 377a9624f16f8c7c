"""The history of a transfer's runs: what each did, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg

from tableferry.assets.asset_keys import asset_key, stored_key
from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log import runs
from tableferry.assets.log.queries import Log, select_events, select_in, select_runs
from tableferry.assets.log.records import NOT_COMMITTED, ROWS_SINCE, SOURCE_NEWER
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS

RECENT_RUNS = 20
PAGE = 500

ENDED_BADLY = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
LAUNCHERS = {
    "dagster/schedule_name": "schedule",
    "dagster/sensor_name": "sensor",
    "dagster/backfill": "backfill",
    "dagster/from_ui": "web UI",
}
"""Dagster's run tags, and who launched a run with the tag."""


@dataclass(frozen=True)
class PastRun:
    """One Dagster run of a transfer."""

    run_id: str
    kind: Literal["move", "check"]
    outcome: runs.RunEnd
    launched_by: str
    ranges: str
    """The partition key, or the first and the last one; empty for all ranges."""
    targets: frozenset[dg.AssetKey]
    """The targets for which a later success answers the failure of this run."""
    started_at: float | None = None
    ended_at: float | None = None
    error: str = ""
    """Why the run failed, one line per reason."""


def run_records(instance: dg.DagsterInstance) -> Iterator[dg.RunRecord]:
    """Yield all runs of an instance, newest first."""
    cursor: str | None = None
    while True:
        page = instance.get_run_records(limit=PAGE, cursor=cursor)
        yield from page
        if len(page) < PAGE:
            return
        cursor = page[-1].dagster_run.run_id


def past_runs(
    instance: dg.DagsterInstance, transfer: Transfer, also: Iterable[str] = ()
) -> list[PastRun]:
    """Return the runs that moved or checked a transfer, newest first.

    These are the last `RECENT_RUNS`, older ones until the last success of every target is included,
    and those whose ids are in `also`. Runs of other transfers are not read, however many there are.
    """
    targets = frozenset(asset_key(hop.to) for hop in transfer.hops)
    past: dict[str, PastRun] = {}
    answered: set[dg.AssetKey] = set()
    for record in _records(instance, runs_of(instance, transfer)):
        if run := _past_run(instance, transfer, targets, record):
            past[run.run_id] = run
            answered |= run.targets if run.outcome == "succeeded" else set()
        if len(past) >= RECENT_RUNS and answered >= targets:
            break
    if missing := [run_id for run_id in dict.fromkeys(also) if run_id not in past]:
        for record in instance.get_run_records(dg.RunsFilter(run_ids=missing)):
            if run := _past_run(instance, transfer, targets, record):
                past[run.run_id] = run
    return list(past.values())


def runs_of(log: Log, transfer: Transfer) -> list[str]:
    """Return the ids of the runs that may have moved or checked a transfer, newest first.

    They are tagged with its name, or have planned checks of its targets; both have an index.
    """
    tagged = select_runs(
        log,
        "SELECT t.run_id FROM run_tags t WHERE t.key = :tag AND t.value = :name",
        tag=runs.TRANSFER,
        name=transfer.transfer,
    )
    ids = {run_id for (run_id,) in tagged}
    checked = (
        "SELECT DISTINCT c.run_id FROM asset_check_executions c WHERE c.asset_key IN ({values})"
    )
    keys = [stored_key(hop.to) for hop in transfer.hops]
    ids |= {run_id for (run_id,) in select_in(select_events, log, checked, keys)}
    numbered = "SELECT r.id, r.run_id FROM runs r WHERE r.run_id IN ({values})"
    numbers = [(number, run_id) for number, run_id in select_in(select_runs, log, numbered, ids)]
    return [run_id for _, run_id in sorted(numbers, reverse=True)]


def _records(instance: dg.DagsterInstance, run_ids: Sequence[str]) -> Iterator[dg.RunRecord]:
    """Yield the records of runs, newest first, a few of them in memory at a time."""
    for start in range(0, len(run_ids), RECENT_RUNS):
        page = dg.RunsFilter(run_ids=list(run_ids[start : start + RECENT_RUNS]))
        yield from instance.get_run_records(page)


def unanswered(newest_first: Sequence[PastRun]) -> list[PastRun]:
    """Return the failed or canceled moves that no later success for their targets answers."""
    targets = frozenset[dg.AssetKey]().union(*(run.targets for run in newest_first))
    effects = ((run, (run.kind, run.targets), run.outcome) for run in newest_first)
    return [*runs.unanswered(effects, targets)]


def failed_checks(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    """Return the checks that failed in a run, one line each: target, range, check, conclusion.

    Checks of tables that lack ranges are left out: the ranges have failures of their own. So are
    those that found only that the source has changed since.
    """
    evaluated = {dg.DagsterEventType.ASSET_CHECK_EVALUATION}
    evaluations: dict[tuple[object, ...], dg.AssetCheckEvaluation] = {}
    for entry in instance.all_logs(run_id, of_type=evaluated):
        check = entry.get_dagster_event().asset_check_evaluation_data
        # the last verdict counts if a check was repeated
        evaluations[check.asset_key, check.partition, check.check_name] = check
    return [
        f"{check.asset_key.to_user_string()} {check.partition or '(whole table)'}: "
        f"{check.check_name} failed: {check.description or ''}".rstrip(": ")
        for check in evaluations.values()
        if not check.passed
        and (check.partition or check.check_name in WHOLE_TABLE_CHECKS)
        and not _only_behind(check)
    ]


def _only_behind(check: dg.AssetCheckEvaluation) -> bool:
    """Whether ranges of the table were not committed, or the source has changed since."""
    found = (check.metadata.get(name) for name in (NOT_COMMITTED, ROWS_SINCE, SOURCE_NEWER))
    return any(entry is not None and bool(entry.value) for entry in found)


def coverage(
    run: dg.DagsterRun, targets: frozenset[dg.AssetKey]
) -> runs.Coverage[dg.AssetKey] | None:
    """Return what a run does to the targets of transfers; None if it concerns none of them."""
    checked = {key.asset_key for key in run.asset_check_selection or ()}
    # a run that selects nothing is of all assets
    every = run.job_name == ASSET_JOB and not checked
    return runs.coverage(
        run.asset_selection or (targets if every else frozenset()),
        checked,
        targets,
        some_ranges=bool(runs.checked_ranges(run.tags)),
    )


def _past_run(
    instance: dg.DagsterInstance,
    transfer: Transfer,
    targets: frozenset[dg.AssetKey],
    record: dg.RunRecord,
) -> PastRun | None:
    """Return a run of the transfer; None for a run of another one."""
    run = record.dagster_run
    covered = coverage(run, targets)
    if covered is None:
        return None
    kind, answered = covered
    bounds = [run.tags.get(tag, "") for tag in (runs.RANGE_START, runs.RANGE_END)]
    ranges = run.tags.get(runs.PARTITION) or " to ".join(dict.fromkeys(filter(None, bounds)))
    if kind == "check":
        ranges = ", ".join(runs.checked_ranges(run.tags) or ())
    return PastRun(
        run_id=run.run_id,
        kind=kind,
        outcome=runs.outcome_of(run.status.value),
        launched_by=next(
            (who for tag, who in LAUNCHERS.items() if tag in run.tags), "command line"
        ),
        ranges=ranges,
        targets=answered,
        started_at=record.start_time or record.create_timestamp.timestamp(),
        ended_at=record.end_time,
        error=error_of(instance, run.run_id) if run.status in ENDED_BADLY else "",
    )


def failure_lines(failure: dg.DagsterEvent) -> list[str]:
    """Return why a step failed: what Tableferry says of it, or else the first line of the error."""
    data = failure.step_failure_data
    if data.user_failure_data and data.user_failure_data.description:
        return data.user_failure_data.description.splitlines()
    return [first_line(data.error)] if data.error else []


def first_line(error: Any) -> str:
    """Return the first line of an error that Dagster has stored, without Dagster's wrapping."""
    while error.cause is not None and error.message.startswith("dagster."):
        error = error.cause
    lines = error.message.strip().splitlines()
    name = error.cls_name or "an error without a name"
    return re.sub(r"^tableferry[\w.]*: ", "", lines[0]) if lines else name


def error_of(instance: dg.DagsterInstance, run_id: str) -> str:
    """Return why a run failed, by its steps or else by Dagster, in lines."""
    lines: list[str] = []
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        lines += failure_lines(entry.get_dagster_event())
    if not lines:
        ended = {dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_CANCELED}
        for entry in instance.all_logs(run_id, of_type=ended):
            lines += (entry.get_dagster_event().message or entry.user_message).splitlines()[:1]
    return "\n".join(line for line in dict.fromkeys(lines) if line.strip())
