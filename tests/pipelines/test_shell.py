"""Exit codes and error lines that all commands share."""

from __future__ import annotations

import os
import signal

import click
from click.testing import CliRunner

from tableferry.pipelines.command.shell import user_errors


def test_a_command_that_is_stopped_says_so() -> None:
    """Service managers and Kubernetes send SIGTERM."""

    @click.command()
    @user_errors
    def stopped() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    result = CliRunner().invoke(stopped)
    assert (result.exit_code, result.stderr.strip()) == (1, "Aborted!")
    assert signal.getsignal(signal.SIGTERM) is before
