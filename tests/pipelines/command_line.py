"""Runs `ferry` in this process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from tableferry.pipelines.cli import main

SECRET = "s3cr3t-w0rd"
TRANSFER = "transfer: orders\nsource: postgres://public.orders\nhops: ['{hop}']\nkey: id\n"


def ferry(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def assert_one_clear_line(result: Result, code: int, *parts: str) -> None:
    assert result.exit_code == code, result.output
    lines = result.output.strip().splitlines()
    assert len(lines) == 1, result.output
    assert lines[0].startswith("ferry: ")
    for part in parts:
        assert part in lines[0]
    assert SECRET not in result.output
    assert "Traceback" not in result.output
