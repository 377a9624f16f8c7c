"""`ferry validate`: checks the declared transfers against the servers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.many_tables import Declaration
from tableferry.assets.declaring.transfer_files import declarations_in
from tableferry.assets.declaring.yaml_lines import Location
from tableferry.assets.planning.changes.change_plan import plan_changes
from tableferry.assets.planning.hazards import with_hazards
from tableferry.assets.planning.resolve import Hop, resolve_hops
from tableferry.assets.planning.transfer_plan import require_cuts
from tableferry.assets.planning.wires import with_wires
from tableferry.assets.running.adopting import unfit
from tableferry.checks.suites import validate_suite
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.onboarding.refresh import new_and_gone, refresh
from tableferry.resources import errors, words
from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.columns.scan import decimal_types
from tableferry.resources.contract.markers import require_written_as

Problems = Iterator[tuple[Location, str]]
"""Messages, each with the place in the transfer's file that it is about."""


def validate(session: Session, names: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the problems of each transfer, with file and line, sorted by line.

    A transfer without problems can run. Without names, all valid files are checked.

    Raises:
        InputError: a transfer does not exist.
        ConnectionFailed: a server cannot be reached.
    """
    transfers = [session.transfer(name) for name in names] or list(session.transfers.values())
    problems: dict[str, list[str]] = {}
    for transfer in transfers:
        file = session.declared.files[transfer.transfer]
        located = [file.problem(*problem) for problem in _problems(transfer, session)]
        located.sort(key=lambda problem: problem.line)
        problems[transfer.transfer] = [str(problem) for problem in located]
    return problems


def outdated_locks(session: Session, names: Sequence[str] = ()) -> list[str]:
    """Describe where the catalog no longer agrees with the lock of a declaration.

    Args:
        session: the declared transfers and the servers.
        names: only declarations of these transfers; by default all.
    """
    problems = []
    for declaration in declarations_in(session.declared.path):
        if not _concerns(declaration, session, names) or not declaration.lock.is_file():
            continue
        for difference in refresh(declaration, session.servers).differences:
            problem = declaration.file.problem(
                ("tables",),
                f"{declaration.lock.name} does not agree with the catalog; {difference}: run "
                f"`ferry refresh {declaration.file.path.name}`",
            )
            problems.append(str(problem))
    return problems


@dataclass(frozen=True)
class CatalogChanges:
    """How the catalog differs from the lock of a declaration of many tables."""

    declaration: str
    """The name of its file."""
    new: Sequence[str] = ()
    gone: Sequence[str] = ()
    error: str = ""
    """Why the catalog cannot be read."""

    def lines(self) -> Iterator[str]:
        """Describe the differences for people."""
        for word, tables in (("new", self.new), ("gone", self.gone)):
            if tables:
                yield (
                    f"{self.declaration}: {word} in the catalog: {words.listed(tables)} "
                    f"(ferry refresh {self.declaration})"
                )
        if self.error:
            yield f"{self.declaration}: what is new or gone in the catalog is unknown: {self.error}"

    def json(self) -> dict[str, Any]:
        """Return the `--json` form."""
        return {
            "declaration": self.declaration,
            "new": list(self.new),
            "gone": list(self.gone),
            "error": self.error or None,
        }


def catalog_changes(session: Session, names: Sequence[str]) -> list[CatalogChanges]:
    """Find the tables that are new or gone in the catalog since a declaration was refreshed.

    Args:
        session: the declared transfers and the servers.
        names: the transfers whose declarations count.

    Returns:
        The declarations that differ from their catalog, or whose catalog cannot be read.
    """
    changes = []
    for declaration in declarations_in(session.declared.path):
        if _concerns(declaration, session, names) and declaration.lock.is_file():
            name = declaration.file.path.name
            try:
                new, gone = new_and_gone(declaration, session.servers)
            except errors.TableferryError as error:
                changes.append(CatalogChanges(name, error=str(error)))
            else:
                if new or gone:
                    changes.append(CatalogChanges(name, new, gone))
    return changes


def _concerns(declaration: Declaration, session: Session, names: Sequence[str]) -> bool:
    """Whether a declaration holds one of the transfers."""
    files = (session.declared.files[name] for name in names if name in session.declared.files)
    paths = {part.path for file in files for part in file.chain()}
    return not names or declaration.file.path in paths


def _problems(transfer: Transfer, session: Session) -> Problems:
    servers = session.servers_of(transfer)
    try:
        hops = resolve_hops(transfer, servers)
    except errors.ConnectionFailed:
        raise
    except errors.ColumnsRefused as error:
        refusing = transfer.hops[error.hop - 1] if error.hop and len(transfer.hops) > 1 else None
        for name, message in error.problems.items():
            where = f"{refusing.to}: " if refusing is not None else ""
            yield _column_location(transfer, name, error.hop), f"{where}{message}"
        if isinstance(error, errors.TypeRefused):
            yield from _decimal_hints(transfer, session, error.problems)
        return
    except errors.TableferryError as error:
        for line in str(error).splitlines():
            yield _table_location(transfer, line), line
        return
    try:
        key_kind(hops[0].plan.key.source, transfer.source.system)
    except errors.InputError as error:
        yield ("key",), str(error)
    else:
        try:
            require_cuts(transfer, hops[0])
        except errors.InputError as error:
            yield ("ranges",), str(error)
    for hop in hops:
        columns = [column.name for column in hop.plan.target_columns]
        for index, declared in enumerate(transfer.expectations):
            try:
                validate_suite(declared.specs, columns)
            except errors.InputError as error:
                where = f"{hop.plan.target}: " if not hop.first else ""
                yield ("expectations", index), f"{where}{error}"
        try:
            if transfer.write.moves:
                with_wires(transfer, [hop], servers)
        except errors.InputError as error:
            yield ("hops", hop.number - 1), str(error)
    for hop, message in _target_problems(hops, transfer, session):
        yield ("hops", hop.number - 1), message


def _target_problems(
    hops: Sequence[Hop], transfer: Transfer, session: Session
) -> Iterator[tuple[Hop, str]]:
    """Explain why existing targets cannot take the planned columns."""
    if not transfer.write.moves:
        yield from ((hop, why) for hop in hops if (why := unfit(transfer, hop)))
        return
    servers = session.servers_of(transfer)
    for hop in hops:
        if hop.existing is not None:
            published = servers.target(hop.plan.target).published(hop.plan, hop.options)
            try:
                require_written_as(hop.plan.target, published.written_as if published else "")
            except errors.InputError as error:
                yield hop, str(error)
    known = with_hazards(hops, servers)
    changes = session.ask_log(lambda log: plan_changes(transfer, known, servers, log))
    yield from ((target.hop, why) for target in changes.targets for why in target.refusals)


def _column_location(transfer: Transfer, name: str, hop: int | None) -> Location:
    """Find the place in the file that names a column, by its name in the source or a target."""
    if hop is not None:
        spec = transfer.hops[hop - 1]
        for part, names in (("columns", [*spec.columns]), ("exclude", spec.exclude)):
            for declared in names:
                if name in (declared, transfer.target_name(declared, hop - 1)):
                    return ("hops", hop - 1, part, declared)
    for declared, column in transfer.columns.items():
        if name in (declared, column.rename):
            return ("columns", declared)
    if name == transfer.key:
        return ("key",)
    return ("exclude", name) if name in transfer.exclude else ("source",)


def _table_location(transfer: Transfer, message: str) -> Location:
    """Find the table that a message names; the last first, as its name may contain the source's."""
    for index, hop in reversed(list(enumerate(transfer.hops))):
        if str(hop.to) in message:
            return ("hops", index)
    return ("source",)


def _decimal_hints(transfer: Transfer, session: Session, refused: Collection[str]) -> Problems:
    """Suggest types that would hold the values of decimal columns with too many digits."""
    source = session.servers_of(transfer).endpoint(transfer.source)
    columns = [
        column
        for column in source.columns(transfer.source)
        if column.name in refused and column.name not in transfer.columns
    ]
    types = decimal_types(source, transfer.source, columns, transfer.hops[0].to.system)
    for name, fitting in types.items():
        if fitting.type is None:
            continue
        yield ("source",), f'columns: {{{name}: {{type: "{fitting.type}"}}}}: {fitting.held}'
