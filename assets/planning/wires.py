"""The wire format of a hop: the declared one, or one that its servers prove to handle exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.resolve import Hop
from tableferry.assets.planning.rows.deltas import uses_segments
from tableferry.assets.planning.servers import Servers
from tableferry.resources.connecting.probe import Wrong
from tableferry.resources.contract.copy_plan import CopyPlan, WireChoice, WireFormat
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.loader import (
    UNREAD,
    WIRES,
    format_of,
    formats_between,
    loader_of,
)
from tableferry.resources.contract.source import source_of
from tableferry.resources.digest import fingerprinting, native
from tableferry.resources.digest.probe import DigestRefused
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.wires.exports import wrong_loads, wrong_values

WORTH_TRYING = 400_000
"""Rows of a table from which on `text` costs less in all: the first range, of 250,000 rows by
default, is scanned even so, to be digested both ways, and the wire has to be tried."""

SCANNED_ONCE = "its rows are digested as they are sent, which saves the source a second scan"


class ChosenWire(NamedTuple):
    """The wire format of a hop."""

    wire: WireFormat
    because: str | None = None
    """Why it is not one that `auto` prefers otherwise."""


def chosen_wire(
    declared: WireChoice,
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    *,
    moving: bool = False,
) -> ChosenWire:
    """Return the wire format that a hop will use.

    That is the declared one, or the first that both ends have, in the order of
    `resources.contract.loader`. A format counts only if edge values came out right in a probe of
    the source (`resources.wires.exports`). Loads into the target are probed only when rows are
    about to move: that creates tables there, which planning must not do.

    `moving`: probe loads into the target too (see `Loader.trial` and `resources.wires.exports`).

    Raises:
        InputError: the declared wire format does not carry the columns exactly, or with `auto`
            none does; names the kind of value that came out wrong, and what came.
        ConnectionFailed: a server does not answer.
    """
    common = [WIRES[format_] for format_ in formats_between(plan.source, plan.target)]
    problems: list[str] = []
    because: list[str] = []
    every = dict.fromkeys((*common, *WIRES.values()))
    for wire in every if declared == "auto" else (declared,):
        problem = _not_common(plan) if wire not in common else _inexact(wire, plan)
        if problem is None:
            problem = _problem(wire, plan, source, target)
            if problem is None and moving:
                problem = _load_problem(wire, plan, source, target)
            if problem is None:
                return ChosenWire(wire, "; and ".join(because) or None)
            because.append(f"{wire} cannot be used {problem}")
        if declared != "auto" or wire in common or not common:
            problems.append(f"cannot use the wire format {wire} {problem}")
    raise InputError("; and ".join(problems))


def _not_common(plan: CopyPlan) -> str | None:
    ends = f"{plan.source.system} sends and {plan.target.system} accepts"
    return f"from {plan.source} to {plan.target}: there is no variant of it that {ends}"


def _inexact(wire: WireFormat, plan: CopyPlan) -> str | None:
    """Why a wire format does not carry all columns; None if it does."""
    inexact = [column.source.name for column in plan.columns if column.sql(wire) is None]
    if not inexact:
        return None
    alternative = "" if wire == "arrow" else ", or use 'wire: arrow'"
    return f"for {', '.join(inexact)}: exclude them{alternative}"


def _problem(wire: WireFormat, plan: CopyPlan, source: Endpoint, target: Endpoint) -> str | None:
    """Why a hop cannot use a wire format that carries its columns; None if it can."""
    sender, loader = source_of(plan.source.system), loader_of(plan.target.system)
    try:
        sender.require_tools(source, wire)
        loader.require_tools(target, wire)
    except InputError as error:
        return f"without a tool: {error}"
    if why := loader.shut_out(target, wire):
        return f"into {target.settings()}: {why}"
    if wire not in sender.probed or format_of(wire, plan.source, plan.target) in UNREAD:
        return None
    wrong = wrong_values(source, wire, plan)
    return f"out of {source.settings()}: {_first(wrong)}" if wrong else None


def _load_problem(
    wire: WireFormat, plan: CopyPlan, source: Endpoint, target: Endpoint
) -> str | None:
    """Why rows would not enter a target; None if they would, or if that cannot be probed."""
    sender, loader = source_of(plan.source.system), loader_of(plan.target.system)
    format_ = format_of(wire, plan.source, plan.target)
    if format_ and (why := loader.trial(target, plan.target, format_)):
        return f"into {target.settings()}: {why}"
    if wire not in sender.probed or format_ in UNREAD:
        return None
    try:
        wrong = wrong_loads(source, target, wire, plan)
    except InputError as error:
        return f"into {target.settings()}: {error}"
    return f"into {target.settings()}: {_first(wrong)}" if wrong else None


def wire_notes(hops: Sequence[Hop]) -> Iterator[str]:
    """Say of hops with `wire: auto` why they do not use the wire format that is preferred."""
    for hop in hops:
        if hop.wire_because:
            yield f"{hop.plan.target}: wire auto is {hop.wire} here: {hop.wire_because}"


def _first(wrong: Sequence[Wrong]) -> str:
    more = f" (and {len(wrong) - 1} more; ferry doctor lists them)" if len(wrong) > 1 else ""
    return f"{wrong[0]}{more}"


def sends_digests(transfer: Transfer, hop: Hop, source: Endpoint) -> bool:
    """Whether the bytes of a hop's text rows have what its source would be asked to digest.

    Then the rows need not be read for their digest alone. The server is asked where it sums up
    segments, too, where rejected rows count that are not sent, and where ranges are blocks of
    storage, whose digests tell which of them have to move together.
    """
    plan = hop.plan
    if not hop.first or not transfer.write.moves or transfer.by_place or plan.fitting:
        return False
    if not (source_of(plan.source.system).snapshots and source.shares_snapshots):
        return False
    if transfer.fingerprint not in ("auto", "content") and transfer.reconcile != "checksum":
        return False
    if native.extension() is None or uses_segments(transfer):
        return False
    try:
        return native.layout(plan, fingerprinting.source_digest(source, plan)) is not None
    except DigestRefused:
        return False


def _saves_a_scan(transfer: Transfer, hop: Hop, source: Endpoint) -> bool:
    """Whether `text` is the cheaper wire for that reason: to try it costs small tables more."""
    if not sends_digests(transfer, hop, source):
        return False
    table = hop.plan.source

    def rows() -> int:
        sizes = source_of(table.system).sizes(source, [table])
        return max((size.rows for size in sizes.values()), default=0)

    with suppress(StatementFailed):
        # whatever wire carries the rows, they are the same: a process asks once
        return source.settings().facts.known(("rows", table), rows) >= WORTH_TRYING
    return False


def with_wires(
    transfer: Transfer, hops: Sequence[Hop], servers: Servers, *, moving: bool = False
) -> tuple[Hop, ...]:
    """Return the hops with the wire formats that they will use.

    `moving`: rows are about to move, so loads into the targets are tried as well.

    Raises:
        InputError: a declared wire format does not carry a hop's columns exactly.
    """
    chosen = []
    for hop in hops:
        try:
            wire, because = _wire_of(transfer, hop, servers, moving=moving)
        except InputError as error:
            raise InputError(f"{transfer.transfer}: hop {hop.number} {error}") from None
        chosen.append(replace(hop, wire=wire, wire_because=because))
    return tuple(chosen)


def _wire_of(transfer: Transfer, hop: Hop, servers: Servers, *, moving: bool) -> ChosenWire:
    """Choose the wire format of a hop; of `auto`, first the one that saves the source a scan."""
    source, target = servers.endpoint(hop.plan.source), servers.endpoint(hop.plan.target)
    if hop.spec.wire == "auto" and _saves_a_scan(transfer, hop, source):
        with suppress(InputError):
            text = chosen_wire("text", hop.plan, source, target, moving=moving)
            return text._replace(because=SCANNED_ONCE)
    return chosen_wire(hop.spec.wire, hop.plan, source, target, moving=moving)
