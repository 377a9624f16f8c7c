"""Refuses names that a target cannot have, and names that it does not tell apart."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from itertools import count

from tableferry.resources.contract.copy_plan import ColumnPlan
from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.errors import NamesClash
from tableferry.resources.tables import TableRef


def require_names(
    source: TableRef,
    target: TableRef,
    columns: Sequence[ColumnPlan],
    existing: Collection[str] = (),
) -> None:
    """Refuse names that the target cannot have, or does not tell apart.

    Args:
        source: the table to read.
        target: the table to write.
        columns: the columns of the hop.
        existing: names that columns of the target have already.

    Raises:
        NamesClash: names each column with the reason, and a name that it could have.
    """
    dialect = target.system.dialect
    clashes = _clashes(dialect, columns)
    held = set(existing)
    if source.system == target.system:
        names = {column.source.name for column in columns}
        held |= names - {name for name in names if dialect.taken.get(dialect.folded(name))}
    unfit = {
        name: why
        for name, why in dialect.unfit_names([column.target for column in columns]).items()
        if name not in held
    }
    taken = {dialect.folded(column.target.name) for column in columns} | dialect.taken.keys()
    problems: dict[str, str] = {}
    renames: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for column in columns:
        name, target_name = column.source.name, column.target.name
        if target_name in unfit:
            reasons[name], wanted = unfit[target_name]
            problem = f"column {name!r}: {target} cannot have the name {target_name!r}, which "
            problem += reasons[name]
        elif name in clashes:
            reasons[name], wanted = dialect.not_distinct, target_name
            problem = f"columns {clashes[name]!r} and {name!r} would both be named {target_name!r}"
        else:
            continue
        renames[name] = _free(dialect, wanted, taken, same=target_name)
        taken.add(dialect.folded(renames[name]))
        problems[name] = (
            f"{problem}; rename {'it' if target_name in unfit else 'one of them'}: "
            f"columns: {{{_yaml(name)}: {{rename: {_yaml(renames[name])}}}}}"
        )
    if problems:
        raise NamesClash(f"{source} -> {target}", problems, renames, reasons)


def _clashes(dialect: Dialect, columns: Sequence[ColumnPlan]) -> dict[str, str]:
    """Map source names to the earlier source name whose target name is the same to the target."""
    first: dict[str, str] = {}
    clashes = {}
    for column in columns:
        earlier = first.setdefault(dialect.folded(column.target.name), column.source.name)
        if earlier != column.source.name:
            clashes[column.source.name] = earlier
    return clashes


def _free(dialect: Dialect, wanted: str, taken: Collection[str], *, same: str) -> str:
    """Find a name like the wanted one that no column has."""
    for number in count(1):
        suffix = f"_{number}" if number > 1 else ""
        name = dialect.shortened(wanted, suffix)
        if name != same and dialect.folded(name) not in taken:
            return name
    raise AssertionError("numbers do not end")


def _yaml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
