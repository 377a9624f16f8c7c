"""Checks of whole target tables, after the ranges of a run; rows that they may have beyond it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

import dagster as dg

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.grouping import together
from tableferry.assets.log.ledger import committed, latest_materialization, records
from tableferry.assets.log.records import ROWS_SINCE
from tableferry.assets.log.writer import EventLogger, Writer
from tableferry.assets.planning.ranges.known import known_ranges
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.snapshots import read_under
from tableferry.assets.planning.source_state import SourceState
from tableferry.assets.planning.transfer_plan import TransferPlan
from tableferry.assets.verifying.checked import Checked
from tableferry.checks.levels import BY_CHECK
from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Differences, Verdict
from tableferry.checks.whole_table import (
    IN_NO_RANGE,
    TOTAL_ROWS,
    WHOLE_TABLE_CHECKS,
    repeated_keys,
    whole_table,
)
from tableferry.resources.contract.snapshots import Snapshot
from tableferry.resources.contract.source import source_of
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.words import counted

DESCRIPTIONS = {
    "total_rows": "Both tables hold the same number of rows, whatever their keys are.",
    "unique_key": "No two rows of the target share the source's primary key.",
    "no_stray_rows": "Every row of the target belongs to one of the key ranges.",
    "schema": "The target has the planned columns, with types that hold every planned value.",
}


def whole_table_specs(transfer: Transfer) -> list[dg.AssetCheckSpec]:
    """Return the specs of the checks that need the whole table, for every hop of a transfer."""
    return [
        dg.AssetCheckSpec(name, asset=asset_key(hop.to), description=DESCRIPTIONS[name])
        for hop in transfer.hops
        for name in WHOLE_TABLE_CHECKS
    ]


def check_whole_tables(
    context: EventLogger,
    plan: TransferPlan,
    servers: Servers,
    *,
    selected: Collection[dg.AssetCheckKey] | None = None,
    source: SourceState | None = None,
) -> list[Checked]:
    """Check whole tables, and record the verdicts in the event log.

    The checks belong to the op that moves the ranges. It yields no outputs, so Dagster would skip
    an op of their own. A failure is only a warning while ranges are not committed, or if the source
    has gained or lost rows since they were.

    Args:
        context: the context of the run that reports the verdicts.
        plan: the plan of the transfer.
        servers: the servers of its tables.
        selected: the checks to record; None: all.
        source: the state of the source that the run has read. Such a run has also written since
            the hops were resolved, so the catalogs are read again.
    """
    transfer, hops = plan.transfer, plan.hops
    ranges = known_ranges(transfer, hops, context.instance)
    checked: list[Checked] = []
    for hop in hops:
        names = [
            name
            for name in WHOLE_TABLE_CHECKS
            if selected is None or dg.AssetCheckKey(hop.asset, name) in selected
        ]
        done = committed(context.instance, hop.asset, ()) if names else {}
        if not names or not (done or not transfer.write.moves):
            continue
        writer = Writer(context, hop.asset, transfer)
        missing = [
            range_.name for range_ in ranges if range_.name not in done and transfer.write.moves
        ]
        # before the tables are read: a run beside this one may record ranges meanwhile
        about = latest_materialization(context.instance, hop.asset)
        verdicts = read_under(
            source.shared if source and hop.first else None,
            partial(_compared, hop, servers, ranges, source),
        )
        with together(context.instance.event_log_storage):
            for verdict in (
                _explained(judged, context.instance, hop, ranges) for judged in verdicts
            ):
                if verdict.check in names:
                    lost = IN_NO_RANGE in verdict.metadata
                    warning = (bool(missing) and not lost) or _hint(transfer, hop, verdict)
                    writer.checked_table(
                        verdict, warning=warning, missing=len(missing), about=about
                    )
                    checked.append(Checked(hop, None, verdict, warning))
    return checked


def _compared(
    hop: Hop,
    servers: Servers,
    ranges: Sequence[KeyRange],
    source: SourceState | None,
    snapshot: Snapshot | None,
) -> Sequence[Verdict]:
    return whole_table(
        servers.comparison(hop.plan, ranges, snapshot=snapshot),
        rows=source.rows(ranges) if source and hop.first else None,
        columns=None if source or hop.existing is None else hop.existing.values(),
    )


def _explained(
    verdict: Verdict, instance: dg.DagsterInstance, hop: Hop, ranges: Sequence[KeyRange]
) -> Verdict:
    """Tell rows that the source has gained since its ranges were read from others that lack."""
    if lost := verdict.metadata.get(IN_NO_RANGE):
        why = f"{counted(lost, 'row')} of the source in no range, which the next run adds again"
        return replace(verdict, note=f"{verdict.conclusion()}; {why}", remarks=())
    if verdict.check != TOTAL_ROWS or verdict.passed or not hop.first:
        return verdict
    by_range = records(instance, hop.asset, [range_.name for range_ in ranges]).values()
    rows, rejected = [record.rows for record in by_range], verdict.metadata.get("rejected", 0)
    if sum(record.quarantined or 0 for record in by_range) != rejected:
        return verdict  # rejected rows are missing, or there are others
    there = int(verdict.target["rows"]) - rejected
    if None in rows or sum(filter(None, rows)) != there:
        return verdict
    since = int(verdict.source["rows"]) - int(verdict.target["rows"])
    return replace(verdict, metadata={**verdict.metadata, ROWS_SINCE: since})


def _hint(transfer: Transfer, hop: Hop, verdict: Verdict) -> bool:
    if transfer.check_spec(verdict.check).severity == "warn":
        return True
    if verdict.check != TOTAL_ROWS or IN_NO_RANGE in verdict.metadata:
        return False
    if ROWS_SINCE in verdict.metadata:
        return True
    # the ranges' own checks tell whether a row of the source is missing
    moving = hop.first and not source_of(hop.plan.source.system).snapshots
    return moving or (hop.options.keeps_rows(hop.plan) and _more_in_target(verdict))


def _more_in_target(verdict: Verdict) -> bool:
    return int(verdict.target["rows"]) > int(verdict.source["rows"])


def allowing_extra_rows(
    hop: Hop, compared: Comparison, verdicts: Sequence[Verdict]
) -> tuple[Verdict, ...]:
    """Pass verdicts that failed only because of rows that the write mode keeps, and count those.

    Figures of both sides cannot distinguish a kept row from a wrong one, so the rows decide: none
    of the source's may be missing, or differ, or be duplicated. Failures stand if the rows cannot
    be looked at.
    """
    failed = [verdict for verdict in verdicts if not verdict.passed and verdict.check in BY_CHECK]
    if not failed or not hop.options.keeps_rows(hop.plan):
        return tuple(verdicts)
    every_row = [each for each in failed if BY_CHECK[each.check].compares == "rows"]
    of_all_rows = every_row[0].differences if every_row else None
    try:
        if not allows_extra_rows(hop, compared):
            return tuple(verdicts)
        differences = of_all_rows or compared.differences
    except Exception as error:
        return tuple(
            verdict.unexplained(error) if verdict in failed else verdict for verdict in verdicts
        )
    return tuple(
        _judged(verdict, verdict.differences or differences, differences)
        if verdict in failed
        else verdict
        for verdict in verdicts
    )


def allows_extra_rows(hop: Hop, compared: Comparison) -> bool:
    """Whether the write mode keeps rows, and those in the range are no duplicates."""
    if not hop.options.keeps_rows(hop.plan):
        return False
    target = compared.sides["target"]
    keys, _ = repeated_keys(target, target.rows_in(compared.ranges))
    return not keys


def with_extra_rows(verdict: Verdict, rows: int) -> Verdict:
    """Add the number of kept rows to a passed verdict about rows."""
    if not verdict.passed or verdict.check not in BY_CHECK:
        return verdict
    return replace(
        verdict,
        note=f"the source's rows are there; the target keeps {rows} that the source has no more",
        metadata={**verdict.metadata, "kept_rows": rows},
    )


def _judged(verdict: Verdict, differences: Differences, of_all: Differences) -> Verdict:
    wrong = differences.missing_in_target
    if BY_CHECK[verdict.check].values:
        wrong += differences.different
    if wrong:
        return replace(verdict, differences=differences, note=differences.summary())
    passed = replace(verdict, passed=True, disagreeing=(), differences=None)
    return with_extra_rows(passed, of_all.extra_in_target)
