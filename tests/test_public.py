"""What `import tableferry` offers, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tableferry
from tests.guide import blocks

HEAVY = {"dagster", "pyarrow", "pydantic", "psycopg", "duckdb", "polars"}


def test_the_import_brings_nothing_heavy() -> None:
    code = "import sys, tableferry; dir(tableferry); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "tableferry" in done.stdout.split()
    assert not HEAVY & set(done.stdout.split())


@pytest.mark.parametrize("name", tableferry.__all__)
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(tableferry, name)
    assert name in dir(tableferry)
    if name == "__version__":
        assert found.count(".") == 2
    else:
        assert found.__module__.startswith("tableferry.")
        assert found.__name__ == name
        assert len(found.__doc__.splitlines()[0]) > 15


def test_types_are_imported_from_where_they_are() -> None:
    """What editors and mypy read says the same as what is imported."""
    tree = ast.parse(Path(str(tableferry.__file__)).read_text(encoding="utf-8"))
    (typed,) = [node for node in tree.body if isinstance(node, ast.If)]
    named = {
        alias.name: node.module
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert named == {name: f"tableferry.{module}" for name, module in tableferry._MODULE_OF.items()}
    assert {*named, "__version__"} == set(tableferry.__all__)


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'transfer'"):
        tableferry.transfer  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("page", ["python-api.md", "in-your-project.md"])
def test_the_guide_imports_what_is_public(page: str) -> None:
    used = 0
    for block in blocks(page):
        if block.language != "python":
            continue
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom):
                assert not str(node.module).startswith("tableferry."), block.text
            elif isinstance(node, ast.Import):
                assert not [one for one in node.names if one.name.startswith("tableferry.")]
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tableferry":
                assert node.attr in tableferry.__all__, block.text
                used += 1
    assert used > 3
