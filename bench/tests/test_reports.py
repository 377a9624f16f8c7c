"""Reports: tables, charts, advice."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

from bench.tests.samples import case, result

from tableferry_bench import charts
from tableferry_bench.advice import bottleneck, recommendations
from tableferry_bench.certification import certify, read_thresholds
from tableferry_bench.report import html, leave, markdown
from tableferry_bench.results import Case
from tableferry_bench.sections import sections

ODD = "<script>alert(1)</script>|"


def test_a_folder_has_all_forms(tmp_path: Path) -> None:
    one = result(case("ferry", [2, 3, 4]), case("psql-curl", [1, 1.5, 2]))
    leave(tmp_path, one, certify(one, read_thresholds(None)))
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert names == {
        "result.json",
        "verdict.json",
        "report.md",
        "report.html",
        "charts/run-wide-1000.svg",
    }
    text = (tmp_path / "report.md").read_text()
    assert "| ferry | a -> b | nothing | 3 | 2 to 4 | 333 | 0.667 | 0.50 | 100 |" in text.replace(
        ".00 ", " "
    )
    assert "![wide, 1,000 rows](charts/run-wide-1000.svg)" in text


def test_texts_are_escaped() -> None:
    odd = replace(case("ferry", [1]), failed=ODD)
    page = html("t", sections(result(odd, case("x", [1]))))
    assert ODD not in page
    assert "&lt;script&gt;" in page
    text = markdown("t", sections(result(replace(odd, proves=ODD))))
    assert "<script>" not in text
    assert "&lt;script>alert(1)&lt;/script>\\|" in text


def test_charts_are_xml_and_escaped() -> None:
    drawn = charts.bars(ODD, "s", [charts.Bar(ODD, 2.0, 1.0, 3.0, True), charts.Bar("b", 0, 0, 0)])
    root = ET.fromstring(drawn)
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert ODD in texts
    assert "2.00" in texts
    drawn = charts.lines("t", "rows", "s", {"one": [(100, 1.0), (1000, 10.0)], "two": [(100, 2.0)]})
    lines = list(ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 2


def test_numbers_have_three_digits_that_count() -> None:
    shown = [charts.number_text(one) for one in (0, 0.1234, 1.234, 12.34, 123.4, 1234.5, 1234567)]
    assert shown == ["0", "0.123", "1.23", "12.3", "123", "1,230", "1,230,000"]


def test_the_time_of_the_ranges_is_shared_out_by_phase() -> None:
    found = bottleneck(case("ferry", [4, 4, 4]))
    assert found is not None
    # 4 s of ranges, of which export took 1 part and load 3; 0.8 s around them
    assert found.phase == "load"
    assert round(found.part, 3) == round(3 / 4.8, 3)
    assert bottleneck(replace(case("x", [1]), runs=())) is None


def test_the_matrix_recommends_the_leanest_of_the_fastest() -> None:
    fast = case("ferry", [2, 2.1, 2.2], options={"ranges": 4})
    lean = case("ferry", [2.05, 2.15, 2.25], options={"ranges": 8})
    lean = replace(lean, runs=tuple(replace(run, peak_rss_bytes=50_000_000) for run in lean.runs))
    slow = case("ferry", [4, 4, 4], options={"ranges": 1})
    first, second, third = recommendations(result(fast, lean, slow, kind="tune"))
    assert first == "wide, 1,000 rows: fastest was ranges 4."
    assert "ranges 8 takes the least memory, and is recommended" in second
    assert third.startswith("Its bottleneck is load, ")


def test_what_each_further_worker_brings_is_told() -> None:
    cases = [
        case("ferry", [seconds], options={"export": number, "load": number, "wire": wire})
        for number, wire, seconds in ((1, "text", 4.0), (1, "arrow", 5.0), (2, "arrow", 2.5))
    ]
    uneven = case("ferry", [1.0], options={"export": 2, "load": 1, "wire": "text"})
    found = {part.title: part for part in sections(result(*cases, uneven, kind="tune"))}
    assert found["wide, 1,000 rows: by workers"].rows == (
        ("1", "ferry, export 1, load 1, wire text", "250", "1.00", "1.00", "25%, 40%"),
        ("2", "ferry, export 2, load 2, wire arrow", "400", "1.60", "0.800", "25%, 40%"),
    )
    (alone, *_) = sections(result(cases[0], kind="tune"))
    assert alone.columns[-3:] == ("in the kernel", "bytes a row on disk", "without compression")
    assert alone.rows[0][-3:] == ("25%, 40%", "20.0", "80.0")


def test_the_cost_of_growing_is_told() -> None:
    sizes = [
        replace(case("staging-growth", [seconds] * 3, rows, options={"strategy": "direct"}))
        for rows, seconds in ((1000, 2.0), (10_000, 10.0))
    ]
    found = recommendations(result(*sizes, kind="staging"))
    assert found == ["strategy direct: 10 times the rows (1,000 to 10,000) took 5 times as long."]
    parts = sections(result(*sizes, kind="staging"))
    assert parts[0].chart is not None
    assert "<polyline" in parts[0].chart.svg


def test_the_costs_of_many_tables_and_their_growth_are_sections_of_their_own() -> None:
    def loading(size: int, seconds: float) -> Case:
        return case("fleet-definitions", [seconds], size, "transfers", route="declared only")

    linear = [loading(1, 2.0), loading(1000, 12.0), loading(100, 3.0)]
    moved = case("fleet-first", [6.0], 100, workload="tables")
    found = {part.title: part for part in sections(result(*linear, moved, case("ferry", [1])))}
    assert [row[3] for row in found["Costs"].rows] == ["1", "100", "1,000", "100"]
    assert [row[8] for row in found["Costs"].rows] == [*("", "", ""), "3.20"]
    (row,) = found["Growth"].rows
    assert row == ("definitions", "client CPU s", "1, 100, 1,000", "at most 1.1", "passed", "1.00")
    chart = found["Growth"].chart
    assert chart is not None and chart.name == "fleet-growth"
    assert "wide, 1,000 rows" in found, "what moves one table is shown as ever"
    steep = sections(result(*linear[:2], loading(100, 2.2)))
    (row,) = next(part for part in steep if part.title == "Growth").rows
    assert row[4:] == ("failed", "1.70")
    failed = replace(loading(5000, 1.0), runs=(), failed="out of memory")
    (costs, *_) = sections(result(failed))
    assert "transfers:5000 fleet-definitions FAILED: out of memory" in costs.remarks
