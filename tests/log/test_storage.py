"""Which storage a home has; and ours writes what Dagster's own would write."""

from __future__ import annotations

import queue
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
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
from dagster._core.storage.event_log import (
    ConsolidatedSqliteEventLogStorage,
    SqlEventLogStorage,
)
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from tableferry.assets.log import ledger, queries
from tableferry.assets.log.storage import SqliteEventLog, open_instance
from tests.integration.support import homes

ASSET = dg.AssetKey(["sqlserver", "dbo", "t"])
RUN = "5b1c7b3e-0d0d-4f0e-9a55-0b1f3a8a2c11"
TABLES = ("event_logs", "asset_keys", "asset_event_tags", "asset_check_executions")
Rows = dict[str, list[object]]


def events() -> Iterator[dg.EventLogEntry]:
    """The events of a run of two ranges, of each kind that Dagster keeps in several tables."""
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


def stored(folder: Path, storage_class: Callable[[str], SqlEventLogStorage]) -> Rows:
    """The rows of all tables that hold events, after they are stored."""
    storage = storage_class(str(folder))
    for event in events():
        storage.store_event(event)
    storage.dispose()
    found: Rows = {}
    for file in folder.glob("*.db"):
        with closing(sqlite3.connect(file)) as connection:
            for table in TABLES:
                rows = connection.execute(f"SELECT * FROM {table}")
                kept = [
                    number
                    for number, column in enumerate(rows.description)
                    if column[0] != "create_timestamp"
                ]
                found[f"{file.name} {table}"] = [tuple(one[i] for i in kept) for one in rows]
    return found


def test_our_storage_writes_the_rows_that_dagsters_of_one_file_does(tmp_path: Path) -> None:
    ours = stored(tmp_path / "ours", SqliteEventLog)
    theirs = stored(tmp_path / "dagster's", ConsolidatedSqliteEventLogStorage)
    assert list(ours) == [f"index.db {table}" for table in TABLES]
    assert [*ours.values()] == [*theirs.values()]


def test_a_run_with_a_file_of_its_own_stays_there(tmp_path: Path) -> None:
    """It was begun by an earlier version, or by Dagster's own storage."""
    begun, later, other = [*events()][:4], [*events()][4:], "a new run"
    before = SqliteEventLogStorage(str(tmp_path))
    for event in begun:
        before.store_event(event)
    before.dispose()
    log = SqliteEventLog(str(tmp_path))
    for event in later:
        log.store_event(event)
        log.store_event(event._replace(run_id=other))
    assert [record.event_log_entry for record in log.get_records_for_run(RUN).records] == [
        *begun,
        *later,
    ]
    assert len(log.get_records_for_run(other).records) == len(later)
    assert log.get_asset_records([ASSET])[0].asset_entry.last_run_id == other
    for run in (RUN, other):
        log.delete_events(run)
        assert not log.get_records_for_run(run).records
    log.dispose()


def test_the_events_of_a_run_are_passed_on_while_it_goes_on(tmp_path: Path) -> None:
    log, seen = SqliteEventLog(str(tmp_path)), queue.SimpleQueue[dg.EventLogEntry]()
    first, second, *_ = events()
    log.store_event(first)
    log.watch(RUN, None, callback := lambda event, _: seen.put(event))
    assert seen.get(timeout=60) == first
    log.store_event(second)
    assert seen.get(timeout=60) == second
    log.end_watch(RUN, callback)
    log.dispose()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", "SqliteEventLogStorage"),
        ("storage: {sqlite: {base_dir: {env: ELSEWHERE}}}", "SqliteEventLogStorage"),
        (
            "storage: {custom: {module: tableferry.assets.log.storage, class: Storage, "
            "config: {base_dir: {env: ELSEWHERE}}}}",
            "SqliteEventLog",
        ),
        (
            "event_log_storage: {module: dagster._core.storage.event_log, "
            "class: ConsolidatedSqliteEventLogStorage, config: {base_dir: {env: ELSEWHERE}}}",
            "ConsolidatedSqliteEventLogStorage",
        ),
    ],
    ids=["a home of before", "files elsewhere", "ours elsewhere", "another storage"],
)
def test_a_storage_that_dagster_yaml_names_is_taken(
    settings: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELSEWHERE", str(tmp_path / "elsewhere"))
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\n{settings}\n")
    with open_instance(home) as instance:
        assert type(instance.event_log_storage).__name__ == expected
        for event in events():
            instance.event_log_storage.store_event(event)
        assert set(ledger.newest_ids(instance, ASSET)) == {"a", "b"}
    with queries.quiet(home) or nullcontext() as files:
        assert (files is not None) is (settings == "")


@pytest.mark.parametrize("settings", [None, "", "telemetry: {enabled: true}\n"])
def test_no_usage_statistics_are_kept_of_what_a_command_does(
    settings: str | None, tmp_path: Path
) -> None:
    """Nor by a process that gets the instance from it."""
    if settings is not None:
        (tmp_path / "dagster.yaml").write_text(settings)
    with open_instance(tmp_path) as instance:
        assert not instance.telemetry_enabled
        with dg.DagsterInstance.from_ref(instance.get_ref()) as of_another:
            assert not of_another.telemetry_enabled


def test_dagsters_services_take_the_storage_of_a_new_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    homes.copy(tmp_path / "home")
    with dg.DagsterInstance.get() as instance:
        assert type(instance.event_log_storage) is SqliteEventLog
    with queries.quiet(tmp_path / "home") or nullcontext() as files:
        assert files is not None


@pytest.mark.parametrize(
    # one that is queued has to come from a code location
    "status",
    [each for each in dg.DagsterRunStatus if each is not dg.DagsterRunStatus.QUEUED],
)
def test_dagster_reads_a_home_in_which_a_run_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: dg.DagsterRunStatus
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    homes.copy(tmp_path / "home")
    with open_instance(tmp_path / "home") as instance:
        instance.add_run(dg.DagsterRun("job", status=status))
    with queries.quiet(tmp_path / "home") or nullcontext() as files:
        assert (files is not None) is dg.DagsterRun("job", status=status).is_finished


@pytest.mark.parametrize(
    ("folder", "read"), [("{env: DAGSTER_HOME}", True), ("HOME", True), ("/elsewhere", False)]
)
def test_the_files_of_a_home_are_read_only_if_its_log_is_in_them(
    tmp_path: Path, folder: str, read: bool
) -> None:
    """An earlier setting may have left files there."""
    homes.copy(tmp_path / "home")
    config = tmp_path / "home" / "dagster.yaml"
    named = str(tmp_path / "home") if folder == "HOME" else folder
    config.write_text(config.read_text().replace("{env: DAGSTER_HOME}", named))
    with queries.quiet(tmp_path / "home") or nullcontext() as files:
        assert (files is not None) is read
