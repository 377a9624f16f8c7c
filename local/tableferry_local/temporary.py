"""Servers for as long as a measurement takes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.stack import Stack


@contextmanager
def servers() -> Iterator[tuple[dict[str, str], Path]]:
    """The servers that the environment names, or else a local stack that is removed at the end.

    Yields:
        The environment with the `TABLEFERRY_*_URL` settings, and a folder that goes, too.
    """
    with tempfile.TemporaryDirectory(prefix="tableferry-") as name:
        folder = Path(name)
        if os.environ.get("TABLEFERRY_POSTGRES_URL"):
            yield dict(os.environ), folder
            return
        folder.chmod(0o711)  # PostgreSQL's user must get to its own folder inside
        stack = Stack(folder / "stack")
        try:
            stack.up()
            yield {**os.environ, **stack.environment()}, folder
        finally:
            stack.remove()
