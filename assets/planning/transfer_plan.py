"""The plan of a transfer: its hops and key ranges, and what a run would do with them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.declared import declaration_of
from tableferry.assets.log.ledger import newest_ids, recorded_fingerprints
from tableferry.assets.log.queries import Log
from tableferry.assets.log.records import DataVersion, digest
from tableferry.assets.planning.changes.change_plan import plan_changes
from tableferry.assets.planning.hazards import with_hazards
from tableferry.assets.planning.intent import AS_DECLARED, Intent
from tableferry.assets.planning.ranges import boundaries, cutting, growing
from tableferry.assets.planning.ranges.boundaries import KeyStatistics, key_statistics
from tableferry.assets.planning.ranges.known import (
    former_ranges,
    known_ranges,
    without_gaps,
)
from tableferry.assets.planning.resolve import Hop, resolve_hops
from tableferry.assets.planning.rows.decision import Decision
from tableferry.assets.planning.rows.deltas import uses_segments
from tableferry.assets.planning.servers import Servers
from tableferry.assets.planning.snapshots import SnapshotAge
from tableferry.assets.planning.wires import with_wires
from tableferry.resources import crash_points, errors
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract.fingerprint import SourceFingerprint
from tableferry.resources.contract.markers import Published, require_written_as
from tableferry.resources.contract.snapshots import SharedSnapshot, Snapshot
from tableferry.resources.contract.source import source_of
from tableferry.resources.digest.fingerprinting import SourceReading, fingerprints
from tableferry.resources.digest.stretches import expected_rows
from tableferry.resources.keys.cover import in_key_order
from tableferry.resources.keys.range import KeyRange

if TYPE_CHECKING:
    import dagster as dg

LEAST_ROWS_PER_SECOND = 100_000
"""Rows that a slow server fingerprints by their contents in a second."""


@dataclass(frozen=True)
class TransferPlan:
    """A transfer against its servers at one moment, and what a run would do with its ranges."""

    declared: Transfer
    intent: Intent
    transfer: Transfer
    """The settings by which a run carries out the declaration, see `Intent.carried_out`."""
    hops: tuple[Hop, ...]
    ranges: Mapping[str, KeyRange]
    growth: cutting.RangeGrowth
    """The changes to the dynamic partitions that the current keys need."""
    published: Mapping[int, Published] = field(default_factory=dict)
    """The markers of the targets, by number of the hop, if they have any. They are read before the
    source, so whoever publishes a range after that has read it after that."""
    recorded: Mapping[str, SourceFingerprint] = field(default_factory=dict)
    """Fingerprints with row versions that the event log has, with `fingerprint: auto`."""
    shared: SharedSnapshot | None = None
    """The snapshots of the source; None if it has none, or is read without."""
    snapshot: Snapshot | None = None
    """The newest one that fingerprints are of."""
    read_under: Mapping[str, Snapshot | None] = field(default_factory=dict)
    """The snapshot that a range's fingerprint is of, for each that was fingerprinted."""
    fingerprints: Mapping[str, SourceFingerprint] = field(default_factory=dict)
    """Fingerprints of the source rows, by range, for the ranges that were fingerprinted."""
    decided: Mapping[int, Mapping[str, Decision]] = field(default_factory=dict)
    """Decisions by number of the hop and range, for the ranges that were decided about."""
    newest: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Each range's newest storage id before it was decided about, by number of the hop, if another
    run may come between the plan and its use."""

    def fingerprinted(
        self, servers: Servers, names: Collection[str], as_sent: Collection[str] = ()
    ) -> TransferPlan:
        """Return the plan with fingerprints of these ranges added, unless it has them already.

        Those of ranges in `as_sent` get their value when their rows are sent.
        """
        missing = [
            range_
            for name, range_ in self.ranges.items()
            if name in names and name not in self.fingerprints
        ]
        if not missing:
            return self
        age = SnapshotAge(self.transfer, self.hops[0], servers, self.shared)
        plan = self
        for part in plan._parts(missing, age.oldest, servers):
            if plan.read_under and plan.shared is not None and age.passed:
                if plan.shared.name() is plan.snapshot:
                    age.renew()
                plan = replace(plan, snapshot=plan.shared.name())
            added = fingerprints_of(
                plan.transfer,
                plan.hops[0],
                servers,
                part,
                plan.recorded,
                snapshot=plan.snapshot,
                as_sent=as_sent,
            )
            plan = replace(
                plan,
                fingerprints={**plan.fingerprints, **added},
                read_under={**plan.read_under, **dict.fromkeys(added, plan.snapshot)},
            )
        return plan

    def _parts(
        self, ranges: Sequence[KeyRange], oldest: float | None, servers: Servers
    ) -> Iterator[Sequence[KeyRange]]:
        """Cut ranges into parts that are fingerprinted well before their snapshot is too old."""
        if oldest is None:
            yield ranges
            return
        source, part, sum_ = self.transfer.source, list[KeyRange](), 0.0
        known = known_rows(self.transfer, ranges, self.recorded)
        expected = expected_rows(servers.endpoint(source), source, ranges, known)
        for key_range, rows in zip(ranges, expected, strict=True):
            if part and sum_ + rows > oldest * LEAST_ROWS_PER_SECOND:
                yield part
                part, sum_ = [], 0.0
            part.append(key_range)
            sum_ += rows
        yield part

    def only(self, names: Collection[str]) -> TransferPlan:
        """Return the plan of these ranges alone."""
        by_hop = {
            number: {name: each for name, each in of_hop.items() if name in names}
            for number, of_hop in self.decided.items()
        }
        # a swap decides for all ranges of a run together
        fewer = not set(self.ranges) <= set(names)
        return replace(
            self,
            ranges={name: each for name, each in self.ranges.items() if name in names},
            fingerprints={name: each for name, each in self.fingerprints.items() if name in names},
            decided={} if fewer and self.transfer.write.whole_table else by_hop,
        )

    @property
    def selected(self) -> tuple[Hop, ...]:
        """The hops that a run writes."""
        numbers = self.intent.hops
        return tuple(hop for hop in self.hops if numbers is None or hop.number in numbers)

    def of(self, intent: Intent) -> TransferPlan:
        """Return the plan for another intent, by which nothing is decided yet."""
        return self if intent == self.intent else replace(self, intent=intent, decided={})

    def decision(self, hop: Hop, name: str) -> Decision:
        """Return what was decided about a range of a hop."""
        return self.decided[hop.number][name]

    def holds(self, log: Log, names: Collection[str]) -> bool:
        """Whether the plan of these ranges is still valid.

        It is not if another run has recorded one of them since, if the ranges were cut anew, or if
        the snapshot was lost with its server.
        """
        if not set(names) <= set(self.ranges):
            return False
        if self.shared is not None and self.shared.name() is not self.snapshot:
            return False
        for hop in self.hops:
            now, then = newest_ids(log, hop.spec.to), self.newest.get(hop.number, {})
            if any(now.get(name) != then.get(name) for name in names):
                return False
        return True

    def version(self, hop: Hop, fingerprint: SourceFingerprint) -> DataVersion:
        """The data version of a hop's range whose source rows have this fingerprint.

        A later hop's source is what the hop before it commits.
        """
        version = self.hops[0].version(digest(fingerprint.value), fingerprint.definition)
        for later in self.hops[1 : hop.number]:
            version = later.version(digest(str(version)), fingerprint.definition)
        return version

    def versions(self, hop: Hop) -> dict[str, DataVersion]:
        """The data version with which each range of a hop would be committed now."""
        return {
            name: self.version(hop, fingerprint) for name, fingerprint in self.fingerprints.items()
        }

    @property
    def versions_to_record(self) -> set[str]:
        """The ranges whose row versions the event log does not have yet."""
        return {
            name
            for name, fingerprint in self.fingerprints.items()
            if fingerprint.row_versions and fingerprint.found_by == "content"
        }

    def rows(self) -> dict[str, int]:
        """Rows in the source, by range."""
        return {name: fingerprint.rows for name, fingerprint in self.fingerprints.items()}


def plan_transfer(
    declared: Transfer,
    servers: Servers,
    log: Log,
    intent: Intent = AS_DECLARED,
    *,
    purpose: Literal["compare", "cut", "move"] = "move",
    names: Collection[str] | None = None,
) -> TransferPlan:
    """Plan the hops and ranges of a transfer, without reading its source as a whole.

    The log's dynamic partitions are the known ranges.

    Args:
        declared: the transfer.
        servers: the servers of its tables.
        log: the event log.
        intent: what a run is asked to do.
        purpose: what the plan is for: to compare the known ranges, to cut the present keys into
            ranges, or to move the rows of these. Each reads more of the servers than the others.
        names: plan these of the known ranges only, and do not look for new ones.

    Raises:
        TableferryError: the declaration does not fit the servers, or one of them does not answer.
    """
    transfer = intent.carried_out(declared)
    hops = resolve_hops(declared, servers, intent)
    if purpose == "move":
        hops = with_hazards(with_wires(transfer, hops, servers), servers)
    published = {} if purpose == "compare" else _markers(transfer, hops, servers)
    if purpose == "compare" or names is not None:
        growth = cutting.RangeGrowth(known_ranges(transfer, hops, log), (), ())
    else:
        growth = _growth(transfer, hops, servers, log, published)
    cutting.require_agreement(transfer, hops, growth, published)
    ranges = {range_.name: range_ for range_ in in_key_order((*growth.keep, *growth.add))}
    own = frozenset(ranges)
    markers = {number: replace(each, transfer_ranges=own) for number, each in published.items()}
    plan = TransferPlan(declared, intent, transfer, hops, ranges, growth, published=markers)
    if names is not None:
        plan = plan.only(names)
    if purpose != "move" or transfer.fingerprint != "auto":
        return plan
    declaration = declaration_of(declared, 1)
    recorded = recorded_fingerprints(log, hops[0].spec.to, plan.ranges, declaration)
    return replace(plan, recorded=recorded)


def _markers(transfer: Transfer, hops: Sequence[Hop], servers: Servers) -> dict[int, Published]:
    markers: dict[int, Published] = {}
    for hop in hops:
        published: Published | None = Published()
        if hop.existing is not None:
            published = servers.target(hop.plan.target).published(hop.plan, hop.options)
        if published is not None:
            with errors.concerning(transfer.transfer):
                require_written_as(hop.plan.target, published.written_as)
            markers[hop.number] = published
    return markers


def fingerprints_of(
    transfer: Transfer,
    first: Hop,
    servers: Servers,
    ranges: Sequence[KeyRange],
    recorded: Mapping[str, SourceFingerprint],
    *,
    snapshot: str | None = None,
    as_sent: Collection[str] = (),
) -> dict[str, SourceFingerprint]:
    """Compute the declared fingerprint of a transfer's source rows, by range name."""
    reading = SourceReading(
        servers.endpoint(transfer.source),
        first.plan,
        snapshot,
        known_rows(transfer, ranges, recorded),
        watermark=transfer.watermark,
        greatest=transfer.incremental is not None,
        segmented=uses_segments(transfer),
    )
    method, _, _ = transfer.fingerprint.partition(":")
    with errors.concerning(f"{transfer.transfer}: {transfer.source}"):
        return fingerprints(reading, ranges, method, recorded=recorded, as_sent=as_sent)


