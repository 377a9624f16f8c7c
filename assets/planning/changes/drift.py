"""What a transfer does about columns that are new, or that only earlier runs have filled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import DroppedPolicy, Transfer
from tableferry.assets.log.queries import Log
from tableferry.assets.log.records import COMPUTED, KEPT, KEY
from tableferry.assets.log.written_columns import WrittenColumn, written_columns
from tableferry.assets.planning.resolve import Hop
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.keys.range import KeyKind
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

if TYPE_CHECKING:
    import dagster as dg


ADDING = ("add_columns", "evolve")
"""The policies under which new columns of the source are added to targets."""


@dataclass(frozen=True)
class Unplanned:
    """Columns that earlier runs filled, that a target still has, and that its plan lacks now."""

    lost: tuple[WrittenColumn, ...] = ()
    """Those that the transfer's source has no more."""
    left_out: tuple[WrittenColumn, ...] = ()
    """Those that it still has: the declaration leaves them out."""
    filled: Sequence[WrittenColumn] | None = None
    """All columns that the last run filled; None if there was none."""

    def removed(self, handled: DroppedPolicy | None) -> list[str]:
        """The columns that a run drops, or makes NULL, by what the transfer declares."""
        # a column that was kept so far is dropped once that is declared, but emptied only once
        return [column.name for column in self.lost if handled == "drop" or not column.kept]

    def kept(self, handled: DroppedPolicy | None) -> list[WrittenColumn]:
        """The columns whose values stay, though rows that move get none."""
        lost = self.lost if handled not in ("drop", "null") else ()
        return [*lost, *self.left_out]


def drift_of(
    transfer: Transfer, hop: Hop, gone: Unplanned, earlier: Sequence[Hop] = ()
) -> tuple[str, list[str]]:
    """Say why the columns of a hop's source refuse a run, or an empty text; and what is told.

    A target that no run has written to yet is left to `Target.verify`.

    Args:
        transfer: the transfer, with its policies.
        hop: the hop.
        gone: the columns that its target has from earlier runs, and that it lacks.
        earlier: hops of which it is said, too; what is new to them is not explained again.
    """
    if gone.filled is None:
        return "", []
    refused, notes = _dropped(transfer, hop, gone)
    if not refused and transfer.on_schema_drift not in ADDING:
        refused = _new(transfer, hop, gone, earlier)
    return refused, notes


def _dropped(transfer: Transfer, hop: Hop, gone: Unplanned) -> tuple[str, list[str]]:
    """Say why a run cannot do without columns that the source has lost, as the policy demands.

    With another policy than `fail` they stay, and rows that move get NULL there, which they have to
    allow. So does a column that the declaration leaves out, whatever the policy. A column that may
    have been renamed is asked about, as the source still has its values.
    """
    plan, actual, filled = hop.plan, hop.existing or {}, gone.filled or ()
    policy, handled = transfer.on_schema_drift, transfer.dropped_columns
    notes: list[str] = []
    if left_out := [column.name for column in gone.left_out if not column.kept]:
        listed = ", ".join(map(repr, left_out))
        leaves = f"the transfer leaves out {listed}, which {plan.target} has from earlier runs"
        if refused := _not_nullable(leaves, left_out, actual):
            return refused, notes
        notes.append(f"{leaves}: {_keeping(plan, listed)}")
    dropped = [column.name for column in gone.lost if not column.kept]
    if handled == "drop":
        dropped = gone.removed(handled)
    if not dropped:
        return "", notes
    names = ", ".join(map(repr, dropped))
    lost = f"{plan.source} no longer has {names}, which {plan.target} has from earlier runs"
    told = policy != "ignore_new" or handled in ("null", "drop")
    if told and (renamed := _perhaps_renamed(plan, dropped, filled)):
        old, new = renamed
        return (
            f"{lost}, and now has {new!r} with the type of {old!r}: if that is {old!r} renamed, "
            "the rows that move would lose their old values. To rename it in the target, declare "
            f"columns: {{{new}: {{was: {old}}}}}; to continue to fill the old column, declare "
            f"columns: {{{new}: {{rename: {old}}}}}; if it is another column, drop {old!r} "
            f"in {plan.target}; to leave it out, exclude: [{new}]",
            notes,
        )
    if policy == "fail" and handled is None:
        return (
            f"{lost}; if it has another name now, declare columns: {{<name>: {{was: "
            f"{dropped[0]}}}}}; else write dropped_columns: keep, or null, or drop, into the file "
            f"(none of them is the default), or set on_schema_drift (it is {policy})",
            notes,
        )
    refused = _not_nullable(lost, dropped, actual) if handled != "drop" else ""
    if refused or handled in ("null", "drop"):
        return refused, notes
    note = f"{plan.source} no longer has {names}: {_keeping(plan, names)}"
    if plan.ignored:
        ignored, first = ", ".join(map(repr, plan.ignored)), plan.ignored[0]
        note += (
            f"; on_schema_drift: {policy} leaves out {ignored}. If one of them is {names} renamed, "
            f"declare columns: {{{first}: {{rename: {dropped[0]}}}}}"
        )
    return "", [*notes, note]


