"""The markers of a folder: each file says in itself who published it, and as what."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Marker, Publication, Published, now
from tableferry.resources.contract.target import TargetMoved
from tableferry.resources.files.exports import ExportFolder, file_name

FOLDER = "folder"
"""The identity of any folder: what was put there is known by its files alone."""

_KEYS = ("range", "version", "key", "owner", "home", "published")


def marks(what: Publication) -> dict[str, str]:
    """What a file says of itself, as key-value metadata."""
    values = (what.key_range.name, what.version, what.key, what.owner, what.home, now())
    return {f"tableferry.{key}": value for key, value in zip(_KEYS, values, strict=True)}


def read(folder: ExportFolder, plan: CopyPlan) -> Published:
    """What the files say."""
    found = {one.name: marker(folder.path / name) for name, one in folder.ranges(plan).items()}
    markers = {name: one for name, one in found.items() if one is not None}
    return Published(FOLDER, {FOLDER: markers}, with_rows=True)


def require_unpublished(path: Path, what: Publication) -> None:
    """Raise `TargetMoved` if somebody else has put a file there since `what` was planned."""
    found = marker(path)
    if what.known is None or found is None or found.owner == what.owner:
        return
    if found.token != what.known.token(FOLDER, what.key_range):
        raise TargetMoved(
            f"{what.plan.target} range {what.key_range.name}: somebody else has published "
            f"{file_name(what.key_range)} since it was planned ({found})"
        )


def marker(path: Path) -> Marker | None:
    """What a file says; None if it is not there, or does not say."""
    try:
        there, stored = path.stat(), pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowInvalid):
        return None
    values = [stored.get(f"tableferry.{key}".encode(), b"").decode() for key in _KEYS]
    name, version, key, owner, home, at = values
    token = f"{there.st_ino}.{there.st_mtime_ns}"
    return Marker(name, version, key, owner, home, at, token) if version else None
