"""`ferry certify`: tries the whole path on the user's own servers, and leaves a certificate."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from tableferry.pipelines.command.shell import as_json, end, print_json, quiet, say, user_errors
from tableferry.resources.errors import InputError

if TYPE_CHECKING:
    from tableferry.pipelines.certifying.ground import Ground
    from tableferry.pipelines.certifying.scenarios import Trials
    from tableferry.pipelines.certifying.site import Site

FOLDER = Path("certificate")
FEWEST_ROWS = 100


@click.command(short_help="Certify your own servers: try all that can go wrong on them.")
@click.option(
    "--route",
    metavar="A:B[:C]",
    help="The connections, from the source on  [default: all that are configured].",
)
@click.option("--source", metavar="URL", help="The source, in place of --route.")
@click.option(
    "--target", "target_urls", multiple=True, metavar="URL", help="A target; of several, a chain."
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="A=NAME",
    help="A schema or database of a connection to use  [default: one is made, and dropped].",
)
@click.option(
    "--rows",
    type=click.IntRange(FEWEST_ROWS),
    default=10_000,
    show_default=True,
    help="Rows to move.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=FOLDER,
    show_default=True,
    help="The folder of the certificate.",
)
@click.option("--keep", is_flag=True, help="Leave schemas, tables and transfers as they are.")
@click.option("--dry-run", is_flag=True, help="Print the statements to be sent; send none.")
@click.option("--restart-command", metavar="COMMAND", help="Restarts a server, after a commit.")
@click.option("--with-hosts", is_flag=True, help="Leave the servers' addresses in.")
@click.option(
    "--compare",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="OLD.json",
    help="Also say what differs from a certificate.",
)
@quiet
@as_json
@user_errors
def certify(
    output: Path,
    keep: bool,
    dry_run: bool,
    with_hosts: bool,
    compare: Path | None,
    quiet: bool,
    as_json: bool,
    **asked: Any,  # --route, --source, --target, --schema, --rows, --restart-command
) -> None:
    """Try your own servers: full run, changes, kills, damage, refusals, cut sessions.

    A schema is made on each, or given by --schema, and dropped again; nothing else is touched. Each
    scenario is judged by plain queries. The certificate is written to --output as JSON, Markdown
    and HTML. Exit code 0 only if all that is possible has passed.

    Example: ferry certify --route postgres:clickhouse --rows 1000
    """
    from tableferry.pipelines.certifying import certificate as certificates
    from tableferry.pipelines.certifying.edges import TYPES
    from tableferry.pipelines.certifying.looking import ROWS
    from tableferry.pipelines.certifying.scenarios import tried

    old = certificates.read(compare) if compare else None
    began = time.monotonic()
    trials = _trials(**asked)
    ground = trials.ground
    if dry_run:
        for line in _dry_run(ground):
            click.echo(line)
        return
    output.mkdir(parents=True, exist_ok=True)  # or it is refused before anything is made
    with _work(ground, keep=keep) as notes:
        ground.make()
        settings = [site.told(site.plain.settings) for site in ground.sites]
        if ground.read_only:
            notes.append(f"the source is read only: {ground.read_only}")
        ground.declare(ROWS, ranges={"bounds": ground.bounds})
        ground.declare(TYPES, exclude=ground.edges.excluded())
        scenarios = []
        for trial in trials.all():
            scenarios.append(tried(ground, trial))
            if not quiet and not as_json:
                say("{result}: {name} ({seconds} s): {seen}".format_map(scenarios[-1]))
    document = certificates.certificate_of(
        ground, scenarios, settings, time.monotonic() - began, notes, with_hosts=with_hosts
    )
    if old:
        document["compared_with"] = old["created_at"]
        document["differences"] = [*certificates.differences(old, document)]
    files = certificates.write(document, output)
    if as_json:
        print_json(document)
    else:
        counts = document["counts"]
        click.echo(certificates.headline(document))
        click.echo(", ".join(f"{number} {result}" for result, number in counts.items()))
        for line in document["differences"]:
            click.echo(f"since {document['compared_with']}: {line}")
        click.echo(f"the certificate is in {', '.join(map(str, files))}")
    failed = [each for each in document["scenarios"] if each["result"] == "failed"]
    end([f"{each['name']}: expected: {each['expected']}; seen: {each['seen']}" for each in failed])


def _route(route: str | None, source: str | None, targets: Sequence[str]) -> list[str]:
    """Return the connections of the route, the source first.

    Raises:
        InputError: there are fewer than two, or they are given twice.
    """
    from tableferry.pipelines.command.session import use_local_stack
    from tableferry.pipelines.settings import configured
    from tableferry.resources.connecting.names import PREFIX, is_path, system_of

    if source or targets:
        if route or not (source and targets):
            raise InputError("give --source with --target, or --route")
        names = [f"certify_{position}" for position in range(len(targets) + 1)]
        for name, url in zip(names, (source, *targets), strict=True):
            os.environ[f"{PREFIX}{name.upper()}"] = url
        return names
    use_local_stack()
    if route:
        names = route.lower().split(":")
    else:
        servers = [name for name in configured() if not is_path(name)]
        usual = [name for name in servers if system_of(name).name == name]
        names = usual if len(usual) > 1 else servers
    if len(names) < 2:
        raise InputError(
            f"a route has two connections or more, and there is {', '.join(names) or 'none'}: set "
            "TABLEFERRY_POSTGRES_URL and those of the other servers, or give --source and --target"
        )
    return names


def _trials(
    route: str | None,
    source: str | None,
    target_urls: Sequence[str],
    schemas: Sequence[str],
    rows: int,
    restart_command: str | None,
) -> Trials:
    """Return what is to be tried, and on what; nothing is made yet.

    Raises:
        InputError: a connection is not configured, or its server cannot be reached or certified.
    """
    from tableferry.pipelines.certifying.commands import CommandLine
    from tableferry.pipelines.certifying.ground import Ground
    from tableferry.pipelines.certifying.scenarios import Trials
    from tableferry.pipelines.certifying.site import Site
    from tableferry.pipelines.settings import server

    names = _route(route, source, target_urls)
    given = dict(each.partition("=")[::2] for each in schemas)
    if unknown := sorted(given.keys() - {*names}) or [each for each in given if not given[each]]:
        of = ", ".join(names)
        raise InputError(f"--schema {unknown[0]}: it should be CONNECTION=NAME, of {of}")
    sites: list[Site] = []
    failures: list[dict[str, str]] = []
    own = f"ferry_certify_{uuid4().hex[:6]}"
    for position, name in enumerate(names):
        endpoint = server(name)
        again = any(site.endpoint.system is endpoint.system for site in sites)
        schema = given.get(name) or own + f"_{position}" * again
        sites.append(Site(name, endpoint, schema, position, name in given, failures))
        _ = sites[-1].plain
        endpoint.ping()
    return Trials(Ground(sites, rows, CommandLine(Path())), restart_command)


@contextmanager
def _work(ground: Ground, *, keep: bool) -> Iterator[list[str]]:
    """Drop at the end what a certification has made.

    Yields:
        Notes for the certificate.
    """
    import shutil

    notes: list[str] = []
    ground.commands.folder = Path(mkdtemp(prefix="ferry-certify-"))
    try:
        yield notes
    finally:
        if keep:
            schemas = [f"{site.schema} of {site.connection}" for site in ground.sites]
            say(f"kept are {ground.commands.folder}, and {', '.join(schemas)}")
        else:
            for note in ground.drop():
                say(note)
                notes.append(note)
            shutil.rmtree(ground.commands.folder, ignore_errors=True)


def _dry_run(ground: Ground) -> Iterator[str]:
    """Write the statements by which a certification would write, with comments."""
    for when, statements in (
        ("before the first run", ground.makes),
        ("between the runs of `ferry run`, `ferry check`, `ferry diff`", ground.changes),
        ("in the end", ground.drops),
    ):
        for site in ground.sites:
            yield f"-- {site.connection}: {when}"
            yield from (f"{statement};" for statement in statements(site))
