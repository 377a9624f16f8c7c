"""The command line's manners: exit codes, one clear line, no secret, JSON."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoints
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from tableferry.pipelines.cli import main
from tableferry.pipelines.command import plugins, running
from tableferry.pipelines.command.launching import failures
from tableferry.resources.keys.range import KeyRange

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
    found = {"..": KeyRange("integer")}
    monkeypatch.setattr(running, "resolve_hops", lambda *_: ())
    monkeypatch.setattr(running, "known_ranges", lambda *_: found.values())
    result = ferry(*(one.format(tmp_path) for one in arguments))
    assert_one_clear_line(result, 2, f"{tmp_path}/{file}: No such file or directory")


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("dagster.yaml", "storge: {}", 'unexpected config entry "storge" at the root'),
        ("dagster.yaml", "storage: {postgres: {postgres_url: {env: UNSET}}}", "UNSET is not set"),
        ("dagster.yaml", "storage: [", "while parsing a flow node"),
        ("history/runs.db", "garbage" * 999, "file is not a database"),
    ],
)
@pytest.mark.parametrize("command", ["run", "status"])
def test_what_is_wrong_with_the_event_log_is_said_in_one_line(
    command: str, file: str, text: str, says: str, tmp_path: Path
) -> None:
    bad = tmp_path / "dagster" / file
    bad.parent.mkdir(parents=True)
    bad.write_text(text)
    place = f"Dagster's storage, as {tmp_path}/dagster/dagster.yaml has it: "
    assert_one_clear_line(ferry(command, "orders"), 2, place, says)


def test_an_event_log_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    home = tmp_path / "file" / "dagster"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    assert_one_clear_line(ferry("run", "orders"), 2, f"{home} cannot be made", "Not a directory")


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


def test_without_servers_and_local_stack_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for system in ("POSTGRES", "SQLSERVER", "CLICKHOUSE"):
        monkeypatch.delenv(f"TABLEFERRY_{system}_URL")
    monkeypatch.setattr(plugins, "entry_points", lambda **_: EntryPoints())
    for command in (["plan", "orders"], ["validate"], ["doctor"]):
        assert_one_clear_line(ferry(*command), 2, "TABLEFERRY_POSTGRES_URL", "tableferry-local")
    result = ferry("local", "up")
    assert result.exit_code == 2
    assert "comes with tableferry-local" in result.output


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


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Without DAGSTER_HOME; returns the place of the event log."""
    # noticed by monkeypatch, so that what the commands set does not stay
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state" / "tableferry" / "dagster"


@pytest.mark.parametrize(
    "arguments",
    [["validate"], ["plan", "orders"], ["status", "orders"], ["report", "orders"], ["clean"]],
    ids=lambda arguments: arguments[0],
)
def test_commands_that_record_nothing_make_no_event_log(
    arguments: list[str], homeless: Path, tmp_path: Path
) -> None:
    ferry(*arguments)
    assert not homeless.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"transfers"}


def test_status_says_that_nothing_is_recorded_yet(homeless: Path, tmp_path: Path) -> None:
    result = ferry("status", "orders")
    assert result.exit_code == 0
    assert f"nothing is recorded yet in {homeless}" in result.stderr


def test_the_event_log_is_one_per_user_and_named_when_it_is_made(
    homeless: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ferry("run", "orders")
    assert (homeless / "dagster.yaml").is_file()
    assert f"Dagster's event log is in {homeless}" in first.stderr
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("DAGSTER_HOME", "")
    again = ferry("run", "orders")
    assert str(homeless) not in again.stderr
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_home_of_a_projects_dagster_keeps_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "theirs"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    (home / "schedules").mkdir(parents=True)
    ferry("run", "orders")
    assert (home / "history").is_dir(), "it is their event log that is written to"
    assert not (home / "dagster.yaml").exists()


def test_a_relative_state_home_counts_as_none(
    homeless: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert (
        str(tmp_path / "home/.local/state/tableferry/dagster") in ferry("status", "orders").stderr
    )


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


@pytest.mark.parametrize("command", ["run", "status", "plan", "check", "diff", "validate", "clean"])
def test_shells_complete_names_of_transfers(command: str, surroundings: Path) -> None:
    (surroundings / "other.yaml").write_text('transfer: "other"\n')
    (surroundings / "bad.yaml").write_text("transfers: [\n")
    environment = {"_FERRY_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    for typed, expected in (("", ["orders", "other"]), ("ot", ["other"]), ("x", [])):
        words = {"COMP_WORDS": f"ferry {command} {typed}"}
        done = CliRunner().invoke(main, [], env=environment | words, prog_name="ferry")
        assert [line.removeprefix("plain,") for line in done.output.split()] == expected


def test_who_interrupts_a_run_is_told_how_it_goes_on() -> None:
    @dg.op
    def move() -> None:
        raise dg.DagsterExecutionInterruptedError

    @dg.job
    def run() -> None:
        move()

    (line,) = failures(run.execute_in_process(raise_on_error=False))
    assert line == "interrupted; what is committed stays, and the next run goes on from there"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_shells_have_their_completion(shell: str) -> None:
    environment = {"_FERRY_COMPLETE": f"{shell}_source"}
    done = CliRunner().invoke(main, [], env=environment, prog_name="ferry")
    assert "_FERRY_COMPLETE=" in done.output


@pytest.mark.parametrize("arguments", [["--help"], ["schema"]])
def test_output_that_cannot_be_written_is_said_in_one_line(
    arguments: list[str], surroundings: Path
) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "tableferry.pipelines.cli", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ferry: standard output: No space left on device"
    assert "Traceback" not in ended.stderr
