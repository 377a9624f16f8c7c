"""A pytest that has collected its tests, and runs some of them whenever it is asked to.

Each time in a fork, in which the code of one function, or the source of one module, is another.
Reads a JSON object per line, and answers each by one:
{"tests": [file or node id, ...], "mutant": {"file", "function", "source"} | null, "seconds": n}.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, TextIO

import pytest

from tests.mutants import in_c

ROOT = Path.cwd()

OPTIONS = ["-q", "-s"]
# the second would read all modules for constants to try
OPTIONS += [f"-pno:{plugin}" for plugin in ("cacheprovider", "hypothesispytest")]


class Server:
    """The part of pytest that answers requests in place of running what was collected."""

    def __init__(self, requests: Iterable[str], answers: TextIO) -> None:
        self._requests = requests
        self._answers = answers
        self._codes: set[CodeType] = set()
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        """Make it look like a worker of pytest-xdist, which leaves the servers of the run alone."""
        config.workerinput = {"workerid": "m"}  # type: ignore[attr-defined]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer requests until there are no more."""
        for number, line in enumerate(self._requests):
            answer = self._forked(number, session.items, json.loads(line))
            print(json.dumps(answer), file=self._answers, flush=True)
        return True

    def _forked(
        self, number: int, items: list[pytest.Item], request: dict[str, Any]
    ) -> dict[str, Any]:
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.close(reading)
            os.setsid()
            # is part of the names on servers, where one that was killed may have left something
            os.environ["PYTEST_XDIST_WORKER"] = f"w{os.getppid()}m{number}"
            try:
                with os.fdopen(writing, "w") as pipe:
                    json.dump({"state": self._run(items, request), "tests": self._tests}, pipe)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(writing)
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            _kill(child)

        timer = threading.Timer(request["seconds"], expire)
        timer.start()
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        timer.cancel()
        timer.join()
        _kill(child)
        os.waitpid(child, 0)
        if expired.is_set():
            return {"state": "timed out", "tests": {}}
        return json.loads(text) if text else {"state": "killed", "tests": {}}

    def _run(self, items: list[pytest.Item], request: dict[str, Any]) -> str:
        """Run the tests of a request in their order; with a mutant, until one fails."""
        mutant = request["mutant"]
        if mutant and mutant["function"]:
            _replace(ROOT / mutant["file"], mutant["function"], mutant["source"])
        place = {name: number for number, name in enumerate(request["tests"])}
        known = [
            (place.get(item.nodeid, place.get(item.nodeid.partition("::")[0])), n, item)
            for n, item in enumerate(items)
        ]
        chosen = [item for at, _, item in sorted(one for one in known if one[0] is not None)]
        if not chosen:
            raise RuntimeError(f"these are not the tests that there were: {request['tests']}")
        if not mutant:
            threading.settrace(self._trace)
            sys.settrace(self._trace)
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            self._codes.clear()
            start = time.monotonic()
            self._tests[item.nodeid] = {"passed": True}
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            reached = {name for code in self._codes.copy() if (name := _name_of(code))}
            self._tests[item.nodeid] |= {
                "seconds": round(time.monotonic() - start, 3),
                "reached": sorted(reached),
            }
            if mutant and not self._tests[item.nodeid]["passed"]:
                return "killed"
        sys.settrace(None)
        return "survived"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self._tests[report.nodeid]["passed"] = False

    def _trace(self, frame: FrameType, event: str, argument: object) -> None:
        self._codes.add(frame.f_code)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _name_of(code: CodeType) -> str | None:
    """`file:qualified name`, if it is the product's."""
    with suppress(ValueError):
        file = Path(code.co_filename).relative_to(ROOT)
        if file.parts[0] not in ("tests", ".venv"):
            return f"{file}:{code.co_qualname.replace('.<locals>', '')}"
    return None


def _replace(path: Path, name: str, source: str) -> None:
    """Give a function other code, wherever it was imported to, and forget what it has returned."""
    if path.suffix == ".c":
        return in_c.load(source)
    gc.unfreeze()
    path = path.resolve()
    codes = {
        (code.co_qualname, code.co_firstlineno): code
        for code in _codes_in(compile(source, str(path), "exec"))
        if code.co_qualname == name
    }
    replaced = 0
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename == str(path):
            other = codes.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
            if other is not None:
                one.__code__ = other
                replaced += 1
        elif isinstance(one, functools._lru_cache_wrapper):
            one.cache_clear()
    if not replaced:
        raise RuntimeError(f"no {name} of {path} has been imported")


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes_in(one)


def _import_instead(path: str, source: str) -> None:
    """Have a module imported from another source than the file has."""
    usual = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        if os.path.realpath(loader.path) == path:
            return compile(source, loader.path, "exec")
        return usual(loader, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def main(files: list[str]) -> None:
    """Collect the tests of files, and answer requests about them; the first may name a source."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if mutant := json.loads(sys.stdin.readline()):
        _import_instead(os.path.realpath(mutant["file"]), mutant["source"])
    code = pytest.main([*OPTIONS, *files], [Server(sys.stdin, answers)])
    if code != pytest.ExitCode.OK:
        print(json.dumps({"state": "killed", "tests": {}}), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
