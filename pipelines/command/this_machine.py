"""`ferry doctor`: examines Dagster's home and storage, and the transfer files."""

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

MOST_PROBLEMS = 5
"""How many problems of transfer files are listed."""

MIGRATE = "Stop Dagster's services, keep a copy of the storage, and run: dagster instance migrate"


def declared_transfers() -> TransferFolder | InputError:
    """Load the declared transfers, or return why they cannot be loaded."""
    try:
        return load_transfers(transfers_folder())
    except InputError as error:
        return error


def findings(servers: Servers, declared: TransferFolder | InputError) -> Iterator[Finding]:
    """Examine this machine; `declared` comes from `declared_transfers`."""
    versions = " ".join(f"{name} {version(name)}," for name in ("tableferry", "dagster"))
    yield Finding("versions", "ok", f"{versions} Python {platform.python_version()}")
    yield from _transfers(servers, declared)
    yield from _home()


def _transfers(servers: Servers, declared: TransferFolder | InputError) -> Iterator[Finding]:
    if isinstance(declared, InputError):
        do = ("Make one by `ferry init`, or set TABLEFERRY_TRANSFERS.",)
        yield Finding("transfers", "problem", str(declared), do)
        return
    count = f"{len(declared.transfers)} in {declared.path}"
    if declared.invalid:
        names = ", ".join(file.path.name for file in declared.invalid)
        lines = [line for file in declared.invalid for line in str(file).splitlines()]
        more = ("`ferry validate` says what else is wrong.",) if len(lines) > MOST_PROBLEMS else ()
        do = (*lines[:MOST_PROBLEMS], *more)
        yield Finding("transfers", "problem", f"{count}, and invalid: {names}", do)
    else:
        yield Finding("transfers", "ok", count)
    unset: dict[str, None] = {}
    for transfer in declared.transfers.values():
        try:
            require_servers(transfer, servers)
        except InputError as error:
            unset |= dict.fromkeys(str(error).splitlines())
    for line in unset:
        yield Finding("servers", "problem", line)


def _home() -> Iterator[Finding]:
    home = event_log.home_path()
    if not event_log.exists():
        yield Finding("Dagster's home", "note", f"{home} is created by the first run")
    elif not os.access(home, os.W_OK):
        do = (f"Give this user the right to write there: chown or chmod {home}",)
        yield Finding("Dagster's home", "problem", f"{home} is not writable", do)
    else:
        yield Finding("Dagster's home", "ok", str(home))
        yield from _storage(home)
    yield disk_of(home)


def _storage(home: Path) -> Iterator[Finding]:
    """Compare the schema of Dagster's storage with the installed version of Dagster."""
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
        current, newest = (storage and storage.alembic_version()) or (None, None)
        schema = f"{name}: {type(storage).__name__}, schema {current}"
        if current == newest:
            yield Finding("Dagster's storage", "ok", schema)
        else:
            says = f"{schema}, and the installed Dagster has {newest}"
            yield Finding("Dagster's storage", "problem", says, (MIGRATE,))
    instance.dispose()
