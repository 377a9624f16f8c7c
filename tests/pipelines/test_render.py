"""What the commands print: nothing cut on any screen, plain lines without one."""

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import dagster as dg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.states import Reason, State
from tableferry.assets.log.writer import Writer
from tableferry.assets.planning.rows.decision import Decision
from tableferry.assets.verifying.checked import Checked
from tableferry.checks.verdict import Difference, Differences, Verdict
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.show import render
from tableferry.pipelines.command.show.range_views import RangeView, TransferView
from tableferry.pipelines.command.show.views import PlannedRange, PlanView
from tests.integration.support import homes

LONG = "-0000000000000250001..0000000000000500001"
LONGER = "2024-01-01T00:00:00.000001..2024-02-01T00:00:00.000001"
TARGET = 'clickhouse://warehouse.Заказы "2024" 🚚[bold]'
ERROR = (
    "orders: sqlserver://dbo.orders range x: column 'time_hour', key 100000: value "
    "'12000-01-01 00:00:00' is outside of SQL Server's 0001-01-01 to 9999-12-31"
)
CHECKS = {"row_count": False, "checksum": False, "expectations": False, "full_hash": True}
VIEWS = [
    RangeView(
        hop=1,
        target="sqlserver://dbo.orders",
        range=name,
        state=State.COMMITTED,
        rows=1_250_000_000,
        seconds={"export": 1.5, "load": 2.25, "finalise": 0.125, "reconcile": 10.0},
        moving_seconds=4.0,
        run_id="5c0f1061-8a1b-4c4e-9a53-0f6d1fd1c2a7",
        timestamp=1_753_793_487.0,
        checks={"row_count": True, "checksum": True},
    )
    for name in ("..0000000000000250001", LONG)
] + [
    RangeView(
        LONGER, State.FAILED, hop=1, target="sqlserver://dbo.orders", error=ERROR, checks=CHECKS
    ),
    RangeView(LONG, State.SKIPPED_UNCHANGED, hop=2, target=TARGET, rows=3, checks=CHECKS),
    RangeView("null", State.MISSING, hop=2, target=TARGET),
]
MISSING_ROWS = Decision(Reason.ROW_COUNT_DIFFERS, "2 of 50,000 rows missing")
STATUS = TransferView("orders", VIEWS)
PLAN = PlanView(
    "orders",
    [
        PlannedRange(1, TARGET, LONG, Decision(Reason.UNCHANGED), rows=1_250_000_000),
        PlannedRange(1, TARGET, LONGER, MISSING_ROWS, rows=0),
    ],
)


def screen(width: int, show: Callable[[Console], None]) -> list[str]:
    """What a terminal of that width gets, without colours."""
    out = io.StringIO()
    show(Console(file=out, force_terminal=True, width=width, highlight=False, color_system=None))
    return out.getvalue().splitlines()


