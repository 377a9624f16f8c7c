"""`ferry dev`: runs Dagster's user interface and daemon on the user's transfers."""

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

from tableferry.assets.declaring.dagster_rules import CODE_LOCATION
from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.pipelines import event_log, settings
from tableferry.pipelines.command.session import use_local_stack, warn_of_invalid
from tableferry.resources.child_processes import ending_with_us
from tableferry.resources.errors import InputError
from tableferry.resources.extras import require

GRACE_SECONDS = 8.0
"""How long the services and their runs may take to end; then they are killed."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def dev(host: str, port: int) -> int:
    """Run Dagster's services until a signal arrives or they end, and leave no process behind.

    Returns:
        The exit code: 0 after a signal, 1 if the services ended by themselves.

    Raises:
        InputError: the port is taken, there is no folder of transfers, or Dagster's webserver is
            not installed.
        TableferryError: the local stack does not start.
    """
    require("webserver", "ferry dev")
    folder = settings.transfers_folder().absolute()
    require_free(host, port)
    warn_of_invalid(load_transfers(folder))
    use_local_stack()
    os.environ[settings.TRANSFERS] = str(folder)
    event_log.create_home()
    with _caught_signals() as caught, tempfile.TemporaryDirectory() as scratch:
        services = _start(host, port, Path(scratch) / "workspace.yaml")
        address = f"[{host}]" if ":" in host else host
        click.echo(f"Dagster is starting at http://{address}:{port}; Ctrl-C ends it.")
        while not caught and services.poll() is None:
            time.sleep(0.1)
        if not caught:
            click.echo(f"ferry: dagster dev ended with exit code {services.returncode}", err=True)
        _end(services)
    return 0 if caught else 1


def require_free(host: str, port: int) -> None:
    """Raise InputError if the port cannot be listened on."""
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(*address[:3]) as probe:
            # like the webserver, accept a port whose connections are still closing
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address[4])
    except OSError as error:
        raise InputError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; "
            "take another: ferry dev --port N"
        ) from None


def _start(host: str, port: int, workspace: Path) -> subprocess.Popen[bytes]:
    """Start `dagster dev` in a process group of its own, so that signals reach all its processes.

    If this process is killed, `dagster dev` gets SIGINT and ends its services.
    """
    module = {"module_name": "tableferry.pipelines.definitions", "location_name": CODE_LOCATION}
    workspace.write_text(yaml.safe_dump({"load_from": [{"python_module": module}]}))
    program = [sys.executable, "-m", "dagster", "dev", "--workspace", str(workspace)]
    return subprocess.Popen(
        [*ending_with_us("INT"), *program, "--host", host, "--port", str(port)],
        env=os.environ
        | {
            # import nothing from the working folder
            "PYTHONSAFEPATH": "1",
            "PYTHONWARNINGS": "ignore:Function `dev_command` is superseded",
        },
        stdin=subprocess.DEVNULL,
        process_group=0,
    )


@contextmanager
def _caught_signals() -> Iterator[list[int]]:
    """Catch the signals to end, and yield the list to which they are added.

    Shells start background jobs with SIGINT ignored, and Dagster's services give SIGTERM the
    handler of SIGINT, so they would ignore both. With a handler here, children get the default.
    """
    caught: list[int] = []

    def catch(number: int, _: FrameType | None) -> None:
        caught.append(number)

    before = {number: signal.signal(number, catch) for number in SIGNALS}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(services: subprocess.Popen[bytes]) -> None:
    """Interrupt the services and their descendants, and kill those that do not end."""
    processes = _process_tree(services)
    # like Ctrl-C on a terminal: each ends its work, and runs are marked as failed
    _signal(services.pid, signal.SIGINT)
    _, alive = psutil.wait_procs(processes, timeout=GRACE_SECONDS)
    _signal(services.pid, signal.SIGKILL)
    for process in {*alive, *_process_tree(services)}:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    services.wait()


def _process_tree(services: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(services.pid)
        return [root, *root.children(recursive=True)]
    return []


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
