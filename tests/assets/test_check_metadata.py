"""What a reviewer reads on a check's page in Dagster."""

from __future__ import annotations

import dagster as dg
import pytest

from tableferry.assets.log.check_metadata import conclusion, verdict_metadata
from tableferry.checks.verdict import Difference, Differences, Verdict
from tableferry.pipelines.reporting.evidence import _figures


def failed() -> Verdict:
    examples = (
        Difference("7", "different", "note", "end", "end ", {"id": "7", "what": " "}),
        Difference("8", "missing_in_target", row={"id": "8", "what": None}),
    )
    return Verdict(
        check="checksum",
        passed=False,
        source={"rows": 2, "id": {"sum": "15"}, "note": {"length": "6"}},
        target={"rows": 1, "id": {"sum": "7"}, "note": {"length": "6"}},
        seconds=0.12345,
        disagreeing=("rows", "id"),
        differences=Differences(
            missing_in_target=1,
            different=1,
            examples=examples,
            named_by=("id", "what"),
            primary_key=("id", "what"),
        ),
    )


def test_the_conclusion_says_what_the_check_saw_and_which_rows_differ() -> None:
    assert conclusion(failed()) == (
        "checksum FAILED: 2 rows in source, 1 in target; 1 row missing in target, 1 row differs"
    )


def test_figures_are_read_back_as_they_were_found() -> None:
    metadata = {
        name: [row.data for row in value.records]
        if isinstance(value, dg.TableMetadataValue)
        else getattr(value, "value", value)
        for name, value in verdict_metadata(failed()).items()
    }
    expected = [("rows", "2", "1"), ("id sum", "15", "7"), ("note length", "6", "6")]
    assert [*_figures(metadata)] == expected
    alone = {"figure": "note length", "source": "6", "target": ""}
    assert [*_figures({"sums": [alone]})] == [("note length", "6", None)]


def test_the_rows_that_differ_come_first_and_the_long_table_last() -> None:
    names = sorted(verdict_metadata(failed()))  # as Dagster shows them
    assert names[0] == "differences"
    assert names[-1] == "sums"


def test_differing_rows_are_a_table() -> None:
    table = verdict_metadata(failed())["differences"]
    assert [record.data for record in table.records] == [
        {
            "key: id": "7",
            "key: what": "' '",
            "column": "note",
            "source": "'end'",
            "target": "'end '",
            "what": "different",
        },
        {
            "key: id": "8",
            "key: what": "NULL",
            "column": "",
            "source": "",
            "target": "",
            "what": "missing in target",
        },
    ]
    assert verdict_metadata(failed())["differing_rows_named_by"] == "primary key (id, what)"


def test_sums_that_disagree_come_first() -> None:
    verdict = failed()
    verdict.source["note"]["length"] = "9"
    verdict.target["id"]["sum"] = "15"
    records = [record.data for record in verdict_metadata(verdict)["sums"].records]
    assert records == [
        {"figure": "note length", "source": "9", "target": "6", "agree": False},
        {"figure": "id sum", "source": "15", "target": "15", "agree": True},
    ]


@pytest.mark.parametrize(
    ("source", "target", "shown"),
    [
        ("1", "2", ("1", "2")),
        (None, "", ("NULL", "''")),
        (None, "NULL", ("NULL", "'NULL'")),
        ("a", "a ", ("'a'", "'a '")),
        ("a b", "a  b", ("'a b'", r"'a\x20\x20b'")),
        ("tab\t", "tab", (r"'tab\t'", "'tab'")),
        ("Zürich", "Zurich", ("Zürich", "Zurich")),
        ("\u00e9", "e\u0301", (r"'\xe9'", r"'e\u0301'")),
        ("a\u00a0b", "a b", (r"'a\xa0b'", "'a b'")),
    ],
)
def test_values_that_differ_look_different(
    source: str | None, target: str | None, shown: tuple[str, str]
) -> None:
    assert Difference("1", "different", "note", source, target).shown() == shown


def test_the_expectations_of_a_range_are_a_table() -> None:
    results = [{"expectation": "expect_x(a)", "passed": False, "unexpected": 2, "examples": ["1"]}]
    verdict = Verdict("expectations", False, {}, {"rows": 3}, 0.1, metadata={"results": results})
    table = verdict_metadata(verdict)["results"]
    assert [record.data for record in table.records] == [
        {"expectation": "expect_x(a)", "passed": False, "unexpected": 2, "examples": '["1"]'}
    ]
