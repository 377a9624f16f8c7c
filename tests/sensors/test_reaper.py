"""The reaper's ticks, against real processes that were killed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import dagster as dg
import psutil

from tableferry.assets.running.processes import PROCESS, Process, this_process
from tableferry.sensors.reaper import reaper

Status = dg.DagsterRunStatus


def add(instance: dg.DagsterInstance, process: str | None, status: Status = Status.STARTED) -> str:
    tags = {PROCESS: process} if process else {}
    run = dg.DagsterRun(job_name="move_orders", status=status, tags=tags)
    return instance.add_run(run).run_id


def here(instance: dg.DagsterInstance) -> Process:
    process = Process.parse(this_process(instance))
    assert process is not None
    return process


def killed(instance: dg.DagsterInstance) -> str:
    """The tag of a process that was here, and was killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = psutil.Process(process.pid).create_time()
        tag = replace(here(instance), pid=process.pid, started=started)
        process.kill()
    return str(tag)


def test_a_tick_ends_the_runs_of_dead_processes_and_no_others(
    instance: dg.DagsterInstance,
) -> None:
    gone = killed(instance)
    dead = {add(instance, gone, status) for status in (Status.STARTED, Status.CANCELING)}
    me = here(instance)
    reborn = add(instance, str(replace(me, started=me.started - 100)))
    others = {
        add(instance, str(me)),
        add(instance, None),
        add(instance, str(replace(me, space="another", file="another"))),
        add(instance, "nonsense"),
    }
    message = str(reaper(dg.build_sensor_context(instance)))
    for run_id in (*dead, reborn):
        run = instance.get_run_by_id(run_id)
        assert run is not None and run.status is Status.FAILURE
        assert run_id in message
    for run_id in others:
        run = instance.get_run_by_id(run_id)
        assert run is not None and not run.is_finished
    assert "alive" in str(reaper(dg.build_sensor_context(instance))), "once is enough"


def test_the_slot_of_a_dead_run_is_free_again(instance: dg.DagsterInstance) -> None:
    log = instance.event_log_storage
    log.set_concurrency_slots("orders", 1)
    dead = add(instance, killed(instance))
    assert log.claim_concurrency_slot("orders", dead, "orders").is_claimed
    alive = add(instance, this_process(instance))
    assert not log.claim_concurrency_slot("orders", alive, "orders").is_claimed
    reaper(dg.build_sensor_context(instance))
    assert log.claim_concurrency_slot("orders", alive, "orders").is_claimed
