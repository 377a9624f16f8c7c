"""`ferry doctor`: examines the configured servers, Dagster's home and the transfer files."""

from __future__ import annotations

import os
import platform
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import TransferFolder, load_transfers
from tableferry.assets.log.queries import require_queries
from tableferry.assets.planning.hazards import hazards_of
from tableferry.assets.planning.resolve import resolve_hops
from tableferry.assets.planning.servers import Servers, require_servers
from tableferry.pipelines import event_log, settings
from tableferry.pipelines.reporting.collect import PACKAGES
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.connecting.health import disk_of
from tableferry.resources.connecting.waiting import bounded
from tableferry.resources.contract.catalog import Finding, State, Use, inspection_of
from tableferry.resources.contract.copy_plan import WireFormat
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import Effect
from tableferry.resources.contract.loader import WIRES, formats_between, loader_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.digest import native
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.registry import systems
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tableferry.resources.wires.exports import wrong_loads, wrong_values

UNREACHABLE = (
    "is the server up, does the URL have the right host, port, database and login, does a firewall "
    "or a list of allowed addresses block the way, and does the server offer the requested TLS?"
)


@dataclass(frozen=True)
class WireHealth:
    """The result of probing one wire format from a server to another system."""

    wire: WireFormat
    to: str
    wrong: tuple[str, ...] = ()
    """Values that arrived changed."""
    unavailable: str | None = None
    """Why the wire cannot be used here: a tool is missing, or the target does not support it."""
    error: str | None = None
    """The failure of the probe."""

    @property
    def good(self) -> bool:
        """Whether no value was changed and the probe did not fail."""
        return not self.wrong and self.error is None

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {**asdict(self), "ok": self.good}

    def lines(self) -> Iterator[str]:
        """Describe the result for people."""
        label = f"wire {self.wire} to {self.to}"
        if self.error or self.unavailable:
            yield f"{label}: {self.error or f'not available: {self.unavailable}'}"
        elif not self.wrong:
            yield f"{label}: exact"
        else:
            yield f"{label}: {len(self.wrong)} kinds of values come out wrong"
            yield from (f"  {value}" for value in self.wrong)


def finding_lines(finding: Finding) -> Iterator[str]:
    """Describe a finding for people."""
    yield f"{finding.state:<8} {finding.subject}: {finding.says}"
    yield from (f"           {line}" for line in finding.do)


