"""Deletes old runs that planning, reports and the UI no longer need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import sqlalchemy as sql

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log import history, ledger
from tableferry.assets.log.dagster_internals import SqlEventLogStorage, SqliteEventLogStorage
from tableferry.checks.expectations import ALL_CHECKS
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS


@dataclass(frozen=True)
class Retention:
    """Which runs of the transfers can be deleted, and why the others are kept."""

    forgotten: tuple[str, ...]
    """Ids of the runs to delete, oldest last."""
    recent: int
    """Number of runs that are not old enough, or have not ended."""
    needed: Mapping[str, str]
    """Ids of the old runs that are kept, with the reason."""


def retention(
    instance: dg.DagsterInstance, transfers: Iterable[Transfer], before: float
) -> Retention:
    """Determine which runs can be deleted; nothing is changed.

    A run is kept, however old, if it holds the newest materialization of a range, with its data
    version; the latest attempt on a range; the move of a range's rows; a standing verdict; or the
    newest success of a target, which answers earlier failures. Runs of other code than these
    transfers are never deleted.

    Args:
        instance: the instance with the runs.
        transfers: the transfers.
        before: seconds since the epoch; runs that ended later are kept.
    """
    declared = list(transfers)
    targets = frozenset(asset_key(hop.to) for transfer in declared for hop in transfer.hops)
    needed: dict[str, str] = {}
    for transfer in declared:
        for hop in transfer.hops:
            for run_id, why in _needed_runs(instance, asset_key(hop.to)):
                needed.setdefault(run_id, f"{why} of {hop.to}")
    forgotten, kept, recent = [], {}, 0
    succeeded: set[tuple[str, dg.AssetKey]] = set()
    for record in history.run_records(instance):
        run = record.dagster_run
        covered = _covered_targets(run, targets)
        if covered is None:
            continue
        newest_success = False
        if run.status is dg.DagsterRunStatus.SUCCESS:
            newest_success = not covered <= succeeded
            succeeded |= covered
        if not run.is_finished or (record.end_time or before) >= before:
            recent += 1
        elif run.run_id in needed:
            kept[run.run_id] = needed[run.run_id]
        elif newest_success:
            kept[run.run_id] = "the newest success"
        else:
            forgotten.append(run.run_id)
    return Retention(tuple(forgotten), recent, kept)


def forget(instance: dg.DagsterInstance, runs: Iterable[str]) -> None:
    """Delete runs with their events, verdicts and output.

    Dagster's API deletes a run and its events, but leaves the rows of the run's checks, its SQLite
    file and its output. SQLite reuses the space that becomes free in its other files.
    """
    storage = instance.event_log_storage
    checks = sql.text("DELETE FROM asset_check_executions WHERE run_id = :run")
    for run_id in runs:
        instance.delete_run(run_id)
        if isinstance(storage, SqlEventLogStorage):
            with storage.index_connection() as connection:
                connection.execute(checks, {"run": run_id})
        if isinstance(storage, SqliteEventLogStorage):
            file = storage.path_for_shard(run_id)
            for path in (file, f"{file}-wal", f"{file}-shm"):
                Path(path).unlink(missing_ok=True)
        instance.compute_log_manager.delete_logs(prefix=[run_id])


def _needed_runs(instance: dg.DagsterInstance, asset: dg.AssetKey) -> Iterator[tuple[str, str]]:
    """Yield the ids of the runs whose events the ranges of a hop depend on, with what they hold."""
    names = list(ledger.newest_ids(instance, asset))
    for materialization in ledger.newest(instance, asset, names).values():
        yield materialization.run_id, "the newest materialization of a range"
    for record in ledger.records(
        instance, asset, {*names, *ledger.newest_attempts(instance, asset)}
    ).values():
        yield str(record.run_id), "the latest attempt on a range"
    for record in ledger.moves(instance, asset, names).values():
        yield str(record.run_id), "the move of a range"
    for verdicts in ledger.evaluations(
        instance, asset, [*ALL_CHECKS, *WHOLE_TABLE_CHECKS]
    ).values():
        for stored in verdicts.values():
            yield stored.run_id, "a verdict"
            first = stored.evaluation.metadata.get("found_in_run")
            if first is not None:
                yield str(first.value), "the run that found a verdict"


def _covered_targets(
    run: dg.DagsterRun, targets: frozenset[dg.AssetKey]
) -> set[tuple[str, dg.AssetKey]] | None:
    """Return the targets that a run moved or checked; None if it concerns none of them."""
    if covered := history.coverage(run, targets):
        action, answered = covered
        return {(action, target) for target in answered}
    return None