def piped(show: Callable[[Console], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    show(render.console())
    return out.getvalue().splitlines()


def assert_whole(lines: list[str], width: int, *texts: str) -> None:
    """All of the texts are there, each on a line of its own or as it wraps; no line is too wide."""
    assert max(map(cell_len, lines)) <= width
    assert "…" not in "".join(lines)
    shown = squeezed("".join(lines))
    for text in texts:
        assert squeezed(text) in shown, text


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_status_cuts_nothing(width: int, wide: bool) -> None:
    lines = screen(width, lambda out: render.show_ranges(out, "status", STATUS, wide=wide))
    names = [one.range for one in VIEWS]
    states = [one.state for one in VIEWS]
    assert_whole(lines, width, *names, *states, TARGET, ERROR, "FAILED: row_count, checksum")
    assert_whole(lines, width, "5c0f1061", "2025-07-29 12:51", "3 of 4 FAILED", "2 passed")
    if width >= 80:
        for name in names:
            assert sum(name in line for line in lines) == names.count(name), "names stay whole"
        assert sum("FAILED: row_count, checksum, expectations" in line for line in lines) == 2


@pytest.mark.parametrize("width", [40, 80, 100])
def test_a_plan_cuts_nothing(width: int) -> None:
    lines = screen(width, lambda out: render.show_plan(out, PLAN))
    for one in PLAN.ranges:
        assert_whole(lines, width, one.range, one.state, str(one.reason))


@pytest.mark.parametrize("width", [40, 80, 100])
def test_checks_and_differences_cut_nothing(width: int) -> None:
    differences = Differences(
        different=2,
        by_column={"note": 1, "Заказ": 1},
        examples=(
            Difference(
                "7", "different", "Заказ", "[red]x" * 9, "🚚" * 30, {"id": "7", "line": "2"}
            ),
        ),
        named_by=("id", "line"),
        primary_key=("id", "line"),
    )
    failed = Verdict(
        "checksum", False, {"rows": 5}, {"rows": 5}, 1.25, ("note", "Заказ"), differences
    )
    hop = SimpleNamespace(plan=SimpleNamespace(target=TARGET))
    found = [
        Checked(hop, LONG, failed),  # type: ignore[arg-type]
        Checked(hop, None, Verdict("schema", True, {}, {}, 0.5)),  # type: ignore[arg-type]
    ]
    lines = screen(width, lambda out: render.show_checks(out, "orders", found))
    assert_whole(lines, width, TARGET, LONG, "1.25", failed.summary(), "(whole table)", "0.50")
    if width >= 80:
        assert any(LONG in line for line in lines)
    shown = screen(width, lambda out: out.print(render.difference_table(differences)))
    assert max(map(cell_len, shown)) <= width
    everything = "".join(shown)
    assert everything.count("🚚") == 30 and everything.count("[") == 9
    assert "…" not in everything


def test_short_names_make_one_line_of_80_columns_per_range() -> None:
    views = [replace(VIEWS[0], range="0000042098..0000084195", rows=42_097)]
    lines = screen(80, lambda out: render.show_ranges(out, "status", TransferView("t", views)))
    (line,) = (line for line in lines if "0000042098" in line)
    assert line.split() == [
        "0000042098..0000084195",
        "42,097",
        "committed",
        "5c0f1061",
        "2025-07-29",
        "12:51",
        "2",
        "passed",
    ]


def test_without_a_screen_each_range_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = piped(lambda out: render.show_ranges(out, "status", STATUS), monkeypatch)
    rows = [re.split(" {2,}", line) for line in lines]
    assert rows[0] == [
        "target",
        "range",
        "rows",
        "state",
        "last run",
        "at (UTC)",
        "checks",
        "error",
    ]
    assert len(rows) == 1 + len(VIEWS)
    assert [row[:4] for row in rows[3:5]] == [
        ["sqlserver://dbo.orders", LONGER, "-", "failed"],
        [TARGET, LONG, "3", "skipped_unchanged"],
    ]
    assert rows[1][4:] == [
        "5c0f1061",
        "2025-07-29T12:51:27Z",
        "row_count=passed,checksum=passed",
        "-",
    ]
    assert rows[3][6].split(",")[0] == "row_count=FAILED"
    assert rows[3][7] == ERROR
    assert "\x1b" not in "".join(lines)


def test_a_plan_without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = piped(lambda out: render.show_plan(out, PLAN), monkeypatch)
    assert [re.split(" {2,}", line) for line in lines] == [
        ["target", "range", "rows", "action", "reason"],
        [TARGET, LONG, "1,250,000,000", "skip", "unchanged"],
        [TARGET, LONGER, "0", "run", "row_count_differs (2 of 50,000 rows missing)"],
    ]


def test_phases_and_rates_are_shown_on_request_and_only_where_they_mean_something() -> None:
    normal = screen(160, lambda out: render.show_ranges(out, "run", STATUS))
    assert not any(word in "".join(normal) for word in ("reconcile", "rows/s", "10.00"))
    wide = screen(200, lambda out: render.show_ranges(out, "run", STATUS, wide=True))
    (line,) = (line for line in wide if LONG in line and "committed" in line)
    assert line.split()[-5:] == ["1.50", "2.25", "0.12", "10.00", "312,500,000"]
    (skipped,) = (line for line in wide if "skipped_unchanged" in line and LONG in line)
    assert skipped.split()[-1] == "FAILED", "3 rows that were skipped have no rate"


def test_a_hop_with_nothing_to_do_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was moved, or is not good, is shown range by range."""
    checks = {"row_count": True, "checksum": True}

    def unchanged(name: str, **fields: Any) -> RangeView:
        values = {"rows": 1_000, "checks": checks, "timestamp": float(name), **fields}
        return RangeView(name, State.SKIPPED_UNCHANGED, hop=1, target=TARGET, **values)

    def shown(*ranges: RangeView, folded: bool = True) -> list[list[str]]:
        view = TransferView("orders", list(ranges))
        lines = piped(lambda out: render.show_ranges(out, "run", view, folded=folded), monkeypatch)
        return [re.split(" {2,}", line)[1:4] for line in lines[1:]]

    ranges = [unchanged("1"), unchanged("2", run_id="5c0f1061"), unchanged("3")]
    assert shown(*ranges) == [["(3 ranges)", "3,000", "skipped_unchanged"]]
    assert len(shown(*ranges, folded=False)) == 3
    assert shown(unchanged("1")) == [["1", "1,000", "skipped_unchanged"]]
    moved = RangeView("4", State.COMMITTED, hop=1, target=TARGET, rows=5, checks=checks)
    odd = [
        moved,
        unchanged("4", checks={"row_count": True}),
        unchanged("4", checks={**checks, "checksum": False}),
        unchanged("4", error="the rejected rows are not there"),
    ]
    for range_ in odd:
        assert len(shown(*ranges, range_)) == 4


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=90)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=4), st.integers(10, 120))
def test_whatever_the_names_nothing_is_cut_or_taken_for_markup(
    found: list[tuple[str, str, str]], width: int
) -> None:
    views = [
        RangeView(name, State.FAILED, hop=1, target=target, error=error, checks={"checksum": False})
        for target, name, error in found
    ]
    lines = screen(
        width, lambda out: render.show_ranges(out, "status", TransferView("orders", views))
    )
    texts = [render.shown(text).plain for one in found for text in one]
    assert all(text.isprintable() for text in texts)
    assert_whole(lines, width, *texts)


def test_status_on_a_real_terminal(tmp_path: Path) -> None:
    folder, home = tmp_path / "transfers", tmp_path / "dagster"
    folder.mkdir()
    homes.copy(home)
    (folder / "t.yaml").write_text(
        "transfer: orders\nsource: postgres://public.orders\nkey: id\n"
        "hops: ['clickhouse://warehouse.orders']\n"
        "expectations: [{type: sql, kwargs: {query: 'SELECT 1 FROM {table} WHERE {range}'}}]\n"
    )
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "TABLEFERRY_TRANSFERS": str(folder),
        "TABLEFERRY_POSTGRES_URL": "postgresql://127.0.0.1:1/db",
        "TERM": "xterm-256color",
    }
    environment.pop("COLUMNS", None)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run_id = fill(instance, folder)
    for columns in (80, 100):
        shown = terminal(columns, ["status", "orders"], environment)
        text = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        lines = [line.rstrip() for line in text.splitlines() if not line.startswith("ferry: ")]
        assert_whole(lines, columns, LONG, "committed", "FAILED: row_count, checksum, expectations")
        assert re.search(rf"{run_id[:8]} .*20\d\d-\d\d-\d\d \d\d:\d\d", " ".join(lines))


def fill(instance: dg.DagsterInstance, folder: Path) -> str:
    """Record a committed range with three failed checks, as a run does; returns the run's id."""
    transfer = load_transfers(folder).transfers["orders"]
    instance.add_dynamic_partitions(transfer.partitions_name, [LONG])

    @dg.op
    def move(context: dg.OpExecutionContext) -> None:
        writer = Writer(context, asset_key(transfer.hops[0].to), transfer)
        writer.commit(RangeRecord(LONG, State.COMMITTED, "a.b.c", context.run_id, rows=42_097))
        for name in ("row_count", "checksum", "expectations"):
            writer.checked(LONG, Verdict(name, False, {}, {}, 0.1, (name,)))

    @dg.job
    def job() -> None:
        move()

    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    result = job.execute_in_process(instance=instance, run_config=quiet)
    assert result.success
    return result.run_id


def terminal(columns: int, arguments: list[str], environment: dict[str, str]) -> str:
    """What a command writes to a terminal of that many columns; not all is proven."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = os.fork()
    if command == 0:
        os.close(master)
        be_command(slave, arguments, environment)
    os.close(slave)
    written = b""
    try:
        while chunk := os.read(master, 65536):
            written += chunk
    except OSError:  # Linux ends a pseudo-terminal so
        pass
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]) == 1, written.decode()
    return written.decode()


def be_command(terminal: int, arguments: list[str], environment: dict[str, str]) -> NoReturn:
    """Be a process that `ferry` was started in, on its terminal."""
    code: object = 1
    try:
        os.login_tty(terminal)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(fd, mode) for fd, mode in enumerate("rww"))
        os.environ.clear()
        os.environ.update(environment)
        main(arguments)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
