"""Runs `ferry dev` on the transfers of TABLEFERRY_TRANSFERS, and measures what it takes idle.

Its argument is for how many seconds. It prints them, and the CPU seconds of all its processes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.pipelines import event_log
from tableferry.pipelines.settings import transfers_folder
from tableferry_bench.meter import cpu_seconds, tree

SECONDS_TO_START = 600
SECONDS_TO_SETTLE = 60
"""Seconds in which every sensor has its first tick."""


def main() -> None:
    """Start it, wait until it has settled, measure, and end it."""
    seconds = int(sys.argv[1])
    transfers = load_transfers(transfers_folder()).transfers
    instance = event_log.open_to_record()
    for transfer in transfers.values():
        # those without ranges would be asked for at their sources again and again
        instance.add_dynamic_partitions(transfer.partitions_name, ["0000000001..", "..0000000001"])
    instance.dispose()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tableferry.pipelines.cli", "dev", "--port", str(port)]
    process = subprocess.Popen(command, stdout=sys.stderr, process_group=0)
    try:
        _wait_until_loaded(f"http://127.0.0.1:{port}/graphql", process)
        time.sleep(SECONDS_TO_SETTLE)
        began, before = time.perf_counter(), cpu_seconds(process.pid)
        time.sleep(seconds)
        spent, took = cpu_seconds(process.pid) - before, time.perf_counter() - began
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        for pid in tree(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    print(
        json.dumps(
            {
                "transfers": len(transfers),
                "seconds": took,
                "cpu_seconds": spent.all,
                "system_seconds": spent.system,
            }
        )
    )


def _wait_until_loaded(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the webserver knows the code location."""
    body = json.dumps(
        {"query": "{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }"}
    )
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(request, timeout=60) as answer:
            if json.load(answer)["data"]["repositoriesOrError"].get("nodes"):
                return
        time.sleep(1)
    sys.exit("`ferry dev` has not loaded the transfers")


if __name__ == "__main__":
    main()
