"""The rooms import one way only: pipelines -> sensors -> assets -> checks -> resources."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ["pipelines", "sensors", "assets", "checks", "resources"]
LOCAL = "tableferry_local"
MODULES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
LOCAL_MODULES = sorted((ROOT / "local" / LOCAL).rglob("*.py"))


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    relative = path.relative_to(ROOT)
    room = relative.parts[0]
    imported = imported_rooms(path)
    above = ROOMS[: ROOMS.index(room)]
    assert not imported & set(above), f"{relative} imports from above"
    assert LOCAL not in imported, f"{relative} imports the local stack, which is a plugin"


@pytest.mark.parametrize("path", LOCAL_MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_local_stack_stands_alone(path: Path) -> None:
    assert not imported_rooms(path) & {*ROOMS, "benchmarks"}


def test_resources_know_no_assets_of_dagster() -> None:
    for path in sorted((ROOT / "resources").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "AssetKey" not in text and "AssetSpec" not in text, path
