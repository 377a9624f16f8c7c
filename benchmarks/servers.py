"""Servers for as long as a measurement takes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.command.plugins import temporary_stack


@contextmanager
def servers() -> Iterator[tuple[dict[str, str], Path]]:
    """The servers that the environment names, or else a local stack that is removed at the end.

    Yields:
        The environment with the `TABLEFERRY_*_URL` settings, and a folder that goes, too.

    Raises:
        InputError: no server is named, and tableferry-local is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="tableferry-") as name:
        if os.environ.get("TABLEFERRY_POSTGRES_URL"):
            yield dict(os.environ), Path(name)
            return
        with temporary_stack() as settings:
            yield {**os.environ, **settings}, Path(name)
