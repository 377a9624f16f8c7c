"""Which rows of a range have values that a hop's target cannot hold, and how many are kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tableferry.checks.refused_values import any_of, count_refused, own_field_of
from tableferry.checks.table_side import TableSide
from tableferry.resources.contract.copy_plan import CopyPlan, WireChoice
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import alias_prefix, filtered, qualified, read_from
from tableferry.resources.contract.target_names import (
    IDENTITY,
    Quarantine,
    RejectedValue,
    of_ranges,
    quarantine_of,
)
from tableferry.resources.digest.definition import shown
from tableferry.resources.digest.fields import identity_fields
from tableferry.resources.digest.guards import Guard, guards
from tableferry.resources.digest.measure import CHANGED, ROWS
from tableferry.resources.digest.probe import dialect
from tableferry.resources.errors import TableferryError, TableMissing
from tableferry.resources.keys.range import KeyRange

MOST_REJECTED = 10_000
"""Maximum rejected rows of a range, whatever is declared: their values pass through memory."""


class TooManyRejected(TableferryError):
    """More rows of a range were rejected than the transfer allows."""


def rejecting(plan: CopyPlan, wire: WireChoice, source: Endpoint) -> dict[str, tuple[Guard, ...]]:
    """Return the guards of a hop's columns that the source's SQL can decide, by name in the target.

    Columns that one server passes on to another unread have none. Which wire format is chosen does
    not matter, so that a row is rejected or not by its values alone.

    Args:
        plan: the hop.
        wire: the wire format that is declared.
        source: the server of the hop's source.
    """
    unread = {column.target.name for column in plan.columns if column.binary_sql is not None}
    found: dict[str, dict[str, Guard]] = {}
    for each in ("arrow", "text") if wire in ("auto", "pgcopy") else (wire,):
        for name, written in guards(plan, each, dialect(source).variant).items():
            if name in unread and wire != "arrow":
                continue
            known = [guard for guard in written if guard.condition is not None]
            found.setdefault(name, {}).update({str(guard.condition): guard for guard in known})
    return {name: tuple(by_sql.values()) for name, by_sql in found.items() if by_sql}


def fitting(by_column: Mapping[str, tuple[Guard, ...]]) -> str | None:
    """Write the condition that no value of a row is rejected; None if none can be."""
    condition = _any(by_column)
    # of NULL a guard may say NULL
    return f"CASE WHEN {condition} THEN 0 ELSE 1 END = 1" if condition else None


def rejected_in(
    source: TableSide, wire: WireChoice, key_range: KeyRange, *, most: str, run_id: str
) -> Quarantine:
    """Read the rejected values of a range, and their rows' keys, if its hop rejects any.

    Args:
        source: the source of a hop.
        wire: the wire format that is declared.
        key_range: the range.
        most: the number of rows that may be rejected, or their share of the range as `0.1%`.
        run_id: the run that rejects them.

    Raises:
        TooManyRejected: there are more.
    """
    plan = source.plan
    if not plan.fitting:
        return Quarantine()
    by_column = rejecting(plan, wire, source.endpoint)
    in_range = replace(plan, fitting=None).source_range(key_range)
    counted = source.total(in_range, {"": _any(by_column)})
    rows, rejected = int(counted[ROWS]), int(counted.get(CHANGED, {"": 0})[""])
    allowed = most_rejected(most, rows)
    if rejected > allowed:
        raise TooManyRejected(
            f"{plan.target} cannot hold values of {rejected:,} of {rows:,} rows, and max_rejected "
            f"({most}) allows {allowed}: `ferry plan --values` shows them"
        )
    if not rejected:
        return Quarantine(0, (), run_id)
    conditions = {name: any_of(written) for name, written in by_column.items()}
    by_name, _ = count_refused(source, conditions, rows_of=in_range)
    by_column = {name: by_column[name] for name in conditions if by_name.get(name)}
    values = tuple(_values(source, by_column, in_range))
    # those that were read: without a snapshot, there may be others by now than were counted
    return Quarantine(len({value.row for value in values}), values, run_id)


def _values(
    source: TableSide, by_column: Mapping[str, Sequence[Guard]], in_range: str
) -> Iterator[RejectedValue]:
    """Read all rejected values by one query, so that each row is read once, whatever its key is."""
    plan, system = source.plan, source.table.system
    digests, keys = dialect(source.endpoint), identity_fields(plan)
    columns = [column for column in plan.columns if column.target.name in by_column]
    fields = [own_field_of(plan, column) for column in columns]
    selected = [digests.shown(key, "source") for key in keys]
    for column, field in zip(columns, fields, strict=True):
        written = by_column[column.target.name]
        cases = (f"WHEN {guard.condition} THEN {n}" for n, guard in enumerate(written))
        value = digests.shown(field, "source")
        selected.append(f"CASE {' '.join(cases)} ELSE -1 END")
        selected.append(f"CASE WHEN {any_of(written)} THEN {value} END")
    where = filtered(_any(by_column), in_range)
    prefix = alias_prefix(where, *selected)
    listed = ", ".join(f"{sql} AS {prefix}{number}" for number, sql in enumerate(selected))
    head, tail = system.dialect.limited(MOST_REJECTED)
    rows = source.endpoint.query(
        f"SELECT {head}{listed} FROM {read_from(plan.source)} WHERE {where} "
        f"ORDER BY {system.quote(plan.key.source.name)}{tail}",
        snapshot=source.snapshot,
    )
    for number, row in enumerate(rows, start=1):
        named = zip(keys, row, strict=False)
        texts = {field.source.name: shown(field, form) for field, form in named}
        key = json.dumps(texts, ensure_ascii=False)
        for at, (column, field) in enumerate(zip(columns, fields, strict=True)):
            reason, form = row[len(keys) + 2 * at :][:2]
            if int(reason) >= 0:
                name = column.target.name
                guard = by_column[name][int(reason)]
                yield RejectedValue(key, name, shown(field, form), guard.reason, number)


def rejected_rows(target: TableSide, ranges: Sequence[KeyRange]) -> int:
    """Count the rows of some ranges that are kept beside the target instead of in it."""
    if not target.plan.fitting or not ranges:
        return 0
    table, system = quarantine_of(target.table), target.table.system
    try:
        present = {column.name: column for column in target.endpoint.columns(table)}
    except TableMissing:
        return 0  # no run has moved the table like this yet
    names = ", ".join(
        f"{system.dialect.grouping_key(system.quote(name), present[name])} AS {system.quote(name)}"
        for name in IDENTITY
        if name in present
    )
    where = of_ranges(target.table, [key_range.name for key_range in ranges])
    rows = f"SELECT DISTINCT {names} FROM {qualified(table)} WHERE {where}"
    count = system.dialect.count
    return int(target.endpoint.query(f"SELECT {count} FROM ({rows}) AS ferry__rows")[0][0])


def most_rejected(most: str, rows: int) -> int:
    """The number of rows of a range that may be rejected."""
    share = most.endswith("%")
    return min(MOST_REJECTED, int(rows * float(most[:-1]) / 100) if share else int(most))


def _any(by_column: Mapping[str, Sequence[Guard]]) -> str:
    return any_of([guard for written in by_column.values() for guard in written])
