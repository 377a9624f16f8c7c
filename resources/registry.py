"""The systems that there are, by name."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from typing import TYPE_CHECKING

from tableferry.resources.errors import InputError

if TYPE_CHECKING:  # it imports pyarrow, which takes a tenth of a second
    from tableferry.resources.contract.system import System

MODULES = {
    "postgres": "tableferry.resources.postgres.system",
    "sqlserver": "tableferry.resources.sqlserver.system",
    "clickhouse": "tableferry.resources.clickhouse.system",
    "files": "tableferry.resources.files.system",
}
"""The systems of this distribution, and the modules that define their `SYSTEM`."""

ENTRY_POINTS = "tableferry.systems"
"""The group of entry points by which other distributions add systems: name -> `module:object`."""

_loaded: dict[str, System] = {}


def system(name: str) -> System:
    """Return the system of that name; it is imported when it is first asked for.

    Raises:
        InputError: there is none.
    """
    if name not in _loaded:
        _loaded[name] = _load(name)
    return _loaded[name]


def system_names() -> tuple[str, ...]:
    """The names of all systems: of this distribution, of others, and those in `registered`."""
    return tuple(dict.fromkeys((*MODULES, *_installed().names, *_loaded)))


def systems() -> list[System]:
    """All systems."""
    return [system(name) for name in system_names()]


def is_system(name: str) -> bool:
    """Whether there is a system of that name."""
    return name in MODULES or name in system_names()


@contextmanager
def registered(added: System) -> Iterator[System]:
    """Add a system, or replace the one of its name, while the context is open."""
    before = _loaded.get(added.name)
    _loaded[added.name] = added
    try:
        yield added
    finally:
        del _loaded[added.name]
        if before is not None:
            _loaded[added.name] = before


@functools.cache
def _installed() -> EntryPoints:
    """Cached, because `entry_points` reads the metadata of every installed distribution."""
    return entry_points(group=ENTRY_POINTS)


def _load(name: str) -> System:
    loaded: System
    if name in MODULES:
        loaded = import_module(MODULES[name]).SYSTEM
    elif name in _installed().names:
        loaded = _installed()[name].load()
    else:
        raise InputError(f"there is no system {name!r}; there are {', '.join(system_names())}")
    return loaded
