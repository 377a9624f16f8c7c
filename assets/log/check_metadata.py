"""A check's verdict as Dagster metadata: figures of both sides, and the rows that differ."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from tableferry.assets.log.records import SOURCE_NEWER
from tableferry.checks.expectations import shown
from tableferry.checks.verdict import Differences, Verdict, shown_value

if TYPE_CHECKING:
    from tableferry.assets.log.ledger import Materialization, StoredCheck

KEY_PREFIX = "key: "
"""Prefix of the columns that identify a row, whose own names are arbitrary."""


def conclusion(verdict: Verdict) -> str:
    """Return one line that also says what the differing rows have in common."""
    differences, line = verdict.differences, verdict.summary()
    if differences is None or not differences.rows or differences.summary() in line:
        return line
    return f"{line}; {differences.summary()}"


def verdict_metadata(verdict: Verdict) -> dict[str, Any]:
    """Return what a reviewer sees of the check: differing rows, and the figures of both sides.

    Dagster sorts a check's metadata by name, so the names put the differing rows first and the long
    table of sums last. Figures that all agree are named once: a table of them would take three
    times the space.
    """
    metadata: dict[str, Any] = {"seconds": round(verdict.seconds, 4)}
    if verdict.ranges > 1:
        metadata = {"seconds_of_query": metadata["seconds"], "ranges_in_query": verdict.ranges}
    metadata |= verdict.metadata
    if verdict.source_newer:
        metadata[SOURCE_NEWER] = True
    if results := verdict.metadata.get("results"):
        metadata["results"] = _table(
            {name: _cell(value) for name, value in row.items()} for row in results
        )
    source, target = _figures(verdict.source), _figures(verdict.target)
    for side, figures in (("source", source), ("target", target)):
        if "rows" in figures:
            metadata[f"rows_{side}"] = int(figures["rows"])
    if sums := _sums(source, target):
        agree = all(row["agree"] for row in sums)
        figures = {row["figure"]: row["source"] for row in sums}
        metadata["sums"] = dg.MetadataValue.json(figures) if agree else _table(sums)
    if verdict.differences is not None and verdict.differences.rows:
        metadata |= _differences(verdict.differences)
    return metadata


def _table(rows: Any) -> dg.TableMetadataValue:
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows])


def _cell(value: Any) -> str | int | float | bool | None:
    """Return a value as Dagster's tables can hold it."""
    return value if isinstance(value, str | int | float | bool | None) else shown(value)


def _figures(side: dict[str, Any]) -> dict[str, Any]:
    """Flatten the figures of one side to names such as `distance sum`."""
    flat: dict[str, Any] = {}
    for name, value in side.items():
        if isinstance(value, dict):
            flat |= {f"{name} {figure}".strip(): number for figure, number in value.items()}
        else:
            flat[name] = value
    return flat


def _sums(source: dict[str, Any], target: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each figure but the row count, disagreeing figures first."""
    rows = [
        {
            "figure": name,
            # empty for a side without the figure, e.g. a table without the column
            "source": shown(source[name]) if name in source else "",
            "target": shown(target[name]) if name in target else "",
            "agree": source.get(name) == target.get(name),
        }
        for name in source | target
        if name != "rows"
    ]
    return sorted(rows, key=lambda row: bool(row["agree"]))


def rows_that_differed(differences: Differences) -> dg.TableMetadataValue:
    """Return the first rows that differ, with the values of both sides."""
    rows = []
    for example in differences.examples:
        source, target = example.shown()
        rows.append(
            {
                **{
                    f"{KEY_PREFIX}{name}": shown_value(value) for name, value in example.row.items()
                },
                "column": example.column or "",
                "source": source,
                "target": target,
                "what": example.kind.replace("_", " "),
            }
        )
    return _table(rows)


def _differences(differences: Differences) -> dict[str, Any]:
    # a table of no rows needs a schema, and shows nothing
    examples = {"differences": rows_that_differed(differences)} if differences.examples else {}
    return {
        **examples,
        "differing_rows": differences.rows,
        "differing_rows_named_by": differences.naming(),
        "differing_rows_in_both": differences.different,
        "differing_rows_missing_in_target": differences.missing_in_target,
        "differing_rows_only_in_target": differences.extra_in_target,
    }


def repeated(
    stored: StoredCheck,
    about: Materialization | None,
    asked: Mapping[str, dg.MetadataValue[Any]] | None = None,
) -> dg.AssetCheckEvaluation:
    """Return a verdict that still holds, to be recorded again with the run and time that found it.

    Args:
        stored: the verdict as it was found, or last repeated.
        about: the range's new materialization.
        asked: what the check is asked, for verdicts of earlier releases, which do not say it.
    """
    evaluation = stored.evaluation
    first: dict[str, dg.MetadataValue[Any]] = {
        "found": dg.MetadataValue.text(evaluation.description or ""),
        "found_in_run": dg.MetadataValue.dagster_run(stored.run_id),
        "found_at": dg.MetadataValue.timestamp(stored.timestamp),
        "unchanged_since": dg.MetadataValue.text(
            "the source's fingerprint and the target's row count"
        ),
    }
    # metadata of an earlier repetition names the first run
    metadata: dict[str, dg.MetadataValue[Any]] = {
        **first,
        **(asked or {}),
        **evaluation.metadata,
    }
    found, run, at = (metadata[name].value for name in ("found", "found_in_run", "found_at"))
    found_at = dt.datetime.fromtimestamp(at, dt.UTC)
    return dg.AssetCheckEvaluation(
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        passed=evaluation.passed,
        partition=evaluation.partition,
        blocking=evaluation.blocking,
        severity=evaluation.severity,
        target_materialization_data=about,
        description=f"{found} (found {found_at:%Y-%m-%d %H:%M} UTC in run "
        f"{run[:8]}; source fingerprint and target row count are unchanged since)",
        metadata=metadata,
    )
