"""The files that a range went through, as Dagster metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tableferry.resources.artifacts import Artifact

SHOWN = 20
"""Files that a record lists: every event of the range repeats them."""


def artifact_metadata(artifacts: Sequence[Artifact]) -> dict[str, Any]:
    """How many files there were, and the first of them with rows, bytes and SHA-256."""
    if not artifacts:
        return {}
    import dagster as dg

    listed = [
        dg.TableRecord(
            {"file": one.path.name, "rows": one.rows, "bytes": one.bytes, "sha256": one.sha256}
        )
        for one in artifacts[:SHOWN]
    ]
    return {"artifacts": dg.MetadataValue.table(listed), "artifact_count": len(artifacts)}
