"""The Dagster home: where it is, who creates it, and what is said of its defects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.command_line import assert_one_clear_line, ferry

pytestmark = pytest.mark.usefixtures("surroundings")


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
    place = f"Dagster's storage, as configured in {tmp_path}/dagster/dagster.yaml: "
    assert_one_clear_line(ferry(command, "orders"), 2, place, says)


def test_an_event_log_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    home = tmp_path / "file" / "dagster"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    assert_one_clear_line(ferry("run", "orders"), 2, f"{home} cannot be created", "Not a directory")


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
    assert result.stderr.startswith("Nothing is recorded yet: the first run creates the event log")
    assert str(homeless) in result.stderr


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
