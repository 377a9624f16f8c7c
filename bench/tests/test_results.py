"""Results, their schema, and what reads them back."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from bench.tests.samples import case, result

from tableferry.resources.errors import InputError
from tableferry_bench.certification import certify, read_thresholds
from tableferry_bench.results import Result


def schema(name: str) -> dict[str, object]:
    path = files("tableferry_bench") / "schemas" / f"{name}.schema.json"
    return dict(json.loads(path.read_text()))


def test_a_result_keeps_to_its_schema_and_comes_back(tmp_path: Path) -> None:
    one = result(
        case("ferry", [2, 3, 4], options={"ranges": 4}),
        replace(case("sling", []), runs=(), skipped="not installed"),
    )
    jsonschema.validate(json.loads(one.to_json()), schema("result"))
    path = tmp_path / "result.json"
    path.write_text(one.to_json())
    assert Result.read(path) == one


def test_a_verdict_keeps_to_its_schema() -> None:
    verdict = certify(result(case("ferry", [2])), read_thresholds(None))
    jsonschema.validate(json.loads(verdict.to_json()), schema("verdict"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is no result of `ferry bench` of version 1: its schema_version is None"),
        ('{"schema_version": 7}', "its schema_version is 7"),
        ('{"schema_version": 1}', "kind: Field required"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        Result.read(path)


def test_warmups_do_not_count() -> None:
    one = case("ferry", [2, 4, 6])
    assert one.figures("seconds") == {0: 2, 1: 4, 2: 6}
    found = one.summary("rows_per_second")
    assert found is not None
    assert found.median == 250
    assert one.figures("mb_per_second")[0] == 1
    assert one.figures("cpu_servers")[0] == 0.75
    assert one.figures("phase_load")[0] == 3
    assert one.figures("phase_unknown") == {}


def test_a_server_elsewhere_makes_the_servers_time_unknown() -> None:
    one = case("ferry", [2])
    run = replace(one.runs[1], cpu_seconds={"client": 1.0, "postgres": 1.0, "clickhouse": None})
    one = replace(one, runs=(run,))
    assert one.figures("cpu_servers") == {}
    assert one.figures("cpu_clickhouse") == {}
    assert one.figures("cpu_postgres") == {0: 1.0}
