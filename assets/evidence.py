"""A check's verdict as Dagster metadata: figures of both sides, and the rows that differ."""

from __future__ import annotations

from typing import Any

import dagster as dg

from checks import Differences, Verdict


def verdict_metadata(verdict: Verdict) -> dict[str, Any]:
    """What a reviewer sees on the check: one line, both row counts, what disagrees, which rows."""
    found: dict[str, Any] = {
        "summary": verdict.summary(),
        "seconds": round(verdict.seconds, 4),
        **verdict.metadata,
    }
    sides = {"source": _figures(verdict.source), "target": _figures(verdict.target)}
    for side, figures in sides.items():
        if "rows" in figures:
            found[f"rows_{side}"] = int(figures["rows"])
    names = [name for name in sides["source"] | sides["target"] if name != "rows"]
    if names:
        found["figures"] = dg.MetadataValue.table(
            [
                dg.TableRecord(
                    {
                        "figure": name,
                        "source": str(sides["source"].get(name)),
                        "target": str(sides["target"].get(name)),
                        "agree": sides["source"].get(name) == sides["target"].get(name),
                    }
                )
                for name in names
            ]
        )
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


def _differences(differences: Differences) -> dict[str, Any]:
    return {
        "differing_rows": differences.rows,
        "missing_in_target": differences.missing_in_target,
        "extra_in_target": differences.extra_in_target,
        "different": differences.different,
        "examples": dg.MetadataValue.table(
            [
                dg.TableRecord(
                    {
                        "key": str(one.key),
                        "kind": one.kind,
                        "column": one.column or "",
                        "source": str(one.source),
                        "target": str(one.target),
                    }
                )
                for one in differences.examples
            ]
        ),
    }
