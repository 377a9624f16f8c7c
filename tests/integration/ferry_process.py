"""`ferry` in a process of its own that is forked, not started (see ferry_preload.py)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str], environment: Mapping[str, str], output: Path) -> None:
    """Be the command, with what it says in a file."""
    from pipelines.command import main

    with output.open("wb") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["ferry", *arguments]
    main.main()
