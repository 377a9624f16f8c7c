"""`ferry init`: writes a commented transfer file for each selected table."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tableferry.assets.declaring.many_tables import filled, fits
from tableferry.assets.declaring.schema import transfer_schema
from tableferry.assets.declaring.transfer_files import (
    DEFAULTS,
    TransferFolder,
    load_transfer,
    load_transfers,
)
from tableferry.assets.declaring.yaml_lines import Unreadable, YamlFile
from tableferry.assets.planning.servers import Servers
from tableferry.pipelines.onboarding.catalogs import Catalogs
from tableferry.pipelines.onboarding.names import (
    OURS,
    Arrangement,
    arrangements,
    free_name,
    identifier,
    require_distinct,
    suffix_of,
    template_of,
)
from tableferry.pipelines.onboarding.planning import ColumnDecision
from tableferry.pipelines.onboarding.proposal import Proposal, propose
from tableferry.pipelines.onboarding.text import (
    DEFAULTS_TEXT,
    SCHEMA_FILE,
    flow,
    transfer_text,
)
from tableferry.resources.connecting.names import system_of, table_of, url_variable
from tableferry.resources.contract.catalog import Listed
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import ConnectionFailed, InputError, TableferryError
from tableferry.resources.tables import TableRef
from tableferry.resources.words import one_line


@dataclass(frozen=True)
class DeclaredTable:
    """The outcome for one selected table."""

    transfer: str
    source: str
    file: Path
    written: bool
    kept: str = ""
    """Why no file was written."""
    proposal: Proposal | None = None
    """What was written."""

    @property
    def decisions(self) -> tuple[ColumnDecision, ...]:
        """The columns that needed a decision."""
        return self.proposal.decisions if self.proposal else ()

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {
            "transfer": self.transfer,
            "source": self.source,
            "file": str(self.file),
            "written": self.written,
            "kept": self.kept or None,
            "cut_by": (self.proposal.key or self.proposal.ranges["by"]) if self.proposal else None,
            "shortened": {str(target): why for target, why in self.proposal.shortened.items()}
            if self.proposal
            else {},
            "decisions": [
                {
                    "column": decision.column,
                    "why": decision.why,
                    "taken": decision.taken,
                    "choices": [
                        {"yaml": flow(choice.value), "meaning": choice.meaning}
                        for choice in decision.choices
                    ],
                }
                for decision in self.decisions
            ],
        }


@dataclass
class InitResult:
    """The outcome of `ferry init`."""

    declared: list[DeclaredTable] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Matching tables that are not moved, each with the reason."""

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {
            "ok": True,
            "tables": [table.json() for table in self.declared],
            "left_out": [{"table": table, "why": why} for table, why in self.left_out],
        }

    def lines(self) -> Iterator[str]:
        """Summarize the outcome for people, by decision."""
        written = [table for table in self.declared if table.written]
        if written:
            yield f"written  {_counted(len(written), 'file')} to {written[0].file.parent}"
        for what, by_key in (
            ("cut by a key", True),
            ("cut by ctid, for want of a suitable key", False),
        ):
            names = [
                table.file.stem
                for table in written
                if table.proposal and (table.proposal.key is not None) is by_key
            ]
            if names:
                yield f"  {what}: {_some(names)}"
        reviews: dict[str, list[str]] = defaultdict(list)
        for table in written:
            for decision in table.decisions:
                name = f"{table.file.stem}.{decision.column}"
                reviews[f"{decision.why}; {decision.taken}"].append(name)
            for target, why in table.proposal.shortened.items() if table.proposal else ():
                yield f"  review {table.file.stem}: {target}, {one_line(why)}"
        for review, names in reviews.items():
            yield f"  review {_counted(len(names), 'column')}, {_some(names)}: {one_line(review)}"
        for word, reasons in (("kept", self._kept()), ("left out", self._reasons())):
            for why, names in reasons.items():
                yield f"{word:<8} {_some(names)}: {why}"

    def _kept(self) -> dict[str, list[str]]:
        reasons: dict[str, list[str]] = defaultdict(list)
        for table in self.declared:
            if not table.written:
                reasons[table.kept].append(str(table.file))
        return reasons

    def _reasons(self) -> dict[str, list[str]]:
        reasons: dict[str, list[str]] = defaultdict(list)
        for name, why in self.left_out:
            reasons[why].append(name)
        return reasons


SHOWN = 5
"""Names per line of the summary."""


def _some(names: Sequence[str]) -> str:
    """Name a few of many."""
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + "s" * (number != 1)


