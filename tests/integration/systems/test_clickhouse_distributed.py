"""A Distributed table of two shards: read through, compared, and no target.

The shards are servers of the local stack that ask each other by ClickHouse's own protocol.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tableferry.pipelines.command.one import runner
from tableferry_local import clickhouse
from tableferry_local.process import free_port
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]


@dataclass
class Shards:
    """The addresses of the shards."""

    urls: list[str]

    def on(self, number: int, *statements: str) -> None:
        """Run statements on a shard, counted from 1."""
        for statement in statements:
            looking.clickhouse(self.urls[number - 1]).command(statement)

    def on_all(self, *statements: str) -> None:
        for number in range(1, len(self.urls) + 1):
            self.on(number, *statements)

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        return looking.ask_clickhouse(self.urls[0], sql)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shards]:
    password, started, urls = secrets.token_hex(8), list[int](), list[str]()
    ports = [free_port() for _ in range(2)]
    try:
        for number in range(2):
            folder, port = tmp_path_factory.mktemp(f"shard{number}"), free_port()
            pid = clickhouse.start(folder, port, password, shards=ports, number=number)
            started.append(pid)
            clickhouse.wait_ready(folder, pid, port, password)
            urls.append(clickhouse.url(port, password))
        yield Shards(urls)
    finally:
        for pid in started:
            clickhouse.stop(pid)


@pytest.fixture
def spread(
    ferry: Make, shards: Shards, copies: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ferry]:
    """A transfer of a Distributed table into PostgreSQL, each shard with ten rows of twenty."""
    monkeypatch.setenv("TABLEFERRY_CONNECTION_SHARDS", shards.urls[0])
    one = ferry("['postgres://public.{t}_unused']")
    t = one.table
    shards.on_all(
        f"CREATE TABLE {t}_local (id Int32, note Nullable(String), v UInt32) "
        "ENGINE = ReplacingMergeTree(v) ORDER BY id",
        f"CREATE TABLE {t} AS {t}_local ENGINE = Distributed(shards, warehouse, {t}_local, id)",
    )
    for number in (1, 2):
        shards.on(
            number,
            f"INSERT INTO {t}_local SELECT number * 2 + {number}, 'n', 1 FROM numbers(10)",
        )
    declare(one, copies)
    yield one
    shards.on_all(f"DROP TABLE {t} SYNC", f"DROP TABLE {t}_local SYNC")


def declare(one: Ferry, copies: str, **more: str) -> None:
    one.declare(
        f"['postgres://{copies}.{{t}}']",
        source=f"shards://warehouse.{one.table}",
        columns="[id, note]",
        **{"ranges": "{bounds: [1, 11, 21]}", **more},
    )


def test_rows_of_all_shards_move_and_a_change_on_any_is_noticed(
    spread: Ferry, shards: Shards, copies: str
) -> None:
    t = spread.table
    assert "its shards are read through it" in command("plan", t).stdout
    first = spread.run()
    assert first.good, first.errors
    assert spread.rows(f"SELECT id FROM {copies}.{{t}} ORDER BY id") == [
        (number,) for number in range(1, 21)
    ]
    assert spread.moved(spread.run()) == []
    for number, row in ((2, 12), (1, 3)):
        change = f"ALTER TABLE {t}_local UPDATE note = 'new' WHERE id = {row}"
        shards.on(number, f"{change} SETTINGS mutations_sync = 1")
        changed = spread.run()
        assert changed.good and len(spread.moved(changed)) == 1, changed.errors
    shards.on_all(f"OPTIMIZE TABLE {t}_local FINAL")  # which rewrites the parts of both
    assert spread.moved(spread.run()) == []
    assert spread.rows(f"SELECT id FROM {copies}.{{t}} WHERE note = 'new' ORDER BY 1") == [
        (3,),
        (12,),
    ]


def test_rows_that_differ_are_shown_with_their_shard(
    spread: Ferry, shards: Shards, copies: str
) -> None:
    t = spread.table
    assert spread.run().good
    spread.source(
        f"UPDATE {copies}.{{t}} SET note = 'damaged' WHERE id = 4",
        f"DELETE FROM {copies}.{{t}} WHERE id = 5",
        f"INSERT INTO {copies}.{{t}} VALUES (-3, 'nobody''s')",
    )
    checked = runner.check(spread.session, t)
    examples = {
        (each.key, each.row["_shard_num"])
        for check in checked.checks
        if check.range and check.verdict.differences
        for each in check.verdict.differences.examples
    }
    assert examples == {("4", "2"), ("5", "1"), ("-3", None)}
    (name,) = {
        check.range
        for check in checked.checks
        for each in (check.verdict.differences.examples if check.verdict.differences else ())
        if check.range and each.key == "4"
    }
    shown = command("diff", t, "--range", str(name), "--json")
    (rows,) = json.loads(shown.stdout)["hops"].values()
    assert [each["row"]["_shard_num"] for each in rows["examples"]] == ["2", "1"]
    assert "_shard_num" in command("diff", t, "--range", str(name)).stdout
    compared = command(
        "compare", f"shards://warehouse.{t}", f"postgres://{copies}.{t}", "--columns", "id,note",
        "--key", "id",
    )  # fmt: skip
    assert compared.exit_code == 1 and "_shard_num" in compared.stdout, compared.stdout


def test_the_newest_versions_of_each_shard_are_read(
    spread: Ferry, shards: Shards, copies: str
) -> None:
    t = spread.table
    shards.on_all(f"SYSTEM STOP MERGES {t}_local")
    shards.on(1, f"INSERT INTO {t}_local VALUES (3, 'newer', 2)")
    shards.on(2, f"INSERT INTO {t}_local VALUES (4, 'older', 0)")
    declare(spread, copies, final="true", ranges="{rows: 5}")
    done = spread.run()
    assert done.good and len(spread.moved(done)) > 3, done.errors
    shown = spread.rows(f"SELECT id, note FROM {copies}.{{t}} ORDER BY id")
    assert len(shown) == 20 and shown[2:4] == [(3, "newer"), (4, "n")]
    shards.on_all(
        f"CREATE TABLE {t}_plain (id Int32, note String) ORDER BY id",
        f"CREATE TABLE {t}_all AS {t}_plain ENGINE = Distributed(shards, warehouse, {t}_plain)",
    )
    try:
        spread.declare(
            f"['postgres://{copies}.{{t}}']", source=f"shards://warehouse.{t}_all", final="true"
        )
        refused = command("validate", t)
        assert refused.exit_code == 2 and "keeps no versions of rows" in refused.output
    finally:
        shards.on_all(f"DROP TABLE {t}_all SYNC", f"DROP TABLE {t}_plain SYNC")


def test_a_shard_that_is_away_is_told_and_nothing_is_taken_for_deleted(
    spread: Ferry, shards: Shards, copies: str
) -> None:
    t = spread.table
    assert spread.run().good
    shards.on(2, f"RENAME TABLE {t}_local TO {t}_away")
    try:
        failed = command("run", t)
        assert failed.exit_code != 0 and f"{t}_local" in failed.output, failed.output
    finally:
        shards.on(2, f"RENAME TABLE {t}_away TO {t}_local")
    assert spread.rows(f"SELECT count(*) FROM {copies}.{{t}}") == [(20,)]
    assert spread.run().good


def test_it_is_refused_as_a_target_and_its_local_tables_are_taken(
    spread: Ferry, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = spread.table
    spread.source(
        "CREATE TABLE {t} (id int PRIMARY KEY, note text)", "INSERT INTO {t} VALUES (100, 'x')"
    )
    spread.declare(f"['shards://warehouse.{t}']", columns="[id, note]")
    for words in (["validate", t], ["run", t]):
        refused = command(*words)
        assert refused.exit_code == 2, refused.output
        assert "Write to these tables, by a transfer for each server" in refused.output
    shards.on_all(f"TRUNCATE TABLE {t}_local")
    spread.declare(f"['shards://warehouse.{t}_local']", columns="[id, note]")
    done = spread.run()
    assert done.good, done.errors
    assert shards.ask(f"SELECT id, _shard_num FROM {t}") == [(100, 1)]
