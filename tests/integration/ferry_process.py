"""Processes that are forked, not started: `ferry` (see ferry_preload.py), and Dagster's runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FORKED_RUNS = {"PYTHONPATH": str(Path(__file__).with_name("forked_runs"))}
"""What a code server whose runs are forked has in its environment."""


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
