"""The code location as Dagster loads it."""

from __future__ import annotations

import dagster as dg
import pytest

from pipelines.definitions import build
from resources.errors import InputError


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return build()


def test_each_hop_is_an_asset_and_the_source_an_external_one(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    middle = dg.AssetKey(["sqlserver", "dbo", "flights"])
    last = dg.AssetKey(["clickhouse", "warehouse", "flights"])
    source = dg.AssetKey(["postgres", "public", "flights"])
    assert graph.get(source).is_external
    assert graph.get(middle).parent_keys == {source}
    assert graph.get(last).parent_keys == {middle}
    assert [graph.get(key).kinds for key in (source, middle, last)] == [
        {"postgres"},
        {"sqlserver"},
        {"clickhouse"},
    ], "the system that holds the table"
    assert {graph.get(key).group_name for key in (source, middle, last)} == {"flights"}
    assert graph.get(last).owners == ["team:data-platform"]
    assert graph.get(last).metadata["dagster/table_name"] == "warehouse.flights"
    assert isinstance(graph.get(last).partitions_def, dg.DynamicPartitionsDefinition)


def test_every_hop_has_blocking_partitioned_checks(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    for path in (["sqlserver", "dbo", "flights"], ["clickhouse", "warehouse", "flights"]):
        keys = {key for key in graph.asset_check_keys if key.asset_key == dg.AssetKey(path)}
        assert {key.name for key in keys} >= {"row_count", "checksum"}


def test_jobs_and_sensors_exist_per_transfer(definitions: dg.Definitions) -> None:
    repository = definitions.get_repository_def()
    jobs = {job.name for job in repository.get_all_jobs()}
    assert {"move_flights", "check_flights", "move_flights_direct"} <= jobs
    sensors = {sensor.name for sensor in repository.sensor_defs}
    assert {"reaper", "failure_alert", "flights_new_ranges", "flights_failed_ranges"} <= sensors


def test_both_schedules_of_a_file_are_schedules(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(f"{tmp_path}/t.yaml", "w", encoding="utf-8") as out:
        out.write(
            "transfer: t\nsource: postgres://public.t\nhops: ['clickhouse://warehouse.t']\n"
            'key: id\nschedule: "0 2 * * *"\ncheck_schedule: "0 5 * * 0"\n'
        )
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path))
    found = {one.name: one.job_name for one in build().get_repository_def().schedule_defs}
    assert found == {"t_schedule": "move_t", "t_check_schedule": "check_t"}


def test_a_wrong_file_fails_the_code_location_by_name_and_line(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(f"{tmp_path}/bad.yaml", "w", encoding="utf-8") as out:
        out.write("transfer: x\nnonsense: 1\n")
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path))
    with pytest.raises(InputError, match=r"bad\.yaml:2: unknown key nonsense"):
        build()
