"""`ferry bench compare`: regressions, noise and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.tests.samples import case, result
from click.testing import CliRunner

from tableferry.resources.errors import InputError
from tableferry_bench.cli import bench
from tableferry_bench.comparison import compare
from tableferry_bench.results import Result


def judgements(before: Result, after: Result, relative_to: str | None = None) -> dict[str, str]:
    found = compare(before, after, relative_to=relative_to)
    return {one.case: one.judgement for one in found.changes if one.metric == "seconds"}


def test_slower_beyond_noise_is_a_regression() -> None:
    before = result(case("ferry", [2, 2.1, 2.2]), case("psql-curl", [1, 1.1, 1.2]))
    after = result(case("ferry", [4, 4.1, 4.2]), case("psql-curl", [1, 1.5, 1.6]))
    found = judgements(before, after)
    assert found == {"wide:1000 ferry": "regression", "wide:1000 psql-curl": "noise"}


def test_a_busier_machine_does_not_count_relative_to_another() -> None:
    before = result(case("ferry", [2, 2.1, 2.2]), case("psql-curl", [1, 1.05, 1.1]))
    after = result(case("ferry", [4, 4.2, 4.4]), case("psql-curl", [2, 2.1, 2.2]))
    assert judgements(before, after)["wide:1000 ferry"] == "regression"
    assert judgements(before, after, "psql-curl") == {"wide:1000 ferry": "same"}


def test_what_was_lost_is_named_and_so_is_another_machine() -> None:
    before = result(case("ferry", [2]), case("sling", [3]))
    after = result(case("ferry", [2]), servers={"postgres": "17", "clickhouse": "26.9, elsewhere"})
    found = compare(before, after)
    assert found.lost == ("wide:1000 sling: not part of it any more",)
    assert found.notes == ("postgres: 18.6, on this machine before, 17 after",)


def test_nothing_in_common() -> None:
    with pytest.raises(InputError, match="no measured case in common"):
        compare(result(case("ferry", [2])), result(case("sling", [2])))
    with pytest.raises(InputError, match="relative to sling: it was not measured"):
        compare(result(case("ferry", [2])), result(case("ferry", [2])), relative_to="sling")


@pytest.mark.parametrize(("seconds", "code"), [([4, 4.1, 4.2], 1), ([2, 2.1, 2.2], 0)])
def test_the_command_ends_with_1_on_a_regression(
    tmp_path: Path, seconds: list[float], code: int
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "result.json").write_text(result(case("ferry", [2, 2.1, 2.2])).to_json())
    (tmp_path / "b.json").write_text(result(case("ferry", seconds)).to_json())
    given = ["compare", str(tmp_path / "a"), str(tmp_path / "b.json")]
    done = CliRunner().invoke(bench, given)
    assert done.exit_code == code
    assert ("| regression |" in done.stdout) == bool(code)
    document = json.loads(CliRunner().invoke(bench, [*given, "--format", "json"]).stdout)
    assert {one["judgement"] for one in document["changes"]} >= (
        {"regression"} if code else {"same"}
    )


def test_the_command_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    done = CliRunner().invoke(bench, ["compare", str(tmp_path / "no.json"), "b"])
    assert done.exit_code == 2
    assert "no.json: No such file or directory" in done.stderr
