"""Carries out the Dagster runs of a command: one after the other, or shared among processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any
from uuid import uuid4

import dagster as dg

from tableferry.assets.declaring.names import move_job_name
from tableferry.assets.log.command_runs import carry_out as carry_out_run
from tableferry.assets.log.run_tags import (
    LAUNCH,
    RANGE_END,
    RANGE_START,
)
from tableferry.assets.running.caller import Caller
from tableferry.assets.running.processes import PROCESS, this_process
from tableferry.assets.running.progress import OnProgress, Progress
from tableferry.pipelines.command.session import Session, open_session
from tableferry.pipelines.definitions import build
from tableferry.resources.errors import TableferryError
from tableferry.sensors.reaper import reap

SECONDS_TO_END = 60.0
"""For a process that is asked to end; it takes its running ranges to where they can be left."""


_INTERRUPTIONS = (dg.DagsterExecutionInterruptedError.__name__, KeyboardInterrupt.__name__)


@dataclass(frozen=True)
class Share:
    """The runs that one process carries out: which ranges of a transfer, and how."""

    transfer: str
    hops: tuple[dg.AssetKey, ...] | None
    """None: all, which Dagster need not choose."""
    segments: Sequence[tuple[str, str]]
    """First and last range of each run."""
    tags: Mapping[str, str]
    log_level: str | None = None
    snapshot: str | None = None
    """The one of the source that all processes read, where it has one."""


@dataclass
class Outcome:
    """What became of some runs."""

    run_ids: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def built(session: Session, name: str, caller: Caller) -> dg.Definitions:
    """What the one transfer amounts to, on the servers of the session."""
    return build(session.declared.only(name), {name: caller}, session.resources)


def logging_config(level: str | None) -> dict[str, Any]:
    """Run config; without a level nothing is logged: the commands say themselves what is wrong."""
    return {"loggers": {"console": {"config": {"log_level": level or "CRITICAL"}}}}


def carry_out(session: Session, share: Share, caller: Caller) -> Outcome:
    """The runs of a share in this process, one after the other."""
    carried = Outcome()
    name = share.transfer
    job = built(session, name, caller).resolve_job_def(move_job_name(name))
    for number, (first, last) in enumerate(share.segments, start=1):
        caller.last = number == len(share.segments)
        tags = {**share.tags, RANGE_START: first, RANGE_END: last}
        tags[PROCESS] = this_process(session.instance)
        result = carry_out_run(
            session.instance,
            job,
            tags=tags,
            assets=share.hops,
            run_config=logging_config(share.log_level),
        )
        carried.run_ids.append(result.run_id)
        carried.errors += failures(result)
    carried.notes += dict.fromkeys(caller.notes)
    carried.errors += [
        f"{one.hop.plan.target}: {one.verdict.summary()}" for one in caller.checked if one.failed
    ]
    return carried


def carry_out_together(
    session: Session, shares: Sequence[Share], on_progress: OnProgress
) -> Outcome:
    """The runs of several shares, each in a process of its own, and what became of all.

    A process that dies takes none of the others with it.
    """
    context = multiprocessing.get_context("spawn")
    launch = f"{len(shares)}:{uuid4()}"
    started: dict[Connection, tuple[SpawnProcess, Share]] = {}
    carried = Outcome()
    try:
        for share in shares:
            ours, theirs = context.Pipe(duplex=False)
            tagged = replace(share, tags={**share.tags, LAUNCH: launch})
            process = context.Process(target=_work, args=(tagged, theirs))
            process.start()
            # its end of the pipe is its alone, so that its death is seen
            theirs.close()
            started[ours] = process, share
        listening = set(started)
        while listening:
            for ready in wait(listening):
                assert isinstance(ready, Connection)
                try:
                    message = ready.recv()
                except (EOFError, OSError):
                    listening.remove(ready)
                    process, share = started[ready]
                    carried.errors += _death(process, share)
                    continue
                if isinstance(message, Progress):
                    on_progress(message)
                else:
                    carried.run_ids += message.run_ids
                    carried.errors += message.errors
                    carried.notes += (one for one in message.notes if one not in carried.notes)
        return carried
    finally:
        for connection, (process, _) in started.items():
            connection.close()
            if process.is_alive():
                process.terminate()
        for process, _ in started.values():
            process.join(SECONDS_TO_END)
            process.kill()
        reap(session.instance)


def _death(process: SpawnProcess, share: Share) -> list[str]:
    """What there is to say of a process that has ended, if it did not end well."""
    process.join()
    if not process.exitcode:
        return []
    (first, _), (_, last) = share.segments[0], share.segments[-1]
    return [
        f"{share.transfer}: the process of ranges {first} to {last} ended with exit code "
        f"{process.exitcode}; run it again, which moves what it has not committed"
    ]


def _work(share: Share, connection: Connection) -> None:
    """Be one of the processes."""
    # Ctrl-C on the terminal is for the command, which ends its processes then
    os.setsid()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sending = threading.Lock()

    def send(message: Progress | Outcome) -> None:
        with sending, suppress(BrokenPipeError):
            connection.send(message)

    try:
        session = open_session(share.transfer, tells_invalid=False)
        caller = Caller(send, snapshot=share.snapshot)
        send(carry_out(session, share, caller))
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
        sys.exit(1)
    except TableferryError as error:
        send(Outcome(errors=str(error).splitlines()))


def _end_with_parent() -> None:
    """So that nothing moves rows of which no command knows."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def failures(result: dg.ExecuteInProcessResult | dg.JobExecutionResult) -> list[str]:
    """The lines that say why a run failed, without Dagster's own wrapping."""
    lines: list[str] = []
    for event in result.all_events:
        if not event.is_step_failure:
            continue
        data = event.step_failure_data
        if data.user_failure_data and data.user_failure_data.description:
            lines += data.user_failure_data.description.splitlines()
        elif data.error and data.error.cls_name in _INTERRUPTIONS:
            lines.append(
                "interrupted; what is committed stays, and the next run goes on from there"
            )
        elif data.error:
            cause = data.error.cause or data.error
            lines.append(cause.message.strip().splitlines()[0])
    if not result.success and not lines:
        lines = ["the run failed before it began; see `ferry status`"]
    return lines
