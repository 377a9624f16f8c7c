"""`ferry refresh`: finds the tables that a declaration stands for, and locks them for review."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tableferry.assets.declaring import many_tables, transfer_files, yaml_lines
from tableferry.assets.planning.servers import Servers
from tableferry.pipelines.onboarding import source_tables
from tableferry.pipelines.onboarding.proposal import Proposal, free_name
from tableferry.resources.connecting.names import table_of
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef


@dataclass(frozen=True)
class Refreshed:
    """What a refresh of a declaration found."""

    declaration: many_tables.Declaration
    text: str
    """The lock."""
    added: tuple[str, ...]
    gone: tuple[str, ...]
    changed: tuple[str, ...]
    left_out: Mapping[str, str]
    tables: int
    reviews: tuple[str, ...] = ()
    """What was decided about tables that are new or have changed, and only a user can judge."""

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
            "reviews": list(self.reviews),
        }

    def lines(self) -> Iterator[str]:
        """Describe the outcome for people."""
        yield f"{self.declaration.lock}: {self.tables:,} tables"
        yield from (f"  {line}" for line in (*self.differences, *self.reviews))
        for why, names in source_tables.by_reason(self.left_out.items()).items():
            yield f"  left out {', '.join(names)}: {why}"


def declarations(folder: Path, files: Sequence[str]) -> list[many_tables.Declaration]:
    """Return the declarations that a command names, by default all of the folder.

    Raises:
        InputError: a file is not there or declares no tables, or all that is wrong with it.
    """
    if not files:
        return transfer_files.declarations_in(folder)
    chosen = []
    for name in files:
        path = next((path for path in (folder / name, Path(name)) if path.is_file()), None)
        if path is None:
            raise InputError(f"there is no file {name} in {folder}")
        try:
            file = yaml_lines.YamlFile.read(path)
            if not many_tables.is_declaration(file):
                raise InputError(f"{path} declares one table, not `tables:`; nothing is locked")
            chosen.append(many_tables.declaration_of(file))
        except yaml_lines.Unreadable as error:
            raise InputError(str(error)) from None
    return chosen


def refresh(declaration: many_tables.Declaration, servers: Servers) -> Refreshed:
    """Find the declaration's tables in the catalog; nothing is written.

    Raises:
        InputError: a pattern fits no table, or a server is not configured.
        ConnectionFailed: a server does not answer.
    """
    before = _locked(declaration)

    def place(number: int | None) -> str:
        where = ("tables",) if number is None else ("tables", number)
        return f"{declaration.file.problem(where, 'tables')}: "

    wanted = source_tables.Wanted(
        declaration.connection,
        declaration.patterns,
        declaration.exclude,
        [table_of(text).connection for text in declaration.targets],
        targets=declaration.hops,
        takes_view=lambda table: declaration.override(table) is not None,
        views_remedy="an override, if only with its `key`, takes it in",
        key=declaration.key,
        takes_hidden=declaration.common.get("row_security") == "apply",
        place=place,
    )
    proposed = source_tables.propose_tables(servers, wanted)
    names = _names(declaration, [each.source for each in proposed.proposals], before)
    proposals = {_name(each.source): each for each in proposed.proposals}
    entries: dict[str, dict[str, Any]] = {}
    for name, proposal in proposals.items():
        known = before.entries.get(name)
        targets = declaration.hops(proposal.source)
        shortened = {
            str(wished): str(target)
            for wished, target in zip(targets, proposal.hops, strict=True)
            if wished != target
        }
        transfer = names[proposal.source]
        entries[name] = _entry(transfer, proposal, shortened, known.data if known else {})
    left_out = {_name(left.table): left.why for left in proposed.left_out}
    old = {name: entry.data for name, entry in before.entries.items()}
    added = tuple(sorted(entries.keys() - old.keys()))
    changed = tuple(
        sorted(name for name in entries.keys() & old.keys() if entries[name] != old[name])
    )
    return Refreshed(
        declaration,
        many_tables.lock_text(declaration.file.path.name, entries, left_out),
        added,
        tuple(sorted(old.keys() - entries.keys())),
        changed,
        left_out,
        len(entries),
        tuple(source_tables.reviews({name: proposals[name] for name in (*added, *changed)})),
    )


def write(refreshed: Refreshed) -> None:
    """Replace the lock file, if it differs."""
    lock = refreshed.declaration.lock
    if lock.is_file() and lock.read_text(encoding="utf-8") == refreshed.text:
        return
    draft = lock.with_name(f".{lock.name}")
    draft.write_text(refreshed.text, encoding="utf-8")
    draft.replace(lock)


def new_and_gone(
    declaration: many_tables.Declaration, servers: Servers
) -> tuple[list[str], list[str]]:
    """Return the tables that are new in the catalog, and those that are gone, by one query.

    Raises:
        InputError: the server's address is not set.
        ConnectionFailed: the server does not answer.
    """
    lock = _locked(declaration)
    tables = [
        listed.table for listed in source_tables.listed_tables(servers, declaration.connection)
    ]
    names = {
        _name(table)
        for table in many_tables.matching(tables, declaration.patterns, declaration.exclude)
    }
    known = {*lock.entries, *lock.left_out}
    return sorted(names - known), sorted({*lock.entries} - names)


def _locked(declaration: many_tables.Declaration) -> many_tables.Lock:
    try:
        return many_tables.read_lock(declaration.lock)
    except yaml_lines.Unreadable:
        return many_tables.Lock({}, {})


def _name(table: TableRef) -> str:
    return f"{table.schema}.{table.name}"


def _names(
    declaration: many_tables.Declaration, tables: Sequence[TableRef], before: many_tables.Lock
) -> dict[TableRef, str]:
    """Name the transfers; a name that is locked stays."""
    folder = transfer_files.load_transfers(declaration.file.path.parent)
    own = {entry.data.get("transfer") for entry in before.entries.values()}
    taken = {name.casefold() for name in folder.transfers if name not in own}
    names: dict[TableRef, str] = {}
    for table in tables:
        if known := before.entries.get(_name(table)):
            names[table] = str(known.data.get("transfer"))
            taken.add(names[table].casefold())
    for table in tables:
        if table not in names:
            longer = f"{declaration.prefix}_{table.name}"
            names[table] = free_name(table, table.name, longer, taken)
    return names


def _entry(
    name: str, proposal: Proposal, shortened: Mapping[str, str], before: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the lock says about a table, of which some targets have shorter names.

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
    if shortened:
        entry["shortened"] = dict(shortened)
    return entry
