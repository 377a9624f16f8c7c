"""Whether both sides of a hop agree: reconciliation levels, and the rows that differ."""

from __future__ import annotations

from checks.counts import count_by_range, row_count_of
from checks.drilldown import drill_down
from checks.reconcile import reconcile, reconcile_all
from checks.report import CheckEntry, HopEntry, RangeEntry, Report, render
from checks.verdict import (
    CHECK_NAMES,
    LEVELS,
    Difference,
    Differences,
    Level,
    Verdict,
)
from checks.whole_table import WHOLE_TABLE_CHECKS, whole_table

__all__ = [
    "CHECK_NAMES",
    "LEVELS",
    "WHOLE_TABLE_CHECKS",
    "CheckEntry",
    "Difference",
    "Differences",
    "HopEntry",
    "Level",
    "RangeEntry",
    "Report",
    "Verdict",
    "count_by_range",
    "drill_down",
    "reconcile",
    "reconcile_all",
    "render",
    "row_count_of",
    "whole_table",
]
