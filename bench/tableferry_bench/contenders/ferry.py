"""The product: `ferry run` as users run it, in a process, with an event log of its own."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tableferry_bench.contenders.base import (
    BOTH_HOPS,
    PARQUET_CLICKHOUSE,
    POSTGRES_CLICKHOUSE,
    POSTGRES_POSTGRES,
    POSTGRES_SQLSERVER,
    SQLSERVER_CLICKHOUSE,
    Contender,
    Outcome,
    private,
)
from tableferry_bench.contenders.parquet import parquet_files, write_parquet
from tableferry_bench.meter import Command, CommandFailed, Finished, require_good, run
from tableferry_bench.results import Skew
from tableferry_bench.servers import PREFIX, Servers
from tableferry_bench.statistics import skew
from tableferry_bench.workloads import Table

TARGETS = {
    POSTGRES_CLICKHOUSE: ("clickhouse",),
    PARQUET_CLICKHOUSE: ("clickhouse",),
    POSTGRES_POSTGRES: ("postgres",),
    POSTGRES_SQLSERVER: ("sqlserver",),
    SQLSERVER_CLICKHOUSE: ("sqlserver", "clickhouse"),
    BOTH_HOPS: ("sqlserver", "clickhouse"),
}
"""The systems that a route goes through, after its source."""

RANGE_PHASES = ("export", "load", "reconcile", "finalise")
"""The phases that `seconds` in a range's record names."""


@dataclass(frozen=True)
class Ferry(Contender):
    """One declared transfer, and the commands whose time counts."""

    name: str
    proves: str
    route: str = POSTGRES_CLICKHOUSE
    declared: Mapping[str, Any] = field(default_factory=dict)
    """Lines of the transfer's file."""
    wire: str = "auto"
    measured: tuple[tuple[str, ...], ...] = (("run",),)
    """Commands, one after the other; the transfer's name is put in."""
    first: tuple[tuple[str, ...], ...] = ()
    """Those before, which do not count."""
    options: Mapping[str, str | int] = field(default_factory=dict)

    def set_up(self, servers: Servers, table: Table) -> None:
        """Write the files that are moved, if it is files."""
        if self.route == PARQUET_CLICKHOUSE:
            write_parquet(servers, table)

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        """With no target there, and an event log in which nothing of the transfer is."""
        self.clean_up(servers, table)
        folder = private(self._folder(servers))
        shutil.copytree(empty_home(servers), folder / "dagster")
        transfer = self._declaration(servers, table)
        (folder / "transfers").mkdir()
        (folder / "transfers" / "move.yaml").write_text(yaml.safe_dump(transfer), encoding="utf-8")
        for words in self.first:
            command = self._command(servers, table, words)
            require_good(run(command), f"ferry {words[0]}", servers.secrets)
        return [self._command(servers, table, words) for words in self.measured]

    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        """Phases and ranges out of the run's own events."""
        documents = [json.loads(one.output) for one in done]
        ranges = [one for document in documents for one in document["ranges"]]
        last = max((one["hop"] for one in ranges), default=0)
        rows = sum(one["rows"] or 0 for one in ranges if one["hop"] == last)
        if rows != table.rows:
            raise CommandFailed(f"ferry tells of {rows} of {table.rows} rows")
        if self.measured[0][0] != "run":
            return Outcome(rows)
        phases: dict[str, float] = {}
        for phase in RANGE_PHASES:
            spent = [one["seconds"][phase] for one in ranges if phase in one["seconds"]]
            if spent:
                phases[phase] = round(sum(spent), 4)
        home = self._folder(servers) / "dagster"
        for document, finished in zip(documents, done, strict=True):
            for run_id in document["run_ids"]:
                for phase, seconds in timeline(home, run_id, finished).items():
                    phases[phase] = round(phases.get(phase, 0.0) + seconds, 4)
        by_rows = skew([one["rows"] for one in ranges if one["rows"]])
        by_time = skew([sum(one["seconds"].values()) for one in ranges if one["seconds"]])
        stored = self.stored(servers, table, *TARGETS[self.route])
        return Outcome(rows, phases, Skew(len(ranges), by_rows, by_time), stored=stored)

    def _declaration(self, servers: Servers, table: Table) -> dict[str, Any]:
        source, systems = servers.table("postgres", table.name), TARGETS[self.route]
        of_files = self.route == PARQUET_CLICKHOUSE
        return {
            "transfer": self._transfer(table),
            "source": str(parquet_files(servers, table) if of_files else source),
            "hops": [
                {"to": str(self.target(servers, table, system)), "wire": self.wire}
                for system in systems
            ],
            # each file is a range
            **({} if of_files else {"key": table.key}),
            **self.declared,
        }

    def _command(self, servers: Servers, table: Table, words: Sequence[str]) -> Command:
        folder = self._folder(servers)
        command, *rest = words
        return Command(
            [
                sys.executable,
                "-m",
                "tableferry.pipelines.cli",
                command,
                self._transfer(table),
                *rest,
                "--json",
            ],
            {
                **servers.environment,
                "TABLEFERRY_TRANSFERS": str(folder / "transfers"),
                "DAGSTER_HOME": str(folder / "dagster"),
            },
        )

    def _transfer(self, table: Table) -> str:
        return f"{PREFIX}{table.name}"

    def _folder(self, servers: Servers) -> Path:
        return servers.folder / self.name


