"""What a run of the tests leaves out: what is much like what it runs, and what other runs have."""

from __future__ import annotations

import random
from collections import Counter

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what leaves tests out."""
    parser.addoption(
        "--most",
        type=int,
        help="run so many tests at most of each file that needs servers, of functions first",
    )
    parser.addoption("--turn", default="0", help="which of them; the same for the same text")
    parser.addoption("--share", help="run the files of one share of many: 2/6")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the options leave out, after what the marks leave out."""
    taken = items[:]
    if of := config.getoption("share"):
        taken = share(taken, *(int(number) for number in of.split("/")))
    if most := config.getoption("most"):
        taken = different(taken, most, config.getoption("turn"))
    kept = set(taken)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = taken


def pytest_report_header(config: pytest.Config) -> str | None:
    """Tell how to repeat a choice."""
    most, turn = config.getoption("most"), config.getoption("turn")
    return f"this choice again: make test MOST={most} TURN={turn}" if most else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell it again where the failures are."""
    again = pytest_report_header(terminalreporter.config)
    if again and {"failed", "error"} & terminalreporter.stats.keys():
        terminalreporter.write_line(again)


def different(items: list[pytest.Item], most: int, turn: str) -> list[pytest.Item]:
    """Choose from each file of tests that need servers, and take all the others.

    Args:
        items: as they were collected.
        most: so many of each file; no function has a second one before each has one.
        turn: which of them. Each function, and each value of it, has its turn.
    """
    chosen: set[pytest.Item] = set()
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        if "integration" in item.path.parts:
            files.setdefault(_file(item), []).append(item)
        else:
            chosen.add(item)
    for name, tests in files.items():
        chance = random.Random(f"{turn} {name}")
        # by function, as one with many values would have all the chances
        first = {function: chance.random() for function in dict.fromkeys(map(_function, tests))}
        place, had = {}, Counter[str]()
        for item in chance.sample(tests, len(tests)):
            function = _function(item)
            place[item] = (had[function], first[function])
            had[function] += 1
        chosen.update(sorted(tests, key=place.__getitem__)[:most])
    return [item for item in items if item in chosen]


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def share(items: list[pytest.Item], number: int, of: int) -> list[pytest.Item]:
    """Take the files of one share; all shares together are all files.

    Args:
        items: as they were collected.
        number: of the share, from 1 on.
        of: how many shares there are.
    """
    mine = sorted({_file(item) for item in items})[number - 1 :: of]
    return [item for item in items if _file(item) in mine]
