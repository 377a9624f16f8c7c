"""Tells a web hook of failed runs: which transfer, which ranges, why."""

import json
import os
import urllib.request

import dagster as dg

from assets.runs import RANGE_END, RANGE_START

ALERT_URL = "TABLEFERRY_ALERT_URL"
"""Where a JSON document is POSTed for each failed run; without it the failure is only logged."""


@dg.run_failure_sensor(
    name="failure_alert",
    description=f"Logs every failed run, and POSTs it as JSON to {ALERT_URL} where that is set.",
)
def failure_alert(context: dg.RunFailureSensorContext) -> None:
    run = context.dagster_run
    steps = context.get_step_failure_events()
    alert = {
        "text": f"{run.job_name} failed: {context.failure_event.message}",
        "job": run.job_name,
        "run_id": run.run_id,
        "first_range": run.tags.get(RANGE_START),
        "last_range": run.tags.get(RANGE_END),
        "errors": [
            data.user_failure_data.description
            for event in steps
            if (data := event.step_failure_data).user_failure_data
        ],
    }
    context.log.error(alert["text"])
    if url := os.environ.get(ALERT_URL):
        request = urllib.request.Request(
            url, json.dumps(alert).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=10).close()
