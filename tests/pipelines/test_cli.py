"""The command line's manners: exit codes, one clear line, no secret, JSON."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipelines.cli import main

SECRET = "s3cr3t-w0rd"
TRANSFER = "transfer: orders\nsource: postgres://public.orders\nhops: ['{hop}']\nkey: id\n"


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken, but where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_port: int) -> Path:
    folder = tmp_path / "transfers"
    folder.mkdir()
    (folder / "orders.yaml").write_text(TRANSFER.format(hop="clickhouse://warehouse.orders"))
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(folder))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    at = f"u:{SECRET}@127.0.0.1:{closed_port}"
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", f"postgresql://{at}/db")
    monkeypatch.setenv("TABLEFERRY_CLICKHOUSE_URL", f"http://{at}/db")
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", f"mssql://{at}/db?encrypt=no")
    return folder


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


@pytest.mark.parametrize("command", ["validate", "plan", "run"])
def test_a_server_that_is_down_is_named(command: str, closed_port: int) -> None:
    arguments = [command] if command == "validate" else [command, "orders"]
    assert_one_clear_line(ferry(*arguments), 2, "postgres", f"127.0.0.1:{closed_port}")


@pytest.mark.parametrize("command", ["plan", "run", "status", "check"])
def test_an_unknown_transfer_is_named_with_those_that_exist(command: str) -> None:
    assert_one_clear_line(ferry(command, "nope"), 2, "'nope'", "orders")


def test_a_wrong_file_is_named_with_its_line(surroundings: Path) -> None:
    (surroundings / "orders.yaml").write_text("transfer: orders\nsauce: x\n")
    result = ferry("validate")
    assert result.exit_code == 2
    assert f"{surroundings}/orders.yaml:2: unknown key sauce" in result.output


def test_a_missing_folder_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", "/nowhere")
    assert_one_clear_line(ferry("validate"), 2, "/nowhere", "TABLEFERRY_TRANSFERS")


def test_a_server_without_its_variable_is_missed_only_when_needed(
    monkeypatch: pytest.MonkeyPatch, surroundings: Path
) -> None:
    monkeypatch.delenv("TABLEFERRY_POSTGRES_URL")
    assert_one_clear_line(ferry("run", "orders"), 2, "postgres")


def test_errors_are_json_too(closed_port: int) -> None:
    result = ferry("run", "orders", "--json")
    document = json.loads(result.output)
    assert (result.exit_code, document["ok"]) == (2, False)
    assert str(closed_port) in document["errors"][0]
    assert SECRET not in result.output


def test_status_asks_no_server() -> None:
    result = ferry("status", "orders", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["ranges"] == []


def test_an_unknown_option_is_bad_input() -> None:
    assert ferry("run", "orders", "--nope").exit_code == 2
    assert ferry("check", "orders", "--level", "md5").exit_code == 2


@pytest.mark.parametrize(
    "command", ["validate", "plan", "run", "status", "check", "diff", "clean", "local"]
)
def test_every_command_explains_itself(command: str) -> None:
    result = ferry(command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, pipelines.cli\n"
        "print(sorted({'dagster', 'pyarrow', 'polars', 'psycopg'} & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