def init(
    servers: Servers,
    connection: str,
    tables: Sequence[str],
    exclude: Sequence[str],
    to: Sequence[str],
    output: Path,
    *,
    arrangement: Arrangement | None = None,
    views: bool = False,
    key: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> InitResult:
    """Write a transfer file for each selected table that has none, or for each of its targets.

    Args:
        servers: the servers of all connections.
        connection: the source's connection.
        tables: shell patterns of `schema.table`, or of the table's name if without a dot.
        exclude: patterns of tables to leave out.
        to: the targets in order, with `{schema}` and `{table}` for the source's names.
        output: the folder of the files, which is created if needed.
        arrangement: how several targets are reached; may be None for a single one.
        views: include views.
        key: the column to cut by; by default it is chosen.
        settings: further keys of the files, with their values.

    Raises:
        InputError: a pattern matches no table, a server is not configured, two tables have the
            same target, or several targets have no arrangement.
    """
    source_system = system_of(connection)
    source = source_of(source_system)
    if source_system.by_path:
        raise InputError(
            f"{source_system.name} has no catalog of tables that could be listed; write the "
            "transfer's file yourself: its source is a folder, such as "
            'source: "files://landing/orders/"'
        )
    templates = [template_of(text) for text in to]
    if len(to) > 1 and arrangement is None:
        raise InputError(
            f"{len(to)} targets may be reached in two ways: {arrangements(connection, to)}"
        )
    if len(set(to)) < len(to):
        raise InputError("--to names a target twice")
    for name in (connection, *(target.connection for target in templates)):
        if name not in servers.endpoints or not servers.endpoints[name].has_address:
            raise InputError(f"{url_variable(name)} is not set; {name}:// needs it")
    result = InitResult()
    selected: list[TableRef] = []
    unreadable: dict[TableRef, tuple[str, ...]] = {}
    for listed in _matching(source.tables(servers.endpoints[connection], connection), tables):
        if any(fits(listed.table, pattern) for pattern in exclude):
            continue
        if why := _unfit(listed, views=views):
            result.left_out.append((str(listed.table), why))
        else:
            selected.append(listed.table)
            if listed.unreadable is not None:
                unreadable[listed.table] = listed.unreadable
    shortened: dict[TableRef, str] = {}
    hops = {
        table: tuple(_fitting(table_of(filled(text, table)), shortened) for text in to)
        for table in selected
    }
    for table, why in require_distinct(hops):
        result.left_out.append((str(table), why))
        del hops[table]
    output.mkdir(parents=True, exist_ok=True)
    known = load_transfers(output)
    taken, moved = _taken_names(known), _moved_targets(known)
    each = arrangement == "each" and len(to) > 1
    journeys = [
        (table, part, suffix_of(part[0], templates) if each else "")
        for table, targets in hops.items()
        for part in ([(target,) for target in targets] if each else [targets])
    ]
    new: list[tuple[TableRef, tuple[TableRef, ...], str]] = []
    for table, targets, suffix in journeys:
        if kept := _kept(table, targets, output, known, moved, suffix):
            result.declared.append(kept)
        else:
            new.append((table, targets, suffix))
    catalogs = Catalogs(servers, {table: hops[table] for table, *_ in new})
    for table, targets, suffix in new:
        try:
            proposal = propose(table, targets, catalogs, key, unreadable.get(table))
            reasons = {each: shortened[each] for each in targets if each in shortened}
            proposal = replace(proposal, shortened=reasons, settings=settings or {})
            name = free_name(table, output, taken, suffix)
            result.declared.append(_declare(proposal, name, output / f"{name}.yaml"))
            taken.add(name.casefold())
        except ConnectionFailed:
            raise
        except TableferryError as error:
            why = " ".join(str(error).split())
            for own in (table, *targets):
                why = why.removeprefix(f"{own}: ").removeprefix(f"{own} ")
            result.left_out.append((f"{table} to {targets[0]}" if each else str(table), why))
    if any(declared.written for declared in result.declared):
        _write_beside(output)
    return result


def save(proposals: Sequence[Proposal], place: Path) -> list[DeclaredTable]:
    """Write proposed transfers beside those of a folder, or a single one as a file.

    Raises:
        InputError: there is such a file, or another one moves rows to a target; nothing is written
            then. Or the folder's defaults do not go with a transfer.
    """
    file = place if place.suffix in (".yaml", ".yml") else None
    folder = file.parent if file else place
    if file and (len(proposals) > 1 or file.exists()):
        why = "exists already" if file.exists() else f"cannot hold {len(proposals)} transfers"
        raise InputError(f"{file} {why}; name another place")
    folder.mkdir(parents=True, exist_ok=True)
    known = load_transfers(folder)
    taken, moved = _taken_names(known), _moved_targets(known)
    targets = {hop for proposal in proposals for hop in proposal.hops}
    if clash := next(iter(targets & moved.keys()), None):
        raise InputError(f"{known.files[moved[clash]].path} moves rows to {clash} already")
    if file and file.stem.casefold() in taken:
        raise InputError(f"a transfer of {folder} is called {file.stem} already; name another file")
    saved = []
    for proposal in proposals:
        name = file.stem if file else free_name(proposal.source, folder, taken, "")
        saved.append(_declare(proposal, name, file or folder / f"{name}.yaml"))
        taken.add(name.casefold())
    _write_beside(folder)
    return saved


def _fitting(target: TableRef, shortened: dict[TableRef, str]) -> TableRef:
    """Shorten the name of a target that is too long, and note why."""
    dialect = target.system.dialect
    why = dialect.unfit_table(target.schema, target.name)
    name = dialect.fitting_table(target.schema, target.name) if why else target.name
    if name == target.name or target.system.by_path:
        return target
    fitting = replace(target, name=name)
    shortened[fitting] = f"shortened from {target}: {why}"
    return fitting


def _unfit(listed: Listed, *, views: bool) -> str:
    """Why a table cannot be moved, or not without being asked for."""
    if listed.view and not views:
        return "a view; --views includes views"
    if not listed.readable:
        return "this login may not read it (SELECT)"
    return listed.hidden or ""


def _taken_names(known: TransferFolder) -> set[str]:
    # file systems may not tell case apart
    names = [*known.transfers, *(file.transfer or file.path.stem for file in known.invalid)]
    return {name.casefold() for name in names}


def _moved_targets(known: TransferFolder) -> dict[TableRef, str]:
    return {hop.to: name for name, one in known.transfers.items() for hop in one.hops}


def _kept(
    table: TableRef,
    targets: Sequence[TableRef],
    output: Path,
    known: TransferFolder,
    moved: Mapping[TableRef, str],
    suffix: str,
) -> DeclaredTable | None:
    """Find the file that moves a table, or seems to, already."""
    for target in targets:
        if name := moved.get(target):
            path = known.files[name].path
            kept = f"it moves {known.transfers[name].source} to {target} already"
            return DeclaredTable(name, str(table), path, written=False, kept=kept)
    # a file with the table's name counts as this table's, even if it is invalid
    plain = identifier(table.name + suffix)
    path = output / f"{plain}.yaml"
    if path.exists() and _mentions(path, table):
        return DeclaredTable(plain, str(table), path, written=False, kept="it exists already")
    return None


def _declare(proposal: Proposal, name: str, path: Path) -> DeclaredTable:
    """Write the file of a proposal.

    Raises:
        InputError: the file would not be valid, for example because of the folder's defaults.
    """
    # a running code location leaves out files whose names begin with a dot
    draft = path.with_name(f".{path.name}")
    draft.write_text(transfer_text(name, proposal), encoding="utf-8")
    try:
        load_transfer(draft)
        os.link(draft, path)
    except InputError as error:
        raise InputError(str(error).replace(f"{draft}:", "line ")) from None
    finally:
        draft.unlink()
    return DeclaredTable(name, str(proposal.source), path, written=True, proposal=proposal)


def _matching(listed: Sequence[Listed], patterns: Sequence[str]) -> list[Listed]:
    listed = [item for item in listed if not item.table.name.startswith(OURS)]
    selected = []
    for pattern in patterns:
        matches = [item for item in listed if fits(item.table, pattern)]
        if not matches:
            schemas = ", ".join(dict.fromkeys(item.table.schema for item in listed)) or "none"
            raise InputError(
                f"{pattern!r} fits none of {len(listed)} tables; "
                f"a pattern is schema.table, and the schemas are {schemas}"
            )
        selected += matches
    return list(dict.fromkeys(selected))


def _mentions(path: Path, table: TableRef) -> bool:
    """Whether a file seems to be about a table; an unreadable one counts as such."""
    try:
        return bool(YamlFile.read(path).data.get("source") == str(table))
    except Unreadable:
        return True


def _write_beside(folder: Path) -> None:
    """Write what goes with the transfers of a folder, unless it is there."""
    _write_new(folder / SCHEMA_FILE, json.dumps(transfer_schema(), indent=2) + "\n")
    _write_new(folder / DEFAULTS, DEFAULTS_TEXT)


def _write_new(path: Path, text: str) -> None:
    """Write a file unless it exists."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return
