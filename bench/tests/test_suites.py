"""Suites, workloads and the command's own refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tableferry.resources.errors import InputError
from tableferry_bench.cli import bench
from tableferry_bench.contenders.peers import NATIVE_PORT
from tableferry_bench.suite import contenders, read_suite, shipped
from tableferry_bench.tune import AXES, matrix
from tableferry_bench.workloads import WORKLOADS, parse


def test_the_suites_that_come_along_can_be_read() -> None:
    assert shipped() == ["chain", "fleet", "fleet-long", "full", "quick", "standard"]
    wanted = {
        name for suite in shipped() for part in read_suite(suite).tables for name in part.contenders
    }
    assert wanted <= set(contenders())
    full = {part.workload.partition(":")[0] for part in read_suite("full").tables}
    assert full == set(WORKLOADS)


def test_a_suite_includes_others_with_their_numbers_of_runs() -> None:
    fleet, long = read_suite("fleet"), read_suite("fleet-long")
    count = len(fleet.tables)
    assert [part.workload for part in long.tables[:count]] == [
        part.workload for part in fleet.tables
    ]
    assert {part.runs for part in long.tables[:count]} == {1, 3}
    assert "fleet-idle" in long.tables[-1].contenders
    assert {part.warmups for part in read_suite("full").tables if "fleet" in str(part)} == {0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("suite: x\ntables: []\n", "tables: List should have at least 1 item"),
        ("suite: x\ntables: [{workload: wide, contenders: [ferry]}]\n", "name its rows"),
        ("suite: x\ntables: [{workload: 'wide:1', contenders: [fairy]}]\n", "no contender 'fairy'"),
        ("suite: x\nincludes: [y]\ntables: [{workload: flights, contenders: [ferry]}]\n", "'y'"),
        ("suite: x\nruns: 0\ntables: [{workload: flights, contenders: [ferry]}]\n", "runs: "),
    ],
)
def test_a_bad_suite_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_suite(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wid:1", "there is no workload 'wid'"),
        ("wide:inf", "should name its rows"),
        ("wide:1.5", "'wide:1.5' should name its rows, e.g. wide:10000"),
        ("lineitem", "should name its scale, e.g. lineitem:0.1"),
        ("lineitem:-1", "should name its scale"),
        ("flights:3", "the workload flights has its own number of rows"),
    ],
)
def test_a_bad_workload_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(text)


def test_good_workloads() -> None:
    assert parse("wide:10_000")[1] == 10_000
    assert parse("lineitem:0.01")[1] == 0.01
    assert parse("flights")[0].name == "flights"
    assert WORKLOADS["columns"].columns.count(",") >= 199


def test_the_matrix_has_every_combination_once() -> None:
    found = [tuple(one.options.items()) for one in matrix(AXES)]
    assert len(found) == len(set(found)) == 32


@pytest.mark.parametrize(("port", "way"), [("", "HTTP"), ("9000", "native protocol")])
def test_dlt_goes_by_what_clickhouse_speaks_and_says_so(
    port: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NATIVE_PORT, port)
    assert contenders()["dlt"].options == {"by": way}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run --suite none", "no suite 'none'; there are chain, fleet, fleet-long, full, quick, "),
        ("run -c ferry", "--contender goes with --workload"),
        ("run -w wide:10 -c fairy", "there is no contender 'fairy'"),
        ("tune --ranges 0", "--ranges should be numbers with commas"),
        ("tune --wire air", "--wire should be of auto, arrow, text; found 'air'"),
        ("staging --growth x", "--growth should be numbers with commas"),
    ],
)
def test_bad_options_end_with_2_and_one_line(words: str, message: str) -> None:
    done = CliRunner().invoke(bench, words.split())
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.exception is None or isinstance(done.exception, SystemExit)
