"""What a run of the tests leaves out: what is much like what it runs, and what other runs have."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what leaves tests out."""
    parser.addoption(
        "--most",
        type=int,
        help="run so many tests at most of each file that needs servers, the most different ones, "
        "and one of each that holds an invariant",
    )
    parser.addoption("--share", help="run the files of one share of many: 2/6")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the options leave out, after what the marks leave out."""
    taken = items[:]
    if of := config.getoption("share"):
        taken = share(taken, *(int(number) for number in of.split("/")))
    if most := config.getoption("most"):
        taken = different(taken, most)
    kept = set(taken)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = taken


def different(items: list[pytest.Item], most: int) -> list[pytest.Item]:
    """Choose from each file of tests that need servers, and take all the others.

    Args:
        items: as they were collected.
        most: so many of each file, the most different ones: first by what they test, then by the
            values of their parameters. One of each test that holds an invariant is taken besides.
    """
    chosen: set[pytest.Item] = set()
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        if "integration" in item.path.parts:
            files.setdefault(_file(item), []).append(item)
        else:
            chosen.add(item)
    for name, collected in files.items():
        # each file begins with another one, so that no system and mode has all the chances
        first = zlib.crc32(name.encode()) % len(collected)
        tests = collected[first:] + collected[:first]
        promises: dict[str, pytest.Item] = {}
        for item in tests:
            if item.get_closest_marker("invariant"):
                promises.setdefault(_test(item), item)
        chosen.update(_most_different(tests, most), promises.values())
    return [item for item in items if item in chosen]


def _most_different(items: list[pytest.Item], most: int) -> Iterator[pytest.Item]:
    """Yield items by how much of what they are about no item before has had."""
    rest, tested, seen = list(items), set[str](), set[tuple[str, str]]()
    while rest and most:
        chosen = max(rest, key=lambda item: (_test(item) not in tested, len(_values(item) - seen)))
        tested.add(_test(chosen))
        seen |= _values(chosen)
        most -= 1
        rest.remove(chosen)
        yield chosen


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _values(item: pytest.Item) -> set[tuple[str, str]]:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return {(name, repr(value)) for name, value in parameters.items()}


def share(items: list[pytest.Item], number: int, of: int) -> list[pytest.Item]:
    """Take the files of one share; all shares together are all files.

    Args:
        items: as they were collected.
        number: of the share, from 1 on.
        of: how many shares there are.
    """
    mine = sorted({_file(item) for item in items})[number - 1 :: of]
    return [item for item in items if _file(item) in mine]
