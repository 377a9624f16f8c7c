"""Names of a transfer's jobs, ops and schedules in Dagster."""

from __future__ import annotations

CODE_LOCATION = "tableferry"
"""Name of the code location in workspace.yaml, `ferry dev` and the runs of commands."""


def about(transfer: str, text: str) -> str:
    """Prefix a message with its transfer's name, unless it has that prefix."""
    return text if text.startswith(f"{transfer}: ") else f"{transfer}: {text}"


def move_op_name(transfer: str) -> str:
    """Name of the op that moves a transfer; an asset may have the transfer's own name."""
    return f"transfer_{transfer}"


def move_job_name(transfer: str) -> str:
    """Name of the job that moves a transfer."""
    return f"move_{transfer}"


def check_job_name(transfer: str) -> str:
    """Name of the job that only reconciles a transfer."""
    return f"check_{transfer}"


def compare_op_name(transfer: str) -> str:
    """Name of the op that only reconciles a transfer."""
    return f"compare_{transfer}"


def schedule_name(transfer: str) -> str:
    """Name of the schedule that moves a transfer."""
    return f"{transfer}_schedule"


def check_schedule_name(transfer: str) -> str:
    """Name of the schedule that only reconciles a transfer."""
    return f"{transfer}_check_schedule"
