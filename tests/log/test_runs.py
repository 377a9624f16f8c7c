"""Which of many transfers failed last, from their runs on a real Dagster instance."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
)
from dagster._core.events import DagsterEvent, DagsterEventType

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log import queries
from tableferry.assets.log.runs import failed_transfers, is_unanswered
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tests.integration.support import homes

TRANSFERS = [
    Transfer.model_validate(
        {
            "transfer": name,
            "source": f"postgres://public.{name}",
            "hops": [f"sqlserver://dbo.{name}", f"clickhouse://w.{name}"],
            "key": "id",
        }
    )
    for name in ("a", "b", "c")
]
SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
CANCELED = dg.DagsterRunStatus.CANCELED


def targets(*names: str, hops: int = 2) -> frozenset[dg.AssetKey]:
    """The asset keys of the first hops of transfers."""
    return frozenset(
        asset_key(hop.to)
        for transfer in TRANSFERS
        if transfer.transfer in names
        for hop in transfer.hops[:hops]
    )


def add_run(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus, selection: frozenset[dg.AssetKey]
) -> None:
    """A run as Dagster launches it: it has planned the checks of the assets that it selects."""
    run = instance.add_run(dg.DagsterRun(ASSET_JOB, status=status, asset_selection=selection))
    kind = DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED
    for key in selection:
        planned = AssetCheckEvaluationPlanned(
            asset_key=key, check_name=WHOLE_TABLE_CHECKS[0], partitions_subset=None
        )
        event = DagsterEvent(kind.value, ASSET_JOB, event_specific_data=planned)
        instance.report_dagster_event(event, run.run_id)


def test_a_failure_stands_until_a_later_run_of_its_targets_succeeds(tmp_path: Path) -> None:
    steps = [
        (FAILURE, targets("a"), {"a"}),
        (FAILURE, targets("b"), {"a", "b"}),
        (SUCCESS, targets("a"), {"b"}),
        (FAILURE, frozenset([dg.AssetKey("somebody_elses")]), {"b"}),
        (SUCCESS, targets("b", hops=1), {"b"}),
        (FAILURE, targets("a", "c"), {"a", "b", "c"}),
        (SUCCESS, targets("a", "b"), {"c"}),
        (SUCCESS, targets("c"), set()),
    ]
    with homes.local_temp(tmp_path) as instance:
        assert failed_transfers(instance, TRANSFERS) == {}
        for status, selection, failed in steps:
            add_run(instance, status, selection)
            assert failed_transfers(instance, TRANSFERS).keys() == failed, selection
            assert failed == {
                transfer.transfer
                for transfer in TRANSFERS
                if is_unanswered(instance, transfer, [hop.to for hop in transfer.hops])
            }
        with queries.opened(Path(instance.root_directory)) as files:
            assert failed_transfers(files, TRANSFERS) == {}


def test_how_the_newest_run_ended_is_told(tmp_path: Path) -> None:
    name = TRANSFERS[0].transfer
    with homes.local_temp(tmp_path) as instance:
        for status, ended in ((FAILURE, "failed"), (CANCELED, "canceled"), (FAILURE, "failed")):
            add_run(instance, status, targets("a"))
            assert failed_transfers(instance, TRANSFERS) == {name: ended}
