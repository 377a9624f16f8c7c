"""Links from assets in Dagster's UI to the lines of YAML that declare them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dagster as dg

CODE_REFERENCES = "dagster/code_references"


def code_reference(path: Path, line: int, link: str | None = None) -> dict[str, Any]:
    """Return the metadata that links an asset to the file that declares it.

    Args:
        path: the file.
        line: 1-based line.
        link: address of the file's folder, if people read it elsewhere than on this machine, e.g.
            `https://github.com/acme/moves/blob/main/transfers`.
    """
    with warnings.catch_warnings():
        # beta in this version of Dagster, which is pinned
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
