"""`ferry bench`: measure, compare, certify. Whatever is heavy waits until a command needs it."""

from __future__ import annotations

import datetime as dt
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tableferry.pipelines.command.shell import end, user_errors
from tableferry.resources.errors import InputError

if TYPE_CHECKING:
    from tableferry_bench.certification import Verdict
    from tableferry_bench.results import Result

FOLDER = Path(".benchmarks")


def measuring(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of all that measure."""
    for option in (
        click.option("--runs", "-n", type=click.IntRange(1), help="Runs of each that count."),
        click.option("--warmups", type=click.IntRange(0), help="Runs before, which do not."),
        click.option("--output", type=click.Path(file_okay=False, path_type=Path), help=OUTPUT),
        click.option(
            "--thresholds",
            type=click.Path(dir_okay=False, path_type=Path),
            help="What it is held to, beside that all rows come [default: of `run --suite`, the "
            "file that comes along].",
        ),
        click.option("--keep", is_flag=True, help="Leave the source tables for the next time."),
        click.option(
            "--work",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Where to put event logs and other files [default: the system's place].",
        ),
    ):
        command = option(command)
    return user_errors(command)


OUTPUT = "Folder for result and reports [default: .benchmarks/<time>-<what>]."


@click.group()
def bench() -> None:
    """Measure how fast rows move, against other ways to move them.

    On the servers of TABLEFERRY_POSTGRES_URL, ..._SQLSERVER_URL and ..._CLICKHOUSE_URL, or else a
    local stack that is removed at the end. All tables it makes begin with ferry_bench_.
    """
    # so that tables, files and programs go, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@bench.command()
@click.option("--suite", default="quick", show_default=True, help="Name of a suite, or its file.")
@click.option(
    "--workload",
    "-w",
    "workloads",
    multiple=True,
    metavar="W",
    help="Instead of a suite: a table, e.g. wide:1000000; repeatable.",
)
@click.option(
    "--contender",
    "-c",
    "contenders",
    multiple=True,
    metavar="C",
    help="Who moves it; repeatable [default: ferry and psql-curl]. Suite kindness: copy, ferry, "
    "sling, dlt, pg_dump [default: all].",
)
@click.option("--require-all", is_flag=True, help="What was not measured fails, too.")
@click.option(
    "--rows",
    type=click.IntRange(1000),
    default=10_000_000,
    show_default=True,
    help="Suite kindness: the rows of the table that is read.",
)
@click.option(
    "--source",
    type=click.Choice(("postgres", "sqlserver", "clickhouse")),
    default="postgres",
    show_default=True,
    help="Suite kindness: where it is read.",
)
@click.option(
    "--apart",
    "in_parts",
    is_flag=True,
    help="Suite kindness: keep the source on a CPU of its own, as if it were another machine.",
)
@measuring
def run(
    suite: str,
    workloads: Sequence[str],
    contenders: Sequence[str],
    require_all: bool,
    rows: int,
    source: str,
    in_parts: bool,
    **how: Any,
) -> None:
    """Measure a suite, and certify it. Exit code 1 if a contender or a threshold fails.

    The suite kindness measures what reading a source does to others that use it: it prints a table.
    """
    from tableferry_bench.certification import certify, read_thresholds
    from tableferry_bench.kindness import SUITE, run_kindness
    from tableferry_bench.servers import servers
    from tableferry_bench.suite import Part, Suite, choose, read_suite, run_suite
    from tableferry_bench.workloads import parse

    if suite == SUITE and not workloads:
        folder = how["output"] or FOLDER / f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{SUITE}"
        with servers(how["work"]) as found:
            wrong = run_kindness(
                found,
                rows,
                source=source,
                ways=contenders,
                in_parts=in_parts,
                output=folder,
                keep=how["keep"],
                tell=_tell,
                show=click.echo,
            )
        click.echo(folder)
        end(wrong)
        return
    if contenders and not workloads:
        raise InputError("--contender goes with --workload")
    if workloads:
        for workload in workloads:
            parse(workload)
        names = list(contenders) or ["ferry", "psql-curl"]
        choose(names)
        parts = [Part(workload=workload, contenders=names) for workload in workloads]
        chosen = Suite(suite="chosen", tables=parts)
    else:
        chosen = read_suite(suite)
    # the file that comes along is about the suites that do
    thresholds = how["thresholds"]
    wanted = None if workloads and not thresholds else read_thresholds(thresholds)
    chosen = chosen.model_copy(update=_given(how, "runs", "warmups"))
    with servers(how["work"]) as found:
        result = run_suite(found, chosen, keep=how["keep"], tell=_tell)
    _certified(result, how["output"], certify(result, wanted), require_all)


@bench.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option(
    "--relative-to",
    metavar="C",
    help="Divide by this contender's figures, round by "
    "round, so that a busier machine does not count.",
)
@click.option(
    "--format", "form", type=click.Choice(("md", "html", "json")), default="md", show_default=True
)
@user_errors
def compare(before: Path, after: Path, relative_to: str | None, form: str) -> None:
    """Compare two results, or their folders. Exit code 1 if something became worse.

    It has if the median of a figure moved by more than 5 % (10 % for the servers' CPU time), and no
    run of the one result lies among those of the other: else the difference is noise.
    """
    from tableferry_bench.comparison import compare as compared
    from tableferry_bench.report import html, markdown
    from tableferry_bench.sections import comparison_sections

    found = compared(_read(before), _read(after), relative_to=relative_to)
    if form == "json":
        click.echo(found.to_json(), nl=False)
    else:
        parts = comparison_sections(found)
        show = html if form == "html" else markdown
        click.echo(show("Comparison", parts))
    end([f"{one.case}: {one.metric} {one.part:+.1%}" for one in found.regressions])


@bench.command()
@click.option("--workload", "-w", default="wide:100000", show_default=True)
@click.option(
    "--strategy", "-s", "strategies", multiple=True, metavar="S", help="This one only; repeatable."
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Connections of those that read side by side.",
)
@measuring
def lab(workload: str, strategies: Sequence[str], workers: int, **how: Any) -> None:
    """Read a table of PostgreSQL in eight ways: speed, memory, CPU time."""
    from tableferry_bench.lab import run_lab
    from tableferry_bench.servers import servers

    with servers(how["work"]) as found:
        result = run_lab(found, workload, strategies, workers=workers, tell=_tell, **_counts(how))
    _told(result, how)


@bench.command()
@click.option("--workload", "-w", default="wide", show_default=True, help="Whose rows.")
@click.option("--rows", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option(
    "--experiment",
    "-e",
    "experiments",
    multiple=True,
    metavar="E",
    help="This one only; repeatable.",
)
@click.option(
    "--growth",
    default=None,
    metavar="N,N",
    help="Sizes of the experiment `growth` [default: 0.1 to 10 million rows].",
)
@measuring
def staging(
    workload: str, rows: int, experiments: Sequence[str], growth: str | None, **how: Any
) -> None:
    """Fill ClickHouse directly and by staging tables, by workers and sizes."""
    from tableferry_bench.servers import servers
    from tableferry_bench.staging import GROWTH, run_staging

    sizes = _numbers("--growth", growth) if growth else GROWTH
    with servers(how["work"]) as found:
        result = run_staging(found, workload, rows, experiments, sizes, tell=_tell, **_counts(how))
    _told(result, how)


@bench.command()
@click.option(
    "--workload", "-w", "workloads", multiple=True, default=("wide:100000",), show_default=True
)
@click.option("--ranges", default=None, metavar="N,N", help="How many ranges [default: 4,16].")
@click.option("--export", default=None, metavar="N,N", help="Export workers [default: 1,2].")
@click.option("--load", default=None, metavar="N,N", help="Load workers [default: 1,2].")
@click.option("--wire", default=None, metavar="W,W", help="[default: arrow,text].")
@click.option("--profile", default=None, metavar="P,P", help="[default: balanced,throughput].")
@measuring
def tune(workloads: Sequence[str], **how: Any) -> None:
    """Move a table with every combination of settings, and say which to take, and why."""
    from tableferry_bench.servers import servers
    from tableferry_bench.tune import AXES, run_matrix

    axes: dict[str, tuple[str | int, ...]] = {}
    for name, usual in AXES.items():
        text = how.get(name)
        if text is None:
            axes[name] = usual
        elif name in ("wire", "profile"):
            axes[name] = _words(f"--{name}", text, WORDS[name])
        else:
            axes[name] = _numbers(f"--{name}", text)
    with servers(how["work"]) as found:
        result = run_matrix(found, workloads, axes, tell=_tell, **_counts(how))
    _told(result, how)


@bench.command()
@click.argument("result", type=click.Path(path_type=Path))
@click.option(
    "--thresholds",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What it is held to [default: the file that comes along].",
)
@click.option("--require-all", is_flag=True, help="What was not measured fails, too.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder for the reports.",
)
@user_errors
def report(result: Path, thresholds: Path | None, require_all: bool, output: Path) -> None:
    """Write the reports of a result anew, and certify it by other thresholds.

    Exit code 1 if it does not keep to them.
    """
    from tableferry_bench.certification import certify, read_thresholds
    from tableferry_bench.report import leave

    found = _read(result)
    # the file that comes along is about the suites that do
    shipped = found.kind == "run"
    verdict = certify(found, read_thresholds(thresholds) if thresholds or shipped else None)
    leave(output, found, verdict)
    click.echo(verdict.headline)
    end(_broken(verdict, require_all))


@bench.command("list")
@user_errors
def show() -> None:
    """Name suites, workloads and contenders."""
    from tableferry_bench.suite import contenders, read_suite, shipped
    from tableferry_bench.workloads import WORKLOADS

    click.echo("suites")
    for name in shipped():
        click.echo(f"  {name:<20} {read_suite(name).about}")
    click.echo("  kindness             What reading a source does to others that use it.")
    click.echo("workloads")
    for workload in WORKLOADS.values():
        size = "" if workload.size == "fixed" else f":{workload.size}"
        click.echo(f"  {workload.name + size:<20} {workload.about}")
    click.echo("contenders")
    for one in contenders().values():
        click.echo(f"  {one.name:<20} {one.route}; proves {one.proves}")


WORDS = {"wire": ("auto", "arrow", "text"), "profile": ("safe", "balanced", "throughput")}


def _broken(verdict: Verdict, require_all: bool) -> list[str]:
    """What it does not keep to, one line each."""
    found = [
        f"{one.name}: {one.detail if one.value is None else f'{one.value:.3g}, not {one.limit}'}"
        for one in verdict.failed
    ]
    if require_all:
        found += [f"{one.name}: {one.detail}" for one in verdict.findings if one.value is None]
    return found


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part.replace("_", "")) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise InputError(f"{option} should be numbers with commas, e.g. 1,2,4; found {text!r}")
    return found


def _words(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    if unknown := [word for word in found if word not in known]:
        raise InputError(f"{option} should be of {', '.join(known)}; found {unknown[0]!r}")
    return found


def _given(how: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: how[name] for name in names if how[name] is not None}


def _counts(how: dict[str, Any]) -> dict[str, Any]:
    return {"runs": 3, "warmups": 1} | _given(how, "runs", "warmups") | {"keep": how["keep"]}


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _read(path: Path) -> Result:
    from tableferry_bench.results import Result

    return Result.read(path / "result.json" if path.is_dir() else path)


def _leave(result: Result, output: Path | None, verdict: Verdict) -> Path:
    from tableferry_bench.report import leave

    name = f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{result.suite}"
    folder = output or FOLDER / name
    leave(folder, result, verdict)
    return folder


def _told(result: Result, how: dict[str, Any]) -> None:
    """Leave a result of another kind than `run`, with its verdict; say what it suggests."""
    from tableferry_bench.advice import recommendations
    from tableferry_bench.certification import certify, read_thresholds

    for line in recommendations(result):
        click.echo(line)
    wanted = read_thresholds(how["thresholds"]) if how["thresholds"] else None
    _certified(result, how["output"], certify(result, wanted))


def _certified(
    result: Result, output: Path | None, verdict: Verdict, require_all: bool = False
) -> None:
    """Leave a result with its verdict, and end with it."""
    folder = _leave(result, output, verdict)
    click.echo(verdict.headline)
    click.echo(folder)
    end(_broken(verdict, require_all))
