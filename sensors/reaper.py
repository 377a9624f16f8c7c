"""Ends the runs whose process is gone, so that they neither look alive nor hold a slot."""

import dagster as dg

from tableferry.assets.running.processes import PROCESS, process_is_gone
from tableferry.assets.running.runs import UNFINISHED


def reap(instance: dg.DagsterInstance) -> list[str]:
    """Mark every run failed whose worker process is surely dead; returns the run ids.

    Dagster's default run launcher does not watch its processes: a killed run would stay STARTED and
    keep its pool slots for ever.
    """
    reaped = []
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        tag = run.tags.get(PROCESS)
        if tag is None or not process_is_gone(instance, tag) or _inherited(instance, run, tag):
            continue
        instance.report_run_failed(run, f"The process of this run ({tag}) is gone.")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        reaped.append(run.run_id)
    return reaped


def _inherited(instance: dg.DagsterInstance, run: dg.DagsterRun, tag: str) -> bool:
    """Whether the tag is that of the run that this one repeats, whose tags Dagster copies."""
    parent = instance.get_run_by_id(run.parent_run_id) if run.parent_run_id else None
    return parent is not None and parent.tags.get(PROCESS) == tag


def reaper_sensor(name: str = "reaper") -> dg.SensorDefinition:
    """Build the sensor that ends them, whichever transfer they are of."""

    @dg.sensor(
        name=name,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Marks runs failed whose process is gone, and frees their pool slots.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        reaped = reap(context.instance)
        return dg.SkipReason(f"reaped {', '.join(reaped)}" if reaped else "all runs are alive")

    return watch


reaper = reaper_sensor()
