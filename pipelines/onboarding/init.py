"""`ferry init`: writes a commented transfer file for each selected table."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tableferry.assets.declaring import many_tables, schema, transfer_files, yaml_lines
from tableferry.assets.planning.servers import Servers
from tableferry.pipelines.onboarding import source_tables
from tableferry.pipelines.onboarding.planning import ColumnDecision
from tableferry.pipelines.onboarding.proposal import (
    Arrangement,
    Proposal,
    arrangements,
    free_name,
    identifier,
    suffix_of,
    template_of,
)
from tableferry.pipelines.onboarding.text import (
    DEFAULTS_TEXT,
    SCHEMA_FILE,
    flow,
    transfer_text,
)
from tableferry.resources.connecting.names import table_of
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.tables import TableRef
from tableferry.resources.words import counted, listed


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
        written = {
            table.file.stem: table.proposal
            for table in self.declared
            if table.proposal is not None and table.written
        }
        if written:
            folder = next(table.file.parent for table in self.declared if table.written)
            yield f"written  {counted(len(written), 'file')} to {folder}"
        for what, by_key in (
            ("divided by a key", True),
            ("divided by ctid, for want of a suitable key", False),
        ):
            names = [name for name in written if (written[name].key is not None) is by_key]
            if names:
                yield f"  {what}: {listed(names)}"
        yield from (f"  {review}" for review in source_tables.reviews(written))
        kept = ((str(table.file), table.kept) for table in self.declared if not table.written)
        for word, reasons in (
            ("kept", source_tables.by_reason(kept)),
            ("left out", source_tables.by_reason(self.left_out)),
        ):
            for why, names in reasons.items():
                yield f"{word:<8} {listed(names)}: {why}"


@dataclass(frozen=True)
class Wish:
    """What the user asks `ferry init` for."""

    connection: str
    """The source's."""
    tables: Sequence[str]
    """Shell patterns of `schema.table`, or of the table's name if without a dot."""
    to: Sequence[str]
    """The targets in order, with `{schema}` and `{table}` for the source's names."""
    exclude: Sequence[str] = ()
    """Patterns of tables to leave out."""
    views: bool = False
    """Include views."""
    key: str | None = None
    """The column to cut by; by default it is chosen."""
    arrangement: Arrangement | None = None
    """How several targets are reached; may be None for a single one."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further keys of the files, with their values."""


def init(servers: Servers, wish: Wish, output: Path) -> InitResult:
    """Write a transfer file for each selected table that has none, or for each of its targets.

    The folder of the files, `output`, is created if needed.

    Raises:
        InputError: a pattern matches no table, a server is not configured, two tables have the
            same target, or several targets have no arrangement.
    """
    connection, to = wish.connection, wish.to
    templates = [template_of(text) for text in to]
    if len(to) > 1 and wish.arrangement is None:
        raise InputError(
            f"{len(to)} targets may be reached in two ways: {arrangements(connection, to)}"
        )
    if len(set(to)) < len(to):
        raise InputError("--to names a target twice")
    known = (
        transfer_files.load_transfers(output)
        if output.is_dir()
        else transfer_files.TransferFolder(output, {})
    )
    taken, moved = _taken_names(known), _moved_targets(known)
    result = InitResult()
    each = wish.arrangement == "each" and len(to) > 1

    def suffix(targets: source_tables.Hops) -> str:
        return suffix_of(targets[0], templates) if each else ""

    def new(table: TableRef, targets: source_tables.Hops) -> Iterator[source_tables.Hops]:
        """Yield the targets of the transfers that the folder does not have."""
        for part in [(target,) for target in targets] if each else [targets]:
            if kept := _kept(table, part, known, moved, suffix(part)):
                result.declared.append(kept)
            else:
                yield part

    wanted = source_tables.Wanted(
        connection,
        wish.tables,
        wish.exclude,
        [target.connection for target in templates],
        targets=lambda table: [table_of(many_tables.filled(text, table)) for text in to],
        takes_view=lambda table: wish.views,
        views_remedy="--views includes views",
        key=lambda table: wish.key,
        transfers=new,
    )
    proposed = source_tables.propose_tables(servers, wanted)
    left_out = list(proposed.left_out)
    output.mkdir(parents=True, exist_ok=True)
    for proposal in proposed.proposals:
        try:
            name = _free_name(proposal.source, suffix(proposal.hops), taken)
            settled = replace(proposal, settings=wish.settings)
            result.declared.append(_declare(settled, name, output / f"{name}.yaml"))
        except TableferryError as error:
            why = source_tables.reason(error, proposal.source, proposal.hops)
            left_out.append(source_tables.LeftOut(proposal.source, why, proposal.hops))
    for left in left_out:
        journey = f" to {left.targets[0]}" if each and left.targets else ""
        result.left_out.append((f"{left.table}{journey}", left.why))
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
    known = transfer_files.load_transfers(folder)
    taken, moved = _taken_names(known), _moved_targets(known)
    targets = {hop for proposal in proposals for hop in proposal.hops}
    if clash := next(iter(targets & moved.keys()), None):
        raise InputError(f"{known.files[moved[clash]].path} moves rows to {clash} already")
    if file and file.stem.casefold() in taken:
        raise InputError(f"a transfer of {folder} is called {file.stem} already; name another file")
    saved = []
    for proposal in proposals:
        name = file.stem if file else _free_name(proposal.source, "", taken)
        saved.append(_declare(proposal, name, file or folder / f"{name}.yaml"))
    _write_beside(folder)
    return saved


def _taken_names(known: transfer_files.TransferFolder) -> set[str]:
    # file systems may not tell case apart
    names = [*known.transfers, *(file.transfer or file.path.stem for file in known.invalid)]
    names += [path.stem for path in known.path.glob("*.yaml")]
    return {name.casefold() for name in names}


def _free_name(table: TableRef, suffix: str, taken: set[str]) -> str:
    plain = f"{table.name}{suffix}"
    return free_name(table, plain, f"{table.schema}_{plain}", taken)


def _moved_targets(known: transfer_files.TransferFolder) -> dict[TableRef, str]:
    return {hop.to: name for name, one in known.transfers.items() for hop in one.hops}


def _kept(
    table: TableRef,
    targets: Sequence[TableRef],
    known: transfer_files.TransferFolder,
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
    path = known.path / f"{plain}.yaml"
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
        transfer_files.load_transfer(draft)
        os.link(draft, path)
    except InputError as error:
        raise InputError(str(error).replace(f"{draft}:", "line ")) from None
    finally:
        draft.unlink()
    return DeclaredTable(name, str(proposal.source), path, written=True, proposal=proposal)


def _mentions(path: Path, table: TableRef) -> bool:
    """Whether a file seems to be about a table; an unreadable one counts as such."""
    try:
        return bool(yaml_lines.YamlFile.read(path).data.get("source") == str(table))
    except yaml_lines.Unreadable:
        return True


def _write_beside(folder: Path) -> None:
    """Write what goes with the transfers of a folder, unless it is there."""
    _write_new(folder / SCHEMA_FILE, json.dumps(schema.transfer_schema(), indent=2) + "\n")
    _write_new(folder / transfer_files.DEFAULTS, DEFAULTS_TEXT)


def _write_new(path: Path, text: str) -> None:
    """Write a file unless it exists."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return
