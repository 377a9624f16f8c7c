"""One of Dagster's services, as `ferry dev` starts it.

It does what Dagster's command of that name does. It looks for garbage seldom while it imports, and
whoever needs the code server imports while that comes up.
"""

from __future__ import annotations

import importlib
import socket
import sys
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from tableferry.pipelines.command.garbage import look_as_usual, look_seldom

CODE_SERVER, WEBSERVER, DAEMON = "dagster", "dagster-webserver", "dagster-daemon"


def main() -> None:
    """Be the service, once the code server listens.

    Its arguments are the name of Dagster's command, the code server's socket, and what that command
    gets.
    """
    _, name, code_server, *arguments = sys.argv
    try:
        serve = _imported(name)
        if name != CODE_SERVER:
            _await(Path(code_server))
    except KeyboardInterrupt:
        sys.exit(1)
    sys.argv = [name, *arguments]
    serve()


def _imported(name: str) -> Callable[[], object]:
    """What a command of Dagster's calls."""
    look_seldom()
    (program,) = entry_points(group="console_scripts", name=name)
    found: Callable[[], object] = program.load()
    if name == WEBSERVER:
        importlib.import_module("dagster_webserver.app")  # it would do so later
    look_as_usual()
    return found


def _await(code_server: Path) -> None:
    """Wait until a code server listens; `ferry dev` ends us if it never does."""
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(code_server)) == 0:
                return
        time.sleep(0.1)


if __name__ == "__main__":
    main()
