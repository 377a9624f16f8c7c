"""The levels `count` and `checksum`: one aggregate query per side, grouped by range or bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from checks.atoms import Side, atoms
from checks.atoms_sqlserver import CODE_POINTS_PROBE
from checks.buckets import weight
from checks.constants import mixed
from checks.fields import Field
from resources.dialects import qualified
from resources.endpoint import Endpoint
from resources.plan import CopyPlan
from resources.tables import System

ROWS = "rows"
"""Where the row count stands among the columns' figures."""

MOST_FIGURES = 1000
"""Of one query: PostgreSQL returns at most 1664 columns."""

_ALIAS = "ferry__"
"""ClickHouse takes an alias for a column of the same name everywhere in the query."""

Figures = dict[str, Any]
"""`{"rows": 3, "id": {"values": 3, "sum": "6", "by_key": "14"}, ...}`"""


@dataclass(frozen=True)
class Grouped:
    """What to sum up: rows that meet `where`, in groups numbered by `group` (SQL of an integer)."""

    group: str
    where: str


def both_sides(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    fields: Sequence[Field],
    grouped: Mapping[Side, Grouped],
    *,
    snapshot: str | None = None,
) -> tuple[dict[int, Figures], dict[int, Figures]]:
    """The figures of every group on both sides, asked at the same time.

    Args:
        plan: the hop.
        source: where `plan.source` is.
        target: where `plan.target` is.
        fields: the columns to sum up; none means row counts only.
        grouped: the rows and groups of each side.
        snapshot: of the source.

    Returns:
        Group number -> figures, for the source and for the target. Empty groups are missing.
    """
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(one_side, plan, target, "target", fields, grouped["target"])
        own = one_side(plan, source, "source", fields, grouped["source"], snapshot=snapshot)
        return own, other.result()


def one_side(
    plan: CopyPlan,
    endpoint: Endpoint,
    side: Side,
    fields: Sequence[Field],
    grouped: Grouped,
    *,
    snapshot: str | None = None,
) -> dict[int, Figures]:
    """The figures of every group on one side, in one scan (of very wide tables: a few)."""
    code_points = _counts_code_points(endpoint) if fields else True
    found: dict[int, Figures] = {}
    for part in _parts(plan, fields, side, code_points):
        sql, names = _query(plan, side, part, grouped)
        for row in endpoint.query(sql, snapshot=snapshot):
            figures = found.setdefault(int(row[0]), {})
            figures[ROWS] = int(row[1])
            for (column, figure), value in zip(names, row[2:], strict=True):
                number = int(value or 0)
                figures.setdefault(column, {})[figure] = (
                    number if figure == "values" else str(number)
                )
    return found


def empty(fields: Sequence[Field], like: Figures | None) -> Figures:
    """The figures of no rows, with the same names as another side's."""
    figures: Figures = {ROWS: 0}
    for field in fields:
        names = (like or {}).get(field.name, {"values": 0})
        figures[field.name] = {name: 0 if name == "values" else "0" for name in names}
    return figures


def disagreeing(source: Figures, target: Figures) -> tuple[str, ...]:
    """The columns, or `rows`, whose figures are not the same on both sides."""
    return tuple(name for name in source if source[name] != target.get(name))


_Atoms = list[tuple[Field, dict[str, str]]]


def _parts(plan: CopyPlan, fields: Sequence[Field], side: Side, code_points: bool) -> list[_Atoms]:
    systems = (plan.source.system, plan.target.system)
    parts: list[_Atoms] = [[]]
    size = 0
    for field in fields:
        found = atoms(field, side, systems, weight=weight(plan, side), code_points=code_points)
        size += len(found) + 2
        if size > MOST_FIGURES:
            parts.append([])
            size = len(found) + 2
        parts[-1].append((field, found))
    return parts


def _query(
    plan: CopyPlan, side: Side, part: _Atoms, grouped: Grouped
) -> tuple[str, list[tuple[str, str]]]:
    """The aggregate query, and (column, figure) of each of its columns after the first two."""
    table = plan.source if side == "source" else plan.target
    system = table.system
    inner = [f"{grouped.group} AS {_ALIAS}g"]
    outer = [f"{_ALIAS}g", "COUNT_BIG(*)" if system == "sqlserver" else "count(*)"]
    names: list[tuple[str, str]] = []
    if part:
        inner.append(f"{weight(plan, side)} AS {_ALIAS}w")
    for number, (field, found) in enumerate(part):
        aliases = [f"{_ALIAS}{number}_{index}" for index in range(len(found))]
        inner += [f"{sql} AS {alias}" for alias, sql in zip(aliases, found.values(), strict=True)]
        outer.append(_count(system, aliases[0]))
        names.append((field.name, "values"))
        for alias, name in zip(aliases, found, strict=True):
            outer.append(_sum(system, alias))
            names.append((field.name, name))
        outer.append(_sum(system, f"{_ALIAS}w * ({mixed(aliases)})"))
        names.append((field.name, "by_key"))
    # PostgreSQL would otherwise merge the levels, and compute every atom once per use
    barrier = " OFFSET 0" if system == "postgres" and part else ""
    selected = ", ".join(f"{sql} AS {_ALIAS}c{index}" for index, sql in enumerate(outer))
    return (
        f"SELECT {selected} FROM (SELECT {', '.join(inner)} FROM {qualified(table)} "
        f"WHERE {grouped.where}{barrier}) q GROUP BY {_ALIAS}g"
    ), names


def _count(system: System, alias: str) -> str:
    return f"COUNT_BIG({alias})" if system == "sqlserver" else f"count({alias})"


def _sum(system: System, sql: str) -> str:
    """The exact sum as text: 128 bits or 38 digits hold 10**18 rows of any 64-bit integer."""
    if system == "postgres":
        return f"sum({sql})::text"
    if system == "sqlserver":
        return f"CAST(SUM(CAST({sql} AS decimal(38,0))) AS varchar(40))"
    return f"toString(sum(toInt128({sql})))"


def _counts_code_points(endpoint: Endpoint) -> bool:
    if endpoint.system != "sqlserver":
        return True
    return int(endpoint.query(CODE_POINTS_PROBE)[0][0]) == 1
