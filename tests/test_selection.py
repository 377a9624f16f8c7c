"""What the options of `tests.selection` leave out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.selection import different

pytest_plugins = ["pytester"]

FILE = """
import pytest

@pytest.mark.parametrize("system", ["a", "b", "c"])
@pytest.mark.parametrize("mode", ["x", "y", "z"])
def test_often(system, mode): ...

def test_once(): ...

@pytest.mark.parametrize("number", range(5))
def test_promise(number): ...

@pytest.mark.slow
def test_slow(): ...
"""


@pytest.fixture(autouse=True)
def files(pytester: pytest.Pytester) -> None:
    """A folder with tests of its own: five files that need servers, and one that does not."""
    pytester.makeini("[pytest]\naddopts = -m 'not slow'\nmarkers =\n  slow:\n")
    pytester.makeconftest(f"import sys\nsys.path.insert(0, {str(Path.cwd())!r})\n")
    for name in (*(f"integration/test_{letter}.py" for letter in "abcde"), "test_unit.py"):
        path = pytester.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(FILE)


def chosen(pytester: pytest.Pytester, *options: str) -> list[str]:
    """The tests that are left, as pytest names them."""
    result = pytester.runpytest_inprocess(
        "-p", "tests.selection", "--import-mode=importlib", "--collect-only", "-q", *options
    )
    return [line for line in result.outlines if "::" in line]


def test_each_file_has_different_functions_and_then_values(pytester: pytest.Pytester) -> None:
    left = Counter(name.partition("::")[0] for name in chosen(pytester, "--most", "4"))
    assert left.pop("test_unit.py") == 15
    assert set(left.values()) == {4} and len(left) == 5

    names = chosen(pytester, "--most", "4", "integration/test_a.py")
    functions = Counter(name.partition("::")[2].partition("[")[0] for name in names)
    assert functions.keys() == {"test_often", "test_once", "test_promise"}
    assert len({*names}) == 4


def test_every_function_and_value_has_its_turn(pytester: pytest.Pytester) -> None:
    items, _ = pytester.inline_genitems("--import-mode=importlib", "integration")
    turns = [different(items, 2, f"{turn:x}") for turn in range(300)]
    assert turns[7] == different(items, 2, "7"), "it can be repeated"
    times = Counter(item for turn in turns for item in turn)
    assert {*times} == {*items}
    once = sum(times[item] for item in times if "test_once" in item.name)
    often = sum(times[item] for item in times if "test_often" in item.name)
    assert 0.9 < once / often < 1.1, "one with many values has no more turns than another"


def test_a_choice_that_fails_says_how_it_is_repeated(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_fails="def test_fails(): assert False")
    again = "this choice again: make test MOST=2 TURN=beef"
    options = ("-p", "tests.selection", "--import-mode=importlib")
    result = pytester.runpytest_inprocess(*options, "--most", "2", "--turn", "beef")
    assert result.outlines.count(again) == 2
    result = pytester.runpytest_inprocess(*options)
    assert again not in result.outlines


def test_every_file_is_in_one_share(pytester: pytest.Pytester) -> None:
    every = chosen(pytester)
    shares = [chosen(pytester, "--share", f"{number}/2") for number in (1, 2)]
    assert sorted(every) == sorted(name for share in shares for name in share)
    assert max(map(len, shares)) <= 45
