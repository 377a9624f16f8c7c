"""Resolves the hops of a declared transfer against its servers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.namesakes import require_one_name
from tableferry.assets.declaring.sections import HopSpec
from tableferry.assets.log.records import DataVersion, digest
from tableferry.assets.planning import requirements
from tableferry.assets.planning.columns import expressions, hop_columns
from tableferry.assets.planning.intent import AS_DECLARED, Intent
from tableferry.assets.planning.moved_by_others import present_rows
from tableferry.assets.planning.servers import Servers, require_servers
from tableferry.checks.expectations import CHECK_NAME as EXPECTATIONS
from tableferry.checks.levels import CHECK_NAMES, Level
from tableferry.checks.rejected import fitting, rejecting
from tableferry.resources import errors
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import CopyPlan, WireFormat
from tableferry.resources.contract.endpoint import release_of
from tableferry.resources.contract.target_options import TargetOptions, WriteMode
from tableferry.resources.digest.fields import all_fields, not_compared, with_columns
from tableferry.resources.digest.measure import check_figures
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

if TYPE_CHECKING:
    import dagster as dg


@dataclass(frozen=True)
class Hop:
    """A resolved hop: its plan and how it is loaded."""

    number: int
    """1-based position in the transfer."""
    spec: HopSpec
    plan: CopyPlan
    options: TargetOptions
    schema_hash: str
    settings_hash: str
    existing: Mapping[str, Column] | None
    """The target's columns by name when it was resolved, or those that it will have if it is
    recreated; None if it does not exist yet."""
    renames: hop_columns.Renames = ()
    """What the target's columns are still called, of those in `existing`."""
    wire: WireFormat = "arrow"
    """The wire format, chosen by `with_wires`."""
    wire_because: str | None = None
    """See `wires.ChosenWire`."""
    known_columns: frozenset[str] = frozenset()
    """What the columns of the transfer's source are called there and in the targets up to this
    one, whether they are copied or not."""

    @property
    def asset(self) -> dg.AssetKey:
        """The asset of its target."""
        return asset_key(self.spec.to)

    @property
    def first(self) -> bool:
        """Whether it reads the transfer's source; later hops read what the hop before committed."""
        return self.number == 1

    @property
    def written_plan(self) -> CopyPlan:
        """The plan with the table that ranges are written to: the shadow table of a `swap`."""
        return replace(self.plan, target=self.options.written_to(self.plan))

    @property
    def in_place(self) -> Hop:
        """The hop as readers see it: with the target, not the shadow table of a `swap`."""
        return replace(self, options=replace(self.options, mode=self.options.mode.in_place))

    @property
    def found_plan(self) -> CopyPlan:
        """The plan with the target's existing columns, if none is missing."""
        if self.existing is None or self.lacking:
            return self.plan
        return with_columns(self.plan, self.existing.values())

    @property
    def lacking(self) -> list[str]:
        """The planned columns that its existing target lacks."""
        return [column.name for column in hop_columns.new_columns(self.plan, self.existing)]

    @property
    def not_yet(self) -> str:
        """Why the rows of its target cannot be compared yet; empty if they can be."""
        if not self.renames:
            return ""
        was, name = self.renames[0]
        return f"{self.plan.target}: column {was!r} becomes {name!r} with the next run"

    @property
    def incomparable(self) -> str:
        """Why no comparison of values can find both sides to be equal; empty if one can."""
        columns = ", ".join(map(repr, not_compared(self.plan)))
        why = "cannot be compared, as the source's SQL cannot compute what on_overflow does"
        return f"{columns} {why}" if columns else ""

    @property
    def only_moved(self) -> str:
        """Why only a move can tell what belongs into the target; empty if a comparison can."""
        if self.plan.fitting:
            return "only a move finds the rows that it rejects"
        if self.options.mode.whole_table:
            return "a swap gathers all ranges of the table"
        return self.incomparable

    def version(self, source: str, definition: str) -> DataVersion:
        """The data version of a range whose source rows have this fingerprint.

        Args:
            source: hash of the fingerprint, or of the data version of the hop before.
            definition: definition of the row digest that the fingerprint uses; '' if it uses none.
        """
        marked = f"{definition}-{source}" if definition else source
        return DataVersion(marked, self.schema_hash, self.settings_hash)


def levels_of(transfer: Transfer) -> tuple[Level, ...]:
    """The levels at which every range is reconciled; rows are always counted."""
    return ("count",) if transfer.reconcile == "count" else ("count", transfer.reconcile)


def checks_of(transfer: Transfer) -> tuple[str, ...]:
    """Names of the checks of each key range in every hop of a transfer."""
    names = tuple(CHECK_NAMES[level] for level in levels_of(transfer))
    return (*names, EXPECTATIONS) if transfer.expectations else names


