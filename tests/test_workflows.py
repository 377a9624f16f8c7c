"""The workflows of .github: their steps are targets of ours, their servers those we support."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tableferry.resources.postgres import health as postgres
from tests import servers

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
SCRIPT = (ROOT / ".ci/run").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_step_is_a_target_of_the_makefile(path: Path) -> None:
    for job in jobs(path).values():
        for step in job["steps"]:
            if "run" in step:
                target = re.fullmatch(r"(?:sudo )?make ([a-z-]+)", step["run"])
                assert target is not None, step
                assert re.search(rf"^{target[1]}:", MAKEFILE, re.MULTILINE), step


def test_continuous_integration_does_what_the_script_does() -> None:
    script = set(re.findall(r"^(?:\w+=\S+ )*make (\S+)", SCRIPT, re.MULTILINE))
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    assert script - {"install"} <= set(re.findall(r"make (\S+)", text))


def test_a_commit_has_to_pass_all_tests_that_are_neither_slow_nor_random() -> None:
    assert "\nmake test MOST=\n" in SCRIPT
    assert "\nset -euo pipefail\n" in SCRIPT and SCRIPT.count("||") == 3, (
        "audit, pairs, git's absence"
    )
    ((_, nightly),) = jobs(ROOT / ".github/workflows/nightly.yml").items()
    assert nightly["steps"][-1] == {"run": "make test-slow"}


changed = SimpleNamespace(**runpy.run_path(str(ROOT / ".ci/changed")))


def test_what_is_left_out_of_the_slow_tests_is_slow_and_has_a_place() -> None:
    for name, concerns in changed.CONCERNS.items():
        assert "mark.slow" in (ROOT / name).read_text()
        assert all((ROOT / place).exists() for place in concerns), name


@pytest.mark.parametrize(
    ("files", "run"),
    [
        (["assets/planning/hop.py", "README.md"], []),
        (["docs/schedules.md"], ["test_schedulers.py"]),
        (["tests/integration/operating/test_ui.py"], ["test_ui.py"]),
        (["bench/README.md"], ["test_bench_suite.py", "test_deltas.py"]),
        (["bench.md", "documents/schedules.md"], []),
    ],
)
def test_slow_tests_of_what_has_not_changed_are_left_out(files: list[str], run: list[str]) -> None:
    left_out = changed.left_out(files, "e6ac0760")
    assert sorted(Path(name).name for name in {*changed.CONCERNS} - {*left_out}) == run


@pytest.mark.parametrize("files", [None, ["pyproject.toml", "constraints.txt", "bench/x"]])
def test_too_many_slow_tests_take_turns(files: list[str] | None) -> None:
    turns = [{*changed.left_out(files, f"commit {number}")} for number in range(100)]
    assert {len(changed.CONCERNS) - len(left_out) for left_out in turns} == {changed.MOST}
    concerned = {
        name for name in changed.CONCERNS if files is None or changed.concerns(name, files)
    }
    assert set.union(*({*changed.CONCERNS} - left_out for left_out in turns)) == concerned


def test_a_commit_that_is_not_known_stops_nothing(tmp_path: Path) -> None:
    """A clone of one commit, or an archive without git."""
    for name in ("changed", "judged"):
        (tmp_path / ".ci").mkdir(exist_ok=True)
        (tmp_path / ".ci" / name).write_text((ROOT / ".ci" / name).read_text())
    command = [sys.executable, tmp_path / ".ci/changed"]
    for environment in ({"PATH": "/nowhere"}, None):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.count("--ignore=") == len(changed.CONCERNS) - changed.MOST


def test_all_supported_servers_are_tested_on() -> None:
    of_workflow = jobs(ROOT / ".github/workflows/servers.yml").values()
    (job,) = (job for job in of_workflow if "services" in job)
    rows = job["strategy"]["matrix"]["include"]
    versions = {name: {row[name] for row in rows} for name in rows[0]}
    oldest = postgres.OLDEST // 10_000
    assert versions["postgres"] == {str(version) for version in range(oldest, 19)}
    assert versions["sqlserver"] == {"2019-latest", "2022-latest"}
    assert {"24.8", "latest"} <= versions["clickhouse"]
    for name, service in job["services"].items():
        assert f"${{{{ matrix.{name} }}}}" in service["image"]
    assert set(job["env"]) == {servers.POSTGRES, servers.SQLSERVER, servers.CLICKHOUSE}


def test_a_cluster_of_replicas_is_tested_on() -> None:
    job = jobs(ROOT / ".github/workflows/servers.yml")["clickhouse-cluster"]
    assert [step["run"] for step in job["steps"] if "run" in step][:2] == [
        *("make cluster-up", "make test-cluster")
    ]
    assert "cluster=" in job["env"][servers.CLICKHOUSE]
