"""Thresholds, and the verdict about a result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench.tests.samples import case, result

from tableferry.resources.errors import InputError
from tableferry_bench.certification import certify, read_thresholds
from tableferry_bench.results import Result

TEXT = """
thresholds:
  - name: ratio
    of: {workload: wide, rows: 1000, contender: ferry, metric: rows_per_second}
    against: {contender: psql-curl}
    at_least: 0.5
  - name: time
    of: {workload: wide, rows: 1000, contender: ferry, metric: seconds}
    at_most: 3
  - name: peer
    of: {workload: wide, rows: 1000, contender: ferry, metric: rows_per_second}
    against: {contender: sling}
    at_least: 3
  - name: large
    of: {workload: wide, rows: 10000000, contender: ferry, metric: seconds}
    at_most: 1
"""


@pytest.fixture
def thresholds(tmp_path: Path) -> Path:
    path = tmp_path / "thresholds.yaml"
    path.write_text(TEXT)
    return path


def test_ratios_are_taken_round_by_round(thresholds: Path) -> None:
    skipped = replace(case("sling", []), runs=(), skipped="not installed")
    # the machine was ten times slower in the last round, for both
    one = result(case("ferry", [2, 2, 20]), case("psql-curl", [1.2, 1.2, 12]), skipped)
    found = {
        finding.name: finding for finding in certify(one, read_thresholds(thresholds)).findings
    }
    assert found["ratio"].outcome == "passed"
    assert found["ratio"].value == pytest.approx(0.6)
    assert found["ratio"].most == pytest.approx(0.6)
    assert found["time"].outcome == "passed"
    assert found["peer"].outcome == "not measured"
    assert found["peer"].detail == "wide:1000 sling: not installed"
    assert found["large"].outcome == "elsewhere"


def test_a_failure_fails_all(thresholds: Path) -> None:
    one = result(case("ferry", [4, 4, 4]), case("psql-curl", [1, 1, 1]))
    verdict = certify(one, read_thresholds(thresholds))
    assert not verdict.passed
    assert [finding.name for finding in verdict.failed] == ["ratio", "time"]
    assert verdict.headline == "NOT certified: thresholds: 1 passed, 2 failed, 2 of other suites"


def test_rows_that_did_not_come_fail_a_result_of_any_kind() -> None:
    whole, half = case("staged", [1]), case("direct", [1])
    half = replace(half, runs=tuple(replace(run, rows=run.rows // 2) for run in half.runs))
    assert certify(result(whole, kind="staging"), None).passed
    for wrong, why in (
        (result(whole, half, kind="tune"), "wide:1000 direct: other rows than the table has"),
        (result(replace(whole, failed="no room"), kind="lab"), "wide:1000 staged: no room"),
        (result(whole, kind="staging", complete=False), "it was interrupted"),
    ):
        verdict = certify(wrong, None)
        assert not verdict.passed
        assert [finding.detail for finding in verdict.failed] == [why]
    assert not certify(result(kind="tune"), None).passed, "nothing was measured"


def test_one_of_several_settings_is_held_to_a_threshold(tmp_path: Path) -> None:
    path = tmp_path / "thresholds.yaml"
    path.write_text(
        "thresholds:\n"
        "  - name: two workers, by one\n"
        "    of: {workload: wide, rows: 1000, contender: ferry, metric: rows_per_second,\n"
        "         options: {export: 2}}\n"
        "    against: {options: {export: 1}}\n"
        "    at_least: 1.5\n"
        "  - name: four\n"
        "    of: {workload: wide, rows: 1000, contender: ferry, metric: seconds,\n"
        "         options: {export: 4}}\n"
        "    at_most: 1\n"
    )
    cases = (
        case("ferry", [seconds], options={"export": number}) for number, seconds in ((1, 4), (2, 2))
    )
    _, twice, four = certify(result(*cases, kind="tune"), read_thresholds(path)).findings
    assert twice.value == pytest.approx(2.0)
    assert four.outcome == "elsewhere"


def test_nothing_measured_is_not_certified(thresholds: Path) -> None:
    verdict = certify(result(case("pandas", [1])), read_thresholds(thresholds))
    assert not verdict.passed
    assert not verdict.complete
    assert verdict.headline.startswith("no threshold is about this suite: 1 passed, ")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    at_most: 1\n", "", "should say either at_least or at_most"),
        ("metric: seconds", "metric: second", "metric should be one of seconds, rows_per_second"),
        ("thresholds:", "limits:", "Extra inputs are not permitted"),
        ("thresholds:", "thresholds: {", "is not YAML"),
    ],
)
def test_what_is_wrong_is_said(thresholds: Path, old: str, new: str, message: str) -> None:
    thresholds.write_text(TEXT.replace(old, new))
    with pytest.raises(InputError, match=message):
        read_thresholds(thresholds)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: no such file of thresholds"):
        read_thresholds(tmp_path / "none.yaml")


def test_those_that_come_along_are_about_cases_of_shipped_suites() -> None:
    from tableferry_bench.suite import read_suite

    parts = {
        (part.workload, contender)
        for suite in ("full", "chain")
        for part in read_suite(suite).tables
        for contender in part.contenders
    }
    for one in read_thresholds(None).thresholds:
        assert (f"{one.of.workload}:{one.of.rows}", one.of.contender) in parts, one.name


def test_what_was_published_of_both_hops_keeps_to_them() -> None:
    published = Path(__file__).parents[2] / "docs" / "performance" / "chain.json"
    verdict = certify(Result.read(published), read_thresholds(None))
    assert verdict.headline.startswith("certified: thresholds: 5 passed, ")
    assert "of other suites" in verdict.headline and not verdict.failed
