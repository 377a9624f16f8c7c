"""The command line: exit codes, one line per error, no secret, JSON."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import finding
from tableferry.resources.keys.range import KeyRange
from tests.pipelines.command_line import SECRET, TRANSFER, assert_one_clear_line, ferry

pytestmark = pytest.mark.usefixtures("surroundings")


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


def test_what_a_misspelt_key_means_is_said(surroundings: Path) -> None:
    (surroundings / "orders.yaml").write_text(TRANSFER.format(hop="x").replace("hops:", "hop:"))
    assert "orders.yaml:3: unknown key hop: did you mean hops?" in ferry("validate").output


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["report", "orders", "--output", "{0}/none/r.md"], "none/r.md"),
        (["diff", "orders", "--range", "1", "--parquet", "{0}/none/d.parquet"], "none/d.parquet"),
    ],
)
def test_a_file_that_cannot_be_written_is_named(
    arguments: list[str], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = SimpleNamespace(hops=(), ranges={"..": KeyRange("integer")})
    monkeypatch.setattr(finding, "plan_transfer", lambda *_, **__: plan)
    result = ferry(*(one.format(tmp_path) for one in arguments))
    assert_one_clear_line(result, 2, f"{tmp_path}/{file}: No such file or directory")


def test_a_profile_that_there_is_not_is_bad_input() -> None:
    result = ferry("run", "orders", "--profile", "fast")
    assert result.exit_code == 2
    assert "'fast' is not one of 'safe', 'balanced', 'throughput'" in result.output


def test_a_folder_without_transfers_is_named(surroundings: Path) -> None:
    (surroundings / "orders.yaml").unlink()
    result = ferry("validate")
    assert (result.exit_code, result.output) == (
        0,
        f"there is no transfer file in {surroundings}\n",
    )


BAD = TRANSFER.format(hop="clickhouse://warehouse.bad").replace(": orders", ": bad")
BAD += "schedule: every day\nowners: [bob]\n"


@pytest.fixture
def bad_file(surroundings: Path) -> Path:
    path = surroundings / "bad.yaml"
    path.write_text(BAD)
    return path


def test_a_bad_file_stops_no_other_transfer(bad_file: Path) -> None:
    result = ferry("status", "orders")
    assert result.exit_code == 0
    assert f"ferry: left out {bad_file}:5: schedule: should be a cron line" in result.stderr
    assert "(and 1 more: ferry validate)" in result.stderr
    assert "bad.yaml" not in result.stdout
    assert json.loads(ferry("status", "orders", "--json").stdout)["ok"]


@pytest.mark.parametrize("command", ["plan", "run", "status", "check", "validate"])
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_a_bad_file_is_refused_by_all_of_its_lines(
    command: str, options: list[str], bad_file: Path
) -> None:
    result = ferry(command, "bad", *options)
    assert result.exit_code == 2
    text = result.stderr
    if options:
        text = "\n".join(json.loads(result.stdout)["errors"])
    assert f"{bad_file}:5: schedule" in text
    assert f"{bad_file}:6: owners.0" in text
    assert "left out" not in result.output, "it is said once"


def test_validate_names_all_bad_files_whatever_the_servers_say(
    bad_file: Path, closed_port: int
) -> None:
    result = ferry("validate")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"ferry: {bad_file}:5: schedule")
    assert lines[1].startswith(f"ferry: {bad_file}:6: owners.0")
    assert str(closed_port) in lines[2]
    document = json.loads(ferry("validate", "--json").stdout)
    assert document["ok"] is False
    assert len(document["errors"]) == 3


def test_every_server_that_is_not_set_is_named_with_who_needs_it(
    monkeypatch: pytest.MonkeyPatch, surroundings: Path
) -> None:
    (surroundings / "orders.yaml").write_text(
        TRANSFER.format(hop="sqlserver://dbo.orders', 'clickhouse://warehouse.orders")
    )
    monkeypatch.delenv("TABLEFERRY_SQLSERVER_URL")
    monkeypatch.delenv("TABLEFERRY_CLICKHOUSE_URL")
    result = ferry("validate")
    assert result.exit_code == 2
    file = f"{surroundings}/orders.yaml"
    assert f"{file}:3: TABLEFERRY_SQLSERVER_URL is not set" in result.stdout
    assert "transfer orders needs it for sqlserver://dbo.orders" in result.stdout
    assert f"{file}:3: TABLEFERRY_CLICKHOUSE_URL is not set" in result.stdout


def test_a_missing_folder_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", "/nowhere")
    assert_one_clear_line(ferry("validate"), 2, "/nowhere", "TABLEFERRY_TRANSFERS")


def test_a_server_without_its_variable_is_missed_only_when_needed(
    monkeypatch: pytest.MonkeyPatch, surroundings: Path
) -> None:
    monkeypatch.delenv("TABLEFERRY_POSTGRES_URL")
    assert_one_clear_line(
        ferry("run", "orders"),
        2,
        "TABLEFERRY_POSTGRES_URL is not set; transfer orders needs it for postgres://public.orders",
    )


def test_errors_are_json_too(closed_port: int) -> None:
    result = ferry("run", "orders", "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["ok"]) == (2, False)
    assert result.stderr == f"ferry: {document['errors'][0]}\n", "who reads no JSON is told, too"
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


def test_an_address_of_another_machine_is_named_before_anything_starts() -> None:
    result = CliRunner().invoke(main, ["dev", "--host", "192.0.2.1", "--port", "4000"])
    assert result.exit_code == 2
    assert "cannot listen on 192.0.2.1 port 4000" in result.stderr


@pytest.mark.parametrize(
    "command", [["check", "orders"], ["adopt", "orders"], ["compare", "postgres://a.b", "t"]]
)
def test_a_level_that_is_gone_is_refused_by_what_to_take(command: list[str]) -> None:
    done = CliRunner().invoke(main, [*command, "--level", "in_flight"])
    assert done.exit_code == 2
    assert "take checksum; or count" in " ".join(done.stderr.split())
