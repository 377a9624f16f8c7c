"""How a table that another mover fills is read, and how late that mover is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tableferry.assets.declaring.movers import MOVERS, MoverName
from tableferry.checks.expectations import shown
from tableferry.checks.verdict import Verdict
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_options import Mark
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column


def present_rows(
    name: MoverName, target: TableRef, existing: Mapping[str, Column] | None
) -> str | None:
    """Return the condition of the rows that a mover has not marked as deleted; None: it marks none.

    Args:
        name: the mover.
        target: the table that it fills.
        existing: the table's columns, by name; None if it does not exist.

    Raises:
        InputError: the table has none of the mover's columns.
    """
    mover = MOVERS[name]
    if existing is None:
        return None
    if not {mover.deleted, mover.synced} & existing.keys():
        raise InputError(
            f"mover: {target} has neither {mover.synced} nor {mover.deleted}, by one of which "
            f"{mover.title} is known"
        )
    if mover.deleted not in existing:
        return None
    return Mark(existing[mover.deleted], flag=mover.flag).unmarked(target.system)


def last_written(
    name: MoverName, target: TableRef, existing: Mapping[str, Column] | None, server: Endpoint
) -> dict[str, Any]:
    """Return who fills a table, and of when the newest row is, as metadata of a verdict."""
    mover = MOVERS[name]
    if existing is None or mover.synced not in existing:
        return {"mover": mover.title}
    column = target.system.quote(mover.synced)
    ((newest,),) = server.query(f"SELECT MAX({column}) FROM {qualified(target)}")
    return {"mover": mover.title, "mover_wrote_last": shown(newest)}


def by_a_mover(verdict: Verdict, known: Mapping[str, Any]) -> Verdict:
    """Add to a verdict what `last_written` knows; one that is not green says it in words."""
    written = known.get("mover_wrote_last", "an unknown time")
    remark = f"the newest row of {known['mover']} is of {written}"
    remarks = verdict.remarks if verdict.passed else (*verdict.remarks, remark)
    return replace(verdict, metadata={**verdict.metadata, **known}, remarks=remarks)
