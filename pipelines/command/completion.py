"""Completes names of transfers in the shell, without heavy imports."""

from __future__ import annotations

import re

import click

_NAME = re.compile(r"^transfer:\s*['\"]?([A-Za-z_][A-Za-z0-9_]*)", re.MULTILINE)


def transfer_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the transfers that begin with the typed text and are not on the line yet."""
    from tableferry.pipelines.settings import transfers_folder

    taken = context.params.get(parameter.name or "") or ()
    names = []
    for path in sorted(transfers_folder().glob("*.y*ml")):
        try:
            match = _NAME.search(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if match and match[1].startswith(incomplete) and match[1] not in taken:
            names.append(match[1])
    return names
