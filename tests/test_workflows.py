"""The workflows of .github: their steps are targets of ours, their servers those we support."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tableferry.resources.postgres import health as postgres
from tests import servers

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
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
    script = set(re.findall(r"^make (\S+)", (ROOT / ".ci/run").read_text(), re.MULTILINE))
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    assert script - {"install"} <= set(re.findall(r"make (\S+)", text))


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