def _keeping(plan: CopyPlan, names: str) -> str:
    if plan.target.system.by_path:
        return f"every range of {plan.target} is rewritten without {names}"
    return f"rows that move get NULL in {names} of {plan.target}, the others keep their values"


def _not_nullable(why: str, names: Sequence[str], actual: Mapping[str, Column]) -> str:
    required = ", ".join(repr(name) for name in names if not actual[name].nullable)
    if not required:
        return ""
    return (
        f"{why}: rows that move have no value for {required}, which cannot be NULL there; "
        "make it nullable there, or drop it"
    )


def _perhaps_renamed(
    plan: CopyPlan, dropped: Sequence[str], committed: Sequence[WrittenColumn]
) -> tuple[str, str] | None:
    """A dropped column, and a new one with its type that appeared in the same change."""
    before = {column.name: column.description or "" for column in committed}
    new = [column.source for column in plan.columns if column.target.name not in before]
    for old in (name for name in dropped if name in before):
        for column in new:
            if before[old].endswith(f" {column.type}"):
                return old, column.name
    return None


def _new(transfer: Transfer, hop: Hop, gone: Unplanned, earlier: Sequence[Hop]) -> str:
    """Say which columns the source has more, and which the target has lost, with the remedy."""
    plan, policy = hop.plan, transfer.on_schema_drift
    lacking = {*hop.lacking}
    before = {column.name for column in gone.filled or ()}
    new = [column.source for column in plan.columns if column.target.name in lacking - before]
    lost = [column.target for column in plan.columns if column.target.name in lacking & before]
    problems = []
    explained = {place for each in earlier for place in _lacked(each)}
    if again := [column for column in new if (plan.source, column.name) in explained]:
        problems.append(f"{plan.target} lacks {', '.join(repr(each.name) for each in again)}, too")
        new = [column for column in new if column not in again]
    if new:
        problems.append(
            f"{plan.source} has {_listed('a new column', 'new columns', new)}, which "
            f"{plan.target} lacks: set on_schema_drift to add_columns or ignore_new "
            f"(it is {policy}), or exclude {'it' if len(new) == 1 else 'them'}"
        )
    if lost:
        problems.append(
            f"{plan.target} has lost {_listed('the column', 'the columns', lost)}: set "
            f"on_schema_drift to add_columns (it is {policy}), and the next run adds "
            f"{'it' if len(lost) == 1 else 'them'} again and moves every range again"
        )
    return "; ".join(problems)


def _lacked(hop: Hop) -> Iterator[tuple[TableRef, str]]:
    """The columns that a hop's target lacks, by their names in both of its tables."""
    for column in hop.plan.columns:
        if column.target.name in hop.lacking:
            yield hop.plan.source, column.source.name
            yield hop.plan.target, column.target.name


def unfilled_before(transfer: Transfer, hop: Hop, gone: Unplanned) -> Iterator[str]:
    """Say which columns of a hop's target no run has filled for longer, as those before it told."""
    if kept := [repr(each.name) for each in gone.kept(transfer.dropped_columns) if each.kept]:
        names = ", ".join(kept)
        yield f"{names} is no longer filled: {_keeping(hop.plan, names)}"


def schema_changes(plan: CopyPlan, committed: Sequence[WrittenColumn] | None) -> str:
    """Describe in one line how a hop's columns differ from those of its last commit."""
    if committed is None:
        return ""
    before = {column.name: column for column in committed}
    new = [column.source for column in plan.columns if column.target.name not in before]
    parts = [_listed("new source column", "new source columns", new)] if new else []
    planned = {column.target.name for column in plan.columns}
    if gone := [name for name in before if name not in planned]:
        parts.append(f"{', '.join(map(repr, gone))} no longer copied")
    for column in plan.columns:
        name, type_ = column.target.name, column.target.type
        if name not in before:
            continue
        if before[name].description != origin_of(column):
            was = before[name].description
            parts.append(f"{name!r}: changed from {was} to {origin_of(column)}")
        elif before[name].type != type_:
            parts.append(f"{name!r} becomes {type_}, was {before[name].type}")
    return ", ".join(parts)


