"""What the options of `tests.selection` leave out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

FILE = """
import pytest

@pytest.mark.parametrize("system", ["a", "b", "c"])
@pytest.mark.parametrize("mode", ["x", "y", "z"])
def test_often(system, mode): ...

def test_once(): ...

@pytest.mark.invariant("I1")
@pytest.mark.parametrize("number", range(5))
def test_promise(number): ...

@pytest.mark.slow
def test_slow(): ...
"""


@pytest.fixture(autouse=True)
def files(pytester: pytest.Pytester) -> None:
    """A folder with tests of its own: five files that need servers, and one that does not."""
    markers = "markers =\n  slow:\n  invariant(number):\n"
    pytester.makeini(f"[pytest]\naddopts = -m 'not slow'\n{markers}")
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


def test_each_file_has_its_most_different_tests_and_all_promises(pytester: pytest.Pytester) -> None:
    left = Counter(name.partition("::")[0] for name in chosen(pytester, "--most", "4"))
    assert left.pop("test_unit.py") == 15
    assert set(left.values()) <= {4, 5} and len(left) == 5

    names = chosen(pytester, "--most", "1", "integration")
    assert sum("test_promise" in name for name in names) == 5
    assert len(names) <= 10

    names = chosen(pytester, "--most", "5", "integration/test_a.py")
    assert {"test_often", "test_once", "test_promise"} == {
        name.partition("::")[2].partition("[")[0] for name in names
    }


def test_files_begin_with_others(pytester: pytest.Pytester) -> None:
    firsts = {
        name.partition("[")[2]
        for name in chosen(pytester, "--most", "3", "integration")
        if "test_often" in name
    }
    assert len(firsts) > 3


def test_every_file_is_in_one_share(pytester: pytest.Pytester) -> None:
    every = chosen(pytester)
    shares = [chosen(pytester, "--share", f"{number}/2") for number in (1, 2)]
    assert sorted(every) == sorted(name for share in shares for name in share)
    assert max(map(len, shares)) <= 45
