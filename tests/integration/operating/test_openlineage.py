"""What is recorded comes out of Dagster's sensor for OpenLineage, in an environment that has it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.guide import blocks
from tests.integration.conftest import Ferry
from tests.integration.support import venvs
from tests.integration.support.guide_shell import environment

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

PACKAGE = "dagster-openlineage==0.2.1"
TICK = """
import dagster as dg
from lineage import defs
with dg.DagsterInstance.get() as instance:
    (sensor,) = defs.sensors
    sensor.evaluate_tick(dg.build_sensor_context(instance))
"""


def test_columns_lineage_and_verdicts_are_facets_of_datasets(
    ferry: Callable[..., Ferry], tmp_path: Path
) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
        "INSERT INTO {t} SELECT g, 'n' || g FROM generate_series(1, 40) g",
        columns="{note: {rename: remark}}",
        ranges="{bounds: [11, 21]}",
    )
    assert one.run().good
    (program,) = [b for b in blocks("in-your-project.md") if "openlineage_sensor" in b.text]
    (tmp_path / "lineage.py").write_text(program.text)
    (tmp_path / "tick.py").write_text(TICK)
    wheel = venvs.build_wheel(tmp_path)
    venvs.make(tmp_path / "venv", wheel, PACKAGE)
    lines = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(lines), "append": True}
    done = subprocess.run(
        [tmp_path / "venv/bin/python", "tick.py"],
        cwd=tmp_path,
        env=environment(
            DAGSTER_HOME=str(tmp_path / "dagster"), OPENLINEAGE__TRANSPORT=json.dumps(transport)
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in lines.read_text().splitlines()]
    target, source = f"clickhouse/warehouse/{one.table}", f"postgres/public/{one.table}"

    outputs = facets_of(events, "outputs", target, "facets", "columnLineage")
    assert len(outputs) == 3, "one of each range"
    for output in outputs:
        columns = {field["name"]: field["type"] for field in output["schema"]["fields"]}
        assert columns.keys() == {"id", "remark"} and columns["id"] == "Int32"
        (origin,) = output["columnLineage"]["fields"]["remark"]["inputFields"]
        assert (origin["name"], origin["field"]) == (source, "note")

    verdicts = [
        assertion
        for facets in facets_of(events, "inputs", target, "inputFacets", "dataQualityAssertions")
        for assertion in facets["dataQualityAssertions"]["assertions"]
    ]
    assert {item["assertion"] for item in verdicts} >= {"row_count", "checksum", "total_rows"}
    assert all(item["success"] for item in verdicts)


def facets_of(
    events: list[dict[str, Any]], side: str, name: str, kind: str, needed: str
) -> list[dict[str, Any]]:
    """The facets of a dataset in all events in which it has the needed one."""
    datasets = [item for event in events for item in event.get(side, ()) if item["name"] == name]
    return [item[kind] for item in datasets if needed in item.get(kind, {})]
