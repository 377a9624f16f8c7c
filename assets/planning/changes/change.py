"""What a run does to one column of a target, or to the table; and columns that are too narrow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.columns.hop_columns import target_columns
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.resources.columns.conversions import NoConversion, conversion_between
from tableferry.resources.columns.planner import incompatibility
from tableferry.resources.contract.system import System
from tableferry.resources.contract.target import Target
from tableferry.resources.crash_points import reached
from tableferry.resources.errors import SchemaDrift, StatementFailed, concerning
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

ANEW = "`ferry run --recreate` recreates the table"


@dataclass(frozen=True)
class Change:
    """A column of a target that a run renames, widens, drops, empties or adds."""

    table: TableRef
    name: str
    """The column's, once that is done."""
    after: Column | None
    """The column, once that is done; None if it is dropped."""
    statements: tuple[str, ...]
    """Those that do it, of which servers take the first that they know; files need none."""
    done: str
    """What is told once it is done."""
    cannot: str = ""
    """What cannot be done, if the server refuses; empty where its words are enough."""
    impossible: str = ""
    """Why the server will refuse; empty if that is not known."""
    adds: bool = False
    """Whether the column is new."""

    @property
    def shown(self) -> str:
        """What a dry run shows of it, if it takes a statement."""
        return next(iter(self.statements), "")

    @property
    def foreseen(self) -> str:
        """What is told of it before."""
        return f"a run will alter {self.table}: {self.shown}" if self.statements else self.done

    def execute(self, servers: Servers) -> None:
        """Send the first of the statements that the server knows.

        Raises:
            SchemaDrift: the server refuses it, and why.
        """
        endpoint = servers.endpoint(self.table)
        for statement in self.statements:
            try:
                endpoint.execute(statement)
            except StatementFailed as error:
                # another run of the transfer may have added it first
                if self.adds and self.name in (target_columns(endpoint, self.table) or {}):
                    return
                if not self.cannot:
                    raise
                # a failure that may pass says nothing about what the server knows
                if error.transient or statement == self.statements[-1]:
                    raise SchemaDrift(f"{self.cannot}: {error}; {ANEW}") from None
            else:
                reached("during_evolution")
                return


@dataclass(frozen=True)
class Drop(Change):
    """The drop of an empty table of ours that does not fit; the run then creates it again.

    `name` is the table's identity.
    """

    @property
    def shown(self) -> str:
        """See `Change.shown`."""
        return f"-- {self.table} is empty and does not fit: it is dropped, and recreated"

    @property
    def foreseen(self) -> str:
        """See `Change.foreseen`."""
        return f"{self.table} is empty and does not fit: a run will recreate it"

    def execute(self, servers: Servers) -> None:
        """Drop the table if it is still the one that was planned, and empty."""
        with concerning(f"{self.table}: is not recreated"):
            if not servers.target(self.table).drop_empty(self.table, self.name):
                raise SchemaDrift("somebody has written to it since it was planned; run it again")


def misfits(hop: Hop) -> dict[str, str]:
    """Say why columns of a hop's target cannot hold what is planned for them, by their names."""
    existing, system = hop.existing or {}, hop.plan.target.system
    return {
        planned.name: why
        for planned in hop.plan.target_columns
        if planned.name in existing
        and (why := incompatibility(system, planned, existing[planned.name]))
    }


def widenings(hop: Hop, target: Target) -> list[Change]:
    """Return the changes by which a hop's target comes to hold what is planned for it.

    Columns that cannot be widened in place are left out: `misfits` still names them. The others
    are widened under their present names, by which the server tells what holds them.
    """
    table, needed = hop.plan.target, []
    present = {name: was for was, name in hop.renames}
    for planned in hop.plan.target_columns:
        before = (hop.existing or {}).get(planned.name)
        after = _widened(table.system, planned, before) if before is not None else None
        if before is None or after is None:
            continue
        before = replace(before, name=present.get(planned.name, planned.name))
        statements, refused = target.altering(table, before, after)
        if statements:
            change = f"column {before.name!r} from {_declared(before)} to {_declared(after)}"
            needed.append(
                Change(
                    table,
                    planned.name,
                    after,
                    statements,
                    f"{table}: altered {change}",
                    cannot=f"{table}: {change} cannot be altered in place",
                    impossible=refused,
                )
            )
    return needed


def too_narrow(transfer: Transfer, hop: Hop, widened: Sequence[Change]) -> list[str]:
    """Say which columns of a target cannot hold what is planned, with the remedies.

    Args:
        transfer: the transfer, whose policy `evolve` mends what can be altered in place.
        hop: the hop.
        widened: its `widenings`.
    """
    policy, declared = transfer.on_schema_drift, fitting_declaration(transfer, hop)
    impossible = {change.name: change.impossible for change in widened}
    problems = []
    for name, unfit in misfits(hop).items():
        refused, why = impossible.get(name), unfit
        remedy = f"{ANEW}, and replaces it when it is proven"
        if refused == "":
            if policy == "evolve":
                continue
            remedy = (
                f"set on_schema_drift to evolve (it is {policy}), which alters the column in place"
            )
        if refused:
            why = f"{unfit}, and it cannot be altered in place: {refused}"
        if declared:
            remedy += f"; or declare {declared}: values that do not fit are refused"
        problems.append(f"{hop.plan.target}: column {name!r}: {why}; {remedy}")
    return problems


def fitting_declaration(transfer: Transfer, hop: Hop) -> str:
    """Write the `columns:` with which a target is filled as it is; '' if nothing helps.

    A column that cannot hold every value of its source may hold those that there are.
    """
    plan, system, types = hop.plan, hop.plan.target.system, []
    for column in plan.columns:
        existing = (hop.existing or {}).get(column.target.name)
        if existing is None or not incompatibility(system, column.target, existing):
            continue
        type_ = system.types.plain(existing.own_type or existing.type)
        if incompatibility(system, replace(column.target, type=type_), existing):
            continue
        try:
            conversion_between(
                plan.source.system, column.source.type, system, type_, plan.target_version
            )
        except NoConversion:
            continue
        declared = _yaml(type_)
        if len(transfer.hops) > 1:
            declared = f"{{{system.name}: {declared}}}"
        types.append(f"{_yaml(column.source.name)}: {{type: {declared}}}")
    return f"columns: {{{', '.join(types)}}}" if types else ""


def _yaml(text: str) -> str:
    return text if text.isidentifier() else json.dumps(text, ensure_ascii=False)


def _widened(system: System, planned: Column, before: Column) -> Column | None:
    """Return a column that holds all values of both; None if it is as it was, or cannot be."""
    if before.generated or incompatibility(system, planned, before) is None:
        return None
    if incompatibility(system, replace(planned, nullable=False), before) is None:
        return replace(before, nullable=True)
    if incompatibility(system, replace(before, nullable=False), planned) is not None:
        return None
    return replace(
        before,
        type=planned.type,
        own_type=planned.own_type,
        nullable=planned.nullable or before.nullable,
    )


def _declared(column: Column) -> str:
    return f"{column.own_type or column.type}{'' if column.nullable else ' NOT NULL'}"