def _listed(singular: str, plural: str, columns: Sequence[Column]) -> str:
    names = ", ".join(f"{column.name!r} ({column.type})" for column in columns)
    return f"{singular if len(columns) == 1 else plural} {names}"


def origin_of(column: ColumnPlan) -> str:
    """Name the column of the hop's source that a column comes from, as records have it."""
    return f"from {column.source.name} {column.source.type}"


def column_schema(
    plan: CopyPlan,
    kind: KeyKind,
    computed: Collection[str] = (),
    kept: Iterable[WrittenColumn] = (),
) -> dg.TableSchema:
    """Return the columns of a plan's target as Dagster's column schema.

    Args:
        plan: the hop.
        kind: the kind of its key ranges.
        computed: those that expressions of the transfer make.
        kept: columns of the target that earlier runs filled, and that the plan lacks.
    """
    import dagster as dg

    tags = {name: {COMPUTED: ""} for name in computed}
    key = plan.key.target.name
    tags[key] = {**tags.get(key, {}), KEY: f"{plan.target.system}.{kind}"}
    columns = [
        dg.TableColumn(
            column.target.name,
            column.target.type,
            description=origin_of(column),
            constraints=dg.TableColumnConstraints(nullable=column.target.nullable),
            tags=tags.get(column.target.name),
        )
        for column in plan.columns
    ]
    columns += [
        dg.TableColumn(
            column.name,
            column.type,
            description=column.description,
            constraints=dg.TableColumnConstraints(nullable=column.nullable),
            tags={KEPT: "", **({COMPUTED: ""} if column.computed else {})},
        )
        for column in kept
    ]
    return dg.TableSchema(columns=columns)


def column_lineage(plan: CopyPlan, kept: Iterable[WrittenColumn] = ()) -> dg.TableColumnLineage:
    """Return which column of the hop's source each target column comes from; arguments as in
    `column_schema`."""
    import dagster as dg

    source = asset_key(plan.source)
    origins = {column.target.name: column.source.name for column in plan.columns}
    origins |= {column.name: column.source for column in kept}
    return dg.TableColumnLineage(
        {name: [dg.TableColumnDep(source, origin)] for name, origin in origins.items()}
    )


SCHEMAS_READ = 1_000
"""How many records are searched for the columns of earlier data versions; a run leaves a few."""


def unplanned_columns(hops: Sequence[Hop], log: Log) -> dict[int, Unplanned]:
    """Find the columns that the targets of a transfer have, and that its hops lack, by hop number.

    Args:
        hops: all hops of the transfer.
        log: the event log, which tells what earlier runs filled.
    """
    by_hop: dict[int, Unplanned] = {}
    held: set[str] = set()
    for hop in hops:
        written = next(written_columns(log, hop.spec.to), None)
        planned = {column.name for column in hop.plan.target_columns}
        lost: list[WrittenColumn] = []
        left_out: list[WrittenColumn] = []
        for column in written.columns if written else ():
            if column.name in planned or column.name not in (hop.existing or {}):
                continue
            # a column that was computed was never the source's to lose
            known = column.computed or {column.name, column.source} & (hop.known_columns | held)
            (left_out if known else lost).append(column)
        held = {column.name for column in left_out}
        filled = written.filled if written else None
        by_hop[hop.number] = Unplanned(tuple(lost), tuple(left_out), filled)
    return by_hop


def only_fewer_columns(hop: Hop, log: Log, schemas: Collection[str]) -> set[str]:
    """Return those hashes of earlier columns of a hop that had all of the present ones, and others.

    Args:
        hop: the hop.
        log: the event log.
        schemas: the hashes, as the data versions of ranges have them.
    """
    open_, fewer = {*schemas} - {hop.schema_hash}, set()
    if not open_:
        return set()
    now = {(each.target.name, each.target.type, origin_of(each)) for each in hop.plan.columns}
    for written in written_columns(log, hop.spec.to, most=SCHEMAS_READ):
        if written.schema in open_:
            open_.remove(written.schema)
            then = {(each.name, each.type, each.description) for each in written.filled}
            if now < then:
                fewer.add(written.schema)
        if not open_:
            break
    return fewer