def known_rows(
    transfer: Transfer, ranges: Sequence[KeyRange], recorded: Mapping[str, SourceFingerprint]
) -> dict[str, int]:
    """Return how many rows ranges have, by their names, as far as that is recorded or declared."""
    usual = transfer.ranges.rows
    expected = {
        each.name: usual
        for each in ranges
        if usual is not None and each.lower is not None and each.upper is not None
    }
    return expected | {name: each.rows for name, each in recorded.items()}


def present_ranges(plan: TransferPlan, servers: Servers) -> tuple[KeyRange, ...]:
    """The ranges of a plan without those of files that no longer exist."""
    transfer, known = plan.transfer, tuple(plan.ranges.values())
    sending = source_of(transfer.source.system)
    if sending.file_key is None:
        return known
    present = sending.own_ranges(servers.endpoint(transfer.source), transfer.source)
    files = {range_.lower for range_ in present}
    return tuple(range_ for range_ in known if range_.lower in files)


def _growth(
    transfer: Transfer,
    hops: Sequence[Hop],
    servers: Servers,
    log: Log,
    published: Mapping[int, Published],
) -> cutting.RangeGrowth:
    """Plan how the known ranges have to change for the keys in the source.

    Raises:
        InputError: they were divided by another key, and the targets are not recreated.
    """
    known: tuple[KeyRange, ...] = ()
    former: tuple[KeyRange, ...] = ()
    try:
        known = known_ranges(transfer, hops, log)
    except errors.KeyChanged as error:
        if hops[0].options.recreate is None:
            raise
        former = former_ranges(transfer, error.kind, log)
    whole = without_gaps(transfer, known, hops, log)
    cuts, cut_by = cutting.in_use(transfer, hops, whole, published)
    with errors.concerning(f"{transfer.transfer}: {transfer.source}"):
        growth = _grown(transfer, hops, servers, cuts)
    if [*cuts] != [*known]:
        growth = cutting.relative_to(known, cuts, growth, cut_by)
    again = tuple(range_ for range_ in whole if range_ not in known)
    return replace(growth, retire=(*former, *growth.retire), again=again)


