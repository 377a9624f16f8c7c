"""What `ferry doctor` looks at on this machine: Dagster's home and storage, the transfer files."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from tableferry.assets.declaring.transfer_files import TransferFolder, load_transfers
from tableferry.assets.planning.resolve import Servers, require_servers
from tableferry.pipelines import event_log
from tableferry.pipelines.settings import transfers_folder
from tableferry.resources.connecting.health import disk_of
from tableferry.resources.contract.inspection import Finding
from tableferry.resources.errors import InputError

MIGRATE = "Stop Dagster's services, keep a copy of the storage, and run: dagster instance migrate"


def declared_transfers() -> TransferFolder | InputError:
    """The declared transfers, or why there are none."""
    try:
        return load_transfers(transfers_folder())
    except InputError as error:
        return error


def findings(servers: Servers, declared: TransferFolder | InputError) -> Iterator[Finding]:
    """What is well and what is not on this machine.

    Args:
        servers: those that are named.
        declared: of `declared_transfers`.
    """
    names = " ".join(f"{name} {version(name)}," for name in ("tableferry", "dagster"))
    yield Finding("versions", "ok", f"{names} Python {platform.python_version()}")
    yield from _transfers(servers, declared)
    yield from _home()


def _transfers(servers: Servers, declared: TransferFolder | InputError) -> Iterator[Finding]:
    if isinstance(declared, InputError):
        do = ("Make one by `ferry init`, or set TABLEFERRY_TRANSFERS.",)
        yield Finding("transfers", "problem", str(declared), do)
        return
    says = f"{len(declared.transfers)} in {declared.path}"
    if declared.invalid:
        names = ", ".join(file.path.name for file in declared.invalid)
        do = ("`ferry validate` says what is wrong with them.",)
        yield Finding("transfers", "problem", f"{says}, and invalid: {names}", do)
    else:
        yield Finding("transfers", "ok", says)
    unset: dict[str, None] = {}
    for transfer in declared.transfers.values():
        try:
            require_servers(transfer, servers)
        except InputError as error:
            unset |= dict.fromkeys(str(error).splitlines())
    for line in unset:
        yield Finding("servers", "problem", line)


def _home() -> Iterator[Finding]:
    home = event_log.place()
    if not event_log.exists():
        yield Finding("Dagster's home", "note", f"{home} is made by the first run")
    elif not os.access(home, os.W_OK):
        do = (f"Give this user the right to write there: chown or chmod {home}",)
        yield Finding("Dagster's home", "problem", f"{home} cannot be written to", do)
    else:
        yield Finding("Dagster's home", "ok", str(home))
        yield from _storage(home)
    yield disk_of(home)


def _storage(home: Path) -> Iterator[Finding]:
    """Whether Dagster's tables are those of the version that is installed."""
    if stat.S_IMODE(home.stat().st_mode) & stat.S_IWOTH:
        do = (f"chmod o-w {home}",)
        yield Finding("Dagster's home", "warning", "anybody on this machine may write to it", do)
    instance = event_log.open_to_record()
    storages = {
        "runs": instance.run_storage,
        "event log": instance.event_log_storage,
        "schedules": instance.schedule_storage,
    }
    for name, storage in storages.items():
        found, newest = (storage and storage.alembic_version()) or (None, None)
        kind = type(storage).__name__
        if found == newest:
            yield Finding("Dagster's storage", "ok", f"{name}: {kind}, schema {found}")
        else:
            says = f"{name}: {kind}, schema {found}, and the installed Dagster has {newest}"
            yield Finding("Dagster's storage", "problem", says, (MIGRATE,))
    instance.dispose()
