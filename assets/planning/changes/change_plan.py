"""All that a run does to the shape of its targets, decided before it touches any of them.

In this order: tables that are new or recreated, as a server may refuse to make one, and those that
are altered stay as they are then; then the others, whose columns are widened, renamed, dropped or
emptied, and added. What may refuse any of it is asked of all hops while it is planned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.ledger import committed_records, newest_ids
from tableferry.assets.log.queries import Log
from tableferry.assets.log.written_columns import created_table
from tableferry.assets.planning.changes.change import Change, Drop, misfits, too_narrow, widenings
from tableferry.assets.planning.changes.drift import ADDING, Unplanned, drift_of, unplanned_columns
from tableferry.assets.planning.columns.hop_columns import new_columns
from tableferry.assets.planning.hazards import require_harmless
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.servers import Servers
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_columns import unfilled
from tableferry.resources.digest.measure import ROWS
from tableferry.resources.errors import InputError, SchemaDrift
from tableferry.resources.types.type_map import Column


@dataclass(frozen=True)
class TargetChanges:
    """What a run does to the shape of one target, and why it would not."""

    hop: Hop
    """The hop into it."""
    steps: Sequence[Change] = ()
    """What is done to an existing target, in this order."""
    creates: bool = False
    """Whether the target is created, as there is none, or it is dropped."""
    columns: Sequence[Column] = ()
    """The target's, once all of this is done; none if it does not exist yet."""
    notes: Sequence[str] = ()
    """What is told about columns that get no values any more."""
    refusals: Sequence[str] = ()
    """Why a run would write nothing into it, each with its remedy."""


@dataclass(frozen=True)
class ChangePlan:
    """What a run does to the shape of its targets."""

    targets: Sequence[TargetChanges]
    """In the order in which a run prepares them."""
    gone: Mapping[int, Unplanned]
    """By number of each hop, the columns that its target has from earlier runs, and that it
    lacks."""

    @property
    def refusals(self) -> list[str]:
        """Why a run would be refused; one that is touches nothing."""
        return [why for target in self.targets for why in target.refusals]

    def require_allowed(self) -> None:
        """Refuse a run before it writes anything.

        Raises:
            SchemaDrift: names all reasons of all hops, with their remedies.
        """
        if self.refusals:
            raise SchemaDrift("; ".join(self.refusals))


def plan_changes(
    transfer: Transfer,
    hops: Sequence[Hop],
    servers: Servers,
    log: Log,
    *,
    among: Collection[int] | None = None,
    moving: Collection[int] | None = None,
) -> ChangePlan:
    """Plan what a run does to the shape of its targets.

    Args:
        transfer: the transfer.
        hops: all of its hops, with the hazards of their targets: see `with_hazards`.
        servers: the servers of its tables.
        log: the event log.
        among: the numbers of the hops of the run; by default all.
        moving: those that move rows, which hazards might show otherwise; by default all.
    """
    gone = unplanned_columns(hops, log)
    asked = [hop for hop in hops if among is None or hop.number in among]
    targets = [
        _target_changes(
            transfer,
            hop,
            servers,
            log,
            gone[hop.number],
            [each for each in asked if each.number < hop.number],
            moves=moving is None or hop.number in moving,
        )
        for hop in asked
    ]
    targets.sort(key=lambda target: not target.creates)
    return ChangePlan(targets, gone)


