"""`ferry doctor`: the servers, what they make of values at the edges of their types, this machine.

What is asked of a server is its system's own: `System.health`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.hazards import hazards_of
from tableferry.assets.planning.resolve import Servers, resolve_hops
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.contract.copy_plan import WireFormat
from tableferry.resources.contract.formats import WIRES, formats_between
from tableferry.resources.contract.hazards import Effect
from tableferry.resources.contract.inspection import Finding, State, Use, inspection_of
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.registry import systems
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.wires.exports import wrong_values
from tableferry.resources.wires.loads import wrong_loads

NOT_AVAILABLE = "not available"
UNREACHABLE = (
    "is the server up, are host, port, database and login those of its URL, does a firewall or a "
    "list of allowed addresses stand between, and does the server offer the TLS that is asked for?"
)


@dataclass(frozen=True)
class WireHealth:
    """One wire format out of a server."""

    wire: WireFormat
    to: str
    wrong: tuple[str, ...] = ()
    """Values that did not come out as they must."""
    unavailable: str | None = None
    """Why it could not be tried, though nothing is wrong: a tool is not installed, or the server
    does not take what it sends."""
    error: str | None = None
    """Why it could not be tried."""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.wrong and self.error is None

    def json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "wire": self.wire,
            "to": self.to,
            "ok": self.good,
            "wrong": list(self.wrong),
            "unavailable": self.unavailable,
            "error": self.error,
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        label = f"wire {self.wire} to {self.to}"
        if self.error or self.unavailable:
            yield f"{label}: {self.error or f'{NOT_AVAILABLE}: {self.unavailable}'}"
        elif not self.wrong:
            yield f"{label}: exact"
        else:
            yield f"{label}: {len(self.wrong)} kinds of values come out wrong"
            yield from (f"  {one}" for one in self.wrong)


def finding_json(found: Finding) -> dict[str, Any]:
    """For `--json`."""
    return {"subject": found.subject, "state": found.state, "says": found.says, "do": [*found.do]}


def finding_lines(found: Finding) -> Iterator[str]:
    """For people."""
    yield f"{found.state:<8} {found.subject}: {found.says}"
    yield from (f"           {line}" for line in found.do)


@dataclass(frozen=True)
class ServerHealth:
    """One configured server."""

    name: str
    address: str
    version: str | None = None
    error: str | None = None
    """Why it cannot be reached."""
    wires: tuple[WireHealth, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def good(self) -> bool:
        """Whether it can be reached, none of its wires is wrong, and nothing else will fail."""
        well = all(found.state != "problem" for found in self.findings)
        return self.error is None and well and all(wire.good for wire in self.wires)

    def json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "name": self.name,
            "address": self.address,
            "ok": self.good,
            "reachable": self.error is None,
            "version": self.version,
            "error": self.error,
            "findings": [finding_json(found) for found in self.findings],
            "wires": [wire.json() for wire in self.wires],
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        if self.error is not None:
            yield self.error
            yield f"  {'problem':<8} reachable: {UNREACHABLE}"
            return
        name = "" if self.name == self.address.partition(" ")[0] else f"{self.name}: "
        yield f"{name}{self.address}: {self.version}"
        for found in self.findings:
            yield from (f"  {line}" for line in finding_lines(found))
        for wire in self.wires:
            yield from (f"  {line}" for line in wire.lines())


def examine(
    servers: Servers, configured: Sequence[str], transfers: Iterable[Transfer] = ()
) -> list[ServerHealth]:
    """Reach every configured server, look at what its system knows to ask, and probe its wires.

    Args:
        servers: where they are.
        configured: the connections that the environment names.
        transfers: what is declared, which says which privileges are needed.
    """
    transfers = list(transfers)
    uses, hazards = _uses(transfers), _hazards(servers, transfers)
    return [
        _server(servers, name, uses.get(name, Use()), hazards.get(name, ())) for name in configured
    ]


def _hazards(servers: Servers, transfers: Iterable[Transfer]) -> dict[str, list[Finding]]:
    """What the targets may do to rows when they are published, by connection."""
    states: dict[Effect, State] = {"refused": "problem", "destroys": "warning"}
    found: dict[str, list[Finding]] = {}
    for transfer in transfers:
        # what keeps a transfer from being planned is told elsewhere
        with suppress(TableferryError):
            for hop in resolve_hops(transfer, servers):
                of_connection = found.setdefault(hop.plan.target.connection, [])
                for one in hazards_of(hop, servers):
                    says = f"{transfer.transfer}: {hop.plan.target}: {one}"
                    do = (one.remedy,) if one.remedy else ()
                    state = states.get(one.effect, "note")
                    of_connection.append(Finding("publishing", state, says, do))
    return found


def _uses(transfers: Iterable[Transfer]) -> dict[str, Use]:
    """What the transfers want of each connection: a target of one hop is read by the next."""
    reads: dict[str, list[TableRef]] = {}
    writes: dict[str, list[TableRef]] = {}
    for transfer in transfers:
        targets = [hop.to for hop in transfer.hops]
        for table in (transfer.source, *targets[:-1]):
            reads.setdefault(table.connection, []).append(table)
        for table in targets:
            writes.setdefault(table.connection, []).append(table)
    return {
        name: Use(list(dict.fromkeys(reads.get(name, ()))), writes.get(name, []))
        for name in {**reads, **writes}
    }


def _server(servers: Servers, name: str, use: Use, hazards: Sequence[Finding] = ()) -> ServerHealth:
    resource = servers.endpoints[name]
    address = str(resource.settings())
    try:
        version = resource.ping()
    except TableferryError as error:
        return ServerHealth(name, address, error=str(error))
    findings = (*inspection_of(resource.system).health(resource, use), *hazards)
    return ServerHealth(name, address, version, None, tuple(_wires(servers, name)), findings)


def _wires(servers: Servers, name: str) -> Iterator[WireHealth]:
    """The wires that are probed, to each system that rows of this one can go to."""
    source = servers.endpoints[name]
    if source.system.source is None or not (sending := source_of(source.system)).probed:
        return
    columns = [
        Column(f"c{number}", type_) for number, type_ in enumerate(("integer", *sending.examples))
    ]
    own = TableRef(source.system_name, "doctor", "types", name)
    for to in systems():
        if to.loader is None or to is source.system:
            continue
        target = TableRef(to.name, "doctor", "types")
        wires = {WIRES[one] for one in formats_between(own, target)} & set(sending.probed)
        if not wires:
            continue
        # a release without the long calendar has values to refuse
        plan = plan_copy(own, columns, target, key="c0", target_version="26.7")
        for wire in sorted(wires):
            try:
                sending.require_tools(source, wire)
                if to.name in servers.endpoints:
                    loader_of(to).require_tools(servers.endpoints[to.name], wire)
            except InputError as error:
                yield WireHealth(wire, to.name, unavailable=str(error))
                continue
            try:
                wrong = wrong_values(source, wire, plan)
                if to.name in servers.endpoints:
                    try:
                        wrong += wrong_loads(source, servers.endpoints[to.name], wire, plan)
                    except InputError as error:
                        yield WireHealth(wire, to.name, unavailable=str(error))
                        continue
            except TableferryError as error:
                yield WireHealth(wire, to.name, error=str(error))
            else:
                yield WireHealth(wire, to.name, tuple(map(str, wrong)))
