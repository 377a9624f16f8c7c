"""Measures what changed rows cost: as deltas, as whole ranges, and by sling's incremental mode.

    python -m tableferry_bench.deltas --rows 10000000 --ranges 40 --shares 0.00001,0.001,0.01,0.1

A table is moved once. Then rows are updated at the source, the same of each share and placement
again and again, so that nothing has to be loaded anew, and each way to move them runs as a process
of its own, with an event log that knows the table. All ways take turns, beginning with a run that
has nothing to do, against which the others are held.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef
from tableferry_bench.contenders.incremental import Ferry, SlingIncremental
from tableferry_bench.delta_report import Case, Measured, table_of
from tableferry_bench.meter import CommandFailed, CpuSeconds
from tableferry_bench.servers import Servers, dropping, servers
from tableferry_bench.workloads import ensure

NOTHING, SLING = "nothing", "sling"
WAYS = (NOTHING, "always", "never", "auto", SLING)
"""What is measured: a run with nothing to do, `delta: always`, `never` and `auto`, and sling."""

ROUTES = ("postgres-postgres", "postgres-sqlserver", "postgres-clickhouse")
Placement = Literal["clustered", "spread"]
PLACEMENTS: tuple[Placement, ...] = ("clustered", "spread")
FINGERPRINTS = ("content", "auto")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
TOLD = "quantity", "changed"
"""The columns that an update changes; sling is told the second one."""


class Bench:
    """A table, and its copies by Tableferry and by sling, on one route."""

    def __init__(self, found: Servers, route: str, rows: int, ranges: int) -> None:
        source_system, _, system = route.partition("-")
        if route not in ROUTES:
            raise InputError(f"there is no route {route!r}; there are {', '.join(ROUTES)}")
        if system == "sqlserver" and found.sqlserver is None:
            raise InputError("no SQL Server is named")
        self.found, self.route, self.ranges = found, route, ranges
        self.table = ensure(found, f"wide:{rows}")
        self.source = found.table(source_system, self.table.name)
        self.target = found.table(system, f"{self.table.name}_deltas")
        self.ferry = Ferry(found, self.table, self.target, ranges)
        sling = found.table(system, f"{self.table.name}_sling")
        self.sling = SlingIncremental(found, self.table, sling, TOLD[-1])
        self.without = self.sling.missing()
        """Why sling does not take part; None if it does."""

    def set_up(self, fingerprint: str) -> None:
        """Move the table for the first time."""
        self.ferry.set_up()
        self.ferry.run(fingerprint=fingerprint)
        # who cleans up in the middle of a run would be measured, too
        for table in (self.source, self.target):
            if table.system_name == "postgres":
                off = "SET (autovacuum_enabled = false)"
                self.found.postgres.execute(f"ALTER TABLE {qualified(table)} {off}")
        self._clean()

    def set_up_sling(self) -> None:
        """Give sling a table that is up to date, and see whether it gets on with it."""
        if self.without:
            return
        try:
            self.sling.set_up(self.target)
            self.change(1, "clustered")
            self.sling.run()
            self._require_arrived()
        except CommandFailed as error:
            self.without = COLOURS.sub("", str(error))

    def tear_down(self, *, keep: bool = False) -> None:
        """Drop the copies, and the source, whose rows are no longer those of its workload.

        With `keep` the source stays, for the next time.
        """
        dropping(self.found, self.target, self.sling.target, *(() if keep else (self.source,)))

    def change(self, rows: int, placement: Placement) -> None:
        """Update rows of the source: the same ones of each number and placement."""
        step = self.table.rows // rows if placement == "spread" else 1
        middle = min(self.table.rows // 2, self.table.rows - rows) + 1
        first = middle if placement == "clustered" else step
        keys = f"SELECT generate_series({first}, {first + step * (rows - 1)}, {step})"
        self.found.postgres.execute(
            f"UPDATE {qualified(self.source)} SET quantity = (quantity + 1) % 1000, "
            f"changed = clock_timestamp() WHERE id IN ({keys})"
        )

    def measure(self, way: str, case: Case, placement: Placement) -> Measured:
        """Change rows, and measure a way to move them.

        sling moves the rows that have been changed for the ways before it.

        Raises:
            CommandFailed: it ended badly, or the target is not as the source.
        """
        if way not in (NOTHING, SLING):
            self.change(case.changed, placement)
        self._clean()
        target = self.sling.target if way == SLING else self.target
        before, clocks = self._state(target), self.found.clocks()
        if way == SLING:
            finished, moved = self.sling.run()
        else:
            delta = "auto" if way == NOTHING else way
            finished, moved = self.ferry.run(fingerprint=case.fingerprint, delta=delta)
        now, none = self.found.clocks(), CpuSeconds()
        spent = sum(((now[name] or none) - (at or none)).all for name, at in clocks.items())
        if way == SLING:
            self._require_arrived()
        elif (way == NOTHING) == bool(moved.ranges):
            raise CommandFailed(f"{way}: {moved.ranges} ranges were moved")
        written = self._written(target, before)
        return Measured(
            case,
            way,
            finished.seconds,
            finished.cpu.all,
            spent,
            moved.ranges,
            moved.whole,
            moved.rows,
            moved.written if written is None else written,
            moved.sent,
            (finished.seconds,),
        )

    def _clean(self) -> None:
        """Vacuum what updates have left, so that no run pays for what the ones before it wrote."""
        for table in (self.source, self.target, self.sling.target):
            if table.system_name == "postgres" and self._exists(table):
                self.found.postgres.execute(f"VACUUM (ANALYZE) {qualified(table)}")

    def _exists(self, table: TableRef) -> bool:
        name = table.system.dialect.literal(qualified(table))
        return bool(self.found.postgres.query(f"SELECT to_regclass({name}) IS NOT NULL")[0][0])

    def _state(self, target: TableRef) -> dict[str, int]:
        """What tells how many rows have been written since; empty if nothing does."""
        literal = target.system.dialect.literal
        if target.system_name == "postgres":
            columns = "n_tup_ins + n_tup_upd + n_tup_del"
            [(tuples,)] = self.found.postgres.query(
                f"SELECT {columns} FROM pg_stat_user_tables "
                f"WHERE relid = {literal(qualified(target))}::regclass"
            )
            return {"": int(tuples)}
        if target.system_name == "clickhouse":
            parts = self.found.clickhouse.query(
                "SELECT name, rows FROM system.parts WHERE active "
                f"AND database = {literal(target.schema or '')} AND table = {literal(target.name)}"
            )
            return {str(name): int(rows) for name, rows in parts}
        return {}

    def _written(self, target: TableRef, before: dict[str, int]) -> int | None:
        """Rows that were written since, into whatever part of a ClickHouse table."""
        after = self._state(target)
        if target.system_name == "postgres":
            return after[""] - before[""]
        if target.system_name == "clickhouse":
            return sum(rows for name, rows in after.items() if name not in before)
        return None

    def _require_arrived(self) -> None:
        """Require sling's target to have the values that the updates have written.

        Raises:
            CommandFailed: it has others.
        """
        target = self.sling.target
        final = " FINAL" if target.system_name == "clickhouse" else ""
        figures = [
            getattr(self.found, table.system_name).query(
                f"SELECT {table.system.dialect.count}, sum(CAST(quantity AS {big})) "
                f"FROM {qualified(table)}{more}"
            )[0]
            for table, big, more in (
                (self.source, "bigint", ""),
                (target, "Int64" if final else "bigint", ""),
            )
        ]
        if [int(value) for value in figures[0]] != [int(value) for value in figures[1]]:
            raise CommandFailed(f"sling: the source has {figures[0]}, the target {figures[1]}")


def measure(
    found: Servers,
    route: str,
    rows: int,
    ranges: int,
    shares: Sequence[float],
    *,
    fingerprints: Sequence[str] = FINGERPRINTS,
    placements: Sequence[Placement] = PLACEMENTS,
    ways: Sequence[str] = WAYS,
    runs: int = 1,
    keep: bool = False,
    tell: Callable[[Measured], None] = lambda _: None,
) -> list[Measured]:
    """Measure all ways on one route.

    Args:
        found: the servers.
        route: one of `ROUTES`.
        rows: rows of the table.
        ranges: number of ranges.
        shares: shares of the rows that change.
        fingerprints: how `ferry` finds what has changed.
        placements: where the changed rows are.
        ways: some of `WAYS`.
        runs: how often.
        keep: whether the source stays.
        tell: is called with each result.

    Raises:
        CommandFailed: a way ended badly, or a target is not as its source.
        InputError: there is no such route, or no server for it.
    """
    bench = Bench(found, route, rows, ranges)
    measured: list[Measured] = []
    try:
        bench.set_up(fingerprints[0])
        if SLING in ways:
            bench.set_up_sling()
            if bench.without:
                print(f"without sling: {bench.without}", file=sys.stderr)
        taking_part = [way for way in ways if way != SLING or not bench.without]
        for fingerprint in fingerprints:
            # what has been changed, and whatever another fingerprint has to be learnt
            bench.ferry.run(fingerprint=fingerprint)
            bench.ferry.run(fingerprint=fingerprint)
            for share in shares:
                for placement in placements:
                    changed = max(1, round(rows * share))
                    case = Case(route, fingerprint, rows, ranges, changed, placement)
                    done: dict[str, list[Measured]] = {way: [] for way in taking_part}
                    for _ in range(runs):
                        for way in taking_part:
                            done[way].append(bench.measure(way, case, placement))
                    for way in taking_part:
                        measured.append(_median(done[way]))
                        tell(measured[-1])
    finally:
        bench.tear_down(keep=keep)
    return measured


def _median(done: Sequence[Measured]) -> Measured:
    values = asdict(done[-1]) | {"case": done[-1].case}
    for name in ("seconds", "cpu_client", "cpu_servers"):
        values[name] = statistics.median(getattr(one, name) for one in done)
    return Measured(**values | {"runs": tuple(one.seconds for one in done)})


def _progress(measured: Measured) -> str:
    case = measured.case
    what = f"{case.route} {case.fingerprint} {case.changed:,} {case.placement} {measured.way}"
    spent = f"{measured.cpu_client:.2f} + {measured.cpu_servers:.2f} CPU s"
    return f"{what}: {measured.seconds:.2f} s, {spent}"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--ranges", type=int, default=4)
    parser.add_argument("--shares", default="0.00001,0.001,0.01,0.1")
    parser.add_argument("--routes", default="postgres-postgres", help=", ".join(ROUTES))
    parser.add_argument("--fingerprints", default=",".join(FINGERPRINTS))
    parser.add_argument("--placements", default=",".join(PLACEMENTS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the source for the next time")
    parser.add_argument("--json", type=Path, default=None, help="file for the results")
    parser.add_argument("--work", type=Path, default=None)
    given = parser.parse_args()
    measured: list[Measured] = []

    def tell(one: Measured) -> None:
        print(_progress(one), file=sys.stderr, flush=True)
        measured.append(one)
        if given.json:
            given.json.write_text(json.dumps([asdict(each) for each in measured], indent=1))

    with servers(given.work) as found:
        for route in given.routes.split(","):
            measure(
                found,
                route,
                given.rows,
                given.ranges,
                [float(share) for share in given.shares.split(",")],
                fingerprints=given.fingerprints.split(","),
                placements=given.placements.split(","),
                ways=given.ways.split(","),
                runs=given.runs,
                keep=given.keep,
                tell=tell,
            )
    print(table_of(measured, NOTHING))


if __name__ == "__main__":
    main()
