"""The `ferry` command, once per line of stdin, each in a fork of this process.

Importing everything takes longer than moving a small table; here it is done once. What runs is the
command's own `main`, in a process of its own, which can be killed like any other.

A line of stdin is `{"arguments": [...], "environment": {...}, "output": "path"}`. It is answered by
two lines: the child's process id, and its return code as `subprocess` has it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pipelines import cli, runner, session

IMPORTED = (runner, session)


def become(command: dict[str, Any]) -> None:
    """Be the command; never returns."""
    os.environ.clear()
    os.environ.update(command["environment"])
    with open(command["output"], "wb") as output, open(os.devnull, "rb") as nothing:
        for number, file in enumerate((nothing, output, output)):
            os.dup2(file.fileno(), number)
    code: object = 1
    try:
        cli.main(command["arguments"], prog_name="ferry")
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 0)


def main() -> None:
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            become(json.loads(line))
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
