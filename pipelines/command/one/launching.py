"""Executes the Dagster runs of a command, in this process or in several."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.command_runs import carry_out, record_failure, selected
from tableferry.assets.log.history import failure_lines
from tableferry.assets.log.runs import LAUNCH, RANGE_END, RANGE_START, TRANSFER
from tableferry.assets.planning.intent import Intent
from tableferry.assets.running.caller import Caller
from tableferry.assets.running.processes import PROCESS, this_process
from tableferry.assets.running.progress import OnProgress, Progress
from tableferry.assets.verifying.checked import CheckRequest
from tableferry.pipelines.command.one.child import Children, Ended, Parent
from tableferry.pipelines.command.session import Session, open_session
from tableferry.pipelines.definitions import build
from tableferry.resources.contract.snapshots import HeldSnapshot
from tableferry.resources.errors import TableferryError

_INTERRUPTIONS = (dg.DagsterExecutionInterruptedError.__name__, KeyboardInterrupt.__name__)


@dataclass(frozen=True)
class Share:
    """The runs that one process executes."""

    transfer: str
    hops: tuple[dg.AssetKey, ...]
    """The targets to move to."""
    segments: Sequence[tuple[str, str]]
    """The first and last range of each run."""
    tags: Mapping[str, str]
    log_level: str | None = None
    snapshot: HeldSnapshot | None = None
    """The source's snapshot that all processes read, if it has one."""


@dataclass
class RunOutcome:
    """The outcome of one or more runs."""

    run_ids: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def built(session: Session, name: str, caller: Caller) -> dg.Definitions:
    """Build the definitions of one transfer on the servers of a session."""
    return build(session.declared.only(name), {name: caller}, bound=session.servers)


def logging_config(level: str | None) -> dict[str, Any]:
    """Return the run config of Dagster's log level; by default nothing is logged."""
    return {"loggers": {"console": {"config": {"log_level": level or "CRITICAL"}}}}


def execute(session: Session, share: Share, caller: Caller) -> RunOutcome:
    """Execute the runs of a share in this process, one after the other."""
    outcome = RunOutcome()
    name = share.transfer
    job = selected(built(session, name, caller), share.hops)
    for number, (first, last) in enumerate(share.segments, start=1):
        caller.last = number == len(share.segments)
        tags = {**share.tags, TRANSFER: name, RANGE_START: first, RANGE_END: last}
        tags[PROCESS] = this_process(session.instance)
        result = carry_out(
            session.instance,
            job,
            tags=tags,
            assets=share.hops,
            run_config=logging_config(share.log_level),
        )
        outcome.run_ids.append(result.run_id)
        outcome.errors += failures(result)
    outcome.notes += dict.fromkeys(caller.notes)
    outcome.errors += [
        f"{check.hop.plan.target}: {check.verdict.summary()}"
        for check in caller.checked
        if check.failed
    ]
    return outcome


def execute_checks(
    session: Session,
    transfer: Transfer,
    request: CheckRequest,
    caller: Caller,
    log_level: str | None,
) -> dg.ExecuteInProcessResult | dg.JobExecutionResult:
    """Execute a run of checks alone in this process.

    Raises:
        TableferryError: it could not compare anything.
    """
    checks, name = request.checks(transfer), transfer.transfer
    result = carry_out(
        session.instance,
        selected(built(session, name, caller), checks=checks),
        tags={**request.tags(), TRANSFER: name, PROCESS: this_process(session.instance)},
        checks=checks,
        run_config=logging_config(log_level),
    )
    if caller.error is not None:
        raise caller.error
    return result


def execute_parallel(
    session: Session, shares: Sequence[Share], on_progress: OnProgress
) -> RunOutcome:
    """Execute each share in a process of its own; if one dies, the others go on."""
    launch = f"{len(shares)}:{uuid4()}"
    outcome = RunOutcome()
    with Children(lambda: session.instance) as children:
        started = {
            children.start(_work, replace(share, tags={**share.tags, LAUNCH: launch})): share
            for share in shares
        }
        while children:
            for child, message in children.messages():
                if isinstance(message, Progress):
                    on_progress(message)
                elif isinstance(message, Ended):
                    assert child is not None
                    outcome.errors += _exit_errors(message, started[child])
                else:
                    outcome.run_ids += message.run_ids
                    outcome.errors += message.errors
                    outcome.notes += (note for note in message.notes if note not in outcome.notes)
    return outcome


def _exit_errors(ended: Ended, share: Share) -> list[str]:
    """Describe the failure of a process that has ended, if it failed."""
    if not ended.exit_code:
        return []
    (first, _), (_, last) = share.segments[0], share.segments[-1]
    return [
        f"{share.transfer}: the process of ranges {first} to {last} ended with exit code "
        f"{ended.exit_code}; run it again, which moves what it has not committed"
    ]


def _work(parent: Parent, share: Share) -> None:
    """Execute a share in a child process, and send its progress and outcome to the parent."""
    try:
        session = open_session(share.transfer, warns=False)
        intent = Intent.parse(share.tags)
        caller = Caller(parent.send, snapshot=share.snapshot, intent=intent)
        parent.send(execute(session, share, caller))
    except dg.DagsterExecutionInterruptedError:
        sys.exit(1)
    except TableferryError as error:
        parent.send(RunOutcome(errors=str(error).splitlines()))


def record_refused(session: Session, name: str, hop: int | None, why: str) -> None:
    """Record a run of a transfer that failed before it began, so that status and reports tell it.

    Args:
        session: the session of the command.
        name: the transfer.
        hop: the only hop that it was to run (1-based); None: all.
        why: the error.
    """
    hops = session.transfer(name).hops
    keys = [asset_key(each.to) for number, each in enumerate(hops, 1) if hop in (None, number)]
    job = selected(built(session, name, Caller()), keys)
    record_failure(session.instance, job, tags={TRANSFER: name}, assets=keys, why=why)


def failures(result: dg.ExecuteInProcessResult | dg.JobExecutionResult) -> list[str]:
    """Return the lines that say why a run failed, without those that Dagster adds."""
    lines: list[str] = []
    before = ["the run failed before it began; see `ferry status`"]
    for event in result.all_events:
        if event.is_job_failure and (error := event.job_failure_data.error):
            before = (error.cause or error).message.strip().splitlines()[:1] or before
        if not event.is_step_failure:
            continue
        error = event.step_failure_data.error
        if error and error.cls_name in _INTERRUPTIONS:
            lines.append(
                "interrupted; what is committed stays, and the next run goes on from there"
            )
        else:
            lines += failure_lines(event)
    return before if not result.success and not lines else lines
