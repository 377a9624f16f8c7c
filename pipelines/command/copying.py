"""`ferry copy`: moves a table, or those of a schema, once, with no file and no home of the user."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from glob import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from tableferry.pipelines.command.moving import Output, move, move_one, showing
from tableferry.pipelines.command.shell import BY_CORES, end, say, side_by_side, user_errors
from tableferry.resources.errors import CutDifferently, InputError, TableferryError
from tableferry.resources.keys.range import NULL_NAME

if TYPE_CHECKING:
    from tableferry.pipelines.command.session import Session
    from tableferry.pipelines.onboarding.init import InitResult
    from tableferry.pipelines.onboarding.proposal import Proposal


@click.command(short_help="Copy a table, or a schema, once; no transfer file is needed.")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--append", is_flag=True, help="Add the rows that tables which exist do not have.")
@click.option("--replace", is_flag=True, help="Replace all rows of tables which exist.")
@click.option("--where", metavar="SQL", help="Copy only these rows, in A's SQL.")
@click.option("--key", metavar="COLUMN", help="The column that divides a table  [default: chosen].")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave these out; repeatable.")
@click.option("--views", is_flag=True, help="Include views that a pattern fits.")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FILE|FOLDER",
    help="Also write the transfer, for later runs.",
)
@side_by_side(BY_CORES)
@user_errors
@showing
def copy(
    first: str,
    second: str,
    append: bool,
    replace: bool,
    save: Path | None,
    jobs: int | None,
    display: Output,
    **asked: Any,  # --where, --key, --exclude, --views
) -> None:
    """Copy table A to B once, and prove it; no transfer file is needed, and none is left.

    A may be a pattern, and B name its tables by {table}: 'postgres://sales.*'
    'clickhouse://sales.{table}'. Exit code 0 only if all rows are there and all checks green.

    Nothing is remembered. What --save writes begins with no record: `ferry adopt` compares
    what is there, and records it; without it, the first `ferry run` moves all rows again.

    Example: ferry copy postgres://shop.orders clickhouse://warehouse.orders
    """
    from tableferry.assets.declaring.many_tables import is_pattern
    from tableferry.pipelines.command.one import runner
    from tableferry.pipelines.command.one.finding import Selection
    from tableferry.pipelines.command.session import configured_servers, open_session
    from tableferry.pipelines.onboarding import init as onboarding
    from tableferry.resources.connecting.names import table_of

    if append and replace:
        raise InputError("--append and --replace are two ways; give one of them")
    table = table_of(first)
    many = is_pattern(table)
    if asked["key"] and many:
        raise InputError(f"--key is for one table, and {first} is a pattern")
    name = f"{table.schema}.{table.name}"
    asked["views"] |= not many
    where = asked.pop("where")
    settings = {"write": "append"} if append else {}
    settings |= {"where": where} if where else {}
    with _temporary_folders() as folder:
        servers, _ = configured_servers()
        tables = [name if many else escape(name)]
        wish = onboarding.Wish(table.connection, tables, [second], settings=settings, **asked)
        result = onboarding.init(servers, wish, folder)
        ready, left = _decided(result)
        if left and not many:
            raise InputError("\n".join(left))
        if not ready:
            raise TableferryError("\n".join(left) or f"--exclude leaves nothing of {first}")
        session = open_session(*ready)
        _prepare_targets(session, [*ready], append=append, replace=replace)
        if save:
            for saved in onboarding.save([*ready.values()], save):
                say(f"{saved.file} declares {saved.source}, for `ferry adopt` and `ferry run`")
        selected = Selection(log_level=display.log_level, offers_adopting=False)
        try:
            if many:
                errors = move(session, [*ready], selected, display, jobs=jobs, left=left)
            else:
                errors = move_one(session, next(iter(ready)), selected, display)
        finally:
            # nobody's next run would find it
            with suppress(TableferryError):
                runner.clean(session, [*ready], spares_strangers=True)
    if len(errors) > len(left):
        again = "" if append or replace else " with --replace"
        errors.append(f"what is committed stays; to go on, copy again{again}")
    end(errors)


@contextmanager
def _temporary_folders() -> Iterator[Path]:
    """Have this process, and those that it starts, work in folders that go at the end.

    Yields:
        The folder of transfers.
    """
    from tableferry.pipelines.event_log import DAGSTER_HOME
    from tableferry.pipelines.settings import TRANSFERS

    before = {name: os.environ.get(name) for name in (DAGSTER_HOME, TRANSFERS)}
    with TemporaryDirectory(prefix="ferry-copy-") as folder:
        try:
            for name in before:
                os.environ[name] = os.path.join(folder, name.lower())
                os.mkdir(os.environ[name])
            yield Path(os.environ[TRANSFERS])
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _decided(result: InitResult) -> tuple[dict[str, Proposal], list[str]]:
    """Return the tables that need no decision, by transfer; and why others are left out."""
    ready: dict[str, Proposal] = {}
    left = [f"{table} is not copied: {why}" for table, why in result.left_out]
    for declared in result.declared:
        assert declared.proposal is not None
        open_ = [f"column {each.column!r}: {each.why}" for each in declared.decisions]
        open_ += [f"{target}: {why}" for target, why in declared.proposal.shortened.items()]
        if open_:
            remedy = "`ferry init` writes a transfer with the choices"
            left.append(f"{declared.source} is not copied: {'; '.join(open_)}: {remedy}")
        else:
            ready[declared.transfer] = declared.proposal
    return ready, left


def _prepare_targets(
    session: Session, names: Sequence[str], *, append: bool, replace: bool
) -> None:
    """Refuse targets that exist, unless it is said what becomes of their rows.

    Raises:
        InputError: names them, with the remedy; or rows cannot be moved into one.
    """
    from tableferry.assets.planning.transfer_plan import plan_transfer

    refused = []
    for name in names:
        transfer = session.transfer(name)
        servers = session.servers_of(transfer)
        source, target = transfer.source, transfer.hops[0].to
        plan_it = partial(plan_transfer, transfer, servers, purpose="cut")
        try:
            plan = session.ask_log(plan_it)
        except CutDifferently:
            if not replace:
                raise
            # of a copy that was killed, say: all of its rows go
            servers.target(target).forget_markers(target)
            plan = session.ask_log(plan_it)
        (hop,) = plan.hops
        if hop.existing is None:
            continue
        if replace:
            key = hop.existing.get(hop.plan.key.target.name)
            cut_by_key = not (transfer.by_place or transfer.source.system.by_path)
            if key and key.nullable and cut_by_key and NULL_NAME not in plan.ranges:
                # the source's key may not be NULL, but the target may have such rows, which go
                session.instance.add_dynamic_partitions(transfer.partitions_name, [NULL_NAME])
            continue
        if not append:
            refused.append(
                f"{target} exists already: --append adds the rows of {source} that it does not "
                "have, --replace replaces all of its rows"
            )
        elif transfer.by_place or not hop.options.appends(hop.plan):
            refused.append(
                f"{target} exists already, and {source} has no primary key to go by, so that "
                "--append cannot tell the rows that it has; --replace replaces all of its rows"
            )
    if refused:
        raise InputError("\n".join(refused))
