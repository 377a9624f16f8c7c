"""SQL Server as a source that does not stand still: what arrives is one state, and is recorded."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tableferry.assets.running import audit, moving
from tableferry.pipelines.command.session import open_session
from tableferry.resources.sqlserver.resource import SqlServerResource
from tests.integration.conftest import Ferry
from tests.integration.support.beside import beside
from tests.integration.support.crashing import ask_sqlserver, rows_of
from tests.servers import Servers

pytestmark = pytest.mark.integration


@pytest.fixture
def ferry(stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ferry]:
    """A transfer of 4 ranges from SQL Server to ClickHouse."""
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "transfers"
    folder.mkdir()
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(folder))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    table = f"moving_{uuid.uuid4().hex[:8]}"
    (folder / "t.yaml").write_text(
        f"transfer: {table}\nsource: sqlserver://dbo.{table}\n"
        f"hops: ['clickhouse://warehouse.{table}']\nkey: id\nranges: {{rows: 100}}\n"
    )
    server = SqlServerResource(url=stack.sqlserver_url)
    server.execute(
        f"CREATE TABLE dbo.{table} (id int NOT NULL PRIMARY KEY, name nvarchar(50), "
        "amount decimal(12,2) NOT NULL)"
    )
    values = ", ".join(f"({number}, N'name {number}', {number}.5)" for number in range(1, 401))
    server.execute(f"INSERT INTO dbo.{table} (id, name, amount) VALUES {values}")
    one = Ferry(stack, folder, table, open_session())
    yield one
    one.session.instance.dispose()
    server.execute(f"DROP TABLE dbo.{table}")


def when(
    monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[int], None]
) -> Callable[[], int]:
    """Call `act(n)` when the run is at a named point the nth time; returns how to ask for n."""
    seen = 0

    def reached(name: str) -> None:
        nonlocal seen
        if name == point:
            seen += 1
            act(seen)

    for module in (moving, audit):
        monkeypatch.setattr(module, "reached", reached)
    return lambda: seen


CHANGES = [
    "UPDATE dbo.{t} SET name = N'changed' WHERE id = 42",
    "DELETE FROM dbo.{t} WHERE id = 42",
    "INSERT INTO dbo.{t} (id, name, amount) VALUES (0, NULL, 1)",
]


@pytest.mark.invariant("I3", "I5")
@pytest.mark.parametrize("change", CHANGES)
def test_a_range_that_changes_while_it_is_copied_is_copied_again(
    ferry: Ferry, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    server = SqlServerResource(url=ferry.stack.sqlserver_url)

    def disturb(number: int) -> None:
        if number == 1:
            server.execute(change.format(t=ferry.table))

    exports = when(monkeypatch, "after_load", disturb)
    view = ferry.run(profile="safe")
    assert view.good, view.errors
    assert rows_of(ferry, "clickhouse") == rows_of(ferry, "sqlserver")
    assert exports() == 5, "4 full ranges, and the first once more"
    assert [one.attempts for one in view.ranges] == [2, 1, 1, 1, 1]
    assert {one.state for one in ferry.plan().ranges} == {"skip"}, "recorded as what it was read as"


@pytest.mark.invariant("I2", "I6")
@pytest.mark.parametrize("point", ["before_audit", "after_audit"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_after_the_copy_is_seen_by_the_next_plan(
    ferry: Ferry, monkeypatch: pytest.MonkeyPatch, point: str, change: str
) -> None:
    server = SqlServerResource(url=ferry.stack.sqlserver_url)
    before = rows_of(ferry, "sqlserver")

    def disturb(number: int) -> None:
        if number == 1:
            server.execute(change.format(t=ferry.table))

    when(monkeypatch, point, disturb)
    view = ferry.run(profile="safe")
    assert [one.state for one in view.ranges] == ["committed"] * 5
    assert rows_of(ferry, "clickhouse") == before, "what was audited is what readers see"
    changed = [one.reason for one in ferry.plan().ranges if one.state != "skip"]
    assert changed == ["source_changed"]
    again = ferry.run()
    assert again.good, again.errors
    assert rows_of(ferry, "clickhouse") == rows_of(ferry, "sqlserver")


@pytest.mark.invariant("I3")
def test_a_source_under_constant_change_never_leaves_a_lie(
    ferry: Ferry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is recorded as committed is what the next plan finds, or it is run again."""
    monkeypatch.setattr("tableferry.resources.connecting.retry.FIRST_SECONDS", 0.05)
    server = SqlServerResource(url=ferry.stack.sqlserver_url)
    numbers = itertools.count(1)

    def change() -> None:
        server.execute(
            f"UPDATE dbo.{ferry.table} SET amount = amount + 1 WHERE id = {next(numbers) % 400 + 1}"
        )

    with beside(change, 0.05):
        view = ferry.run(profile="safe")
    assert all(one.state in ("committed", "failed") for one in view.ranges)
    last = ferry.run()
    assert last.good, last.errors
    assert rows_of(ferry, "clickhouse") == rows_of(ferry, "sqlserver")


def test_an_export_reads_one_moment_where_snapshots_are_allowed(ferry: Ferry) -> None:
    server = SqlServerResource(url=ferry.stack.sqlserver_url)
    allowed = ask_sqlserver(
        ferry, "SELECT snapshot_isolation_state FROM sys.databases WHERE name = DB_NAME()"
    )
    if allowed != [(1,)]:
        pytest.skip("the database does not allow SNAPSHOT isolation")
    sql = f"SELECT id FROM dbo.{ferry.table} ORDER BY id"
    with server.read_arrow(sql, batch_rows=10) as reader:
        ids: list[Any] = reader.read_next_batch().column(0).to_pylist()
        server.execute(f"DELETE FROM dbo.{ferry.table} WHERE id > 10")
        for batch in reader:
            ids += batch.column(0).to_pylist()
    assert ids == list(range(1, 401))
