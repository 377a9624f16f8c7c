"""Which runs cover which ranges."""

from __future__ import annotations

import os
import subprocess
import sys

import dagster as dg
import psutil
import pytest

from assets.running.runs import (
    MOST_RUNS,
    PROCESS,
    owner_name,
    process_is_gone,
    run_is_alive,
    segments,
    this_process,
)

ORDER = [f"r{number:02d}" for number in range(20)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (set(), []),
        ({"r03"}, [("r03", "r03")]),
        (set(ORDER), [("r00", "r19")]),
        ({"r00", "r01", "r05"}, [("r00", "r01"), ("r05", "r05")]),
        ({"r00", "r02", "r04", "r06"}, [("r00",) * 2, ("r02",) * 2, ("r04",) * 2, ("r06",) * 2]),
        ({"r00", "r02", "r04", "r06", "r08"}, [("r00", "r08")]),
    ],
)
def test_segments(wanted: set[str], expected: list[tuple[str, str]]) -> None:
    assert segments(ORDER, wanted) == expected
    assert len(segments(ORDER, wanted)) <= MOST_RUNS


def test_segments_that_must_not_span_others_stay_apart() -> None:
    wanted = set(ORDER[::2])
    assert segments(ORDER, wanted, most=len(ORDER)) == [(name, name) for name in ORDER[::2]]


def test_a_process_is_gone_only_when_it_surely_is() -> None:
    assert not process_is_gone(this_process())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host = this_process().rsplit(":", 2)[0]
    tag = f"{host}:{child.pid}:{psutil.Process(child.pid).create_time():.2f}"
    assert not process_is_gone(tag)
    child.communicate(b"\n")
    assert process_is_gone(tag)
    assert process_is_gone(f"{host}:{os.getpid()}:1.0"), "the pid now belongs to another process"
    assert not process_is_gone(f"elsewhere:{child.pid}:1.0"), "other hosts are not ours to judge"
    assert not process_is_gone("nonsense")


def test_an_owner_lives_as_long_as_its_run_and_process() -> None:
    dead = f"{this_process().rsplit(':', 2)[0]}:{os.getpid()}:1.0"
    with dg.DagsterInstance.ephemeral() as instance:
        alive = run_is_alive(instance)
        for name, status in [("works", "STARTED"), ("ended", "SUCCESS")]:
            tags = {PROCESS: this_process()}
            instance.add_run(
                dg.DagsterRun("job", name, status=dg.DagsterRunStatus[status], tags=tags)
            )
        assert alive(owner_name("works"))
        assert not alive("works elsewhere:1:1.0"), "it was resumed by this process"
        assert not alive(owner_name("ended"))
        assert alive(owner_name("of-another-instance"))
        assert not alive(f"of-another-instance {dead}")
        assert not alive("of-another-instance elsewhere:1:1.0"), "nobody can be asked"
