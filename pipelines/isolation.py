"""Notices another project's packages in the place of Tableferry's own.

Tableferry is an application with top-level packages of common names. It needs an environment of its
own, and an import path without another project's `assets/`, `checks/`, `resources/` or `sensors/`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import TracebackType

OURS = ("assets", "checks", "resources", "sensors")
ROOT = Path(__file__).resolve().parent.parent


class Shadowed(ImportError):
    """Another package would be imported in the place of one of ours."""


def require_own_packages() -> None:
    """Refuse to go on with foreign packages.

    A program that this ends says so in one line; Dagster shows it as the code location's error.

    Raises:
        Shadowed: names the foreign package, and the entry of the import path that it comes from.
    """
    for name in OURS:
        place = _place(name)
        if place is not None and place != ROOT / name:
            sys.excepthook = _one_line
            raise Shadowed(
                f"{place} hides the package {name!r} of Tableferry ({ROOT / name}): it is on "
                f"Python's import path by {_entry(place)}. Tableferry needs an environment and an "
                "import path of its own: use the command `ferry`, and for Dagster a code location "
                "with Tableferry's own `executable_path` and `working_directory`"
            )


def _place(name: str) -> Path | None:
    """Folder or module file that an import of a top-level name would use."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin).resolve() if spec.origin else None


def _entry(place: Path) -> str:
    """How its folder came onto the import path, as far as that can be told."""
    folder = place.parent
    if folder == Path.cwd():
        return "the working folder"
    return f"{folder} (PYTHONPATH, a .pth file, or an installed package)"


def _one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, Shadowed):
        print(f"ferry: {error}", file=sys.stderr)
        sys.exit(2)
    sys.__excepthook__(kind, error, trace)