def resolve_hops(
    declared: Transfer, servers: Servers, intent: Intent = AS_DECLARED
) -> tuple[Hop, ...]:
    """Read the tables' columns and plan every hop from them, without touching a target.

    Args:
        declared: the transfer.
        servers: the servers of its tables.
        intent: what a run is asked to do.

    Raises:
        TableMissing, InputError, TypeRefused: the declaration does not fit the servers.
    """
    transfer = intent.carried_out(declared)
    endpoint = servers.endpoint(declared.source)
    of_source = f"{declared.transfer}: {declared.source}"
    require_servers(transfer, servers)
    require_one_name(transfer, servers.endpoint, servers.namesakes)
    with errors.concerning(of_source):
        raw = hop_columns.source_columns(transfer, endpoint)
    requirements.require_movable(transfer, servers)
    withheld = requirements.require_rows_shown(transfer, servers)
    with errors.concerning(of_source):
        requirements.require_filter(transfer, servers)
    columns, source = expressions.with_expressions(transfer, raw)
    expressions.require_expressions(transfer, raw, endpoint)
    mode = declared.write
    chain = _Chain(transfer, servers, intent.recreate, mode, raw, source, columns, transfer.key)
    hops = []
    for number, spec in enumerate(transfer.hops, start=1):
        hops.append(chain.next(number, spec))
        if number == 1:
            requirements.require_readable(
                transfer, hops[0].plan, withheld, endpoint.settings().user
            )
    chain.require_final()
    requirements.require_overflowing(transfer, [hop.plan for hop in hops])
    return tuple(hops)


