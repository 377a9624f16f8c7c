"""Columns that a target has under an earlier name: `columns: {new: {was: old}}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column

Renames = tuple[tuple[str, str], ...]
"""The present and the wanted name of each column."""


def renames_of(transfer: Transfer, hop: int, existing: Mapping[str, Column] | None) -> Renames:
    """Return the renames that a hop's target needs; none once they are done."""
    wanted = (
        (spec.was, transfer.target_name(name, hop))
        for name, spec in transfer.columns.items()
        if spec.was is not None
    )
    columns = existing or {}
    return tuple((was, name) for was, name in wanted if was in columns and name not in columns)


def renamed(existing: Mapping[str, Column], renames: Renames) -> dict[str, Column]:
    """Return a target's columns as they will be."""
    names = dict(renames)
    columns = (replace(each, name=names.get(each.name, each.name)) for each in existing.values())
    return {column.name: column for column in columns}


def not_yet(table: TableRef, renames: Renames) -> str:
    """Say why the rows of a target cannot be compared yet; empty if they can be."""
    if not renames:
        return ""
    was, name = renames[0]
    return f"{table}: column {was!r} becomes {name!r} with the next run"
