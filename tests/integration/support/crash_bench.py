"""The transfers that the crash matrix kills, and what is known of them before and after."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import dagster as dg
import pytest

from tests.integration.conftest import Ferry
from tests.integration.support.crashing import COPIES, reopen

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
    """One transfer on one Dagster instance, of which one command after the other is killed."""

    ferry: Ferry
    mode: str
    systems: dict[str, str]
    cells: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    changed: int = 0
    """The newest event of the log when the source was changed last."""

    def change(self) -> None:
        """Change ranges: rows are added and, where the mode follows, updated and deleted."""
        cell = next(self.cells)
        self.changed = self.ferry.session.instance.event_log_storage.get_maximum_record_id() or 0
        after = RANGES * ROWS_PER_RANGE + cell
        statements = [f"INSERT INTO {{t}} VALUES ({-cell}, NULL, 0)"]
        if self.mode == "append":
            statements.append(f"INSERT INTO {{t}} VALUES ({after}, NULL, 0)")
        else:
            statements.append("UPDATE {t} SET name = name || '.', amount = amount + 1")
        if self.mode not in ("append", "upsert"):
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


def bench_of(
    ferry: Callable[..., Ferry], patch: pytest.MonkeyPatch, route: str, mode: str
) -> Bench:
    """A transfer of a route and write mode whose ranges are all committed."""
    hops = ", ".join(f"'{system}://{schema}.{{t}}'" for system, schema in ROUTES[route].items())
    made = ferry(
        f"[{hops}]",
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text, amount numeric(12,2) NOT NULL)",
        "INSERT INTO {t} SELECT g, 'name ' || g, g * 1.5 "
        f"FROM generate_series(1, {RANGES * ROWS_PER_RANGE}) g",
        ranges=f"{{rows: {ROWS_PER_RANGE}}}",
        write=mode,
        delta="always" if route.startswith("delta") else "never",
    )
    patch.setenv("TABLEFERRY_CONNECTION_COPIES", made.stack.postgres_url)
    reopen(made)
    first = made.run()
    assert first.good, first.errors
    return Bench(made, mode, ROUTES[route])
