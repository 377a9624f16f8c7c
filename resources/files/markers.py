"""The markers of a folder: each file has its publication in its metadata."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import (
    Marker,
    Publication,
    Published,
    now,
    require_written_as,
)
from tableferry.resources.contract.target import TargetMoved
from tableferry.resources.files.exports import ExportFolder

FOLDER = "folder"
"""The identity of any folder: only its files tell what was published there."""

_KEYS = ("range", "version", "key", "owner", "home", "published", "target")


def metadata(publication: Publication) -> dict[str, str]:
    """Write a publication as a file's key-value metadata."""
    its = publication
    values = (
        its.key_range.name,
        its.version,
        its.key,
        its.owner,
        its.home,
        now(),
        str(its.plan.target),
    )
    return {f"tableferry.{key}": value for key, value in zip(_KEYS, values, strict=True)}


def read(folder: ExportFolder, plan: CopyPlan) -> Published:
    """Read the markers of all files."""
    read = {key_range.name: marker(folder.path / n) for n, key_range in folder.ranges(plan).items()}
    markers = {name: marker for name, marker in read.items() if marker is not None}
    names = {marker.written_as for marker in markers.values()} - {"", str(folder.table)}
    return Published(FOLDER, {FOLDER: markers}, written_as=min(names, default=""))


def require_unpublished(path: Path, publication: Publication) -> None:
    """Raise `TargetMoved` if somebody else has written the file since the publication's plan."""
    latest, known = marker(path), publication.known
    if latest is not None:
        require_written_as(publication.plan.target, latest.written_as)
    if known is None or latest is None or latest.owner == publication.owner:
        return
    if latest.token != known.token(FOLDER, publication.key_range):
        raise TargetMoved(
            f"{publication.plan.target} range {publication.key_range.name}: somebody else has "
            f"published {path.name} since it was planned ({latest})"
        )


def marker(path: Path) -> Marker | None:
    """Read a file's marker; None if there is no such file, or it has none."""
    try:
        status, stored = path.stat(), pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowInvalid):
        return None
    values = [stored.get(f"tableferry.{key}".encode(), b"").decode() for key in _KEYS]
    name, version, key, owner, home, at, target = values
    token = f"{status.st_ino}.{status.st_mtime_ns}"
    return Marker(name, version, key, owner, home, at, token, target) if version else None
