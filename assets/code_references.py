"""Links from assets in Dagster's user interface to the lines of YAML that declare them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dagster as dg

CODE_REFERENCES = "dagster/code_references"


def code_reference(path: Path, line: int, link: str | None = None) -> dict[str, Any]:
    """Metadata of an asset that is declared in a file.

    Args:
        path: of the file.
        line: 1-based.
        link: the address at which people read the file's folder, where that is not the one of this
            machine, e.g. `https://github.com/acme/moves/blob/main/transfers`.
    """
    with warnings.catch_warnings():
        # a beta in this version of Dagster; the version is pinned
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference: dg.LocalFileCodeReference | dg.UrlCodeReference
        if link:
            url = f"{link.rstrip('/')}/{path.name}#L{line}"
            reference = dg.UrlCodeReference(url=url, label=path.name)
        else:
            reference = dg.LocalFileCodeReference(
                file_path=str(path.absolute()), line_number=line, label=f"{path.name}:{line}"
            )
        return {CODE_REFERENCES: dg.CodeReferencesMetadataValue(code_references=[reference])}
