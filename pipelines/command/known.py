"""What `ferry status` needs to know of the transfer files, kept by the command that read them last.

To read them, all systems are imported, and Dagster with them. What is kept is a copy, like Python's
compiled modules: it counts as long as every file, and what the environment says of connections, is
as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry.resources.connections import PREFIX

if TYPE_CHECKING:
    from tableferry.assets.declaring.transfer_files import TransferFolder

FILE = "ferry-status.json"
"""In Dagster's home."""
FORMAT = 1


@dataclass(frozen=True)
class KnownHop:
    """A hop's target, as users and as Dagster name it."""

    target: str
    asset: str


@dataclass(frozen=True)
class KnownTransfer:
    """What the event log has to be asked for."""

    partitions: str
    checks: tuple[str, ...]
    hops: tuple[KnownHop, ...]


@dataclass(frozen=True)
class Known:
    """What the files of a folder declare."""

    transfers: Mapping[str, KnownTransfer]
    told: Sequence[str]
    """What there is to say of the invalid ones."""


def recall(home: Path, of_files: str | None) -> Known | None:
    """What is kept of files with this `key`; None if that is nothing, or not of these files."""
    found = _kept(home)
    if not found or found.get("key") != of_files:
        return None
    try:
        transfers = {
            name: KnownTransfer(
                one["partitions"],
                tuple(one["checks"]),
                tuple(KnownHop(**hop) for hop in one["hops"]),
            )
            for name, one in found["transfers"].items()
        }
        return Known(transfers, found["told"])
    except (KeyError, TypeError):
        return None


def _kept(home: Path) -> dict[str, Any]:
    try:
        found = json.loads((home / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def remember(
    home: Path, of_files: str | None, declared: TransferFolder, told: Sequence[str]
) -> None:
    """Keep what was read of a folder's files.

    Args:
        home: Dagster's, which is there.
        of_files: their `key` before they were read; without one nothing is kept.
        declared: what was read.
        told: what there is to say of the invalid files.
    """
    if of_files is None or _kept(home).get("key") == of_files:
        return
    from tableferry.assets.asset_keys import stored_key
    from tableferry.assets.planning.resolve import checks_of

    transfers = {
        name: asdict(
            KnownTransfer(
                one.partitions_name,
                checks_of(one),
                tuple(KnownHop(str(hop.to), stored_key(hop.to)) for hop in one.hops),
            )
        )
        for name, one in declared.transfers.items()
    }
    # it costs time alone if it cannot be kept
    with suppress(OSError, ValueError):
        content = {"key": of_files, "transfers": transfers, "told": list(told)}
        with tempfile.NamedTemporaryFile(
            "w", dir=home, prefix=FILE, delete=False, encoding="utf-8"
        ) as file:
            json.dump(content, file)
        os.replace(file.name, home / FILE)


def key(folder: Path) -> str | None:
    """A hash of all that decides what the files of a folder mean; None if there is more to it."""
    parts: list[object] = [FORMAT, version("tableferry"), version("dagster"), folder.absolute()]
    for variable in sorted(os.environ):
        if not variable.upper().startswith("TABLEFERRY_"):
            continue
        parts.append(variable)
        if variable.upper().startswith(PREFIX):
            if variable.upper().endswith("_FILE"):
                return None
            # of the URL, its scheme says which system it is; the rest may be secret
            parts.append(os.environ[variable].partition("://")[0])
    try:
        for path in sorted(folder.glob("*.y*ml")):
            parts += [path.name, path.read_bytes()]
    except OSError:
        return None
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
