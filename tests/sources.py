"""The imports of Python files, each of which is parsed once."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path


@functools.cache
def imports(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Each import of a file, inside of functions too, and whether it is for types only."""
    return list(_imports(ast.parse(path.read_text(encoding="utf-8")), False))


def _imports(tree: ast.AST, for_types: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, for_types
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            yield from _imports(node, for_types or typing)


def imported(path: Path) -> set[str]:
    """The top-level packages and the rooms of ours, as `tableferry.assets`, that a file imports."""
    names: set[str] = set()
    for node, _ in imports(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif node.module == "tableferry":
            names |= {f"tableferry.{alias.name}" for alias in node.names}
        elif node.module and node.level == 0:
            names.add(node.module)
    return {".".join(name.split(".")[: 1 + name.startswith("tableferry.")]) for name in names}
