"""The transfers that the crash matrix kills, and what is known of them before and after."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest

from tableferry.pipelines.command.session import open_session
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import COPIES, Command
from tests.servers import Servers, own

ROUTES = {
    "direct": {"clickhouse": "warehouse"},
    "chain": {"sqlserver": "dbo", "clickhouse": "warehouse"},
    "half": {"sqlserver": "dbo"},
    "copy": {"copies": COPIES},
    "delta": {"copies": COPIES},
    "delta_sqlserver": {"sqlserver": "dbo"},
    "sqlserver_postgres": {"sqlserver": "dbo", "copies": COPIES},
    "clickhouse_postgres": {"clickhouse": "warehouse", "copies": COPIES},
}
ROWS_PER_RANGE, RANGES = 200, 3
"""One range is done, one is under way, and one has not begun, when a command is killed."""
CHANGED = [
    "..0000000201",
    "0000000201..0000000401",
    "0000000401..0000000601",
]
ALL = [*CHANGED, "0000000601.."]


@dataclass
class Bench:
    """One transfer on one Dagster instance, on which the cells of a route and mode take turns."""

    ferry: Ferry
    mode: str
    systems: dict[str, str]
    cells: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    changed: int = 0
    """The newest event of the log when the source was changed last."""

    def change(self) -> None:
        """Change every range: rows are updated and added and, where the mode follows, deleted."""
        cell = next(self.cells)
        self.changed = self.ferry.session.instance.event_log_storage.get_maximum_record_id() or 0
        statements = [
            "UPDATE {t} SET name = name || '.', amount = amount + 1",
            f"INSERT INTO {{t}} VALUES ({-cell}, NULL, 0)",
        ]
        if self.mode != "upsert":
            statements.append(f"DELETE FROM {{t}} WHERE id % {ROWS_PER_RANGE} = {cell}")
        self.ferry.source(*statements)

    def commits(self, system: str) -> dict[str, int]:
        """How often each range was committed since the change, in one of the systems."""
        return self.ferry.materializations(system, self.systems[system], after=self.changed)

    def moves(self) -> Counter[str]:
        """How often each range was put into the first target since, seen or unseen by readers."""
        asset = dg.AssetKey([*next(iter(self.systems.items())), self.ferry.table])
        wanted = dg.AssetRecordsFilter(asset_key=asset, after_storage_id=self.changed)
        log = self.ferry.session.instance.fetch_observations(wanted, limit=1000).records
        events = [record.asset_observation for record in log]
        return Counter(
            str(event.partition)
            for event in events
            if event is not None and event.tags["tableferry/state"] == "shadowed"
        )


class Benches:
    """Makes the bench of a route and mode when it is first asked for, and points there.

    Args:
        stack: the servers.
        folders: where each bench gets its transfer file and its Dagster instance.
    """

    def __init__(self, stack: Servers, folders: pytest.TempPathFactory) -> None:
        self._stack, self._folders = stack, folders
        self._made: dict[tuple[str, str], Bench] = {}
        self._homes: dict[tuple[str, str], dict[str, str]] = {}
        self.command = Command(folders.mktemp("command"))

    @contextmanager
    def of(self, route: str, mode: str) -> Iterator[Bench]:
        """The bench, with the environment that its commands need."""
        key = (route, mode)
        if key not in self._homes:
            self._homes[key] = {
                **self._stack.environment(),
                "TABLEFERRY_TRANSFERS": str(self._folders.mktemp("transfers")),
                "DAGSTER_HOME": str(self._folders.mktemp("dagster")),
                "TABLEFERRY_CONNECTION_COPIES": self._stack.postgres_url,
            }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._homes[key].items():
                patch.setenv(name, value)
            if key not in self._made:
                self._made[key] = self._make(route, mode)
            yield self._made[key]

    def _make(self, route: str, mode: str) -> Bench:
        """A transfer whose ranges are all committed."""
        folder = Path(self._homes[route, mode]["TABLEFERRY_TRANSFERS"])
        ferry = Ferry(self._stack, folder, own(f"crash_{route}_{mode}"), open_session())
        ferry.source(
            "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
            "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 "
            f"FROM generate_series(1, {RANGES * ROWS_PER_RANGE}) g",
        )
        hops = ", ".join(f"'{system}://{schema}.{{t}}'" for system, schema in ROUTES[route].items())
        delta = "always" if route.startswith("delta") else "never"
        ferry.declare(f"[{hops}]", ranges=f"{{rows: {ROWS_PER_RANGE}}}", write=mode, delta=delta)
        first = ferry.run()
        assert first.good, first.errors
        return Bench(ferry, mode, ROUTES[route])

    def close(self) -> None:
        """Drop what was made."""
        for one in self._made.values():
            one.ferry.session.instance.dispose()
            one.ferry.source("DROP TABLE {t}", f"DROP TABLE IF EXISTS {COPIES}.{{t}}")
