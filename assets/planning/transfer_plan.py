"""The plan of a transfer: its hops, its key ranges, and the fingerprints of their source rows."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.ledger import partitions
from tableferry.assets.log.queries import Log
from tableferry.assets.log.records import DataVersion, digest
from tableferry.assets.planning.boundaries import limit
from tableferry.assets.planning.cuts import in_use, relative_to, require_agreement
from tableferry.assets.planning.hazards import with_hazards
from tableferry.assets.planning.ranges import (
    RangeGrowth,
    block_growth,
    extend_ranges,
    own_growth,
    plan_ranges,
    top_bound,
)
from tableferry.assets.planning.resolve import Hop, Servers, resolve_hops, with_wires
from tableferry.resources.contract.fingerprint import SourceFingerprint
from tableferry.resources.contract.markers import Published
from tableferry.resources.contract.source import source_of
from tableferry.resources.digest.fingerprinting import fingerprints
from tableferry.resources.errors import InputError, TableMissing, concerning
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.ranges.key_kind import key_kind
from tableferry.resources.ranges.statistics import KeyStatistics, key_statistics

if TYPE_CHECKING:
    import dagster as dg


@dataclass(frozen=True)
class TransferPlan:
    """A transfer against its servers at one moment."""

    transfer: Transfer
    hops: tuple[Hop, ...]
    ranges: Mapping[str, KeyRange]
    growth: RangeGrowth
    """What the dynamic partitions need, to cover the keys that are there now."""
    fingerprints: Mapping[str, SourceFingerprint] = field(default_factory=dict)
    """Of the source rows, by range; of those ranges of which they were asked for."""
    published: Mapping[int, Published] = field(default_factory=dict)
    """The markers of the targets, by number of the hop, where they have any. They are read before
    the source: whoever publishes a range later has read it later."""

    def fingerprinted(
        self, servers: Servers, names: Collection[str], *, snapshot: str | None = None
    ) -> TransferPlan:
        """The plan with the fingerprints of these ranges, too; those it has are not taken again."""
        lacking = [
            key_range
            for name, key_range in self.ranges.items()
            if name in names and name not in self.fingerprints
        ]
        if not lacking:
            return self
        found = fingerprints_of(self.transfer, self.hops[0], servers, lacking, snapshot=snapshot)
        return replace(self, fingerprints={**self.fingerprints, **found})

    def only(self, names: Collection[str]) -> TransferPlan:
        """The plan of these ranges alone."""
        return replace(
            self,
            ranges={name: one for name, one in self.ranges.items() if name in names},
            fingerprints={name: one for name, one in self.fingerprints.items() if name in names},
        )

    def version(self, hop: Hop, fingerprint: SourceFingerprint) -> DataVersion:
        """What a range of a hop is committed as, when its source rows have this fingerprint.

        A later hop's source is what the hop before it commits.
        """
        version = self.hops[0].version(digest(fingerprint.value), fingerprint.definition)
        for later in self.hops[1 : hop.number]:
            version = later.version(digest(str(version)), fingerprint.definition)
        return version

    def versions(self, hop: Hop) -> dict[str, DataVersion]:
        """What each range of a hop would be committed as now."""
        return {
            name: self.version(hop, fingerprint) for name, fingerprint in self.fingerprints.items()
        }

    def rows(self) -> dict[str, int]:
        """Rows of the source per range."""
        return {name: fingerprint.rows for name, fingerprint in self.fingerprints.items()}


def plan_transfer(
    transfer: Transfer,
    servers: Servers,
    log: Log,
    *,
    names: Collection[str] | None = None,
) -> TransferPlan:
    """Plan a transfer: its hops and its ranges (known ones stay). No source is read as a whole.

    Args:
        transfer: the declaration.
        servers: where its tables are.
        log: whose dynamic partitions are the ranges known so far.
        names: plan these known ranges only, and do not look for new ones.
    """
    hops = with_wires(transfer, resolve_hops(transfer, servers), servers)
    hops = with_hazards(hops, servers)
    published = markers_of(hops, servers)
    if names is not None:
        growth = RangeGrowth(known_ranges(transfer, hops, log), (), ())
        require_agreement(transfer, hops, growth, published)
        return _with_ranges(transfer, hops, growth, published).only(names)
    growth = _growth(transfer, hops, servers, log, published)
    return _with_ranges(transfer, hops, growth, published)


def plan_growth(transfer: Transfer, servers: Servers, log: Log) -> TransferPlan:
    """As `plan_transfer`, for who only keeps the ranges up: no wire format is chosen."""
    hops = resolve_hops(transfer, servers)
    growth = _growth(transfer, hops, servers, log, markers_of(hops, servers))
    return _with_ranges(transfer, hops, growth)


def markers_of(hops: Sequence[Hop], servers: Servers) -> dict[int, Published]:
    """The markers of the hops' targets, by number; a target that is still to be made has none."""
    found = {
        hop.number: Published()
        if hop.existing is None
        else servers.target(hop.plan.target).published(hop.plan, hop.options)
        for hop in hops
    }
    return {number: one for number, one in found.items() if one is not None}


