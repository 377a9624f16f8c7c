"""Refuses what a declaration asks of its tables, and their servers or their logins cannot give."""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.servers import Servers
from tableferry.checks.table_side import require_condition
from tableferry.resources import errors
from tableferry.resources.contract.catalog import inspection_of
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.keys.range import ROW
from tableferry.resources.types.kinds import Integer
from tableferry.resources.types.steps import CHANGES


def require_overflowing(transfer: Transfer, plans: Sequence[CopyPlan]) -> None:
    """Refuse an `on_overflow` of the transfer that is of no use in any hop.

    Raises:
        ColumnsRefused: names the columns.
    """
    changed = [{each.target.name: each.change for each in plan.columns} for plan in plans]
    useless = {
        name: f"column {name!r}: no value can overflow; if the target's column is narrower than "
        "planned, declare its type"
        for name, column in transfer.columns.items()
        if column.on_overflow in CHANGES and transfer.target_name(name, 1) in changed[0]
        if not any(
            of_hop.get(transfer.target_name(name, number))
            for number, of_hop in enumerate(changed, start=1)
        )
    }
    if useless:
        tables = " -> ".join(map(str, transfer.tables))
        raise errors.ColumnsRefused(tables, useless)


def require_movable(transfer: Transfer, servers: Servers) -> None:
    """Refuse tables that their servers have otherwise than a move could read or write them.

    Raises:
        InputError: names the table, and why.
    """
    for table in transfer.tables:
        if refused := inspection_of(table.system).refused(servers.endpoint(table), table):
            raise errors.InputError(f"{transfer.transfer}: {table}: {refused}")


def require_rows_shown(transfer: Transfer, servers: Servers) -> Sequence[str]:
    """Refuse tables of which row-level security hides rows, unless that is declared.

    Returns:
        The columns of the source that the login may not read.

    Raises:
        RowsHidden: names the table and the remedies.
    """
    columns: Sequence[str] = ()
    for number, table in enumerate(transfer.tables):
        if number and transfer.row_security == "apply":
            break
        with errors.concerning(f"{transfer.transfer}: {table}"):
            inspection = inspection_of(table.system)
            why, withheld = inspection.withheld_from(servers.endpoint(table), table)
        if why and transfer.row_security != "apply":
            raise errors.RowsHidden(f"{transfer.transfer}: {table}: {why}")
        if not number:
            columns = withheld
    return columns


def require_readable(
    transfer: Transfer, plan: CopyPlan, withheld: Sequence[str], login: str | None
) -> None:
    """Refuse columns of the source that the login may not read; the server names the table only.

    Raises:
        ColumnsRefused: names them, and the remedies.
        InputError: it may read none of them.
    """
    computed = {name for name, column in transfer.columns.items() if column.expression}
    read = [column.source.name for column in plan.columns]
    names = [name for name in read if name in withheld and name not in computed]
    if not names:
        return
    table, quote = f"{transfer.transfer}: {plan.source}", plan.source.system.quote
    to = quote(login) if login else "the login"
    who, on = f"{to} may not read it (SELECT); ", f"ON {qualified(plan.source)} TO {to}"
    if names == read:
        usage = f"GRANT USAGE ON SCHEMA {quote(plan.source.schema)} TO {to}"
        raise errors.InputError(f"{table}: {who}GRANT SELECT {on}, and in PostgreSQL {usage}")
    remedy = f"GRANT SELECT ({', '.join(map(quote, names))}) {on}"
    if plan.key.source.name not in names:
        exclude = ", ".join([*transfer.exclude, *names])
        remedy += f", or declare 'exclude: [{exclude}]'"
    problems = {name: f"column {name!r}: {who}{remedy}" for name in names}
    raise errors.ColumnsRefused(table, problems)


def require_rows_numbered(plan: CopyPlan) -> None:
    """Refuse a hop that does not copy the column which tells the ranges of a file apart."""
    types = plan.target.system.types
    targets = [each.target for each in plan.columns if each.source.name == each.target.name == ROW]
    if not targets or not isinstance(types.read(targets[0].type).kind, Integer):
        raise errors.InputError(
            f"{plan.target}: 'ranges' of files need the column {ROW!r} in the target, as an "
            "integer of that name"
        )


def require_filter(transfer: Transfer, servers: Servers) -> None:
    """Refuse a row filter that is not exactly one condition that the source understands."""
    if transfer.where is None:
        return
    source, where = transfer.source, f"{transfer.transfer}: where"
    require_condition(where, transfer.where, source, servers.endpoint(source))
