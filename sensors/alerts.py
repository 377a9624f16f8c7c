"""Tells a web hook of failed runs: which transfer, which ranges, why."""

import http.client
import json
import os
import urllib.request
from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.running.runs import RANGE_END, RANGE_START
from resources.errors import ConnectionFailed

ALERT_URL = "TABLEFERRY_ALERT_URL"
"""Where a JSON document is POSTed for each failed run; without it the failure is only logged."""


@dg.run_failure_sensor(
    name="failure_alert",
    description=f"Logs every failed run, and POSTs it as JSON to {ALERT_URL} where that is set.",
)
def failure_alert(context: dg.RunFailureSensorContext) -> None:
    run = context.dagster_run
    alert = {
        "text": f"{run.job_name} failed: {context.failure_event.message}",
        "job": run.job_name,
        "run_id": run.run_id,
        "first_range": run.tags.get(RANGE_START),
        "last_range": run.tags.get(RANGE_END),
        "errors": [
            data.user_failure_data.description
            for event in context.get_step_failure_events()
            if (data := event.step_failure_data).user_failure_data
        ],
    }
    context.log.error(alert["text"])
    if url := os.environ.get(ALERT_URL):
        post(url, alert)


def post(url: str, document: Mapping[str, Any]) -> None:
    """POST a JSON document.

    Raises:
        ConnectionFailed: it was not taken. The error does not show the URL, in which web hooks
            have their password.
    """
    request = urllib.request.Request(
        url, json.dumps(document).encode(), {"Content-Type": "application/json"}
    )
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        # a wrong URL is quoted in the error
        why = type(error).__name__ if isinstance(error, ValueError) else error
        raise ConnectionFailed(f"{ALERT_URL} does not take the alert: {why}") from None
