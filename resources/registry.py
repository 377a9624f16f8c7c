"""The systems that there are, by name."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points

from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError

FOLDERS = {
    "postgres": "tableferry.resources.postgres.system",
    "sqlserver": "tableferry.resources.sqlserver.system",
    "clickhouse": "tableferry.resources.clickhouse.system",
    "files": "tableferry.resources.files.system",
}
"""Our own systems, and the modules whose `SYSTEM` describes them; imported when first used."""

ENTRY_POINTS = "tableferry.systems"
"""The group of entry points by which other distributions add systems: name -> `module:object`."""

_known: dict[str, System] = {}


def system(name: str) -> System:
    """The system of that name.

    Raises:
        InputError: there is none.
    """
    if name not in _known:
        _known[name] = _load(name)
    return _known[name]


def system_names() -> tuple[str, ...]:
    """The names of all systems: our own, those of other distributions, and registered ones."""
    return tuple(dict.fromkeys((*FOLDERS, *_installed().names, *_known)))


def systems() -> list[System]:
    """All systems."""
    return [system(name) for name in system_names()]


def is_system(name: str) -> bool:
    """Whether there is a system of that name."""
    return name in FOLDERS or name in system_names()


@contextmanager
def registered(added: System) -> Iterator[System]:
    """Have one more system for as long as the context is open."""
    before = _known.get(added.name)
    _known[added.name] = added
    try:
        yield added
    finally:
        del _known[added.name]
        if before is not None:
            _known[added.name] = before


@functools.cache
def _installed() -> EntryPoints:
    """Looked for once per process: that reads the metadata of everything that is installed."""
    return entry_points(group=ENTRY_POINTS)


def _load(name: str) -> System:
    if name in FOLDERS:
        found: System = import_module(FOLDERS[name]).SYSTEM
        return found
    if name in _installed().names:
        loaded: System = _installed()[name].load()
        return loaded
    raise InputError(f"there is no system {name!r}; there are {', '.join(system_names())}")
