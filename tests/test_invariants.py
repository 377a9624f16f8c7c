"""The promises of docs/guarantees.md, each of which some test holds.

A test says which: `@pytest.mark.invariant("I1", "I4")`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "guarantees.md"


def test_every_promise_is_held_by_a_test_and_every_test_quotes_one() -> None:
    promised = re.findall(r"^- \*\*(I\d+)\. ", PAGE.read_text(), re.MULTILINE)
    assert promised == [f"I{number}" for number in range(1, len(promised) + 1)]
    held = {
        number: test
        for path in TESTS.rglob("test_*.py")
        for test, numbers in quoted(ast.parse(path.read_text()), path)
        for number in numbers
    }
    assert set(promised) - set(held) == set(), "promised, and held by no test"
    assert {held[number] for number in set(held) - set(promised)} == set(), "not promised"


def quoted(tree: ast.Module, path: Path) -> Iterator[tuple[str, list[str]]]:
    """The tests of a file that hold promises, with their numbers."""
    for item in tree.body:
        if isinstance(item, ast.FunctionDef):
            for decorator in item.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == (
                    "pytest.mark.invariant"
                ):
                    assert item.name.startswith("test_"), f"{path}: {item.name} is no test"
                    numbers = [ast.literal_eval(one) for one in decorator.args]
                    assert numbers, f"{path}: {item.name} says no number"
                    yield f"{path.name}::{item.name}", numbers
