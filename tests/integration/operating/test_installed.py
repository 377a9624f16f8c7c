"""Tableferry installed elsewhere: by the image's own steps, and used outside of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.guide import blocks
from tests.servers import Servers

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
ROOMS = {"assets", "checks", "pipelines", "resources", "sensors"}
DATA = {".yaml", ".json", ".css", ".j2", ".typed"}
"""What the packages hold besides Python."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that has what the image has."""
    programs = Path(sys.executable).parent
    if not (programs / "uv").exists():
        pytest.skip("needs uv, which `make install` installs")
    folder = tmp_path_factory.mktemp("installed") / "venv"
    for step in ("dependencies", "product"):
        install(step, folder)
    return folder


def install(step: str, folder: Path) -> None:
    """One step of the image."""
    done = subprocess.run(
        [ROOT / "docker/install", step, folder],
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with what somebody needs who moves from PostgreSQL to ClickHouse."""
    programs = Path(sys.executable).parent
    if not (programs / "uv").exists():
        pytest.skip("needs uv, which `make install` installs")
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("base") / "venv"
    for name in ("pyproject.toml", "LICENSE", "README.md", "__init__.py", "py.typed"):
        shutil.copy(ROOT / name, source)
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    for command in (
        ["venv", folder],
        [
            *("pip", "install", "--python", folder / "bin/python"),
            *("--constraint", ROOT / "constraints.txt", f"{source}[clickhouse]"),
        ],
    ):
        done = subprocess.run(
            [programs / "uv", *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return folder


def python(installed: Path, code: str) -> list[str]:
    """The lines that a program prints in that environment."""
    done = subprocess.run(
        [installed / "bin/python", "-c", code],
        cwd=installed,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_wheel_has_the_product_and_no_leftovers(installed: Path) -> None:
    listed = python(
        installed,
        "from importlib.metadata import files; print(*files('tableferry'), sep='\\n')",
    )
    ours = [Path(name) for name in listed if ".dist-info/" not in name and "/bin/" not in name]
    assert {path.parts[0] for path in ours} == {"tableferry"}
    built = [path for path in ours if path.suffix not in {".py", *DATA}]
    assert [path.name.partition(".")[0] for path in built] == ["copy_text"], "the extension in C"
    wanted = {Path("tableferry/__init__.py"), Path("tableferry/py.typed")} | {
        Path("tableferry", path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.suffix in {".py", *DATA}
    }
    assert {*ours} - {*built} == wanted, "nothing is missing, and nothing is of an earlier build"


def test_nothing_of_the_checkout_is_used(installed: Path) -> None:
    places = python(
        installed,
        "import tableferry.pipelines.cli, sys; print(*sys.path, tableferry.__file__, sep='\\n')",
    )
    assert not [place for place in places if place.startswith(str(ROOT))]


@pytest.fixture
def elsewhere(stack: Servers, tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A working folder with one transfer, and the environment to use it in."""
    table = f"installed_{uuid.uuid4().hex[:8]}"
    (tmp_path / "transfers").mkdir()
    (tmp_path / "transfers" / "t.yaml").write_text(
        f"transfer: t\nsource: postgres://public.{table}\n"
        f"hops: [clickhouse://warehouse.{table}]\nkey: id\n"
    )
    environment = {"PATH": os.environ["PATH"], **stack.environment()}
    environment["TABLEFERRY_TRANSFERS"] = str(tmp_path / "transfers")
    environment["DAGSTER_HOME"] = str(tmp_path / "dagster")
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} AS SELECT 1 AS id")
        yield tmp_path, environment
        connection.execute(f"DROP TABLE {table}")


def ferry(
    venv: Path, command: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """A command of the `ferry` of a virtual environment, from a working folder."""
    return subprocess.run(
        [venv / "bin/ferry", *command.split()],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_servers_and_local_stack_it_says_what_to_do(
    installed: Path, elsewhere: tuple[Path, dict[str, str]]
) -> None:
    folder, environment = elsewhere
    nowhere = {name: value for name, value in environment.items() if not name.endswith("_URL")}
    for command, part in (
        ("plan t", "set TABLEFERRY_POSTGRES_URL and those of the other servers, or install"),
        ("local up", "comes with tableferry-local"),
        ("bench run", "comes with tableferry-bench"),
    ):
        done = ferry(installed, command, folder, nowhere)
        assert done.returncode == 2
        assert part in done.stderr
        assert "Traceback" not in done.stderr


def test_the_base_is_small_and_has_no_driver_of_others(base: Path) -> None:
    files = (path for path in base.rglob("*") if path.is_file() and not path.is_symlink())
    assert sum(path.stat().st_size for path in files) < 400e6
    (packages,) = base.glob("lib/python3*/site-packages")
    for name in ("mssql_python", "duckdb", "polars", "numpy", "dagster_webserver", "psycopg2"):
        assert not (packages / name).exists()


def test_without_a_driver_its_extra_is_named(
    base: Path, elsewhere: tuple[Path, dict[str, str]]
) -> None:
    folder, environment = elsewhere
    declared = (folder / "transfers/t.yaml").read_text()
    declared = declared.replace("transfer: t\n", "transfer: u\n")
    (folder / "transfers/u.yaml").write_text(
        declared.replace("clickhouse://warehouse.", "sqlserver://dbo.")
    )
    for command, code in (("validate", 2), ("doctor", 1)):
        done = ferry(base, command, folder, environment)
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        assert "transfer u: sqlserver://dbo." in said
        assert "needs the package mssql-python: pip install 'tableferry[sqlserver]'" in said
        assert "Traceback" not in said


def test_a_transfer_is_validated_planned_and_run(
    base: Path, elsewhere: tuple[Path, dict[str, str]]
) -> None:
    folder, environment = elsewhere
    for command, expected in (
        ("validate", "ok"),
        ("plan t", "missing"),
        ("run t", "committed"),
        ("check t --level full_hash", "full_hash"),
    ):
        done = ferry(base, command, folder, environment)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
    assert (folder / "dagster" / "dagster.yaml").exists(), "the shipped settings came along"


def test_the_demo_has_its_data(installed: Path) -> None:
    install("demo", installed)
    code = "from tableferry_local.demo_data import _opened\n"
    code += "with _opened('airlines.csv') as lines: print(lines.readline())"
    assert python(installed, code) == ["b'carrier,name\\n'"]


def test_it_is_a_code_location_beside_a_project(
    installed: Path, elsewhere: tuple[Path, dict[str, str]]
) -> None:
    """As docs/deployment.md has it, in a workspace beside the code location of a project whose
    packages have the names of Tableferry's rooms."""
    folder, environment = elsewhere
    for name in ("assets", "resources", "sensors", "pipelines"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(
            "import dagster as dg\ndefs = dg.Definitions()\n"
        )
    (text,) = (
        block.text
        for block in blocks("deployment.md")
        if block.text.startswith("  - python_module:")
    )
    text = text.replace("/opt/tableferry/.venv/bin/python", str(installed / "bin/python"))
    theirs = "  - python_module: {module_name: assets, location_name: theirs}\n"
    (folder / "dagster").mkdir()
    (folder / "workspace.yaml").write_text(f"load_from:\n{theirs}{text}")
    done = subprocess.run(
        [
            Path(sys.executable).parent / "dagster",
            *["definitions", "validate", "-w", "workspace.yaml"],
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    for name in ("tableferry", "theirs"):
        assert f"Validation successful for code location {name}" in said