def timeline(home: Path, run_id: str, finished: Finished) -> dict[str, float]:
    """What a Dagster run's events say of the time from the start of its process until its end.

    Returns:
        Seconds, one after the other: `start` until the run begins, `fingerprint` until it knows
        what to move, `ranges` until the last one is recorded, `end`.
    """
    import dagster as dg

    os.environ["DAGSTER_HOME"] = str(home)  # Dagster reads its settings' `{env: ...}` with it
    with dg.DagsterInstance.from_config(str(home)) as instance:
        entries = instance.all_logs(run_id)
    began = next(
        (one.timestamp for one in entries if one.dagster_event_type == "PIPELINE_START"), 0
    )
    decided = next((one.timestamp for one in entries if " ranges: " in one.user_message), began)
    of_ranges = [
        one.timestamp for one in entries if one.asset_materialization or one.asset_observation
    ]
    recorded = max(of_ranges, default=decided)
    return {
        "start": began - finished.began,
        "fingerprint": decided - began,
        "ranges": recorded - decided,
        "end": finished.began + finished.seconds - recorded,
    }


def empty_home(servers: Servers) -> Path:
    """An event log with nothing in it: making one takes seconds that are no part of a move."""
    from tableferry.pipelines import event_log

    home = servers.folder / "empty-home"
    if not home.exists():
        before = os.environ.get(event_log.DAGSTER_HOME)
        os.environ[event_log.DAGSTER_HOME] = str(home)
        try:
            event_log.open_to_record().dispose()
        finally:
            os.environ.pop(event_log.DAGSTER_HOME)
            if before is not None:
                os.environ[event_log.DAGSTER_HOME] = before
    return home


CHECKSUM = "a checksum of every range"
COUNT = "the number of rows of every range"
SMALL = {"ranges": {"rows": 1000}}
CHEAP = {"reconcile": "count", "fingerprint": "none"}

FERRIES = (
    Ferry("ferry", CHECKSUM),
    Ferry("ferry-text", CHECKSUM, wire="text"),
    Ferry("ferry-arrow", CHECKSUM, wire="arrow"),
    Ferry("ferry-count", COUNT, declared=CHEAP),
    Ferry("ferry-postgres", CHECKSUM, POSTGRES_POSTGRES),
    Ferry("ferry-parquet", CHECKSUM, PARQUET_CLICKHOUSE),
    Ferry("ferry-throughput", CHECKSUM, declared={"profile": "throughput"}),
    Ferry("ferry-small-ranges", CHECKSUM, declared=SMALL),
    Ferry("ferry-noop", COUNT, declared=SMALL, first=(("run",),)),
    Ferry(
        "ferry-status", "nothing new", declared=SMALL, first=(("run",),), measured=(("status",),)
    ),
    Ferry("ferry-chain", CHECKSUM, BOTH_HOPS),
    Ferry(
        "ferry-chain-apart",
        CHECKSUM,
        BOTH_HOPS,
        measured=(("run", "--hop", "1"), ("run", "--hop", "2")),
    ),
    Ferry(
        "ferry-second-hop",
        CHECKSUM,
        SQLSERVER_CLICKHOUSE,
        first=(("run", "--hop", "1"),),
        measured=(("run", "--hop", "2"),),
    ),
)
