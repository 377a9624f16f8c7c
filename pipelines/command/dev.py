"""`ferry dev`: Dagster's user interface and daemon on one's own transfers, from any folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click
import psutil
import yaml

from tableferry.assets.declaring.names import CODE_LOCATION
from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.pipelines import event_log
from tableferry.pipelines.command.session import tell_invalid, use_local_stack
from tableferry.pipelines.settings import TRANSFERS, transfers_folder
from tableferry.resources.child_processes import ending_with_us
from tableferry.resources.errors import InputError
from tableferry.resources.extras import require

GRACE_SECONDS = 8.0
"""For which the services and the runs that they started may end in order; then they are killed."""


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def dev(host: str, port: int) -> int:
    """Run Dagster's services until they are told to end, and then leave none of them.

    Args:
        host: address to listen on.
        port: TCP port to listen on.

    Returns:
        The exit code: 0 after Ctrl-C or SIGTERM, 1 if the services ended by themselves.

    Raises:
        InputError: the port is taken, there is no folder of transfers, or Dagster's webserver is
            not installed.
        TableferryError: the local stack does not start.
    """
    require("webserver", "ferry dev")
    folder = transfers_folder().absolute()
    require_free(host, port)
    tell_invalid(load_transfers(folder))
    use_local_stack()
    os.environ[TRANSFERS] = str(folder)
    event_log.make()
    with _told() as told, tempfile.TemporaryDirectory() as scratch:
        services = _start(host, port, Path(scratch) / "workspace.yaml")
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"Dagster comes up at http://{shown}:{port}; Ctrl-C ends it.")
        while not told and services.poll() is None:
            time.sleep(0.1)
        if not told:
            click.echo(f"ferry: dagster dev ended with exit code {services.returncode}", err=True)
        _end(services)
    return 0 if told else 1


def require_free(host: str, port: int) -> None:
    """Refuse a port that cannot be listened on.

    Raises:
        InputError: says why not.
    """
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(*address[:3]) as probe:
            # as the webserver does: a port of connections that are just ending is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address[4])
    except OSError as error:
        raise InputError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; "
            "take another: ferry dev --port N"
        ) from None


def _start(host: str, port: int, workspace: Path) -> subprocess.Popen[bytes]:
    """Start `dagster dev` as the leader of a process group, which can be told and ended as a whole.

    It ends its services in order by itself when we are killed.
    """
    module = {"module_name": "tableferry.pipelines.definitions", "location_name": CODE_LOCATION}
    workspace.write_text(yaml.safe_dump({"load_from": [{"python_module": module}]}))
    program = [sys.executable, "-m", "dagster", "dev", "--workspace", str(workspace)]
    return subprocess.Popen(
        [*ending_with_us("INT"), *program, "--host", host, "--port", str(port)],
        env=os.environ
        | {
            # nothing is imported out of the working folder, whatever packages it has
            "PYTHONSAFEPATH": "1",
            "PYTHONWARNINGS": "ignore:Function `dev_command` is superseded",
        },
        stdin=subprocess.DEVNULL,
        process_group=0,
    )


@contextmanager
def _told() -> Iterator[list[int]]:
    """The signals to end that have come.

    A shell starts background jobs with SIGINT ignored. Dagster's services then ignore SIGTERM, too,
    because they handle it as SIGINT is handled; with a handler here, they inherit the default.
    """
    told: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        told.append(number)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(services: subprocess.Popen[bytes]) -> None:
    """End the services and all that they started: in order, or else by force."""
    family = _family(services)
    # as a terminal's Ctrl-C: each ends its own work, and runs are marked
    _signal(services.pid, signal.SIGINT)
    _, alive = psutil.wait_procs(family, timeout=GRACE_SECONDS)
    _signal(services.pid, signal.SIGKILL)
    for left in {*alive, *_family(services)}:
        with suppress(psutil.NoSuchProcess):
            left.kill()
    services.wait()


def _family(services: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(services.pid)
        return [top, *top.children(recursive=True)]
    return []


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
