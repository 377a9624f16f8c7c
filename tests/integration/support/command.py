"""Runs `ferry` in this process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from tableferry.pipelines.cli import main


def command(*arguments: str, code: int | None = None) -> Result:
    """What a command answers; with `code`, it has to end with that."""
    result = CliRunner().invoke(main, [*arguments], catch_exceptions=False)
    assert code in (None, result.exit_code), result.output
    return result
