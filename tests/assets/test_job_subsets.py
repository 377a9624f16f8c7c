"""A part of a job is its own part, and Dagster's runs of it are as before."""

from __future__ import annotations

import dagster as dg
import pytest

from assets.log import job_subsets


@dg.asset
def one() -> None: ...


@dg.asset
def two() -> None: ...


@pytest.fixture
def job() -> dg.JobDefinition:
    job_subsets.make_once()
    return dg.Definitions([one, two], jobs=[dg.define_asset_job("all")]).resolve_job_def("all")


def test_the_same_part_of_a_part_is_itself(job: dg.JobDefinition) -> None:
    part = job.get_subset(asset_selection={one.key})
    assert part is not job
    assert part.get_subset(asset_selection={one.key}) is part
    assert part.get_subset() is part
    assert job.get_subset(asset_selection={two.key}) is not part
    without_checks = part.get_subset(asset_selection={one.key}, asset_check_selection=set())
    assert without_checks.asset_selection_data.asset_check_selection == set()


def test_a_run_moves_the_chosen_assets_and_says_so(job: dg.JobDefinition) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, asset_selection=[two.key])
        assert [event.asset_key for event in done.get_asset_materialization_events()] == [two.key]
        run = instance.get_run_by_id(done.run_id)
        assert run is not None and run.asset_selection == {two.key}
        snapshot = instance.get_job_snapshot(str(run.job_snapshot_id))
        assert snapshot.lineage_snapshot is not None
        assert snapshot.lineage_snapshot.asset_selection == {two.key}
        assert instance.has_job_snapshot(snapshot.lineage_snapshot.parent_snapshot_id)
