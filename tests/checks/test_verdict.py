"""What is said of an outcome is all that it is, and values that differ look different."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tableferry.checks.verdict import MOST_SHOWN, Difference, Differences, Verdict, shown_value

TEXTS = st.one_of(
    st.none(), st.text(max_size=6), st.sampled_from(["NULL", " ", "  ", "a ", "é", "é"])
)


def shown(source: str | None, target: str | None) -> tuple[str, str]:
    return Difference("1", "different", "note", source, target).shown()


@given(TEXTS, TEXTS)
@example(None, "NULL")
@example("a  b", "a b")
@example("a  b", r"a\x20\x20b")
@example("e\u0301", "\u00e9")
@example("", None)
def test_values_that_differ_look_different(source: str | None, target: str | None) -> None:
    left, right = shown(source, target)
    assert (left == right) == (source == target)
    assert "  " not in left + right
    assert (left + right).isprintable()


@pytest.mark.parametrize(
    ("source", "target", "texts"),
    [
        ("a", "b", ("a", "b")),
        ("a", None, ("a", "NULL")),
        ("a", "", ("'a'", "''")),
        ("NULL", None, ("'NULL'", "NULL")),
        ("a", "a ", ("'a'", "'a '")),
        ("a", "a\t", ("'a'", r"'a\t'")),
        ("a  b", "a b", (r"'a\x20\x20b'", "'a b'")),
        ("\u00e9", "e\u0301", (r"'\xe9'", r"'e\u0301'")),
    ],
)
def test_how_values_are_shown(source: str, target: str | None, texts: tuple[str, str]) -> None:
    assert shown(source, target) == texts
    assert shown(target, source) == texts[::-1]


def test_a_row_that_one_side_has_shows_no_values() -> None:
    assert Difference("1", "missing_in_target").shown() == ("", "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (None, "NULL"),
        ("", "''"),
        ("NULL", "'NULL'"),
        ("a", "a"),
        ("a\n", r"'a\n'"),
        ("x" * MOST_SHOWN, "x" * MOST_SHOWN),
        ("x" * (MOST_SHOWN + 1), "x" * MOST_SHOWN + " ... (1,001 characters)"),
    ],
)
def test_one_value(text: str | None, shown: str) -> None:
    assert shown_value(text) == shown


def test_of_long_values_the_part_that_differs_is_shown() -> None:
    long = "x" * 5_000
    left, right = shown(long + "a" + long, long + "b" + long)
    assert left == "... " + "x" * 500 + "a" + "x" * 499 + " ... (10,001 characters)"
    assert right == left.replace("a" + "x" * 499, "b" + "x" * 499)
    # one ends where the other goes on
    left, right = shown(long, long + "b")
    assert left == "... " + "x" * 500 + " (5,000 characters)"
    assert right == "... " + "x" * 500 + "b (5,001 characters)"
    # at the beginning, nothing is before it
    assert shown("a" + long, "b" + long)[0] == "a" + "x" * 999 + " ... (5,001 characters)"


@pytest.mark.parametrize(
    ("differences", "summary"),
    [
        (Differences(), "no row differs"),
        (Differences(missing_in_target=1), "1 row missing in target"),
        (Differences(extra_in_target=2), "2 rows extra in target"),
        (
            Differences(2, 1, 3, {"note": 2, "at": 1}),
            "2 rows missing in target, 1 row extra in target, 3 rows differ: note, at",
        ),
        (Differences(different=1), "1 row differs"),
    ],
)
def test_the_summary_of_differences(differences: Differences, summary: str) -> None:
    assert differences.summary() == summary
    assert differences.rows == sum(
        (differences.missing_in_target, differences.extra_in_target, differences.different)
    )


def test_rows_are_named_by_the_primary_key_or_what_there_is() -> None:
    named = Differences(named_by=("id",), primary_key=("id", "line"))
    assert named.naming() == "primary key (id, line)"
    assert Differences(named_by=("day",)).naming().startswith("key column alone (day), whose")


def verdict(check: str = "checksum", passed: bool = True, **rest: Any) -> Verdict:
    sides = {"source": {"rows": 3}, "target": {"rows": 3}}
    return Verdict(check, passed, seconds=0, **{**sides, **rest})


@pytest.mark.parametrize(
    ("of", "summary"),
    [
        (verdict(), "checksum passed: 3 rows agree"),
        (verdict("row_count"), "row_count passed: 3 rows on both sides"),
        (
            verdict("sample_hash", source={"rows": 3, "one_in": 2, "hashed": 1}),
            "sample_hash passed: 1 of 3 rows were sampled, and agree",
        ),
        (
            verdict("sample_hash", source={"rows": 3, "one_in": 1, "hashed": 3}),
            "sample_hash passed: 3 rows agree",
        ),
        (
            verdict(passed=False, target={"rows": 1}),
            "checksum FAILED: 3 rows in source, 1 in target",
        ),
        (
            verdict(passed=False, source={"rows": 1}),
            "checksum FAILED: 1 row in source, 3 in target",
        ),
        (
            verdict(passed=False, source={"rows": None}),
            "checksum FAILED: 0 rows in source, 3 in target",
        ),
        (
            verdict(passed=False, disagreeing=("digest", "amount")),
            "checksum FAILED: 3 rows on both sides, digest, amount differ",
        ),
        (
            verdict(passed=False, source={}, target={}, disagreeing=("digest",)),
            "checksum FAILED: digest differs",
        ),
        (
            verdict("full_hash", passed=False, differences=Differences(different=1)),
            "full_hash FAILED: 1 row differs",
        ),
        (
            verdict("full_hash", differences=Differences()),
            "full_hash passed: 3 rows agree",
        ),
        (verdict(passed=False, source_newer=True, note="moved on"), "checksum BEHIND: moved on"),
        (verdict(source={}, target={}), "checksum passed"),
        (
            verdict(remarks=("a is not compared",)),
            "checksum passed: 3 rows agree; a is not compared",
        ),
    ],
)
def test_what_is_said_of_an_outcome(of: Verdict, summary: str) -> None:
    assert of.summary() == summary
    assert of.summary(warning=True) == summary.replace("FAILED", "WARNED")
    assert of.conclusion() == summary.partition(": ")[2]


def test_one_figure_passes_if_both_sides_have_it() -> None:
    equal = Verdict.of_figure("row_count", "rows", 3, 3, seconds=1.0)
    assert (equal.passed, equal.disagreeing) == (True, ())
    other = Verdict.of_figure("row_count", "rows", 3, 4, seconds=1.0)
    assert (other.passed, other.disagreeing) == (False, ("rows",))
    assert (other.source, other.target) == ({"rows": 3}, {"rows": 4})


def test_why_rows_cannot_be_shown_is_said_once() -> None:
    failed = verdict(passed=False, remarks=("a is not compared",))
    twice = failed.unexplained(ValueError("no")).unexplained(ValueError("no"))
    assert twice.remarks == (
        "a is not compared",
        "which rows differ cannot be shown: ValueError: no",
    )
    assert not twice.passed
