"""The errors that a user of the local stack sees: one clear line each, never a secret."""

from __future__ import annotations

import click


class StackError(click.ClickException):
    """A part of the local stack could not be started or stopped."""


class DemoError(click.ClickException):
    """The demo's tables cannot be loaded there, and trying again does not help."""

    exit_code = 2
