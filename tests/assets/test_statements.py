"""What Dagster works out once per process: its tables are as it makes them by itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
)
from dagster._core.definitions.partitions.subset import DefaultPartitionsSubset
from dagster._core.events import (
    AssetMaterializationPlannedData,
    AssetObservationData,
    DagsterEvent,
    DagsterEventType,
    EngineEventData,
    StepMaterializationData,
)
from dagster._core.storage.event_log import sql_event_log
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from tableferry.assets.log import statements
from tableferry.assets.log.instance import open_instance
from tests.integration import homes

ASSET = dg.AssetKey(["sqlserver", "dbo", "t"])
RUN = "5b1c7b3e-0d0d-4f0e-9a55-0b1f3a8a2c11"


def events() -> Iterator[dg.EventLogEntry]:
    """Of a run of two ranges: of each kind that Dagster keeps in several tables."""
    kinds = DagsterEventType
    planned = AssetCheckEvaluationPlanned(
        asset_key=ASSET, check_name="check", partitions_subset=DefaultPartitionsSubset({"a", "b"})
    )
    found: list[tuple[DagsterEventType, object]] = [
        (kinds.ASSET_MATERIALIZATION_PLANNED, AssetMaterializationPlannedData(ASSET)),
        (kinds.ASSET_CHECK_EVALUATION_PLANNED, planned),
        (kinds.ENGINE_EVENT, EngineEventData()),
    ]
    for name in ("a", "b"):
        seen = dg.AssetObservation(ASSET, partition=name, tags={"state": "loaded"})
        made = dg.AssetMaterialization(ASSET, partition=name, metadata={"rows": 3}, tags={"t": "1"})
        found += [
            (kinds.ASSET_OBSERVATION, AssetObservationData(seen)),
            (kinds.ASSET_MATERIALIZATION, StepMaterializationData(made)),
        ]
        for passed in (False, True):
            evaluation = dg.AssetCheckEvaluation(
                asset_key=ASSET, check_name="check", passed=passed, partition=name, metadata={}
            )
            found.append((kinds.ASSET_CHECK_EVALUATION, evaluation))
    for second, (kind, data) in enumerate(found):
        inner = DagsterEvent(kind.value, "job", event_specific_data=data)  # type: ignore[arg-type]
        yield dg.EventLogEntry(
            error_info=None,
            level=10,
            user_message="",
            run_id=RUN,
            timestamp=1_700_000_000.0 + second,
            step_key="step",
            job_name="job",
            dagster_event=inner,
        )


def stored(home: Path) -> dict[str, list[object]]:
    """The rows of all tables that hold events, after they are stored."""
    homes.copy(home)
    with open_instance(home) as instance:
        for event in events():
            instance.event_log_storage.store_event(event)
    found: dict[str, list[object]] = {}
    for file in (home / "history" / "runs").glob("*.db"):
        with closing(sqlite3.connect(file)) as connection:
            for table in ("event_logs", "asset_keys", "asset_event_tags", "asset_check_executions"):
                rows = connection.execute(f"SELECT * FROM {table}")
                kept = [
                    number
                    for number, column in enumerate(rows.description)
                    if column[0] != "create_timestamp"
                ]
                found[f"{file.name} {table}"] = [tuple(one[i] for i in kept) for one in rows]
    return found


def test_the_tables_are_as_dagster_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = stored(tmp_path / "ours")
    monkeypatch.setattr(sql_event_log, "serialize_value", statements._serialize)
    for name in ("prepare_insert_event", "_store_asset_event"):
        monkeypatch.delattr(SqliteEventLogStorage, name)
    assert ours == stored(tmp_path / "dagster's")
    assert [len(ours[f"index.db {one}"]) for one in ("asset_keys", "event_logs")] == [1, 10]
    assert len(ours[f"{RUN}.db event_logs"]) == 11


def test_an_event_is_written_as_text_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []

    def counted(value: dg.EventLogEntry) -> str:
        written.append(value)
        return serialize(value)

    serialize = statements._serialize
    monkeypatch.setattr(statements, "_serialize", counted)
    homes.copy(tmp_path)
    with open_instance(tmp_path) as instance:
        for event in events():
            instance.event_log_storage.store_event(event)
    assert len([one for one in written if isinstance(one, dg.EventLogEntry)]) == 11
