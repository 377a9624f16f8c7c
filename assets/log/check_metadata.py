"""A check's verdict as Dagster metadata: figures of both sides, and the rows that differ."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import dagster as dg

from tableferry.assets.log.records import SOURCE_NEWER
from tableferry.checks.expectations import shown
from tableferry.checks.verdict import Differences, Verdict, shown_value

if TYPE_CHECKING:
    from tableferry.assets.log.ledger import Materialization, StoredCheck

NAMED_BY = "key: "
"""What the columns that name a row begin with, which may have any name."""


def conclusion(verdict: Verdict) -> str:
    """One line, with what the rows that differ have in common."""
    found = verdict.differences
    line = verdict.summary()
    if found is None or not found.rows or found.summary() in line:
        return line
    return f"{line}; {found.summary()}"


def verdict_metadata(verdict: Verdict) -> dict[str, Any]:
    """What a reviewer sees on the check: which rows differ, and both sides' figures.

    Dagster shows a check's metadata by name, not in this order; so the names are such that the
    rows that differ come first and the long table of sums last.
    """
    found: dict[str, Any] = {"seconds": round(verdict.seconds, 4)}
    if verdict.ranges > 1:
        found = {"seconds_of_query": found["seconds"], "ranges_in_query": verdict.ranges}
    found |= verdict.metadata
    if verdict.source_newer:
        found[SOURCE_NEWER] = True
    if results := verdict.metadata.get("results"):
        found["results"] = dg.MetadataValue.table(
            [dg.TableRecord({name: _cell(value) for name, value in row.items()}) for row in results]
        )
    sides = {"source": _figures(verdict.source), "target": _figures(verdict.target)}
    for side, figures in sides.items():
        if "rows" in figures:
            found[f"rows_{side}"] = int(figures["rows"])
    names = [name for name in sides["source"] | sides["target"] if name != "rows"]
    if names:
        found["sums"] = dg.MetadataValue.table(_sums(names, sides["source"], sides["target"]))
    if verdict.differences is not None and verdict.differences.rows:
        found |= _differences(verdict.differences)
    return found


def _cell(value: Any) -> str | int | float | bool | None:
    """A value as a table of Dagster's may hold it."""
    return value if isinstance(value, str | int | float | bool | None) else shown(value)


def _figures(side: dict[str, Any]) -> dict[str, Any]:
    """The figures of one side by one name each, e.g. `distance sum`."""
    flat: dict[str, Any] = {}
    for name, value in side.items():
        if isinstance(value, dict):
            flat |= {f"{name} {figure}".strip(): number for figure, number in value.items()}
        else:
            flat[name] = value
    return flat


def _sums(names: list[str], source: dict[str, Any], target: dict[str, Any]) -> list[dg.TableRecord]:
    """One row per figure, those that disagree first."""
    records = [
        {
            "figure": name,
            # a side without the figure, e.g. a table without the column, has an empty one
            "source": shown(source[name]) if name in source else "",
            "target": shown(target[name]) if name in target else "",
            "agree": source.get(name) == target.get(name),
        }
        for name in names
    ]
    return [dg.TableRecord(one) for one in sorted(records, key=lambda one: bool(one["agree"]))]


def _differences(differences: Differences) -> dict[str, Any]:
    records = []
    for one in differences.examples:
        source, target = one.shown()
        records.append(
            {
                **{f"{NAMED_BY}{name}": shown_value(value) for name, value in one.row.items()},
                "column": one.column or "",
                "source": source,
                "target": target,
                "what": one.kind.replace("_", " "),
            }
        )
    return {
        "differences": dg.MetadataValue.table([dg.TableRecord(one) for one in records]),
        "differing_rows": differences.rows,
        "differing_rows_named_by": differences.naming(),
        "differing_rows_in_both": differences.different,
        "differing_rows_missing_in_target": differences.missing_in_target,
        "differing_rows_only_in_target": differences.extra_in_target,
    }


def repeated(stored: StoredCheck, about: Materialization | None) -> dg.AssetCheckEvaluation:
    """A verdict that still holds, to be recorded again: with who found it, and when, and why so.

    Args:
        stored: the verdict as it was found, or as it was repeated the last time.
        about: the range's new materialization.
    """
    evaluation, event = stored.evaluation, stored.event
    assert evaluation is not None, "only evaluated checks are repeated"
    assert event is not None, "an evaluated check has its event"
    first: dict[str, dg.MetadataValue[Any]] = {
        "found": dg.MetadataValue.text(evaluation.description or ""),
        "found_in_run": dg.MetadataValue.dagster_run(stored.run_id),
        "found_at": dg.MetadataValue.timestamp(event.timestamp),
        "unchanged_since": dg.MetadataValue.text(
            "the source's fingerprint and the target's row count"
        ),
    }
    metadata: dict[str, dg.MetadataValue[Any]] = {**first, **evaluation.metadata}
    found, run, at = (metadata[name].value for name in ("found", "found_in_run", "found_at"))
    moment = dt.datetime.fromtimestamp(at, dt.UTC)
    return dg.AssetCheckEvaluation(
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        passed=evaluation.passed,
        partition=stored.partition,
        blocking=evaluation.blocking,
        severity=evaluation.severity,
        target_materialization_data=about,
        description=f"{found} (found {moment:%Y-%m-%d %H:%M} UTC in run "
        f"{run[:8]}; source fingerprint and target row count are unchanged since)",
        metadata=metadata,
    )
