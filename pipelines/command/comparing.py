"""The command that compares any two tables: `ferry compare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from tableferry.checks import levels
from tableferry.pipelines.command.shell import LevelChoice, as_json, end, print_json, user_errors
from tableferry.resources.errors import InputError, TableferryError

if TYPE_CHECKING:
    from tableferry.assets.planning.servers import Servers
    from tableferry.checks.comparing.pairing import Pairing
    from tableferry.resources.digest.tolerance import Tolerance

MOST_SHOWN = 10_000
"""As many differing values as are kept, see `checks.comparing.tables.EXAMINED`."""


def _not_compared(command: Callable[..., None]) -> Callable[..., None]:
    """Have every error end the command with 2, as 1 says that the tables differ."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except InputError:
            raise
        except TableferryError as error:
            raise InputError(str(error)) from error

    return wrapped


@click.command(short_help="Compare any two tables; no transfer file is needed.")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--key", multiple=True, metavar="COLUMNS", help="What identifies a row: id,line.")
@click.option("--where", metavar="SQL", help="Compare only these rows of both.")
@click.option(
    "--tolerance",
    "tolerances",
    multiple=True,
    metavar="COLUMN:RULE",
    help="E.g. price:round=2, at:truncate=milliseconds, note:trim=true,case=ignore; repeatable.",
)
@click.option("--map", "mapped", multiple=True, metavar="A=B", help="B's name of a column of A.")
@click.option("--columns", multiple=True, metavar="COLUMNS", help="Compare only these of A.")
@click.option("--exclude", multiple=True, metavar="COLUMNS", help="Leave these out.")
@click.option(
    "--final", is_flag=True, help="ClickHouse: of each row's versions the newest, as FINAL shows."
)
@click.option("--where-a", metavar="SQL", help="The same in A's SQL.")
@click.option("--where-b", metavar="SQL", help="The same in B's SQL.")
@click.option(
    "--level",
    type=LevelChoice(levels.LEVELS),
    default="checksum",
    show_default=True,
    help="How strict.",
)
@click.option("--sample", is_flag=True, help="As --level sample_hash.")
@click.option(
    "--ranges",
    type=click.IntRange(1, 500),
    metavar="N",
    help="Ranges of the key that are compared apart  [default: up to 500, by the key's type].",
)
@click.option(
    "--recheck",
    metavar="NxS",
    help="Compare rows that differ N more times, S seconds apart: 3x10s.",
)
@click.option(
    "--limit",
    type=click.IntRange(0, MOST_SHOWN),
    default=20,
    show_default=True,
    help="Maximum rows to show.",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False),
    metavar="NAME.yaml",
    help="Also write a transfer that only compares, by a schedule; see write: none.",
)
@click.option("--schema", is_flag=True, help="Compare what the catalogs declare, and no rows.")
@click.option("--html", type=click.Path(dir_okay=False), metavar="FILE", help="Write a report.")
@as_json
@user_errors
@_not_compared
def compare(
    first: str,
    second: str,
    key: Sequence[str],
    mapped: Sequence[str],
    columns: Sequence[str],
    exclude: Sequence[str],
    tolerances: Sequence[str],
    final: bool,
    where: str | None,
    where_a: str | None,
    where_b: str | None,
    level: str,
    sample: bool,
    ranges: int | None,
    recheck: str | None,
    limit: int,
    save: str | None,
    schema: bool,
    html: str | None,
    as_json: bool,
) -> None:
    """Compare any two tables; no transfer file is needed, and nothing is written.

    A and B are tables, views or files (postgres://sales.orders, files://dump/*.parquet), or queries
    behind the name of a connection ('postgres:SELECT id, amount FROM sales.orders'). Exit code 0 if
    they are equal, 1 if they differ, 2 if they cannot be compared.

    With --schema, A may be a pattern, and B name its tables by {table}: 'postgres://sales.*'
    'sqlserver://dbo.{table}'.

    Example: ferry compare postgres://shop.orders clickhouse://warehouse.orders
    """
    from tableferry.pipelines.command.one import comparison

    if schema:
        of_rows = key, tolerances, final, where, where_a, where_b, sample, ranges, recheck, save
        if any(of_rows):
            raise InputError("--schema reads no rows; it takes --map, --columns and --exclude only")
        if query := next((each for each in (first, second) if comparison.is_query(each)), ""):
            raise InputError(f"--schema compares tables; {query!r} is a query")
        _compare_schemas(first, second, mapped, columns, exclude, html, as_json=as_json)
    from tableferry.checks.comparing.pairing import ComparisonScope
    from tableferry.checks.recheck import Recheck
    from tableferry.pipelines.command.session import configured_servers
    from tableferry.pipelines.command.show import compare_views, render

    tables = comparison.compared_table(first), comparison.compared_table(second)
    looks = Recheck.parse(recheck) if recheck else None
    scope = ComparisonScope(
        mapped=_mapped(mapped),
        columns=_listed(columns),
        exclude=_listed(exclude),
        key=_listed(key),
        tolerances=tolerances_of(tolerances),
        where=(where_a or where, where_b or where),
    )
    servers, _ = configured_servers()
    if final:
        servers = comparison.reading_final(servers, *tables)
    pairing = comparison.paired(servers, *tables, scope)
    level = "sample_hash" if sample else level
    if save:
        _save(pairing, level, Path(save), servers)
    outcome = comparison.compare_pair(
        servers, pairing, cast("levels.Level", level), ranges=ranges, recheck=looks
    )
    if html:
        Path(html).write_text(
            compare_views.page(
                outcome, limit, (servers.endpoint(tables[0]), servers.endpoint(tables[1]))
            ),
            encoding="utf-8",
        )
    if as_json:
        print_json(compare_views.document(outcome, limit))
    else:
        compare_views.show(render.console(), outcome, limit)
    end([f"{tables[0]} and {tables[1]} differ"] * (not outcome.equal))


