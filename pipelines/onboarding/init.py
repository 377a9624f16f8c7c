"""`ferry init`: a commented transfer file for each table that is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from re import ASCII, findall, sub
from typing import Any

from tableferry.assets.declaring.dagster_rules import op_name
from tableferry.assets.declaring.schema import transfer_schema
from tableferry.assets.declaring.transfer_files import DEFAULTS, TransferFolder, load_transfers
from tableferry.assets.declaring.yaml_lines import Unreadable, YamlFile
from tableferry.assets.planning.resolve import Servers
from tableferry.pipelines.onboarding.proposal import Open, propose
from tableferry.pipelines.onboarding.text import DEFAULTS_TEXT, SCHEMA_FILE, transfer_text
from tableferry.resources.connecting.names import system_of, table_of, url_variable
from tableferry.resources.contract.catalog import Listed
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import ConnectionFailed, InputError, TableferryError
from tableferry.resources.tables import TableRef

OURS = "__ferry_"
"""What our own staging tables begin with."""


@dataclass(frozen=True)
class Declared:
    """What became of one table."""

    transfer: str
    source: str
    file: Path
    written: bool
    kept: str = ""
    """Why nothing was written."""
    open: tuple[Open, ...] = ()

    def json(self) -> dict[str, Any]:
        """The `--json` form."""
        return {
            "transfer": self.transfer,
            "source": self.source,
            "file": str(self.file),
            "written": self.written,
            "kept": self.kept or None,
            "undecided": [
                {
                    "what": one.what,
                    "why": one.why,
                    "choices": [choice.yaml for choice in one.choices],
                }
                for one in self.open
            ],
        }


@dataclass
class Result:
    """What `ferry init` did."""

    declared: list[Declared] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Tables that match and cannot be moved, or are not asked for; and why."""

    def json(self) -> dict[str, Any]:
        """The `--json` form."""
        return {
            "ok": True,
            "tables": [one.json() for one in self.declared],
            "left_out": [{"table": table, "why": why} for table, why in self.left_out],
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        for one in self.declared:
            if not one.written:
                yield f"kept     {one.file}: {one.kept}"
                continue
            undecided = f"; {len(one.open)} to decide" if one.open else ""
            yield f"written  {one.file}: {one.source}{undecided}"
            yield from (f"  decide {found}" for found in one.open)
        for table, why in self.left_out:
            yield f"left out {table}: {why}"


def init(
    servers: Servers,
    connection: str,
    tables: Sequence[str],
    exclude: Sequence[str],
    to: Sequence[str],
    output: Path,
    *,
    views: bool = False,
) -> Result:
    """Write a transfer file for each table that has none.

    Args:
        servers: where everything is.
        connection: of the source.
        tables: patterns of `schema.table`, as a shell's; without a dot, of the table's name.
        exclude: patterns of tables to leave out.
        to: the targets in order, with `{schema}` and `{table}` for the source's names.
        output: folder of the files; it is made if it is not there.
        views: take views, too.

    Raises:
        InputError: a pattern fits no table, a server is not named, two tables would go to one.
    """
    of = system_of(connection)
    source = source_of(of)
    if of.by_path:
        raise InputError(
            f"{of} has no catalog of tables that could be listed; write the transfer's file "
            'yourself: its source is a folder, such as source: "files://landing/orders/"'
        )
    templates = [_template(text) for text in to]
    needed = {connection: f"--from {connection}"}
    needed |= {one.connection: f"--to {one.connection}" for one in templates}
    for name, option in needed.items():
        if name not in servers.endpoints or not servers.endpoints[name].has_address:
            raise InputError(f"{url_variable(name)} is not set; {option} needs it")
    result = Result()
    chosen: list[TableRef] = []
    for one in _matching(source.tables(servers.endpoints[connection], connection), tables):
        if any(_fits(one.table, pattern) for pattern in exclude):
            continue
        if one.view and not views:
            result.left_out.append((str(one.table), "a view; --views takes views, too"))
        elif not one.readable:
            result.left_out.append((str(one.table), "this login may not read it (SELECT)"))
        else:
            chosen.append(one.table)
    hops = {table: _targets(table, templates) for table in chosen}
    _require_distinct(hops)
    output.mkdir(parents=True, exist_ok=True)
    known = load_transfers(output)
    taken = _taken(known)
    for table in chosen:
        try:
            result.declared.append(_declare(table, hops[table], servers, output, known, taken))
        except ConnectionFailed:
            raise
        except TableferryError as error:
            result.left_out.append((str(table), " ".join(str(error).split())))
    if any(one.written for one in result.declared):
        _write_new(output / SCHEMA_FILE, json.dumps(transfer_schema(), indent=2) + "\n")
        _write_new(output / DEFAULTS, DEFAULTS_TEXT)
    return result


def _declare(
    table: TableRef,
    hops: Sequence[TableRef],
    servers: Servers,
    output: Path,
    known: TransferFolder,
    taken: set[str],
) -> Declared:
    for name, transfer in known.transfers.items():
        targets = {hop.to for hop in transfer.hops} & set(hops)
        if targets:
            path = known.files[name].path
            kept = f"it moves {transfer.source} to {next(iter(targets))} already"
            return Declared(name, str(table), path, written=False, kept=kept)
    # a file of its name, be it valid or not, is this table's
    plain = identifier(table.name)
    path = output / f"{plain}.yaml"
    if path.exists() and _mentions(path, table):
        kept = "it is there already"
        return Declared(plain, str(table), path, written=False, kept=kept)
    name = _name(table, output, taken)
    proposal = propose(table, hops, servers)
    path = output / f"{name}.yaml"
    _write_new(path, transfer_text(name, proposal))
    taken.add(name.casefold())
    return Declared(name, str(table), path, written=True, open=proposal.open)


def _template(text: str) -> TableRef:
    unknown = set(findall(r"\{(\w*)\}", text)) - {"schema", "table"}
    if unknown:
        raise InputError(
            f"--to {text!r}: {{{min(unknown)}}} is unknown; there are {{schema}} and {{table}}"
        )
    found = table_of(text)
    loader_of(found.system)
    return found


def _targets(table: TableRef, templates: Sequence[TableRef]) -> tuple[TableRef, ...]:
    def filled(text: str) -> str:
        values = {"{schema}": table.schema, "{table}": table.name}
        return sub(r"\{schema\}|\{table\}", lambda found: values[found[0]], text)

    return tuple(
        replace(one, schema=filled(one.schema), name=filled(one.name)) for one in templates
    )


def _require_distinct(hops: Mapping[TableRef, Sequence[TableRef]]) -> None:
    claimed: dict[tuple[str, ...], TableRef] = {}
    for table, targets in hops.items():
        for target in targets:
            folded = target.system.dialect.folded
            key = (target.connection, folded(target.schema), folded(target.name))
            if other := claimed.get(key):
                raise InputError(
                    f"{other} and {table} would both go to {target}; "
                    "put {schema} into --to, or --exclude one of them"
                )
            claimed[key] = table


def _matching(found: Sequence[Listed], patterns: Sequence[str]) -> list[Listed]:
    ours = [one for one in found if not one.table.name.startswith(OURS)]
    chosen = []
    for pattern in patterns:
        fitting = [one for one in ours if _fits(one.table, pattern)]
        if not fitting:
            schemas = ", ".join(dict.fromkeys(one.table.schema for one in ours)) or "none"
            raise InputError(
                f"--tables {pattern!r} fits none of {len(ours)} tables; "
                f"a pattern is schema.table, and the schemas are {schemas}"
            )
        chosen += fitting
    return list(dict.fromkeys(chosen))


def _fits(table: TableRef, pattern: str) -> bool:
    whole = f"{table.schema}.{table.name}"
    subject = whole if "." in pattern else table.name
    return pattern in (subject, whole) or fnmatchcase(subject, pattern)


def _name(table: TableRef, output: Path, taken: set[str]) -> str:
    """A name for the transfer that no other in the folder has."""
    candidates = [identifier(table.name), identifier(f"{table.schema}_{table.name}")]
    candidates += [f"{candidates[1]}_{number}" for number in range(2, 1000)]
    for name in candidates:
        free = name.casefold() not in taken and not (output / f"{name}.yaml").exists()
        if free and _possible(name):
            return name
    raise InputError(f"{table}: there is no name left for its transfer")


def _taken(known: TransferFolder) -> set[str]:
    """The names of transfers, in small letters: file systems may not tell case apart."""
    names = [*known.transfers, *(one.transfer or one.path.stem for one in known.invalid)]
    return {name.casefold() for name in names}


def identifier(text: str) -> str:
    """A name of a transfer that is like a text."""
    found = sub(r"\W+", "_", text, flags=ASCII).strip("_") or "table"
    return f"t_{found}" if found[0].isdigit() else found


def _possible(name: str) -> bool:
    if f"{name}.yaml".casefold() == DEFAULTS:
        return False
    try:
        op_name(name)
    except ValueError:
        return False
    return True


def _mentions(path: Path, table: TableRef) -> bool:
    """Whether a file seems to be about a table, valid or not."""
    try:
        return bool(YamlFile.read(path).data.get("source") == str(table))
    except Unreadable:
        return True


def _write_new(path: Path, text: str) -> None:
    """Write a file unless there is one."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return
