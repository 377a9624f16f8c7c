"""What Dagster calls the runs' job, and a transfer's op and schedules."""

from __future__ import annotations

CODE_LOCATION = "tableferry"
"""Name of the code location in workspace.yaml, `ferry dev` and the runs of commands."""


ASSET_JOB = "__ASSET_JOB"
"""Dagster's job of all assets and checks. A run of it selects those of one transfer or several."""


def about(transfer: str, text: str) -> str:
    """Prefix a message with its transfer's name, unless it has that prefix."""
    return text if text.startswith(f"{transfer}: ") else f"{transfer}: {text}"


def move_op_name(transfer: str) -> str:
    """Name of the op that moves a transfer; an asset may have the transfer's own name."""
    return f"transfer_{transfer}"


def schedule_name(transfer: str) -> str:
    """Name of the schedule that moves a transfer."""
    return f"{transfer}_schedule"


def check_schedule_name(transfer: str) -> str:
    """Name of the schedule that only reconciles a transfer."""
    return f"{transfer}_check_schedule"
