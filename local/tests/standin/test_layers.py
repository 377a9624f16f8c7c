"""The stand-in's packages import one way only, in the open, and no files import in a circle."""

from __future__ import annotations

import ast
from pathlib import Path

from tests import sources

PACKAGE = "tableferry_local.sqlserver"
ROOT = Path(__file__).resolve().parents[2] / "tableferry_local/sqlserver"
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")
}
MAY_IMPORT = {
    "errors": set(),
    "types": {"errors"},
    "wire": {"errors", "types"},
    "catalog": {"errors", "types"},
    "tsql.syntax": {"errors", "types"},
    "tsql.translation": {"errors", "types", "catalog", "tsql.syntax"},
    "tsql.execution": {"errors", "types", "catalog", "tsql.syntax", "tsql.translation"},
}
"""What each package knows of the others. What serves connections, on top, may know all of it."""
SERVING = {"__main__", "certificate", "procedures", "server", "session"}


def package(module: str) -> str:
    """The package of MAY_IMPORT that a module is in; its own name if it is on top."""
    return next((one for one in MAY_IMPORT if f"{module}.".startswith(f"{one}.")), module)


def imports(module: str) -> set[str]:
    """The stand-in's modules that a module imports, wherever in it."""
    found = set()
    for node in _of_package(module):
        inner = str(node.module)[len(PACKAGE) + 1 :]
        for alias in node.names:
            deeper = f"{inner}.{alias.name}".lstrip(".")
            found.add(deeper if deeper in MODULES else inner)
    return found


def _of_package(module: str) -> list[ast.ImportFrom]:
    found = (node for node, _ in sources.imports(MODULES[module]))
    return [
        node
        for node in found
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE)
    ]


def test_packages_import_one_way() -> None:
    for module in MODULES:
        own = package(module)
        if own in MAY_IMPORT:
            others = {package(other) for other in imports(module)} - {own}
            assert others <= MAY_IMPORT[own], module
        else:
            assert own in SERVING or module.endswith("__init__"), module


def test_imports_are_at_the_top() -> None:
    """Where one inside of a function, or for types alone, would hide a circle."""
    inside = [
        f"{module}: {node.module} in line {node.lineno}"
        for module in MODULES
        for node in _of_package(module)
        if node.col_offset
    ]
    assert inside == []


def test_no_files_import_in_a_circle() -> None:
    left = {module: imports(module) & MODULES.keys() for module in MODULES}
    while free := {module for module, others in left.items() if not others & left.keys()}:
        left = {module: others for module, others in left.items() if module not in free}
    assert not left, "each of these is in a circle, or imports one that is"
