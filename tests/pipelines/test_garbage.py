"""When a command looks for garbage."""

from __future__ import annotations

import subprocess
import sys

CYCLE = """
import tableferry.pipelines.cli
class Kept:
    def __del__(self):
        print("looked")
one = Kept()
one.itself = one
print("ended")
"""


def test_a_command_ends_without_a_look_for_garbage() -> None:
    done = subprocess.run([sys.executable, "-c", CYCLE], capture_output=True, text=True, check=True)
    assert done.stdout == "ended\n"
