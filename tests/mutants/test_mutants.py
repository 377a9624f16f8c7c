"""A sample module with mutants that its tests kill, one that hangs, and one that they let live."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mutants import __main__ as command
from tests.mutants.operators import mutants
from tests.mutants.runner import Group, Outcome, run

SAMPLE = """
LIMIT = 3


def admits(count):
    return count < LIMIT


def reads(rows):
    while rows:
        rows.pop()
    return True
"""

TESTS = """
from sample import admits, reads


def test_admits():
    assert admits(1) and not admits(9)


def test_reads():
    rows = [1]
    assert reads(rows) and not rows
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """What became of all mutants of the sample."""
    told: list[Outcome] = []
    with project(tmp_path_factory, {"sample.py": SAMPLE, "tests/test_sample.py": TESTS}) as root:
        group = Group("all", ["sample.py"], [["tests/test_sample.py"]])
        judged = run(root, [group], tell=told.append, grace=10)
    assert told == [one for one in judged if one.state == "survived"]
    return judged


@contextmanager
def project(made_in: pytest.TempPathFactory, files: dict[str, str]) -> Iterator[Path]:
    """A checkout of other modules and tests, whose workers find this one's."""
    root = made_in.mktemp("sample")
    (root / "tests").mkdir()
    for name, text in files.items():
        (root / name).write_text(text)
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(command.ROOT))
        yield root


@pytest.mark.slow
def test_what_tests_notice_is_killed_and_what_they_do_not_survives(
    outcomes: list[Outcome],
) -> None:
    assert {one.mutant.after: one.state for one in outcomes} == {
        "LIMIT = 4": "survived",  # the tests are far from the limit
        "return count <= LIMIT": "survived",
        "return None": "killed",
        "while (not (rows)):": "killed",
        "pass": "timed out",
        "return False": "killed",
    }


@pytest.mark.slow
def test_mutants_that_need_servers_have_their_part_of_the_time(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Those of one group, however many others the tests without servers could still judge, and
    however long some of its own tests take."""
    files = {
        "quick.py": "def reads(row):\n    return row + 1 if row > 2 or row < -2 else row - 1\n",
        "first.py": "def admits(count):\n    return count < 3\n",
        "second.py": "def refuses(count):\n    return count > 3\n",
        "tests/test_quick.py": "import time\nfrom quick import reads\n\ndef test_reads():\n"
        "    time.sleep(3)\n    assert [*map(reads, (-3, -2, 2, 3))] == [-2, -3, 1, 4]\n",
        "tests/test_first.py": "from first import admits\n\ndef test_admits():\n"
        "    assert admits(2) and not admits(3)\n",
        "tests/test_second.py": "from second import refuses\n\ndef test_refuses():\n"
        "    assert refuses(4) and not refuses(3)\n",
        "tests/test_long.py": "import time\n\ndef test_long():\n    time.sleep(60)\n",
    }
    quick, long = ["tests/test_quick.py"], "tests/test_long.py"
    groups = [
        Group("quick", ["quick.py"], [quick, []]),
        Group("first", ["first.py"], [quick, ["tests/test_first.py", long]]),
        Group("second", ["second.py"], [quick, ["tests/test_second.py", long]]),
    ]
    with project(tmp_path_factory, files) as root:
        outcomes = run(root, groups, workers=2, tell=lambda one: None, seconds=24)
    states = {
        group.name: {one.state for one in outcomes if one.group == group.name} for group in groups
    }
    assert "not judged" in states["quick"]
    assert sorted([states["first"], states["second"]], key=str) == [{"killed"}, {"not judged"}]


def test_each_mutant_is_a_change_that_parses_and_survives_edits_elsewhere() -> None:
    before, after = (mutants("sample.py", text) for text in (SAMPLE, "import os\n\n" + SAMPLE))
    assert [one.place for one in before] == [one.place for one in after]
    assert [one.line + 2 for one in before] == [one.line for one in after]
    for one in before:
        compile(one.applied(SAMPLE), "sample.py", "exec")
        assert one.applied(SAMPLE) != SAMPLE


@pytest.mark.parametrize(
    "source, changed",
    [
        ("a = x if b and not c else y", ["or", "bool(c)"]),
        ("for a in b:\n    if a is None: continue", ["is not", "break"]),
        ("a = f'{b} >= {c} AND d IS NULL'", [" > ", " OR ", "IS NOT NULL"]),
        ("def f() -> Literal[1]:\n    'At 1.'\n    assert b == 1\n    raise Error(1)", ["pass"]),
        ("if TYPE_CHECKING:\n    a = 1\nlog.info('%s', 1)", []),
        ("b = 'é' + (x + 1)", ["-", "2"]),
    ],
)
def test_operators(source: str, changed: list[str]) -> None:
    assert [one.text for one in mutants("sample.py", source)] == changed


def test_operators_in_c() -> None:
    source = (
        "/* a < 1 */\n#define N (1 + \\\n    2)\nint f(int a)\n{\n    int b = '1' + 0x1f;\n"
        '    a += "1 < 2"[3];\n    if (!a)\n        return NULL;\n    return a <= b;\n}\n'
    )
    found = mutants("sample.c", source)
    assert [one.text for one in found] == [" - ", "", " -= ", " = ", "4", "", "0", " < ", " > "]
    assert {one.function for one in found} == {"f"}


@pytest.mark.slow
def test_a_survivor_without_a_verdict_ends_the_command_with_1(
    outcomes: list[Outcome],
) -> None:
    survivors = [one for one in outcomes if one.state == "survived"]
    entries = "".join(command.told(one) for one in survivors)
    known = command.verdicts(entries)
    assert len(command.unjudged(outcomes, known)) == command.accepted(known) == 2
    known = command.verdicts(entries.replace('verdict = ""', 'verdict = "equivalent: to none"'))
    assert command.unjudged(outcomes, known) == [] and command.accepted(known) == 0
    assert command.table(outcomes, known).splitlines()[-1] == "| all | 7 | 4 | 1 | 2 | 2 | 100% |"
    known.popitem()
    assert len(command.unjudged(outcomes, known)) == 1
    assert command.table(outcomes, known).splitlines()[-1] == "| all | 7 | 4 | 1 | 2 | 1 | 83% |"


@pytest.mark.parametrize(
    ("since", "code", "says"),
    [
        ("0" * 40, 0, "0 is not in this clone: what has changed since is not mutated"),
        # the tree that has no files, which git always knows
        ("4b825dc642cb6eb9a060e54bf8d69288fbee4904", 1, "more is accepted than in 4b825dc"),
    ],
)
def test_what_is_accepted_only_shrinks(since: str, code: int, says: str) -> None:
    given = [sys.executable, "-m", "tests.mutants", "--seconds", "1", "--since", since]
    done = subprocess.run(given, cwd=command.ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "") and says in done.stdout
