"""A stack for as long as a measurement takes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tableferry_local.stack import Stack


@contextmanager
def temporary() -> Iterator[dict[str, str]]:
    """A stack of its own in a temporary folder, which is removed at the end.

    Yields:
        The `TABLEFERRY_*_URL` settings of its servers.
    """
    with tempfile.TemporaryDirectory(prefix="tableferry-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL's user must get to its own folder inside
        stack = Stack(folder / "stack")
        try:
            stack.up()
            yield stack.environment()
        finally:
            stack.remove()
