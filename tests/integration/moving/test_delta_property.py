"""Whatever a table holds and whatever changes at both ends: a run leaves what the mode promises."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.moving.test_delta import TEXTS, figures, records
from tests.integration.proving.test_reconcile_no_false_alarm import FOR_SQLSERVER, NEVER_NULL
from tests.integration.support import looking

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]

EXAMPLES = int(os.environ.get("TABLEFERRY_TEST_EXAMPLES", "2"))
ROUTES = {
    "postgres": ["postgres"],
    "sqlserver-postgres": ["sqlserver", "postgres"],
    "clickhouse-postgres": ["clickhouse", "postgres"],
    "sqlserver-clickhouse": ["sqlserver", "clickhouse"],
    "clickhouse-sqlserver": ["clickhouse", "sqlserver"],
}
"""Together with the source they have every pair of servers."""

COLLATIONS = ["", 'COLLATE "C"', 'COLLATE "C.utf8"', 'COLLATE "POSIX"']


class Target:
    """One of the tables that a transfer fills."""

    def __init__(self, one: Ferry, system: str, schema: str, hop: int) -> None:
        self.one, self.system, self.hop = one, system, hop
        self.table = f"{schema}.{one.table}"

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the target; `{t}` is the table."""
        return looking.ask(self.one.stack, self.system, sql.replace("{t}", self.table))

    def change(self, statement: str) -> None:
        """Change the target as somebody else would."""
        if self.system == "clickhouse":
            statement = statement.replace("DELETE FROM {t} WHERE", "ALTER TABLE {t} DELETE WHERE")
            statement = statement.replace("UPDATE {t} SET", "ALTER TABLE {t} UPDATE")
            statement += " SETTINGS mutations_sync = 2"
        looking.run(self.one.stack, self.system, statement.replace("{t}", self.table))

    def rows(self) -> dict[int, int]:
        """The changing number of each row, by the number that never changes."""
        rows = self.ask("SELECT n, num FROM {t}")
        assert len(rows) == len({n for n, _ in rows}), "a row is there twice"
        return dict(rows)

    def places(self) -> dict[int, tuple[Any, ...]]:
        """Where PostgreSQL stores each row, and the transaction that wrote it."""
        if self.system != "postgres":
            return {}
        return {n: place for n, *place in self.ask("SELECT n, ctid::text, xmin::text FROM {t}")}


@pytest.mark.invariant("I12")
@pytest.mark.parametrize("route", ROUTES)
def test_a_run_leaves_what_its_mode_promises(ferry: Make, copies: str, route: str) -> None:
    systems = ROUTES[route]
    schemas = {"postgres": copies, "sqlserver": "dbo", "clickhouse": "warehouse"}
    hops = [f"'{system}://{schemas[system]}.{{t}}'" for system in systems]
    removing = ["apply", "{mark: gone}"] if "clickhouse" not in systems else []

    @given(data=st.data(), seed=st.integers(0, 2**32))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def holds(data: st.DataObject, seed: int) -> None:
        chance = random.Random(seed)
        # arrays do not come out of there, nor bytes that are no text
        refused = {*NEVER_NULL, "raw"} if systems[0] == "clickhouse" else set()
        names = chance.sample([name for name in FOR_SQLSERVER if name not in refused], 4)
        write = chance.choice(["replace", "replace", "upsert"])
        deletes = chance.choice(["keep", *removing]) if write == "upsert" else "keep"
        delta = chance.choice(["always", "always", "auto", "never"])
        declared = {"ranges": "{rows: 100000}", "write": write, "deletes": deletes, "delta": delta}
        columns = ", ".join(
            f"{name} {FOR_SQLSERVER[name][0]}{' NOT NULL' * (name in NEVER_NULL)}" for name in names
        )
        one = ferry(
            f"[{', '.join(hops)}]",
            f"CREATE TABLE {{t}} (id integer, code_part varchar(300) {chance.choice(COLLATIONS)}, "
            f"n integer, num integer, {columns}, PRIMARY KEY (id, code_part))",
            **declared,
        )
        targets = [
            Target(one, system, schemas[system], hop) for hop, system in enumerate(systems, 1)
        ]

        def values(n: int, num: int) -> tuple[Any, ...]:
            drawn = [
                data.draw(strategy if name in NEVER_NULL else st.none() | strategy)
                for name in names
                for strategy in [FOR_SQLSERVER[name][1]]
            ]
            # the same number with texts that some collations take for equal
            return (n // len(TEXTS), TEXTS[n % len(TEXTS)], n, num, *drawn)

        def put(rows: list[tuple[Any, ...]]) -> None:
            with looking.postgres(one.stack.postgres_url) as connection:
                for row in rows:
                    holders = ", ".join(["%s"] * len(row))
                    updates = ", ".join(f"{name} = EXCLUDED.{name}" for name in ("num", *names))
                    connection.execute(
                        f"INSERT INTO {one.table} VALUES ({holders}) "  # type: ignore[arg-type]
                        f"ON CONFLICT (id, code_part) DO UPDATE SET {updates}",
                        row,
                    )

        put([values(n, n) for n in range(30)])
        first = one.run()
        assert first.good, first.errors
        before = dict(one.rows("SELECT n, num FROM {t}"))
        some = chance.sample([*before], 9)
        gone, changed, lost, damaged = some[:2], some[2:5], some[5:7], some[7:]
        put([values(n, 1000 + n) for n in (*changed, 40, 41)])
        one.source(f"DELETE FROM {{t}} WHERE n IN ({gone[0]}, {gone[1]})")
        for target in targets:
            target.change(f"DELETE FROM {{t}} WHERE n IN ({lost[0]}, {lost[1]})")
            target.change(f"UPDATE {{t}} SET num = -1 WHERE n IN ({damaged[0]}, {damaged[1]})")
        places = {target.hop: target.places() for target in targets}
        view = one.run()
        assert view.good, view.errors
        source = dict(one.rows("SELECT n, num FROM {t}"))
        kept = write == "upsert" and deletes != "apply"
        expected = source | ({n: before[n] for n in gone} if kept else {})
        same = {*source} - {*changed, 40, 41, *lost, *damaged}
        for target in targets:
            assert target.rows() == expected, target.system
            after = target.places()
            written = [n for n in same if after and after[n] != places[target.hop][n]]
            if delta == "always":
                assert not written, "equal rows have been written"
                record = max(records(one, target.hop).values(), key=lambda each: each.rows or 0)
                assert record.whole_because is None
                removed = 0 if deletes == "keep" and write == "upsert" else 2
                # the next hop reads what this one keeps, but for marked rows
                kept_on = target.hop > 1 and deletes == "keep"
                rows = len(expected if kept_on else source)
                assert figures(record) == (rows, 4, 5, removed)
        checked = runner.check(one.session, one.table, level="full_hash")
        assert checked.good, checked.errors
        assert {planned.state for planned in one.plan().ranges} == {"skip"}

    holds()
