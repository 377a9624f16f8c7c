"""Another project's packages beside ours: noticed and named, and harmless to `ferry`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.guide import blocks

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The working folder of somebody's Dagster project, with a transfer of ours."""
    for name in ("assets", "resources", "sensors"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('theirs')\n")
    (tmp_path / "transfers").mkdir()
    (tmp_path / "transfers" / "t.yaml").write_text(
        "transfer: t\nsource: postgres://public.t\nhops: ['clickhouse://warehouse.t']\nkey: id\n"
    )
    return tmp_path


def start(
    project: Path, *command: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    surroundings = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "DAGSTER_HOME": str(project / "home"),
        "TABLEFERRY_TRANSFERS": str(project / "transfers"),
        "TABLEFERRY_POSTGRES_URL": "postgresql://127.0.0.1:1/db",
        **environment,
    }
    (project / "home").mkdir(exist_ok=True)
    return subprocess.run(
        command, cwd=project, env=surroundings, capture_output=True, text=True, check=False
    )


def assert_named(found: subprocess.CompletedProcess[str], project: Path) -> None:
    assert f"{project / 'assets'} hides the package 'assets' of Tableferry" in found.stderr
    assert f"{ROOT / 'assets'}" in found.stderr


def test_ferry_takes_no_harm_from_the_working_folder(project: Path) -> None:
    found = start(project, BIN / "ferry", "status", "t")
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    "module", ["pipelines.cli", "pipelines.command.demo", "pipelines.definitions"]
)
def test_a_module_of_ours_names_the_foreign_package_in_one_line(project: Path, module: str) -> None:
    found = start(project, sys.executable, "-m", module)
    assert found.returncode == 2
    assert_named(found, project)
    assert "by the working folder" in found.stderr
    assert len(found.stderr.splitlines()) == 1, "no traceback"


def test_a_foreign_package_on_the_path_is_named_by_ferry(project: Path, tmp_path: Path) -> None:
    (project / "elsewhere").mkdir()
    found = start(project / "elsewhere", BIN / "ferry", "status", "t", PYTHONPATH=str(project))
    assert found.returncode == 2
    assert_named(found, project)
    assert "PYTHONPATH" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_a_code_location_names_the_foreign_package(project: Path) -> None:
    found = start(
        project, BIN / "dagster", "definitions", "validate", "-m", "pipelines.definitions"
    )
    assert found.returncode == 1
    text = " ".join((found.stdout + found.stderr).split())
    assert f"{project / 'assets'} hides the package 'assets' of Tableferry" in text
    assert "`executable_path` and `working_directory`" in text


def test_a_module_in_the_place_of_a_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("")
    found = start(tmp_path, sys.executable, "-m", "pipelines.cli", "--help")
    assert found.returncode == 2
    assert f"{tmp_path / 'checks.py'} hides the package 'checks'" in found.stderr


def test_the_documented_lines_add_tableferry_to_another_workspace(project: Path) -> None:
    """As docs/deployment.md has them, in a workspace beside the project's own code location."""
    (text,) = (
        block.text
        for block in blocks("deployment.md")
        if block.text.startswith("  - python_module:")
    )
    assert len(text.splitlines()) == 5, "one line of YAML's list, and four"
    text = text.replace("/opt/tableferry/.venv/bin/python", sys.executable)
    text = text.replace("/opt/tableferry", str(ROOT))
    (project / "theirs.py").write_text("import dagster as dg\n\ndefs = dg.Definitions()\n")
    workspace = f"load_from:\n  - python_module: theirs\n{text}"
    assert yaml.safe_load(workspace)["load_from"][1]["python_module"]["location_name"]
    (project / "workspace.yaml").write_text(workspace)
    found = start(project, BIN / "dagster", "definitions", "validate", "-w", "workspace.yaml")
    text = found.stdout + found.stderr
    assert found.returncode == 0, text
    assert "Validation successful for code location tableferry" in text
    assert "Validation successful for code location theirs" in text
