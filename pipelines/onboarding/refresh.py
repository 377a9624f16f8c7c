"""`ferry refresh`: finds the tables that a declaration stands for, and locks them for review."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tableferry.assets.declaring.many_tables import (
    Declaration,
    Lock,
    by_pattern,
    declaration_of,
    is_declaration,
    lock_text,
    matching,
    read_lock,
)
from tableferry.assets.declaring.transfer_files import declarations_in, load_transfers
from tableferry.assets.declaring.yaml_lines import Unreadable, YamlFile
from tableferry.assets.planning.servers import Servers
from tableferry.pipelines.onboarding.catalogs import Catalogs
from tableferry.pipelines.onboarding.names import OURS, identifier, is_valid_name, require_distinct
from tableferry.pipelines.onboarding.proposal import Proposal, propose
from tableferry.resources.connecting.names import system_of, table_of, url_variable
from tableferry.resources.contract.catalog import Listed
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import ConnectionFailed, InputError, TableferryError
from tableferry.resources.tables import TableRef


@dataclass(frozen=True)
class Refreshed:
    """What a refresh of a declaration found."""

    declaration: Declaration
    text: str
    """The lock."""
    added: tuple[str, ...]
    gone: tuple[str, ...]
    changed: tuple[str, ...]
    left_out: Mapping[str, str]
    tables: int

    @property
    def differences(self) -> list[str]:
        """Describe each kind of difference between the lock and the catalog."""
        kinds = (("new", self.added), ("gone", self.gone), ("changed", self.changed))
        return [f"{kind}: {', '.join(names)}" for kind, names in kinds if names]

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {
            "file": str(self.declaration.file.path),
            "lock": str(self.declaration.lock),
            "tables": self.tables,
            "new": list(self.added),
            "gone": list(self.gone),
            "changed": list(self.changed),
            "left_out": dict(self.left_out),
        }

    def lines(self) -> Iterator[str]:
        """Describe the outcome for people."""
        yield f"{self.declaration.lock}: {self.tables:,} tables"
        yield from (f"  {difference}" for difference in self.differences)
        reasons: dict[str, list[str]] = {}
        for name, why in self.left_out.items():
            reasons.setdefault(why, []).append(name)
        for why, names in reasons.items():
            yield f"  left out {', '.join(names)}: {why}"


def declarations(folder: Path, files: Sequence[str]) -> list[Declaration]:
    """Return the declarations that a command names, by default all of the folder.

    Raises:
        InputError: a file is not there or declares no tables, or all that is wrong with it.
    """
    if not files:
        return declarations_in(folder)
    chosen = []
    for name in files:
        path = next((path for path in (folder / name, Path(name)) if path.is_file()), None)
        if path is None:
            raise InputError(f"there is no file {name} in {folder}")
        try:
            file = YamlFile.read(path)
            if not is_declaration(file):
                raise InputError(f"{path} declares one table, not `tables:`; nothing is locked")
            chosen.append(declaration_of(file))
        except Unreadable as error:
            raise InputError(str(error)) from None
    return chosen


def refresh(declaration: Declaration, servers: Servers) -> Refreshed:
    """Find the declaration's tables in the catalog; nothing is written.

    Raises:
        InputError: a pattern fits no table, or a server is not configured.
        ConnectionFailed: a server does not answer.
    """
    source = source_of(system_of(declaration.connection))
    if source.file_key is not None:
        raise InputError(f"{declaration.file.path}: files have no catalog of tables")
    connections = {table_of(text).connection for text in declaration.targets}
    _require_addresses(declaration, servers, {declaration.connection, *connections})
    before = _locked(declaration)
    left_out: dict[str, str] = {}
    hops: dict[TableRef, tuple[TableRef, ...]] = {}
    for listed in _matching(declaration, servers):
        name = _name(listed.table)
        if listed.view and declaration.override(listed.table) is None:
            left_out[name] = "a view; an override, if only with its `key`, takes it in"
        elif why := "" if listed.readable else "this login may not read it (SELECT)":
            left_out[name] = why
        elif listed.hidden and declaration.common.get("row_security") != "apply":
            left_out[name] = listed.hidden
        else:
            hops[listed.table] = declaration.hops(listed.table)
    for table, why in require_distinct(hops):
        left_out[_name(table)] = why
        del hops[table]
    catalogs = Catalogs(servers, hops)
    names = _names(declaration, list(hops), before)
    entries: dict[str, dict[str, Any]] = {}
    for table, targets in hops.items():
        try:
            proposal = propose(table, targets, catalogs, declaration.key(table))
        except ConnectionFailed:
            raise
        except TableferryError as error:
            why = " ".join(str(error).split())
            for own in (table, *targets):
                why = why.removeprefix(f"{own}: ").removeprefix(f"{own} ")
            left_out[_name(table)] = why
        else:
            known = before.entries.get(_name(table))
            entries[_name(table)] = _entry(names[table], proposal, known.data if known else {})
    old = {name: entry.data for name, entry in before.entries.items()}
    return Refreshed(
        declaration,
        lock_text(declaration.file.path.name, entries, left_out),
        tuple(sorted(entries.keys() - old.keys())),
        tuple(sorted(old.keys() - entries.keys())),
        tuple(sorted(name for name in entries.keys() & old.keys() if entries[name] != old[name])),
        left_out,
        len(entries),
    )


def write(refreshed: Refreshed) -> None:
    """Replace the lock file, if it differs."""
    lock = refreshed.declaration.lock
    if lock.is_file() and lock.read_text(encoding="utf-8") == refreshed.text:
        return
    draft = lock.with_name(f".{lock.name}")
    draft.write_text(refreshed.text, encoding="utf-8")
    draft.replace(lock)


def new_and_gone(declaration: Declaration, servers: Servers) -> tuple[list[str], list[str]]:
    """Return the tables that are new in the catalog, and those that are gone, by one query.

    Raises:
        InputError: the server's address is not set.
        ConnectionFailed: the server does not answer.
    """
    lock = _locked(declaration)
    tables = [listed.table for listed in _listed(declaration, servers)]
    names = {_name(table) for table in matching(tables, declaration.patterns, declaration.exclude)}
    known = {*lock.entries, *lock.left_out}
    return sorted(names - known), sorted({*lock.entries} - names)


def _locked(declaration: Declaration) -> Lock:
    try:
        return read_lock(declaration.lock)
    except Unreadable:
        return Lock({}, {})


def _name(table: TableRef) -> str:
    return f"{table.schema}.{table.name}"


def _require_addresses(
    declaration: Declaration, servers: Servers, connections: Collection[str]
) -> None:
    for name in sorted(connections):
        if name not in servers.endpoints or not servers.endpoints[name].has_address:
            raise InputError(f"{url_variable(name)} is not set; {declaration.file.path} needs it")


def _listed(declaration: Declaration, servers: Servers) -> list[Listed]:
    connection = declaration.connection
    _require_addresses(declaration, servers, {connection})
    source = source_of(system_of(connection))
    return [
        item
        for item in source.tables(servers.endpoints[connection], connection)
        if not item.table.name.startswith(OURS)
    ]


def _matching(declaration: Declaration, servers: Servers) -> list[Listed]:
    listed = _listed(declaration, servers)
    tables = [item.table for item in listed]
    fitting = by_pattern(tables, declaration.patterns)
    for number, pattern in enumerate(declaration.patterns):
        if not fitting[pattern]:
            schemas = ", ".join(dict.fromkeys(table.schema for table in tables)) or "none"
            problem = f"tables: {pattern!r} fits none of {len(tables)} tables; the schemas are "
            raise InputError(str(declaration.file.problem(("tables", number), problem + schemas)))
    chosen = set(matching(tables, declaration.patterns, declaration.exclude))
    return [item for item in listed if item.table in chosen]


def _names(
    declaration: Declaration, tables: Sequence[TableRef], before: Lock
) -> dict[TableRef, str]:
    """Name the transfers; a name that is locked stays."""
    folder = load_transfers(declaration.file.path.parent)
    own = {entry.data.get("transfer") for entry in before.entries.values()}
    taken = {name.casefold() for name in folder.transfers if name not in own}
    names: dict[TableRef, str] = {}
    for table in tables:
        if known := before.entries.get(_name(table)):
            names[table] = str(known.data.get("transfer"))
            taken.add(names[table].casefold())
    for table in tables:
        if table in names:
            continue
        plain = identifier(table.name)
        longer = f"{identifier(declaration.prefix)}_{plain}"
        candidates = [plain, longer, *(f"{longer}_{number}" for number in range(2, 1000))]
        names[table] = next(
            name for name in candidates if name.casefold() not in taken and is_valid_name(name)
        )
        taken.add(names[table].casefold())
    return names


def _entry(name: str, proposal: Proposal, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the lock says about a table.

    What depends on the rows there are, ranges and types that fit them, stays as it was.
    """
    entry: dict[str, Any] = {"transfer": name, "source": str(proposal.source)}
    ranges = proposal.ranges
    if proposal.key is not None:
        entry["key"] = proposal.key
    was = before.get("ranges")
    if isinstance(was, dict) and was.keys() == ranges.keys() and was.get("by") == ranges.get("by"):
        ranges = was
    entry["ranges"] = ranges
    if proposal.key is None:
        entry["write"] = "replace"
    columns = before.get("columns")
    kept = columns if isinstance(columns, dict) else {}
    if proposal.columns:
        entry["columns"] = {
            column: kept.get(column, spec) for column, spec in proposal.columns.items()
        }
    if proposal.exclude:
        entry["exclude"] = proposal.exclude
    return entry
