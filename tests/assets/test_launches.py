"""How the ranges of a transfer are shared among several runs, and which of them ends last."""

from __future__ import annotations

import dagster as dg
import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.runs import LAUNCH, RANGE_END, RANGE_START
from tableferry.assets.running.runs import (
    BACKFILL,
    RANGES_PER_RUN,
    backfill_policy,
    ends_last,
    run_requests,
    share_pool,
)

NAMES = [f"r{number:03d}" for number in range(100)]


def transfer(runs: int = 3, **settings: object) -> Transfer:
    given = {
        "transfer": "orders",
        "source": "postgres://public.orders",
        "hops": ["clickhouse://warehouse.orders"],
        "key": "id",
        "parallel": {"runs": runs},
        **settings,
    }
    return Transfer.model_validate(given)


def test_each_request_is_for_a_stretch_and_all_are_one_launch() -> None:
    order = NAMES[:9]
    found = run_requests(transfer(), order, set(order) - {"r004"}, key="k")
    spans = [(one.tags[RANGE_START], one.tags[RANGE_END]) for one in found]
    assert spans == [("r000", "r002"), ("r003", "r005"), ("r006", "r008")]
    assert {one.tags[LAUNCH] for one in found} == {"3:k"}
    (alone,) = run_requests(transfer(runs=1), order, order, key="k")
    assert LAUNCH not in alone.tags
    (left,) = run_requests(transfer(), order, ["r008"], key="k")
    assert LAUNCH not in left.tags, "it shares the work with nobody"


@pytest.mark.parametrize(
    ("runs", "ranges", "most"),
    [(1, {"count": 8}, None), (2, {"count": 8}, 5), (4, {"rows": 10}, RANGES_PER_RUN)],
)
def test_a_backfill_is_cut_as_declared(runs: int, ranges: object, most: int | None) -> None:
    assert backfill_policy(transfer(runs, ranges=ranges)).max_partitions_per_run == most


def limit(instance: dg.DagsterInstance) -> int | None:
    limits = {one.name: one.limit for one in instance.event_log_storage.get_pool_limits()}
    return limits.get("orders")


def test_the_pool_has_a_slot_per_run_unless_somebody_has_set_its_limit() -> None:
    with dg.instance_for_test() as instance:
        assert share_pool(instance, transfer(runs=1)) is None
        assert limit(instance) is None, "one run alone leaves the pool as it is"
        assert share_pool(instance, transfer()) is None
        assert limit(instance) == 3
        instance.event_log_storage.set_concurrency_slots("orders", 2)
        note = share_pool(instance, transfer())
        assert limit(instance) == 2
        assert note is not None
        assert "2 of the 3 slots" in note
        assert "dagster instance concurrency set orders 3" in note


def started(instance: dg.DagsterInstance, **tags: str) -> dg.DagsterRun:
    status = dg.DagsterRunStatus.STARTED
    return instance.add_run(dg.DagsterRun(job_name=ASSET_JOB, status=status, tags=tags))


def test_the_last_run_of_a_launch_checks_the_tables() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        one = transfer()
        launch = {LAUNCH: "3:k"}
        first, second = (started(instance, **launch) for _ in range(2))
        assert not ends_last(instance, one, first)
        assert not ends_last(instance, one, second), "the third has not begun yet"
        third = started(instance, **launch)
        assert ends_last(instance, one, third)
        assert ends_last(instance, one, started(instance)), "it shares its launch with nobody"
        assert ends_last(instance, transfer(runs=1), first), "each run of it for itself"


def test_a_failed_run_of_a_backfill_is_not_waited_for() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        one = transfer()
        tags = {BACKFILL: "b"}
        other = instance.add_run(
            dg.DagsterRun(
                job_name="another",
                status=dg.DagsterRunStatus.STARTED,
                tags=tags,
                asset_selection=frozenset({dg.AssetKey("another")}),
            )
        )
        first, second = (started(instance, **tags) for _ in range(2))
        assert other.asset_selection is not None
        assert asset_key(one.hops[0].to) not in other.asset_selection
        assert not ends_last(instance, one, first)
        instance.report_run_failed(second)
        assert ends_last(instance, one, first)