def fingerprints_of(
    transfer: Transfer,
    first: Hop,
    servers: Servers,
    ranges: Sequence[KeyRange],
    *,
    snapshot: str | None = None,
) -> dict[str, SourceFingerprint]:
    """The fingerprints of a transfer's source rows, by range name, as it declares them."""
    with concerning(f"{transfer.transfer}: {transfer.source}"):
        return fingerprints(
            servers.endpoint(transfer.source),
            first.plan,
            ranges,
            "watermark" if transfer.watermark else transfer.fingerprint,
            snapshot=snapshot,
            watermark_column=transfer.watermark,
            greatest=transfer.incremental is not None,
        )


def known_ranges(transfer: Transfer, hops: Sequence[Hop], log: Log) -> tuple[KeyRange, ...]:
    """The ranges that Dagster knows of, in its order."""
    kind, digits = key_kind(hops[0].plan.key.source, transfer.source.system)
    names = partitions(log, transfer.partitions_name)
    return tuple(KeyRange.parse(name, kind, digits) for name in names)


def present_ranges(
    transfer: Transfer, hops: Sequence[Hop], servers: Servers, log: Log
) -> tuple[KeyRange, ...]:
    """The known ranges without those of files that are there no more."""
    known = known_ranges(transfer, hops, log)
    sending = source_of(transfer.source.system)
    if sending.own_key is None:
        return known
    found = sending.own_ranges(servers.endpoint(transfer.source), transfer.source)
    files = {one.lower for one in found}
    return tuple(one for one in known if one.lower in files)


def _with_ranges(
    transfer: Transfer,
    hops: tuple[Hop, ...],
    growth: RangeGrowth,
    published: Mapping[int, Published] | None = None,
) -> TransferPlan:
    ranges = {key_range.name: key_range for key_range in (*growth.keep, *growth.add)}
    own = frozenset(ranges)
    known = {number: replace(one, transfer_ranges=own) for number, one in (published or {}).items()}
    return TransferPlan(transfer, hops, ranges, growth, published=known)


def _growth(
    transfer: Transfer,
    hops: Sequence[Hop],
    servers: Servers,
    log: Log,
    published: Mapping[int, Published],
) -> RangeGrowth:
    """The ranges that the keys in the source need, beyond the known ones.

    Raises:
        InputError: others have cut the keys otherwise in a target where that matters.
    """
    known = known_ranges(transfer, hops, log)
    cuts, cut_by = in_use(transfer, hops, known, published)
    with concerning(f"{transfer.transfer}: {transfer.source}"):
        growth = _grown(transfer, hops, servers, cuts)
    if cut_by:
        growth = relative_to(known, cuts, growth, cut_by)
    require_agreement(transfer, hops, growth, published)
    return growth


def _grown(
    transfer: Transfer, hops: Sequence[Hop], servers: Servers, known: Sequence[KeyRange]
) -> RangeGrowth:
    source, key = servers.endpoint(transfer.source), hops[0].plan.key.source
    sending = source_of(transfer.source.system)
    if sending.own_key is not None:
        found = sending.own_ranges(source, transfer.source, known, transfer.rows_of_stretch)
        growth = own_growth(known, found, delete=transfer.on_missing == "delete")
        limit(len(growth.keep) + len(growth.add))
        return growth
    if transfer.placed and sending.place is not None:
        blocks, count = sending.blocks(source, transfer.source), transfer.ranges.count or 1
        digits = key_kind(key, transfer.source.system)[1]
        return block_growth(known, blocks, count, sending.place.per_block, digits)
    above = top_bound(known) if known else None
    stats = key_statistics(source, transfer.source, key, above=above, where=transfer.where)
    spec = transfer.ranges.model_dump(exclude_none=True)
    try:
        return extend_ranges(known, stats, spec, *key_kind(key, transfer.source.system))
    except InputError as error:
        raise InputError(f"{transfer.transfer}: ranges: {error}") from None


def require_cuts(transfer: Transfer, first: Hop) -> None:
    """Refuse ranges that no key of such a kind can be cut into; nothing is asked of the source.

    Raises:
        InputError: says why.
    """
    kind, digits = key_kind(first.plan.key.source, transfer.source.system)
    own = source_of(transfer.source.system).own_key is not None
    if not own and not transfer.placed:
        plan_ranges(KeyStatistics(0), transfer.ranges.model_dump(exclude_none=True), kind, digits)


def apply_growth(plan: TransferPlan, servers: Servers, instance: dg.DagsterInstance) -> None:
    """Make Dagster's dynamic partitions those of the plan.

    The targets forget a retired range first: dying in between leaves a plan that repeats it.
    """
    growth, partitions = plan.growth, plan.transfer.partitions_name
    for hop in plan.hops if growth.retire or growth.remove else ():
        target = servers.target(hop.plan.target)
        # a target that does not exist yet has nothing to forget
        with contextlib.suppress(TableMissing):
            for ranges, into in ((growth.retire, growth.add), (growth.remove, ())):
                if ranges:
                    target.retire(hop.plan, ranges, into, hop.options)
    for key_range in (*growth.retire, *growth.remove):
        instance.delete_dynamic_partition(partitions, key_range.name)
    if growth.add:
        instance.add_dynamic_partitions(partitions, [one.name for one in growth.add])
