"""The part of a job that a run is of, made once.

Dagster takes the part of a job for a run in this process, takes the same part of that part again,
and describes all three: a twelfth of what a small run costs.
"""

from __future__ import annotations

import functools
from typing import Any

import dagster as dg


@functools.cache
def make_once() -> None:
    """Let a part of a job of this process be its own part."""
    make = dg.JobDefinition.get_subset

    def subset(self: Any, **selected: Any) -> dg.JobDefinition:
        part = self.asset_selection_data
        same = part is not None and part.asset_selection == selected.get("asset_selection")
        others = selected.get("op_selection") or selected.get("asset_check_selection") is not None
        if same and not others:
            return self
        return make(self, **selected)

    setattr(dg.JobDefinition, "get_subset", subset)  # noqa: B010 (mypy: assigned to a method)
