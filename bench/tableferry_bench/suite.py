"""What is measured, out of a file; and measuring it, round by round."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tableferry.resources.errors import InputError, TableferryError
from tableferry_bench.contenders.base import Contender
from tableferry_bench.contenders.ferry import FERRIES
from tableferry_bench.contenders.fleet import FLEETS
from tableferry_bench.contenders.parquet import CurlParquet
from tableferry_bench.contenders.peers import PEERS
from tableferry_bench.contenders.pipes import PIPES
from tableferry_bench.meter import CpuSeconds, Finished, require_good, run
from tableferry_bench.results import PREPARATION, Case, Kind, Result, Run
from tableferry_bench.servers import Servers, dropping, load_average, machine
from tableferry_bench.workloads import Table, ensure, known, parse

Tell = Callable[[str], None]
"""Is told what happens, one line at a time."""

Model = TypeVar("Model", bound=BaseModel)

Spent = dict[str, float | None]
"""CPU seconds by server; None where they cannot be seen."""

SUITES = files("tableferry_bench") / "suites"


class Part(BaseModel):
    """One table, and who moves it."""

    model_config = ConfigDict(extra="forbid")

    workload: str
    contenders: Annotated[list[str], Field(min_length=1)]
    runs: Annotated[int | None, Field(ge=1)] = None
    """Instead of the suite's."""
    warmups: Annotated[int | None, Field(ge=0)] = None


class Suite(BaseModel):
    """A file of `suites`, or of the user's."""

    model_config = ConfigDict(extra="forbid")

    suite: str
    about: str = ""
    runs: Annotated[int, Field(ge=1)] = 3
    warmups: Annotated[int, Field(ge=0)] = 1
    tables: Annotated[list[Part], Field(min_length=1)]
    includes: list[str] = []
    """Suites whose tables come before its own, with their numbers of runs."""