def _target_changes(
    transfer: Transfer,
    hop: Hop,
    servers: Servers,
    log: Log,
    gone: Unplanned,
    earlier: Sequence[Hop],
    *,
    moves: bool,
) -> TargetChanges:
    """Plan what a run does to the shape of one target.

    `earlier` are the hops before it of which the same is asked.
    """
    if hop.existing is None:
        return TargetChanges(hop, creates=True)
    refused: list[str] = []
    if moves:
        try:
            require_harmless([hop])
        except InputError as error:
            refused.append(str(error))
    target, columns = servers.target(hop.plan.target), {**hop.existing}
    if identity := _unfit(hop, servers, log):
        told = f"{hop.plan.target}: is empty and does not fit, and is recreated"
        drop, planned = Drop(hop.plan.target, identity, None, (), told), hop.plan.target_columns
        return TargetChanges(hop, [drop], True, planned, refusals=refused)
    drifted, notes = drift_of(transfer, hop, gone, earlier)
    widened = widenings(hop, target)
    problems = [*filter(None, [drifted]), *too_narrow(transfer, hop, widened)]
    steps = [*_steps(transfer, hop, widened, gone)]
    if sent := [each for step in steps for each in step.statements]:
        problems += filter(None, [target.unalterable(hop.plan.target, sent)])
    for step in steps:
        if step.after is None:
            del columns[step.name]
        else:
            columns[step.name] = step.after
    # what is refused already is taken for mended, so that the rest is told with it
    unfit = misfits(hop) if problems else {}
    mended = {
        column.name: column for column in hop.plan.target_columns if drifted or column.name in unfit
    }
    try:
        target.verify(hop.plan, hop.options, [*{**columns, **mended}.values()])
    except (SchemaDrift, InputError) as error:
        problems.append(str(error))
    return TargetChanges(
        hop, steps, columns=[*columns.values()], notes=notes, refusals=[*refused, *problems]
    )


def _unfit(hop: Hop, servers: Servers, log: Log) -> str | None:
    """Return the identity of a target that is dropped and created again; None if it is not.

    It does not fit, a run of this event log has created it, nobody has given it anything since, no
    range with rows was ever committed to it, and it is empty. Whether it still is, is asked again
    under a lock.
    """
    table = hop.plan.target
    if not (misfits(hop) or hop.lacking) or not hop.existing or table.system.by_path:
        return None
    created = created_table(log, hop.spec.to)
    if created is None or created != servers.target(table).identity(table):
        return None
    done = committed_records(log, hop.spec.to, newest_ids(log, hop.spec.to))
    if any(record.rows for record in done.values()):
        return None
    if unfilled(hop.plan, hop.existing.values(), hop.options.mark):
        return None
    if not servers.target(table).as_made(hop.plan, hop.options):
        return None
    return created if servers.side(hop.plan, "target").total()[ROWS] == 0 else None


def _steps(
    transfer: Transfer, hop: Hop, widened: Sequence[Change], gone: Unplanned
) -> Iterator[Change]:
    """Yield what is done to the columns of an existing target, as it is declared.

    Each is done by itself: a process that dies in between leaves the rest to the next.
    """
    table, columns = hop.plan.target, {**(hop.existing or {})}
    path, dialect, quote = qualified(table), table.system.dialect, table.system.quote
    if transfer.on_schema_drift == "evolve":
        yield from widened
        columns |= {change.name: change.after for change in widened if change.after}
    for was, name in hop.renames:
        yield Change(
            table,
            name,
            columns[name],
            (dialect.rename_column(table.schema, table.name, was, name),),
            f"{table}: renamed column {was!r} to {name!r}",
            cannot=f"{table}: column {was!r} cannot be renamed {name!r}",
        )
    handled = transfer.dropped_columns
    for name in gone.removed(handled) if handled in ("drop", "null") else ():
        quoted, after = quote(name), None if handled == "drop" else columns[name]
        write = dialect.drop_column if handled == "drop" else dialect.empty_column
        done = f"dropped in {table}" if handled == "drop" else f"NULL in all rows of {table}"
        if table.system.by_path:
            done = f"{table} is written without it"
        told = f"{hop.plan.source} no longer has {name!r}: {done}"
        yield Change(table, name, after, _sent(write(path, quoted)), told)
    for column in new_columns(hop.plan, columns) if transfer.on_schema_drift in ADDING else ():
        add = dialect.add_column(path, quote(column.name), column)
        yield Change(
            table,
            column.name,
            replace(column, nullable=True),
            _sent(add),
            f"{table}: column {column.name!r} ({column.type}) is added",
            adds=True,
        )


def _sent(statement: str) -> tuple[str, ...]:
    return (statement,) if statement else ()
