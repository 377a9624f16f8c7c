"""Whether the process of a run lives, as seen by itself, its host, and other containers."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tableferry.assets.running import processes
from tableferry.assets.running.processes import (
    PROCESS,
    Process,
    owner_name,
    process_is_gone,
    run_is_alive,
    run_process,
    this_process,
)
from tests.integration.support.containers import UNSHARE, require_namespaces

ROOT = Path(__file__).resolve().parents[2]
SAYS_WHO_IT_IS = """
import sys
from types import SimpleNamespace
from tableferry.assets.running.processes import process_is_gone, this_process
home = SimpleNamespace(root_directory=sys.argv[1])
print(this_process(home), flush=True)
for line in sys.stdin:
    print(process_is_gone(home, line.strip()), flush=True)
"""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as made:
        yield made


class Other:
    """A process that says who it is, and which others are gone."""

    def __init__(self, home: str, *before: str) -> None:
        self.popen = subprocess.Popen(
            [*before, sys.executable, "-c", SAYS_WHO_IT_IS, home],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.tag = self._line()

    def sees_gone(self, tag: str) -> bool:
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{tag}\n")
        self.popen.stdin.flush()
        return self._line() == "True"

    def kill(self) -> None:
        self.popen.kill()
        self.popen.communicate()

    def _line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()


@contextmanager
def other(home: str, *before: str) -> Iterator[Other]:
    process = Other(home, *before)
    try:
        yield process
    finally:
        process.kill()


def test_a_process_of_this_host_is_gone_when_its_number_says_so(
    instance: dg.DagsterInstance, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert not process_is_gone(instance, this_process(instance))
    me = Process.parse(this_process(instance))
    assert me is not None and me.pid == os.getpid()
    assert process_is_gone(instance, str(replace(me, started=1.0))), "its number is another's now"
    with other(str(tmp_path_factory.mktemp("home"))) as child:
        assert not process_is_gone(instance, child.tag)
        child.kill()
        assert process_is_gone(instance, child.tag)
    assert not process_is_gone(instance, "nonsense")


def test_a_run_whose_steps_have_processes_of_their_own_ends_with_the_one_that_starts_them(
    instance: dg.DagsterInstance,
) -> None:
    def step(results: Any) -> None:
        executors = ("multiprocess", "multi_or_in_process_executor", "in_process", "k8s")
        results.put([os.getpid(), *(run_process(instance, name) for name in executors)])

    forked = multiprocessing.get_context("fork")
    results = forked.SimpleQueue()
    child = forked.Process(target=step, args=(results,))
    child.start()
    pid, *found, unknown = results.get()
    child.join()
    processes = [Process.parse(one) for one in found]
    assert [one.pid for one in processes if one] == [os.getpid(), os.getpid(), pid]
    assert not process_is_gone(instance, found[0]), "the step has ended, the run has not"
    assert process_is_gone(instance, found[2])
    assert unknown == "", "of a pod that runs one step, nobody here knows whose it is"
    assert run_process(instance, "multi_or_in_process_executor") == this_process(instance)


def test_who_cannot_know_declares_nobody_dead(instance: dg.DagsterInstance) -> None:
    me = Process.parse(this_process(instance))
    assert me is not None
    dead = replace(me, started=1.0, file="")
    assert process_is_gone(instance, str(dead))
    for elsewhere in (
        replace(dead, host="elsewhere", space="elsewhere"),
        replace(dead, space="same-name"),
        replace(dead, space="same-name", file="of-another-home"),
    ):
        assert not process_is_gone(instance, str(elsewhere))


def test_two_containers_of_one_host_name_know_each_other(instance: dg.DagsterInstance) -> None:
    """As the pods of one CronJob are, of which somebody starts a second by hand."""
    require_namespaces()
    home, here = instance.root_directory, this_process(instance)
    with other(home, *UNSHARE) as first, other(home, *UNSHARE) as second:
        one, two = Process.parse(first.tag), Process.parse(second.tag)
        assert one is not None and two is not None
        assert (one.host, one.pid) == (two.host, two.pid), "all that told them apart before"
        assert one.space != two.space
        assert not second.sees_gone(first.tag)
        assert not second.sees_gone(here)
        assert not process_is_gone(instance, first.tag)
        first.kill()
        assert second.sees_gone(first.tag)
        assert process_is_gone(instance, first.tag)
        assert second.sees_gone(first.tag), "looking leaves it as it is"


def test_a_pod_is_told_from_another_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = set()
    for uid in ("one", "two"):
        monkeypatch.setenv(processes.POD, uid)
        spaces.add(processes._space.__wrapped__())
    assert len(spaces) == 2


def test_a_forked_process_does_not_keep_its_parent_alive(instance: dg.DagsterInstance) -> None:
    me = Process.parse(this_process(instance))
    assert me is not None
    path = Path(instance.root_directory) / "processes" / me.file
    inside, outside = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(outside, str(len(processes._locks)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(inside, 9) == b"0"
    os.close(inside)
    os.close(outside)
    assert not processes._is_released(path), "nor does it end it"


def test_files_of_processes_that_ended_long_ago_are_swept(instance: dg.DagsterInstance) -> None:
    folder = Path(instance.root_directory) / "processes"
    folder.mkdir()
    for name, age in (("old", 30 * 86400), ("young", 3600)):
        (folder / name).touch()
        os.utime(folder / name, (os.stat(folder).st_mtime - age,) * 2)
    me = Process.parse(this_process(instance))
    assert me is not None
    assert {path.name for path in folder.iterdir()} == {"young", me.file}


def test_without_a_home_to_write_in_a_process_is_known_by_its_number(
    instance: dg.DagsterInstance,
) -> None:
    (Path(instance.root_directory) / "processes").write_text("in the way")
    me = Process.parse(this_process(instance))
    assert me is not None and me.file == ""
    assert not process_is_gone(instance, str(me))


def test_on_a_file_system_without_locks_a_process_is_known_by_its_number(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(processes.fcntl, "flock", refuse)
    me = Process.parse(this_process(instance))
    assert me is not None and me.file == ""
    assert not list((Path(instance.root_directory) / "processes").iterdir())


def test_an_owner_lives_as_long_as_its_run_and_process(instance: dg.DagsterInstance) -> None:
    me = Process.parse(this_process(instance))
    assert me is not None
    dead, elsewhere = replace(me, started=1.0), replace(me, host="elsewhere", space="elsewhere")
    alive = run_is_alive(instance)
    for name, status in [("works", "STARTED"), ("ended", "SUCCESS")]:
        tags = {PROCESS: this_process(instance)}
        instance.add_run(dg.DagsterRun("job", name, status=dg.DagsterRunStatus[status], tags=tags))
    assert alive(owner_name(instance, "works"))
    assert not alive(f"works {elsewhere}"), "it was resumed by this process"
    assert not alive(owner_name(instance, "ended"))
    assert alive(owner_name(instance, "of-another-instance"))
    assert not alive(f"of-another-instance {dead}")
    assert alive(f"of-another-instance {elsewhere}"), "nobody can be asked"
    cleaning = run_is_alive(instance, elsewhere=False)
    assert not cleaning(f"of-another-instance {elsewhere}"), "who cleans says that it is dead"
    assert cleaning(owner_name(instance, "works"))
