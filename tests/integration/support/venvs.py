"""Virtual environments as users make them, with the wheel of this checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

ROOT = Path(__file__).resolve().parents[3]
UV = Path(sys.executable).with_name("uv")
FILES = ("pyproject.toml", "README.md", "LICENSE", "__init__.py", "py.typed")
ROOMS = ("assets", "checks", "pipelines", "resources", "sensors")
UNREACHABLE = re.compile(r"Failed to (fetch|download)|error sending request|dns error")


def environment(wheel: Path) -> dict[str, str]:
    """Variables by which uv finds the wheel, and takes the versions that the tests have cached."""
    return {
        "UV_FIND_LINKS": str(wheel.parent),
        "UV_CONSTRAINT": str(ROOT / "constraints.txt"),
    }


def skip_without_registry(said: str) -> None:
    """Skip the test if its command has failed because the registry cannot be reached."""
    if UNREACHABLE.search(said):
        pytest.skip(f"the registry cannot be reached: {said.splitlines()[-1]}")


def uv(*arguments: str | Path, text: str = "", **variables: str) -> str:
    """Run uv with a text as its input; returns what it says."""
    if not UV.exists():
        pytest.skip("needs uv, which `make install` installs")
    done = subprocess.run(
        [UV, *arguments],
        input=text,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        skip_without_registry(done.stdout)
        pytest.fail(done.stdout)
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """Build the wheel of a copy of the checkout, as setuptools leaves files behind."""
    source = folder / "source"
    source.mkdir()
    for name in FILES:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    # uv remembers what it found at a path, and pytest uses its paths again
    built = folder / uuid4().hex
    uv("build", "--quiet", "--wheel", "--out-dir", built, source)
    (wheel,) = built.glob("*.whl")
    return wheel


def make(folder: Path, wheel: Path, *besides: str) -> None:
    """Make an environment with the wheel."""
    variables = environment(wheel)
    uv("venv", "--quiet", "--python", sys.executable, folder)
    python = folder / "bin/python"
    uv("pip", "install", "--quiet", "--python", python, wheel, *besides, **variables)


def size(folder: Path) -> int:
    """The bytes of an environment's files, but for those that Python compiles."""
    return sum(
        os.lstat(Path(place, name)).st_size
        for place, _, files in os.walk(folder)
        for name in files
        if not name.endswith(".pyc")
    )