def _grown(
    transfer: Transfer, hops: Sequence[Hop], servers: Servers, known: Sequence[KeyRange]
) -> cutting.RangeGrowth:
    source, key = servers.endpoint(transfer.source), hops[0].plan.key.source
    sending = source_of(transfer.source.system)
    if sending.file_key is not None:
        present = sending.own_ranges(source, transfer.source, known, transfer.rows_per_file_range)
        growth = cutting.file_growth(known, present, delete=transfer.on_missing == "delete")
        boundaries.limit(len(growth.keep) + len(growth.add))
        return growth
    if transfer.by_place and sending.place is not None:
        blocks, count = sending.blocks(source, transfer.source), transfer.ranges.count or 1
        digits = key_kind(key, transfer.source.system)[1]
        return cutting.block_growth(known, blocks, count, sending.place.per_block, digits)
    above, rows = cutting.top_bound(known) if known else None, transfer.ranges.rows
    if (
        known
        and above is None
        and rows
        and not growing.has_more_rows(transfer, key, servers, boundaries.most_rows(rows))
    ):
        # it stays one range: nobody needs the distribution of its keys
        stats = KeyStatistics(0, nullable=key.nullable)
    else:
        stats = key_statistics(source, transfer.source, key, above=above, where=transfer.where)
    spec = transfer.ranges.model_dump(exclude_none=True)
    try:
        return cutting.extend_ranges(known, stats, spec, *key_kind(key, transfer.source.system))
    except errors.InputError as error:
        raise errors.InputError(f"{transfer.transfer}: ranges: {error}") from None


