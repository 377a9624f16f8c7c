"""What is measured about a program."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tableferry_bench import meter
from tableferry_bench.meter import Command, CommandFailed, require_good, run

CHILD = """
import subprocess, sys, time
block = bytearray(60_000_000)
for i in range(0, len(block), 4096): block[i] = 1
if len(sys.argv) > 1:
    subprocess.run([sys.executable, __file__], check=True)
else:
    end = time.process_time() + 0.2
    while time.process_time() < end: pass
    time.sleep(0.2)
    print("done")
"""


def command(*words: str, **variables: str) -> Command:
    return Command([sys.executable, *words], {"PATH": os.environ["PATH"], **variables})


def test_memory_and_cpu_time_are_those_of_the_whole_tree(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    found = run(command(str(script), "parent"))
    assert found.exit_code == 0
    assert found.output == "done\n"
    assert found.peak_rss_bytes > 120_000_000, "both processes' blocks"
    assert found.cpu.all >= 0.2
    assert 0 < found.cpu.system < found.cpu.all
    assert found.seconds > 0.4


def test_a_failure_is_told_without_secrets() -> None:
    found = run(command("-c", "import sys; print('no: s3cret', file=sys.stderr); sys.exit(3)"))
    with pytest.raises(CommandFailed, match=r"^x ended with exit code 3: no: \*\*\*$"):
        require_good(found, "x", ["", "s3cret"])


def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(CommandFailed, match=r"took more than 0\.3 s"):
        run(command("-c", "import time; time.sleep(60)"), timeout=0.3)


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(CommandFailed, match="No such file"):
        run(Command(["/nowhere/at-all"], {}))


@pytest.mark.parametrize("listed", [True, False])
def test_the_tree_is_found_with_and_without_the_kernels_list(
    listed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(meter, "CHILDREN", listed and meter.CHILDREN)
    script = tmp_path / "child.py"
    script.write_text(CHILD.replace("process_time() + 0.2", "process_time()"))
    assert run(command(str(script), "parent")).peak_rss_bytes > 120_000_000


def test_an_interrupted_bench_leaves_no_program_behind(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = (
        "import signal, sys\n"
        "from tableferry_bench.meter import Command, run\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        f"sleeps = 'sleep 60 & echo $! > {mark}; wait'\n"
        "run(Command(['sh', '-c', sleeps], {'PATH': '/usr/bin:/bin'}))"
    )
    bench = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    # its second thread watches over the program
    while psutil.Process(bench.pid).num_threads() == 1 or not (
        mark.exists() and mark.read_text().strip()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    bench.terminate()
    assert bench.wait(60) == 143
    pid = int(mark.read_text())
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
