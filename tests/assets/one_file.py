"""Reads one transfer file, as a folder of transfers has it."""

from __future__ import annotations

from pathlib import Path

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.resources.errors import InputError


def load_transfer(path: Path) -> Transfer:
    """Return the transfer that a file declares, or raise all problems of the file."""
    folder = load_transfers(path.parent)
    for name, file in folder.files.items():
        if file.path == path:
            return folder.transfers[name]
    raise InputError("\n".join(str(file) for file in folder.invalid if file.path == path))
