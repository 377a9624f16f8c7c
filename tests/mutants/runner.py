"""Judges mutants: on workers, each by the tests that get to what it changes."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.operators import Mutant, Place, mutants

PATIENCE = 30.0
"""By default, the seconds of tests that a mutant has to survive, by their times without it, of each
kind."""
WITHOUT_SERVERS = 1 / 3
"""The part of limited time that is for tests without servers."""

Reach = dict[str, dict[str, Any]]
"""By test: whether it passed, its seconds, and the functions that it got to."""


@dataclass(frozen=True)
class Group:
    """Modules that decide something together, and files of tests: what survives the first kind has
    to survive the next."""

    name: str
    files: list[str]
    tests: Sequence[list[str]]


@dataclass(frozen=True)
class Job:
    """A mutant to judge, of a group, and the source without it."""

    group: str
    mutant: Mutant
    source: str


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `killed`, `survived`, `timed out`, or `not judged` in time."""

    group: str
    mutant: Mutant
    state: str
    by: str = ""


class Worker:
    """A process of `worker.py` that has collected the tests of some files.

    With a mutant, it has imported its source, too, instead of the one that the module has.
    """

    def __init__(
        self, root: Path, files: Iterable[str], mutant: Mutant | None = None, source: str = ""
    ) -> None:
        self.root = root
        log = root / "build" / "mutants" / "output"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.mutants.worker", *files],
                cwd=root,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        imported = mutant and {"file": mutant.file, "source": mutant.applied(source)}
        print(json.dumps(imported), file=self._process.stdin, flush=True)

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request, and its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise ChildProcessError("a worker has ended, see build/mutants/output")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Have it end."""
        self._process.communicate()

    def kill(self) -> None:
        """Have it end at once."""
        self._process.kill()


def on_workers(
    workers: list[Worker], jobs: Iterable[Any], work: Callable[[Worker, Any], None]
) -> None:
    """Do jobs in their order, each on the next worker that is free."""
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    errors: list[BaseException] = []

    def loop(worker: Worker) -> None:
        try:
            while not errors:
                work(worker, waiting.get_nowait())
        except queue.Empty:
            pass
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=loop, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def files_of(root: Path, patterns: list[str]) -> list[str]:
    """Paths below the checkout, in order."""
    found = {path for pattern in patterns for path in root.glob(pattern)}
    return sorted(str(path.relative_to(root)) for path in found)


class Reaches:
    """What the tests get to, each file run once without a mutant.

    What is found is kept in `build/mutants` until the file of the tests or one that they get to
    changes.
    """

    def __init__(self, root: Path, team: list[Worker]) -> None:
        self._root = root
        self._team = team
        self.complete = True
        """Whether all files that were asked for have ended in time."""
        self._cache = root / "build" / "mutants" / "reach.json"
        self._kept = json.loads(self._cache.read_text()) if self._cache.exists() else {}

    def of(self, tests: list[str], end: float) -> Reach:
        """What these files' tests get to until then, but for those that fail."""
        unknown = [test for test in tests if not self._is_known(test)]
        size = 1 + len(unknown) // 10
        on_workers(
            self._team,
            [unknown[at : at + size] for at in range(0, len(unknown), size)],
            lambda worker, batch: self._run(worker, batch, end),
        )
        self.complete &= all(map(self._is_known, tests))
        self._cache.write_text(json.dumps(self._kept))
        seen: Reach = {}
        for test in tests:
            seen |= self._kept[test]["tests"]
        for name in [name for name, one in seen.items() if not one["passed"]]:
            print(f"{name}: fails without a mutant, and is left out", flush=True)
        return {name: one for name, one in seen.items() if one["passed"] and "reached" in one}

    def _run(self, worker: Worker, batch: list[str], end: float) -> None:
        seconds = max(1, min(900, end - time.monotonic()))
        answer = worker.ask(tests=batch, mutant=None, seconds=seconds)
        for test in batch:
            seen = {
                name: one for name, one in answer["tests"].items() if name.startswith(f"{test}::")
            }
            if not seen:
                print(f"{test}: has not ended ({answer['state']}), and is left out", flush=True)
            self._kept[test] = {"tests": seen, "key": self._key(test, seen)}

    def _is_known(self, test: str) -> bool:
        kept = self._kept.get(test)
        return bool(kept and kept["tests"]) and kept["key"] == self._key(test, kept["tests"])

    def _key(self, test: str, seen: Reach) -> str:
        places = (place for one in seen.values() for place in one.get("reached", ()))
        key = hashlib.sha256()
        for name in sorted({test, *(place.partition(":")[0] for place in places)}):
            path = self._root / name
            key.update(path.read_bytes() if path.exists() else b"")
        return key.hexdigest()


def tests_for(mutant: Mutant, reach: Reach, patience: float = PATIENCE) -> list[str]:
    """The quickest of the tests that get to the function, or to the module of what is in none."""
    file = f"{mutant.module}:"
    tests = [name for name, one in reach.items() if file + mutant.within in one["reached"]]
    if not mutant.function or mutant.module != mutant.file:
        tests = [
            name
            for name, one in reach.items()
            if any(place.startswith(file) for place in one["reached"])
        ]
    tests.sort(key=lambda name: float(reach[name]["seconds"]))
    spent = itertools.accumulate(float(reach[name]["seconds"]) for name in tests)
    return [name for n, name in enumerate(tests) if next(spent) < patience or not n]