def require_cuts(transfer: Transfer, first: Hop) -> None:
    """Refuse `ranges` that do not fit the kind of the key, without a query to the source.

    Raises:
        InputError: says why.
    """
    kind, digits = key_kind(first.plan.key.source, transfer.source.system)
    if source_of(transfer.source.system).file_key is None and not transfer.by_place:
        cutting.plan_ranges(
            KeyStatistics(0), transfer.ranges.model_dump(exclude_none=True), kind, digits
        )


def extend_ranges(
    declared: Transfer,
    servers: Servers,
    instance: dg.DagsterInstance,
    intent: Intent = AS_DECLARED,
    *,
    replaces: bool = True,
) -> TransferPlan:
    """Plan a transfer, and make Dagster's dynamic partitions those of its present keys.

    Arguments and errors as in `plan_transfer` and `apply_growth`. Unless it `replaces` them, known
    ranges that others would take the place of are left to the run that moves these.
    """
    plan = plan_transfer(declared, servers, instance, intent, purpose="cut")
    if replaces or not (plan.growth.retire or plan.growth.remove):
        apply_growth(plan, servers, instance)
    return plan


def apply_growth(plan: TransferPlan, servers: Servers, instance: dg.DagsterInstance) -> None:
    """Make Dagster's dynamic partitions those of the plan.

    Targets retire ranges first: if the process dies in between, the next plan repeats that. If it
    dies when an open range is gone and those in its place are not there, the next plan adds them.

    Raises:
        SchemaDrift: ranges would be taken from targets that no run could write to afterwards.
    """
    growth, partitions = plan.growth, plan.transfer.partitions_name
    if growth.retire or growth.remove:
        hops = with_hazards(plan.hops, servers)
        plan_changes(plan.transfer, hops, servers, instance).require_allowed()
    for hop in plan.hops if growth.retire or growth.remove else ():
        target = servers.target(hop.plan.target)
        # a target that does not exist yet has nothing to retire
        with contextlib.suppress(errors.TableMissing):
            for ranges, replacements in ((growth.retire, growth.add), (growth.remove, ())):
                if ranges:
                    target.retire(hop.plan, ranges, replacements, hop.options)
        gone = [*growth.remove, *(range_ for range_ in growth.retire if range_.null)]
        if gone:
            from tableferry.assets.log.downstream import record_gone

            record_gone(instance, hop.asset, [range_.name for range_ in gone])
    crash_points.reached("after_retire")
    for range_ in (*growth.retire, *growth.remove):
        instance.delete_dynamic_partition(partitions, range_.name)
    crash_points.reached("inside_growth")
    if growth.added:
        instance.add_dynamic_partitions(partitions, [range_.name for range_ in growth.added])
