"""Names of transfers for the shell's completion: read without loading anything heavy."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from tableferry import pipelines

_NAME = re.compile(r"^transfer:\s*['\"]?([A-Za-z_][A-Za-z0-9_]*)", re.MULTILINE)


def transfer_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """The transfers that begin with what was typed, but for those on the line already."""
    # as pipelines.settings has it, which imports Dagster
    given = os.environ.get("TABLEFERRY_TRANSFERS")
    folder = Path(given) if given else Path(pipelines.__file__).parent / "transfers"
    taken = context.params.get(parameter.name or "") or ()
    found = []
    for path in sorted(folder.glob("*.y*ml")):
        try:
            match = _NAME.search(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if match and match[1].startswith(incomplete) and match[1] not in taken:
            found.append(match[1])
    return found
