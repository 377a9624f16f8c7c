"""Ways to bring a table up to date that has been moved before: `ferry run`, and sling's incremental
mode."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.tables import TableRef
from tableferry_bench.contenders.base import create_in_clickhouse, planned, private
from tableferry_bench.contenders.ferry import empty_home
from tableferry_bench.contenders.peers import Sling, sling_command
from tableferry_bench.meter import Command, CommandFailed, Finished, require_good, run
from tableferry_bench.servers import Servers
from tableferry_bench.workloads import EXTRA, Table


@dataclass(frozen=True)
class Moved:
    """What a run says that it moved; None where it does not say."""

    ranges: int | None = None
    whole: int | None = None
    rows: int | None = None
    written: int | None = None
    sent: int | None = None


@dataclass(frozen=True)
class Ferry:
    """`ferry run` of one transfer, whose event log stays from run to run."""

    servers: Servers
    table: Table
    target: TableRef
    ranges: int
    declared: dict[str, Any] = field(default_factory=dict)

    def set_up(self) -> None:
        """Begin with an event log that knows nothing, and no target."""
        self.servers.drop(self.target)
        shutil.copytree(empty_home(self.servers), private(self._folder) / "dagster")
        (self._folder / "transfers").mkdir()

    def run(self, **declared: str) -> tuple[Finished, Moved]:
        """Run it, with more lines in its declaration.

        Raises:
            CommandFailed: it ended badly, so that the target is not proven to be as the source.
        """
        transfer = {
            "transfer": self.table.name,
            "source": str(self.servers.table("postgres", self.table.name)),
            "hops": [str(self.target)],
            "key": self.table.key,
            "ranges": {"rows": -(-self.table.rows // self.ranges)},
            **declared,
        }
        file = self._folder / "transfers" / "move.yaml"
        file.write_text(yaml.safe_dump(transfer), encoding="utf-8")
        words = ["tableferry.pipelines.cli", "run", self.table.name, "--json", "--quiet"]
        environment = {
            **self.servers.environment,
            "TABLEFERRY_TRANSFERS": str(self._folder / "transfers"),
            "DAGSTER_HOME": str(self._folder / "dagster"),
        }
        finished = run(Command([sys.executable, "-m", *words], environment))
        require_good(finished, "ferry run", self.servers.secrets)
        return finished, self._moved(json.loads(finished.output))

    def _moved(self, document: dict[str, Any]) -> Moved:
        rows = sum(one["rows"] for one in document["ranges"])
        if rows != self.table.rows:
            raise CommandFailed(f"ferry tells of {rows} of {self.table.rows} rows")
        moved = [
            one
            for one in document["ranges"]
            if one["state"] == "committed" and one["run_id"] in document["run_ids"]
        ]
        whole = [one for one in moved if one["rows_moved"] is None]
        done = [one[kind] or 0 for one in moved for kind in ("inserted", "updated", "deleted")]
        return Moved(
            len(moved),
            len(whole),
            sum(one["rows"] if one["rows_moved"] is None else one["rows_moved"] for one in moved),
            sum(done) + sum(one["rows"] for one in whole),
            sum(one["bytes"] or 0 for one in moved),
        )

    @property
    def _folder(self) -> Path:
        return self.servers.folder / "deltas" / self.target.system_name


@dataclass(frozen=True)
class SlingIncremental:
    """`sling run --mode incremental` by a primary key and the time of a row's last change."""

    servers: Servers
    table: Table
    target: TableRef
    update_key: str

    def missing(self) -> str | None:
        """Why it cannot take part; None if it can."""
        installed = importlib.util.find_spec(Sling.module) is not None
        return None if installed else f"sling is not installed: {EXTRA}"

    def set_up(self, like: TableRef) -> None:
        """Fill its target with the rows of a table of the same server, or of its source.

        Raises:
            CommandFailed: sling ended badly.
        """
        servers, target = self.servers, self.target
        name, rows = qualified(target), f"SELECT * FROM {qualified(like)}"
        servers.drop(target)
        if target.system_name == "clickhouse":
            source = servers.table("postgres", self.table.name)
            create_in_clickhouse(servers, planned(servers, source, target, self.table.key))
            servers.execute("clickhouse", f"INSERT INTO {name} {rows}")
        elif target.system_name == "postgres":
            servers.postgres.execute(f"CREATE TABLE {name} (LIKE {qualified(like)} INCLUDING ALL)")
            servers.postgres.execute(f"INSERT INTO {name} {rows}")
        else:
            require_good(
                run(sling_command(servers, self.table, target, "full-refresh")),
                "sling",
                servers.secrets,
            )

    def run(self) -> tuple[Finished, Moved]:
        """Run it.

        Raises:
            CommandFailed: it ended badly.
        """
        keys: Sequence[str] = ("--primary-key", self.table.key, "--update-key", self.update_key)
        finished = run(sling_command(self.servers, self.table, self.target, "incremental", *keys))
        require_good(finished, "sling", self.servers.secrets)
        said = re.findall(r"inserted ([\d,]+) rows", finished.errors + finished.output)
        return finished, Moved(rows=int(said[-1].replace(",", "")) if said else None)