def _compare_schemas(
    first: str,
    second: str,
    mapped: Sequence[str],
    columns: Sequence[str],
    exclude: Sequence[str],
    html: str | None,
    *,
    as_json: bool,
) -> NoReturn:
    from tableferry.checks.comparing.pairing import ComparisonScope
    from tableferry.pipelines.command.session import configured_servers
    from tableferry.pipelines.command.show import render, schema_views

    choice = ComparisonScope(
        mapped=_mapped(mapped),
        columns=_listed(columns),
        exclude=_listed(exclude),
    )
    servers, _ = configured_servers()
    pairs = schema_views.compared(servers, first, second, choice)
    if html:
        Path(html).write_text(schema_views.page(pairs), encoding="utf-8")
    if as_json:
        print_json(schema_views.document(pairs))
    else:
        schema_views.show(render.console(), pairs)
    differ = sum(not pair.equal for pair in pairs)
    end([f"{differ} of {len(pairs)} pairs of tables differ in definition"] * bool(differ))


def _save(pairing: Pairing, level: str, path: Path, servers: Servers) -> None:
    """Write a transfer that compares the tables, and moves nothing.

    Raises:
        InputError: a transfer cannot say what is compared.
        FileExistsError: there is such a file.
    """
    from tableferry.assets.declaring.transfer_files import load_transfer
    from tableferry.assets.declaring.yaml_lines import block_text
    from tableferry.assets.planning.resolve import resolve_hops
    from tableferry.assets.running.adopting import unfit
    from tableferry.resources.types.export import Refusal

    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"--save: {path} should end in .yaml, as a transfer's file does")

    plan = pairing.plan
    problems = {
        "queries": plan.source.query or plan.target.query,
        "tables without a key": not pairing.keyed,
        "tolerances": pairing.tolerances,
        "a filter of B's rows": plan.target_where,
    }
    if problem := next((name for name, found in problems.items() if found), None):
        raise InputError(f"--save: a transfer does not compare {problem}")
    types = plan.target.system.types
    declared: dict[str, dict[str, str]] = {}
    for column in plan.columns:
        export = plan.source.system.types.export(column.source.type)
        usual = None if isinstance(export, Refusal) else types.default(export.kind)
        if column.source.name != column.target.name:
            declared.setdefault(column.source.name, {})["rename"] = column.target.name
        if usual != types.plain(column.target.type):
            declared.setdefault(column.source.name, {})["type"] = column.target.type
    without = [*pairing.left_out, *pairing.only_in_first]
    document = {
        "transfer": path.stem,
        "source": str(plan.source),
        "hops": [str(plan.target)],
        "key": plan.key.source.name,
        "write": "none",
        "reconcile": level,
        **({"final": True} if plan.final else {}),
        **({"where": plan.where} if plan.where else {}),
        **({"columns": declared} if declared else {}),
        **({"exclude": without} if without else {}),
    }
    with path.open("x", encoding="utf-8") as file:
        file.write(block_text(document))
    try:
        transfer = load_transfer(path)
        hops = resolve_hops(transfer, servers)
        if why := next(filter(None, (unfit(transfer, hop) for hop in hops)), ""):
            raise InputError(why)
    except TableferryError as error:
        path.unlink()
        raise InputError(f"--save: no transfer can compare that: {error}") from None


def tolerances_of(declared: Sequence[str]) -> dict[str, Tolerance]:
    """Read tolerances such as `price:round=2` and `note:trim=true,case=ignore`.

    Raises:
        InputError: one has another form.
    """
    from tableferry.resources.digest.tolerance import Tolerance

    rules: dict[str, dict[str, str]] = {}
    for text in declared:
        column, listed = _parts(text, ":", "--tolerance", last=True)
        for rule in listed.split(","):
            name, value = _parts(rule, "=", f"--tolerance {text}")
            rules.setdefault(column, {})[name] = value
    read: dict[str, Tolerance] = {}
    for column, rule_of in rules.items():
        try:
            read[column] = Tolerance.read(rule_of)
        except InputError as error:
            raise InputError(f"--tolerance {column}: {error}") from None
    return read


def _parts(text: str, between: str, option: str, *, last: bool = False) -> tuple[str, str]:
    before, mark, after = text.rpartition(between) if last else text.partition(between)
    if not mark or not before.strip():
        raise InputError(f"{option}: {text!r} should have the form name{between}value")
    return before.strip(), after.strip()


def _mapped(texts: Sequence[str]) -> dict[str, str]:
    """B's names of columns by A's.

    Raises:
        InputError: one has another form, or a column is named twice.
    """
    pairs = [_parts(text, "=", "--map") for text in _listed(texts)]
    for names in zip(*pairs, strict=True):
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"--map: {twice[0]!r} is mapped twice")
    return dict(pairs)


def _listed(texts: Sequence[str]) -> list[str]:
    """Names, of which an option takes several between commas; each once."""
    names = [name.strip() for text in texts for name in text.split(",")]
    return [*dict.fromkeys(filter(None, names))]