def shipped() -> list[str]:
    """The names of the suites that come along."""
    names = (one.name for one in SUITES.iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def read_suite(name: str) -> Suite:
    """A suite that comes along, by name, or one in a file.

    Raises:
        InputError: there is none, or it says something else than a suite does.
    """
    known = shipped()
    path = Path(str(SUITES / f"{name}.yaml")) if name in known else Path(name)
    suite = read_yaml(path, Suite, f"no suite {name!r}; there are {', '.join(known)}, and files")
    included = [
        part.model_copy(
            update={
                "runs": part.runs or other.runs,
                "warmups": other.warmups if part.warmups is None else part.warmups,
            }
        )
        for other in map(read_suite, suite.includes)
        for part in other.tables
    ]
    suite = suite.model_copy(update={"tables": [*included, *suite.tables], "includes": []})
    for part in suite.tables:
        parse(part.workload)
        choose(part.contenders)
    return suite


def read_yaml(path: Path, model: type[Model], missing: str) -> Model:
    """A YAML file as a model.

    Raises:
        InputError: there is no such file, or it does not fit; says where.
    """
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(missing) from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    try:
        return model.model_validate(found)
    except ValidationError as error:
        wrong = [
            f"{path}: {'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}"
            for one in error.errors()
        ]
        raise InputError("\n".join(wrong)) from None


def contenders() -> dict[str, Contender]:
    """All that move a table, by name."""
    made = (*FERRIES, *FLEETS, *(one() for one in (*PIPES, CurlParquet)), *(one() for one in PEERS))
    return {one.name: one for one in made}


def choose(names: Iterable[str]) -> list[Contender]:
    """Those of these names.

    Raises:
        InputError: one of them does not exist.
    """
    known = contenders()
    for name in names:
        if name not in known:
            raise InputError(f"there is no contender {name!r}; there are {', '.join(known)}")
    return [known[name] for name in names]


def run_suite(servers: Servers, suite: Suite, *, keep: bool, tell: Tell) -> Result:
    """Measure a suite.

    Args:
        servers: where.
        suite: what.
        keep: leave the source tables for the next time.
        tell: is told how far it is.
    """
    parts = [
        Measured(
            part.workload,
            choose(part.contenders),
            part.runs or suite.runs,
            suite.warmups if part.warmups is None else part.warmups,
        )
        for part in suite.tables
    ]
    return execute(servers, "run", suite.suite, parts, keep=keep, tell=tell)


@dataclass(frozen=True)
class Measured:
    """A table, who moves it, and how often."""

    workload: str
    taking_part: Sequence[Contender]
    runs: int
    warmups: int


def execute(
    servers: Servers,
    kind: Kind,
    name: str,
    parts: Sequence[Measured],
    *,
    keep: bool,
    tell: Tell,
) -> Result:
    """Measure contenders on tables; see `run_suite`.

    A table that cannot be made is left out. If it is interrupted, the result has the tables before.
    """
    cases: list[Case] = []
    notes: list[str] = []
    complete = True
    for part in parts:
        try:
            cases += _measured(servers, part, keep=keep, tell=tell)
        except InputError as error:
            notes.append(f"{part.workload} was left out: {error}")
            tell(notes[-1])
        except (KeyboardInterrupt, SystemExit):
            complete = False
            notes.append(f"interrupted in {part.workload}, of which nothing is kept")
            tell(notes[-1])
            break
    return made(servers, kind, name, cases, parts, notes, complete=complete)


def made(
    servers: Servers,
    kind: Kind,
    name: str,
    cases: Sequence[Case],
    parts: Sequence[Measured],
    notes: Sequence[str],
    *,
    complete: bool = True,
) -> Result:
    """A result of these cases, as of now."""
    return Result(
        kind=kind,
        suite=name,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        tableferry=version("tableferry"),
        machine=machine(),
        servers=servers.described(),
        cases=tuple(cases),
        settings={
            "runs": min((part.runs for part in parts), default=0),
            "warmups": min((part.warmups for part in parts), default=0),
        },
        notes=tuple(notes),
        complete=complete,
    )


def _measured(servers: Servers, part: Measured, *, keep: bool, tell: Tell) -> list[Case]:
    tell(f"{part.workload}: making the table")
    before, started = servers.clocks(), time.perf_counter()
    there = known(servers, part.workload)
    table = there or ensure(servers, part.workload)
    seconds, after = time.perf_counter() - started, servers.clocks()
    made = [] if there else [_preparation(table, seconds, *_spent(before, after))]
    try:
        return made + measure(
            servers, table, part.taking_part, runs=part.runs, warmups=part.warmups, tell=tell
        )
    finally:
        if not keep:
            dropping(servers, servers.table("postgres", table.name))


def _preparation(table: Table, seconds: float, cpu: Spent, kernel: Spent) -> Case:
    """The making of the source's rows, by SQL on their server: what a move is as well."""
    run = Run(0, round(seconds, 4), 0, cpu, table.rows, system_seconds=kernel)
    route, proves = "client -> PostgreSQL", "nothing"
    return Case(
        table.workload, table.rows, PREPARATION, route, proves, table.text_bytes, runs=(run,)
    )


def _spent(
    before: Mapping[str, CpuSeconds | None], after: Mapping[str, CpuSeconds | None]
) -> tuple[Spent, Spent]:
    """The CPU seconds of each server between two looks: all, and those that the kernel took."""
    cpu, kernel = {}, {}
    for system, now in after.items():
        earlier = before.get(system)
        took = now - earlier if now and earlier else None
        cpu[system] = round(took.all, 3) if took else None
        kernel[system] = round(took.system, 3) if took else None
    return cpu, kernel


def measure(
    servers: Servers,
    table: Table,
    taking_part: Sequence[Contender],
    *,
    runs: int,
    warmups: int,
    tell: Tell,
) -> list[Case]:
    """Let contenders take turns: all of a round see the same state of the machine.

    Who is first changes from round to round. Whoever fails once is out.
    """
    cases = [_case(servers, table, one) for one in taking_part]

    def tried(number: int, turn: int | None) -> None:
        """Do a run, or what comes before all of them, unless this one is out."""
        case, one = cases[number], taking_part[number]
        if case.skipped or case.failed:
            return
        try:
            if turn is None:
                one.set_up(servers, table)
                return
            done = _once(servers, table, one, turn)
            cases[number] = replace(case, runs=(*case.runs, done))
        except TableferryError as error:
            cases[number] = replace(case, failed=str(error))
        tell(_said(cases[number]))

    try:
        for number in range(len(cases)):
            tried(number, None)
        for turn in range(-warmups, runs):
            for step in range(len(cases)):
                tried((step + turn) % len(cases), turn)
    finally:
        for one in taking_part:
            with suppress(TableferryError, AttributeError):
                one.clean_up(servers, table)
    for case in cases:
        if case.skipped:
            tell(f"{case.name}: left out: {case.skipped}")
    return cases


def _case(servers: Servers, table: Table, one: Contender) -> Case:
    return Case(
        workload=table.workload,
        rows=table.rows,
        contender=one.name,
        route=one.route,
        proves=one.proves,
        text_bytes=table.text_bytes,
        options=dict(one.options),
        skipped=one.missing(servers),
    )


def _once(servers: Servers, table: Table, one: Contender, turn: int) -> Run:
    commands = one.commands(servers, table)
    load, before = load_average(), servers.clocks()
    done: list[Finished] = []
    for command in commands:
        done.append(run(command))
        require_good(done[-1], one.name, servers.secrets)
    after = servers.clocks()
    outcome = one.outcome(servers, table, done)
    client = outcome.cpu_client or CpuSeconds(
        sum(one.cpu.all for one in done), sum(one.cpu.system for one in done)
    )
    cpu, kernel = _spent(before, after)
    return Run(
        round=turn,
        seconds=round(outcome.seconds or sum(one.seconds for one in done), 4),
        peak_rss_bytes=max(one.peak_rss_bytes for one in done),
        cpu_seconds={"client": round(client.all, 3)} | cpu,
        rows=outcome.rows,
        phases=dict(outcome.phases),
        skew=outcome.skew,
        system_seconds={"client": round(client.system, 3)} | kernel,
        stored=dict(outcome.stored),
        machine_load=load,
    )


def _said(case: Case) -> str:
    if case.failed:
        return f"{case.name}: FAILED: {case.failed}"
    last = case.runs[-1]
    what = f"run {last.round + 1}" if last.counts else "warm-up"
    return f"{case.name}: {what}: {last.seconds:.2f} s, {last.rows / last.seconds:,.0f} rows/s"