@dataclass
class _Chain:
    """Resolves the hops of a transfer one after the other: each begins where the last one ended."""

    transfer: Transfer
    """As the intent has it carried out."""
    servers: Servers
    anew: bool
    """Whether targets are made anew."""
    mode: WriteMode
    """The mode that is declared, however the intent is carried out."""
    raw: Sequence[Column]
    """The columns of the transfer's source, without its expressions."""
    source: TableRef
    """The source of the next hop."""
    columns: Sequence[Column]
    """The columns of that."""
    key: str
    """The key of that."""
    _names: Mapping[str, str] = field(init=False)
    """What the columns of the transfer's source are called there, if they are copied."""
    _known: frozenset[str] = field(init=False)
    _unmarked: str = ""
    """The condition on its rows that are not marked as deleted."""
    _unversioned: dict[TableRef, str | None] = field(default_factory=dict)
    """Why `final` is of no use for a table; None if it is."""

    def __post_init__(self) -> None:
        self._names = {column.name: column.name for column in self.columns}
        self._known = frozenset(column.name for column in self.raw)

    def next(self, number: int, spec: HopSpec) -> Hop:
        """Resolve the next hop; see `resolve_hops`."""
        transfer, servers, raw = self.transfer, self.servers, self.raw
        with errors.concerning(f"{transfer.transfer}: {spec.to}"):
            existing = hop_columns.target_columns(servers.endpoint(spec.to), spec.to)
        renames = hop_columns.renames_of(transfer, number, existing)
        existing = hop_columns.renamed(existing, renames) if existing else existing
        if number == 1 and existing:
            self.columns = hop_columns.kept_columns(transfer, self.columns, existing)
        try:
            plan = self._planned(number, spec, existing)
        except errors.ColumnsRefused as error:
            error.hop = number
            raise
        if transfer.rows_per_file_range:
            requirements.require_rows_numbered(plan)
        options = TargetOptions(
            mode=transfer.write,
            engine=spec.engine,
            order_by=_one_expression(spec.order_by),
            partition_by=spec.partition_by,
            publish_audit=transfer.publish_audit,
            recreate=self.mode if self.anew else None,
            removes=transfer.removes,
        )
        with errors.concerning(transfer.transfer):
            plan, options = self._of_present_rows(plan, options, existing)
        with errors.concerning(f"{transfer.transfer}: {spec.to}"):
            servers.target(spec.to).require(plan, options)
        if number == 1:
            plan = expressions.with_losses(transfer, raw, plan)
        if transfer.on_reject == "quarantine":
            guards = rejecting(plan, spec.wire, servers.endpoint(self.source))
            plan = replace(plan, fitting=fitting(guards))
        if transfer.incremental:
            hop_columns.watermark_column(plan, transfer)
        if self.anew and existing is not None:
            existing, renames = {column.name: column for column in plan.target_columns}, ()
        schema = digest([(column.source, column.target) for column in plan.columns])
        settings = digest(
            self.mode,
            (spec.engine, spec.order_by, spec.partition_by),
            [column.on_overflow for column in plan.columns],
            *([plan.where] if plan.where else []),
            *(["quarantine"] if plan.fitting else []),
            *([f"deletes: {transfer.mark}"] if options.removes else []),
            *([f"mover: {transfer.mover}"] if transfer.mover else []),
            *(["final"] if transfer.final and plan.final else []),
            *(expressions.copied_expressions(transfer, plan) if number == 1 else []),
        )
        self._known |= {transfer.target_name(column.name, number) for column in raw}
        self.source, self.key, self.columns = (
            spec.to,
            plan.key.target.name,
            hop_columns.as_source(plan),
        )
        called = {column.source.name: column.target.name for column in plan.columns}
        self._names = {first: called[n] for first, n in self._names.items() if n in called}
        return Hop(
            number,
            spec,
            plan,
            options,
            schema,
            settings,
            existing,
            renames,
            known_columns=self._known,
        )

    def _planned(
        self, number: int, spec: HopSpec, existing: Mapping[str, Column] | None
    ) -> CopyPlan:
        """Plan a hop without the columns that it, or its drift policy, leaves out."""
        transfer, names = self.transfer, self._names
        version = release_of(self.servers.endpoint(spec.to))
        exclude = {names.get(name, name) for name in spec.exclude}
        if number == 1:
            exclude |= {*transfer.exclude}
            if transfer.only is not None:
                exclude |= {column.name for column in self.columns} - {*transfer.only}

        def planned(without: Collection[str]) -> CopyPlan:
            return plan_copy(
                self.source,
                self.columns,
                spec.to,
                key=self.key,
                overrides=hop_columns.overrides_of(transfer, number, names, without),
                exclude=without,
                target_version=version,
                existing=() if self.anew else existing or (),
            )

        plan = planned(exclude)
        if transfer.on_schema_drift == "ignore_new":
            new = {column.name for column in hop_columns.new_columns(plan, existing)}
            ignored = [column.source.name for column in plan.columns if column.target.name in new]
            plan = replace(planned({*exclude, *ignored}), ignored=tuple(ignored))
        if number == 1:
            plan = replace(plan, where=transfer.where)
        return _with_figures(transfer, plan, number) if transfer.figures else plan

    def _of_present_rows(
        self, plan: CopyPlan, options: TargetOptions, existing: Mapping[str, Column] | None
    ) -> tuple[CopyPlan, TargetOptions]:
        """Leave out rows that are marked as deleted, and versions of rows that are not the newest,
        on either side."""
        transfer, servers, target = self.transfer, self.servers, plan.target
        if self._unmarked:
            plan = replace(plan, where=self._unmarked)
        if transfer.mark is not None:
            mark = hop_columns.mark_of(transfer.mark, plan, existing)
            options, self._unmarked = replace(options, mark=mark), mark.unmarked(target.system)
            plan = replace(plan, target_where=self._unmarked)
        if transfer.mover is not None:
            plan = replace(plan, target_where=present_rows(transfer.mover, target, existing))
        both = (plan.source, target) if existing else (plan.source,)
        versioned = [table for table in both if table in servers.versioned]
        self._unversioned |= servers.unversioned(plan, versioned)
        final = (table for table in versioned if self._unversioned[table] is None)
        return replace(plan, final=tuple(final)), options

    def require_final(self) -> None:
        """Refuse `final` if it is of no use for any table.

        Raises:
            InputError: names the tables, and why.
        """
        if self.transfer.final and None not in self._unversioned.values():
            why = "; ".join(f"{table}: {reason}" for table, reason in self._unversioned.items())
            raise errors.InputError(f"{self.transfer.transfer}: final: {why}")


def _one_expression(order_by: Sequence[str] | None) -> str | None:
    if not order_by:
        return None
    return order_by[0] if len(order_by) == 1 else f"({', '.join(order_by)})"


def _with_figures(transfer: Transfer, plan: CopyPlan, number: int) -> CopyPlan:
    gone = {name for hop in transfer.hops[:number] for name in hop.exclude}
    declared = {
        name: transfer.target_name(name, number) for name in transfer.figures if name not in gone
    }
    fields = {field.name: field for field in all_fields(plan)}
    lacking = [name for name, renamed in declared.items() if renamed not in fields]
    if lacking:
        raise errors.InputError(
            f"{transfer.transfer}: figures: {plan.source} has no column "
            f"{', '.join(map(repr, lacking))} that is copied"
        )
    check_figures([fields[renamed] for renamed in declared.values()])
    return replace(plan, figures=tuple(declared.values()))
