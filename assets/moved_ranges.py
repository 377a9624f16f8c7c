"""Hands on to assets downstream of targets which ranges have moved since they last read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import dagster as dg

from tableferry.assets.log import downstream
from tableferry.resources.contract.table_sql import within_any
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.registry import system
from tableferry.resources.types.type_map import Column


@dataclass(frozen=True)
class MovedRanges:
    """The ranges of a target that have moved since the assets downstream of it last read it."""

    ranges: tuple[str, ...]
    """Their partition keys, sorted."""
    predicate: str
    """A condition in the target's SQL that selects exactly their rows; no row if none has moved."""


def moved_ranges(context: dg.AssetExecutionContext) -> dict[str, MovedRanges]:
    """Return which ranges have moved since the assets of an op were last materialized.

    To be called in the op of assets downstream of targets, before it reads them. It queries
    Dagster's event log alone. What the assets are about to read is recorded with their
    materializations; if one fails, its next run is given the same ranges again. Where the selected
    assets have read different ranges, all that one of them lacks are returned, and for an asset
    that has read none yet, all.

    An asset may also read a target by other assets in between. Those that are selected are expected
    to show it as it is; of others counts what they have read themselves.

    Args:
        context: the context of the op.

    Returns:
        The ranges by the asset key of their target, e.g. `clickhouse/warehouse/orders`.

    Raises:
        InputError: the run is of partitions, or the event log is in no SQL database.
    """
    if context.has_partition_key or context.has_partition_key_range:
        raise InputError(
            "moved_ranges: the assets are partitioned; what has moved is handed on to assets "
            "without partitions"
        )
    reading, moved = _Reading(context), dict[str, set[str]]()
    for asset in context.selected_asset_keys:
        before = downstream.marks_read(context.instance, asset)
        for target, shown in (read := reading.of(asset)).items():
            known = before.get(target, {})
            names = {name for name, mark in shown.by_any if known.get(name) != mark}
            moved.setdefault(target, set()).update(names)
        downstream.record_read(
            context, asset, {target: dict(shown.by_all) for target, shown in read.items()}
        )
    return {
        target: MovedRanges(tuple(sorted(names)), _predicate(context.instance, target, names))
        for target, names in moved.items()
    }


@dg.template_var
def moved_predicates() -> Callable[[], dict[str, str]]:
    """Return a function for templates that are rendered in an op, as `cli_args` of dbt's component.

    It returns the predicates of `moved_ranges` by the asset key of their target.
    """

    def predicates() -> dict[str, str]:
        moved = moved_ranges(dg.AssetExecutionContext.get())
        return {target: ranges.predicate for target, ranges in moved.items()}

    return predicates


@dg.template_var
def when_proven() -> dg.AutomationCondition:
    """Return the condition to run whenever a range upstream was committed, if all checks are green.

    It is `AutomationCondition.eager()`, which also waits until all ranges have arrived, while the
    last blocking checks of all ranges have passed.
    """
    condition = dg.AutomationCondition
    return condition.eager() & condition.all_deps_blocking_checks_passed()


@dataclass(frozen=True)
class _Shown:
    """The ranges of a target that one or several assets show, each with its mark."""

    by_any: frozenset[tuple[str, str]]
    by_all: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, marks_: downstream.Marks) -> _Shown:
        return cls(frozenset(marks_.items()), frozenset(marks_.items()))

    def beside(self, other: _Shown) -> _Shown:
        return _Shown(self.by_any | other.by_any, self.by_all & other.by_all)


class _Reading:
    """What the selected assets of an op read of targets, by the asset keys of these."""

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._instance, self._selected = context.instance, context.selected_asset_keys
        self._specs = context.assets_def.specs_by_key
        self._shown: dict[dg.AssetKey, Mapping[str, _Shown]] = {}

    def of(self, asset: dg.AssetKey) -> Mapping[str, _Shown]:
        """Return what a selected asset is about to read."""
        read: dict[str, _Shown] = {}
        for parent in {dep.asset_key for dep in self._specs[asset].deps} - {asset}:
            if parent not in self._shown:
                self._shown[parent] = self._shown_by(parent)
            for target, shown in self._shown[parent].items():
                read[target] = read[target].beside(shown) if target in read else shown
        return read

    def _shown_by(self, parent: dg.AssetKey) -> Mapping[str, _Shown]:
        if parent in self._selected:
            return self.of(parent)
        if downstream.key_column(self._instance, parent) is not None:
            return {parent.to_user_string(): _Shown.of(downstream.marks(self._instance, parent))}
        read = downstream.marks_read(self._instance, parent)
        return {target: _Shown.of(of_target) for target, of_target in read.items()}


def _predicate(instance: dg.DagsterInstance, target: str, names: Iterable[str]) -> str:
    key = downstream.key_column(instance, dg.AssetKey.from_user_string(target))
    if key is None:
        return "(1 = 1)"  # its records were deleted
    system_name, _, kind = key.key.partition(".")
    try:
        ranges = [KeyRange.parse(name, cast(KeyKind, kind)) for name in names]
    except InputError:
        return "(1 = 1)"  # the table had another key when they moved
    return within_any(ranges, Column(key.name, key.type, key.nullable), system(system_name))
