"""The sensor that fails runs whose process has died, and frees their concurrency slots."""

import dagster as dg

from tableferry.assets.running.processes import PROCESS, process_is_gone
from tableferry.assets.running.runs import UNFINISHED
from tableferry.assets.running.source_slots import free_dead_slots


def reap(instance: dg.DagsterInstance) -> list[str]:
    """Mark runs as failed whose process is certainly dead; return their ids.

    Dagster's default run launcher does not watch its processes: a killed run would stay STARTED
    and keep its pool slots.
    """
    reaped = []
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        tag = run.tags.get(PROCESS)
        if tag is None or not process_is_gone(instance, tag) or _inherited(instance, run, tag):
            continue
        instance.report_run_failed(run, f"The process of this run ({tag}) is gone.")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        reaped.append(run.run_id)
    free_dead_slots(instance)
    return reaped


def _inherited(instance: dg.DagsterInstance, run: dg.DagsterRun, tag: str) -> bool:
    """Whether Dagster copied the tag from the run that this one repeats."""
    parent = instance.get_run_by_id(run.parent_run_id) if run.parent_run_id else None
    return parent is not None and parent.tags.get(PROCESS) == tag


def reaper_sensor(name: str = "reaper") -> dg.SensorDefinition:
    """Build the sensor that reaps the runs of all transfers."""

    @dg.sensor(
        name=name,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Fails runs whose process has died, and frees their pool slots.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        reaped = reap(context.instance)
        return dg.SkipReason(f"reaped {', '.join(reaped)}" if reaped else "all runs are alive")

    return watch


reaper = reaper_sensor()