def judge(worker: Worker, job: Job, reach: Reach, *, grace: float, patience: float) -> Outcome:
    """Run the tests of a mutant until one fails."""
    mutant = job.mutant
    tests = tests_for(mutant, reach, patience)
    if not tests:
        return Outcome(job.group, mutant, "survived")
    seconds = grace + 6 * sum(reach[name]["seconds"] for name in tests)
    if mutant.function:
        changed = {"function": mutant.function, "source": mutant.applied(job.source)}
        changed["file"] = mutant.file
        answer = worker.ask(tests=tests, mutant=changed, seconds=seconds)
    else:
        answer = _imported(worker.root, mutant, job.source, tests, seconds)
    failed = [name for name, seen in answer["tests"].items() if not seen["passed"]]
    return Outcome(job.group, mutant, answer["state"], "".join(failed[-1:]))


def _imported(
    root: Path, mutant: Mutant, source: str, tests: list[str], seconds: float
) -> dict[str, Any]:
    """Run tests in a process that imports the mutant: what it changes is not a function's code."""
    worker = Worker(root, dict.fromkeys(name.partition("::")[0] for name in tests), mutant, source)
    timer = threading.Timer(60 + seconds, worker.kill)
    timer.start()
    try:
        return worker.ask(tests=tests, mutant={"function": None}, seconds=seconds)
    except (BrokenPipeError, ChildProcessError):
        return {"state": "killed" if timer.is_alive() else "timed out", "tests": {}}
    finally:
        timer.cancel()
        worker.kill()
        worker.close()


def sample(
    root: Path, group: Group, size: int, seed: int, old: Collection[Place], only: str
) -> list[Job]:
    """So many mutants of a group, by chance, new ones first."""
    files = [file for file in files_of(root, group.files) if only in file]
    every = [
        Job(group.name, one, source)
        for file in files
        for source in [(root / file).read_text("utf-8")]
        for one in mutants(file, source)
    ]
    every.sort(key=lambda job: (job.mutant.place in old, job.mutant.rank(seed)))
    return every[:size]


def _not_judged(job: Job) -> Outcome:
    return Outcome(job.group, job.mutant, "not judged")


def _of_one_group(jobs: list[Job], seed: int, outcomes: dict[Place, Outcome]) -> list[Job]:
    """Those of the group whose turn it is, in the seed's order; the others are not judged."""
    jobs = sorted(jobs, key=lambda job: job.mutant.rank(seed))
    outcomes |= {job.mutant.place: _not_judged(job) for job in jobs if job.group != jobs[0].group}
    return [job for job in jobs if job.group == jobs[0].group]


def run(
    root: Path,
    groups: list[Group],
    *,
    size: int = sys.maxsize,
    seed: int = 1,
    old: Collection[Place] = (),
    only: str = "",
    workers: int = 1,
    grace: float = 30,
    patience: float = PATIENCE,
    seconds: float = math.inf,
    tell: Callable[[Outcome], object],
) -> list[Outcome]:
    """Judge a sample of each group's mutants.

    Args:
        root: the checkout.
        groups: what to mutate.
        size: how many mutants of each group.
        seed: chooses them.
        old: places whose mutants come last; with `seconds`, not at all.
        only: a part of the paths of the files to mutate.
        workers: how many at a time.
        grace: seconds that tests may take beyond six times what they take without a mutant.
        patience: seconds of tests that a mutant has to survive, of each kind.
        seconds: no mutant is begun later. After a third of them come the tests that need servers,
            of one group, which the seed chooses: those of all take longer than there is time. Half
            of that finds out what they reach; what survives without all of them is not judged.
        tell: is called with each survivor, as soon as it is one.
    """
    start = time.monotonic()
    end = start + seconds
    jobs = [job for group in groups for job in sample(root, group, size, seed, old, only)]
    if seconds < math.inf:
        jobs = [job for job in jobs if job.mutant.place not in old]
        jobs.sort(key=lambda job: job.mutant.rank(seed))
    outcomes: dict[Place, Outcome] = {}
    if not jobs:
        return []
    kinds = len(groups[0].tests)
    team = [
        Worker(root, dict.fromkeys(file for one in groups for kind in one.tests for file in kind))
        for _ in range(workers)
    ]
    try:
        reaches = Reaches(root, team)
        for kind in range(kinds):
            last = kind + 1 == kinds
            until = end if last else start + seconds * WITHOUT_SERVERS
            if kind and seconds < math.inf:
                jobs = _of_one_group(jobs, seed, outcomes)
            concerned = {job.group for job in jobs}
            tests = {file for one in groups if one.name in concerned for file in one.tests[kind]}
            files = sorted(tests, key=lambda file: random.Random(f"{seed}{file}").random())
            found_out = end if not kind else (time.monotonic() + end) / 2
            reach = reaches.of(files, found_out) if time.monotonic() < end else {}
            if seconds < math.inf:
                jobs.sort(key=lambda job: not tests_for(job.mutant, reach))

            def work(
                worker: Worker,
                job: Job,
                reach: Reach = reach,
                last: bool = last,
                until: float = until,
            ) -> None:
                place = job.mutant.place
                # what no test of this kind reaches costs no time, and is for the next
                late = time.monotonic() > until and (last or tests_for(job.mutant, reach))
                if late or time.monotonic() > end:
                    outcomes[place] = _not_judged(job)
                    return
                outcome = judge(worker, job, reach, grace=grace, patience=patience)
                if outcome.state == "survived" and last and not reaches.complete:
                    outcomes[place] = _not_judged(job)  # other tests may kill it
                    return
                outcomes[place] = outcome
                if outcome.state != "survived" or last:
                    told = f"{place[0]}:{job.mutant.line}: {outcome.state}"
                    print(told, outcome.by, flush=True)
                if outcome.state == "survived" and last:
                    tell(outcome)

            on_workers(team, jobs, work)
            jobs = [job for job in jobs if outcomes[job.mutant.place].state == "survived"]
    finally:
        for worker in team:
            worker.close()
    return [*outcomes.values()]
