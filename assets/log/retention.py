"""Forgets old runs: all of their events but what planning, reports and the UI still go by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.history import covered
from tableferry.assets.log.ledger import (
    evaluations,
    moves,
    newest,
    newest_attempts,
    newest_ids,
    records,
)
from tableferry.checks.expectations import ALL_CHECKS
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS

PAGE = 500


@dataclass(frozen=True)
class Retention:
    """Which runs of the transfers can go, and why the others stay."""

    forgotten: tuple[str, ...]
    """Ids, the oldest last."""
    recent: int
    """That are not old enough, or have not ended."""
    needed: Mapping[str, str]
    """Old runs that stay: id and why."""


def retention(
    instance: dg.DagsterInstance, transfers: Iterable[Transfer], before: float
) -> Retention:
    """Tell which runs can be forgotten. Nothing is changed.

    A run stays, however old, if it holds the newest materialization of a range, with its data
    version; the newest word on a range's latest attempt; the move that brought a range's rows; a
    verdict that counts; or the newest success of a target, which answers earlier failures. Runs of
    anything else than these transfers are never touched.

    Args:
        instance: whose runs.
        transfers: whose runs, too.
        before: seconds since the epoch; what ended later stays.
    """
    declared = list(transfers)
    needed: dict[str, str] = {}
    for transfer in declared:
        for hop in transfer.hops:
            for run_id, why in _held(instance, asset_key(hop.to)):
                needed.setdefault(run_id, f"{why} of {hop.to}")
    forgotten, kept, recent = [], {}, 0
    succeeded: set[tuple[str, dg.AssetKey]] = set()
    for record in _runs(instance):
        run = record.dagster_run
        about = _covered(run, declared)
        if about is None:
            continue
        newest_success = False
        if run.status is dg.DagsterRunStatus.SUCCESS:
            newest_success = not about <= succeeded
            succeeded |= about
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
    """Delete runs with their events, verdicts and what they printed.

    Dagster's API deletes a run and its events. It leaves the rows of the run's checks, its file of
    SQLite, and its output. What becomes free in SQLite's other files is used again.
    """
    log = instance.event_log_storage
    for run_id in runs:
        instance.delete_run(run_id)
        if isinstance(log, SqlEventLogStorage):
            table = AssetCheckExecutionsTable
            with log.index_connection() as connection:
                connection.execute(table.delete().where(table.c.run_id == run_id))
        if isinstance(log, SqliteEventLogStorage):
            file = log.path_for_shard(run_id)
            for left in (file, f"{file}-wal", f"{file}-shm"):
                Path(left).unlink(missing_ok=True)
        instance.compute_log_manager.delete_logs(prefix=[run_id])


def _held(instance: dg.DagsterInstance, asset: dg.AssetKey) -> Iterator[tuple[str, str]]:
    """The runs whose events a hop's ranges go by: id and what they hold."""
    names = list(newest_ids(instance, asset))
    for one in newest(instance, asset, names).values():
        yield one.run_id, "the newest materialization of a range"
    for record in records(instance, asset, {*names, *newest_attempts(instance, asset)}).values():
        yield str(record.run_id), "the latest attempt on a range"
    for record in moves(instance, asset, names).values():
        yield str(record.run_id), "the move of a range"
    for verdicts in evaluations(instance, asset, [*ALL_CHECKS, *WHOLE_TABLE_CHECKS]).values():
        for stored in verdicts.values():
            yield stored.run_id, "a verdict"
            evaluation = stored.evaluation
            found_in = evaluation.metadata.get("found_in_run") if evaluation else None
            if found_in is not None:
                yield str(found_in.value), "the run that found a verdict"


def _runs(instance: dg.DagsterInstance) -> Iterator[dg.RunRecord]:
    """All runs, the newest first."""
    cursor: str | None = None
    while True:
        page = instance.get_run_records(limit=PAGE, cursor=cursor)
        yield from page
        if len(page) < PAGE:
            return
        cursor = page[-1].dagster_run.run_id


def _covered(
    run: dg.DagsterRun, transfers: Iterable[Transfer]
) -> set[tuple[str, dg.AssetKey]] | None:
    """What a run is about, as kind and target; None if it is none of the transfers'."""
    for transfer in transfers:
        targets = frozenset(asset_key(hop.to) for hop in transfer.hops)
        if about := covered(run, transfer, targets):
            kind, answered = about
            return {(kind, target) for target in answered}
    return None