@dataclass(frozen=True)
class ServerHealth:
    """The state of one configured server."""

    name: str
    address: str
    version: str | None = None
    error: str | None = None
    """Why the server cannot be reached, or not even be asked."""
    advice: str = UNREACHABLE
    wires: tuple[WireHealth, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the server can be reached, and no finding or wire has a problem."""
        well = all(finding.state != "problem" for finding in self.findings)
        return self.error is None and well and all(wire.good for wire in self.wires)

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        fields = asdict(self)
        del fields["advice"]
        return {
            **fields,
            "ok": self.good,
            "reachable": self.error is None,
            "wires": [wire.json() for wire in self.wires],
        }

    def lines(self) -> Iterator[str]:
        """Describe the server for people."""
        if self.error is not None:
            yield self.error
            if self.advice:
                yield f"  {'problem':<8} reachable: {self.advice}"
            return
        name = "" if self.name == self.address.partition(" ")[0] else f"{self.name}: "
        yield f"{name}{self.address}: {self.version}"
        for finding in self.findings:
            yield from (f"  {line}" for line in finding_lines(finding))
        for wire in self.wires:
            yield from (f"  {line}" for line in wire.lines())


def examine(
    servers: Servers, configured: Sequence[str], transfers: Iterable[Transfer] = ()
) -> list[ServerHealth]:
    """Examine every configured connection; the transfers say which privileges it needs."""
    transfers = list(transfers)
    with bounded():
        uses, hazards = _uses(transfers), _hazards(servers, transfers)
        targets = {
            endpoint.system: endpoint
            for name, endpoint in servers.endpoints.items()
            if name in configured or endpoint.system.by_path
        }
        return [
            _examine(servers, name, uses.get(name, Use()), hazards[name], targets)
            for name in configured
        ]


def _hazards(servers: Servers, transfers: Iterable[Transfer]) -> dict[str, list[Finding]]:
    """Find what targets may do to published rows, by connection."""
    states: dict[Effect, State] = {"refused": "problem", "destroys": "warning"}
    findings: dict[str, list[Finding]] = defaultdict(list)
    for transfer in transfers:
        # other findings explain why a transfer cannot be planned
        with suppress(TableferryError):
            for hop in resolve_hops(transfer, servers):
                for hazard in hazards_of(hop, servers):
                    says = f"{transfer.transfer}: {hop.plan.target}: {hazard}"
                    do = (hazard.remedy,) if hazard.remedy else ()
                    state = states.get(hazard.effect, "note")
                    finding = Finding("publishing", state, says, do)
                    findings[hop.plan.target.connection].append(finding)
    return findings


def _uses(transfers: Iterable[Transfer]) -> dict[str, Use]:
    """Collect the tables that transfers read and write, by connection."""
    reads: dict[str, list[TableRef]] = defaultdict(list)
    writes: dict[str, list[TableRef]] = defaultdict(list)
    for transfer in transfers:
        targets = [hop.to for hop in transfer.hops]
        # the target of a hop is read by the next hop
        for table in (transfer.source, *targets[:-1]):
            reads[table.connection].append(table)
        for table in targets:
            (writes if transfer.write.moves else reads)[table.connection].append(table)
    return {
        name: Use(list(dict.fromkeys(reads[name])), writes[name]) for name in {**reads, **writes}
    }


def _examine(
    servers: Servers,
    name: str,
    use: Use,
    hazards: Sequence[Finding],
    targets: Mapping[System, Endpoint],
) -> ServerHealth:
    resource = servers.endpoints[name]
    address = name
    try:
        address = str(resource.settings())
        version = resource.ping()
    except InputError as error:  # says itself what to do, as which extra to install
        return ServerHealth(name, address, error=f"{name}: {error}", advice="")
    except TableferryError as error:
        return ServerHealth(name, address, error=str(error))
    health = inspection_of(resource.system).health(resource, use)
    findings = (*_budget(resource, name), *health, *hazards)
    return ServerHealth(
        name, address, version, wires=tuple(_wires(resource, name, targets)), findings=findings
    )


def _budget(resource: Endpoint, name: str) -> Iterator[Finding]:
    """Say what all runs together may take of a server."""
    try:
        budget = resource.budget(name)
    except InputError as error:
        yield Finding("budget", "problem", str(error))
        return
    if budget is not None:
        yield Finding("budget", "ok", budget.rule)


def _wires(
    endpoint: Endpoint, name: str, targets: Mapping[System, Endpoint]
) -> Iterator[WireHealth]:
    """Probe the wire formats from a server to one of each other system that accepts them."""
    if endpoint.system.source is None or not (source := source_of(endpoint.system)).probed:
        return
    columns = [
        Column(f"c{index}", type_) for index, type_ in enumerate(("integer", *source.examples))
    ]
    table = TableRef(endpoint.system_name, "doctor", "types", name)
    for to in systems():
        if to not in targets or to.loader is None or to is endpoint.system:
            continue
        target = TableRef(to.name, "doctor", "types")
        wires = {WIRES[format_] for format_ in formats_between(table, target)} & set(source.probed)
        if not wires:
            continue
        # a release without the long calendar has values to refuse
        plan = plan_copy(table, columns, target, key="c0", target_version="26.7")
        for wire in sorted(wires):
            try:
                source.require_tools(endpoint, wire)
                loader_of(to).require_tools(targets[to], wire)
                wrong = wrong_values(endpoint, wire, plan)
                wrong += wrong_loads(endpoint, targets[to], wire, plan)
            except InputError as error:
                yield WireHealth(wire, to.name, unavailable=str(error))
            except TableferryError as error:
                yield WireHealth(wire, to.name, error=str(error))
            else:
                yield WireHealth(wire, to.name, tuple(map(str, wrong)))


MOST_PROBLEMS = 5
"""How many problems of transfer files are listed."""

MIGRATE = "Stop Dagster's services, keep a copy of the storage, and run: dagster instance migrate"


def declared_transfers() -> TransferFolder | InputError:
    """Load the declared transfers, or return why they cannot be loaded."""
    try:
        return load_transfers(settings.transfers_folder())
    except InputError as error:
        return error


def examine_machine(servers: Servers, declared: TransferFolder | InputError) -> Iterator[Finding]:
    """Examine this machine; `declared` comes from `declared_transfers`."""
    versions = " ".join(f"{name} {version(name)}," for name in ("tableferry", "dagster"))
    yield Finding("versions", "ok", f"{versions} Python {platform.python_version()}")
    yield from _packages()
    if native.extension() is None:
        says = "the extension in C was not built: PostgreSQL reads rows twice that are moved first"
        yield Finding("digest", "note", says, (native.REMEDY,))
    yield from _transfers(servers, declared)
    yield from _home()


def _packages() -> Iterator[Finding]:
    """Compare installed drivers with the versions that this release admits."""
    for requirement in map(Requirement, requires("tableferry") or ()):
        with suppress(PackageNotFoundError):
            installed = version(requirement.name) if requirement.name in PACKAGES else None
            if installed and not requirement.specifier.contains(installed, prereleases=True):
                needed = f"{requirement.name}{requirement.specifier}"
                says = f"{requirement.name} {installed} is installed, and {needed} is needed"
                yield Finding("versions", "problem", says, (f"pip install '{needed}'",))


def _transfers(servers: Servers, declared: TransferFolder | InputError) -> Iterator[Finding]:
    if isinstance(declared, InputError):
        do = ("Make one by `ferry init`, or set TABLEFERRY_TRANSFERS.",)
        yield Finding("transfers", "problem", str(declared), do)
        return
    count = f"{len(declared.transfers)} in {declared.path}"
    if declared.invalid:
        names = ", ".join(file.path.name for file in declared.invalid)
        lines = [line for file in declared.invalid for line in str(file).splitlines()]
        more = ("`ferry validate` says what else is wrong.",) if len(lines) > MOST_PROBLEMS else ()
        do = (*lines[:MOST_PROBLEMS], *more)
        yield Finding("transfers", "problem", f"{count}, and invalid: {names}", do)
    else:
        yield Finding("transfers", "ok", count)
    unset: dict[str, None] = {}
    for transfer in declared.transfers.values():
        try:
            require_servers(transfer, servers)
        except InputError as error:
            unset |= dict.fromkeys(str(error).splitlines())
    for line in unset:
        yield Finding("servers", "problem", line)


def _home() -> Iterator[Finding]:
    home = event_log.home_path()
    if not event_log.exists():
        yield Finding("Dagster's home", "note", f"{home} is created by the first run")
    elif not os.access(home, os.W_OK):
        do = (f"Give this user the right to write there: chown or chmod {home}",)
        yield Finding("Dagster's home", "problem", f"{home} is not writable", do)
    else:
        yield Finding("Dagster's home", "ok", str(home))
        yield from _storage(home)
    yield disk_of(home)


def _storage(home: Path) -> Iterator[Finding]:
    """Compare the schema of Dagster's storage with the installed version of Dagster."""
    if stat.S_IMODE(home.stat().st_mode) & stat.S_IWOTH:
        do = (f"chmod o-w {home}",)
        yield Finding("Dagster's home", "warning", "anybody on this machine may write to it", do)
    instance = event_log.open_to_record()
    storages = {
        "runs": instance.run_storage,
        "event log": instance.event_log_storage,
        "schedules": instance.schedule_storage,
    }
    for name, storage in storages.items():
        current, newest = (storage and storage.alembic_version()) or (None, None)
        schema = f"{name}: {type(storage).__name__}, schema {current}"
        if current == newest:
            yield Finding("Dagster's storage", "ok", schema)
        else:
            says = f"{schema}, and the installed Dagster has {newest}"
            yield Finding("Dagster's storage", "problem", says, (MIGRATE,))
    try:
        require_queries(instance)
    except InputError as error:
        yield Finding("Dagster's storage", "problem", str(error))
    instance.dispose()
