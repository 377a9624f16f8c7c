"""A check's verdict as Dagster metadata: figures of both sides, and the rows that differ."""

from __future__ import annotations

from typing import Any

import dagster as dg

from checks import Differences, Verdict


def verdict_metadata(verdict: Verdict) -> dict[str, Any]:
    """What a reviewer sees on the check: the conclusion, which rows differ, both sides' figures.

    Dagster shows a check's metadata by name, not in this order; so the names are such that the
    conclusion comes first and the long table of sums last.
    """
    found: dict[str, Any] = {
        "conclusion": verdict.summary(),
        "seconds": round(verdict.seconds, 4),
        **verdict.metadata,
    }
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
            "source": str(source.get(name)),
            "target": str(target.get(name)),
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
                "key": "NULL" if one.key is None else one.key,
                "column": one.column or "",
                "source": source,
                "target": target,
                "what": one.kind.replace("_", " "),
            }
        )
    return {
        "differences": dg.MetadataValue.table([dg.TableRecord(one) for one in records]),
        "differing_rows": differences.rows,
        "differing_rows_in_both": differences.different,
        "differing_rows_missing_in_target": differences.missing_in_target,
        "differing_rows_only_in_target": differences.extra_in_target,
    }
