"""`write: none`: tables that another tool has moved are compared by schedule, and never written."""

from __future__ import annotations

import json
from collections.abc import Callable

import dagster as dg
import pytest

from tableferry.assets.log.states import State
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.definitions import build
from tableferry.resources.errors import InputError
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

SOURCE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT i, 'n' || i FROM generate_series(1, 40) i",
)
COPIES = {
    "sqlserver": (
        "sqlserver://dbo.{t}",
        "CREATE TABLE dbo.{t} (id int NOT NULL PRIMARY KEY, note nvarchar(max))",
        "INSERT INTO dbo.{t} VALUES ({n}, N'n{n}')",
        "UPDATE dbo.{t} SET note = N'' WHERE id = 33",
    ),
    "clickhouse": (
        "clickhouse://warehouse.{t}",
        "CREATE TABLE warehouse.{t} (id Int32, note Nullable(String)) ENGINE = MergeTree"
        " ORDER BY id",
        "INSERT INTO warehouse.{t} VALUES ({n}, 'n{n}')",
        "ALTER TABLE warehouse.{t} UPDATE note = '' WHERE id = 33 SETTINGS mutations_sync = 1",
    ),
}


@pytest.mark.parametrize("system", COPIES)
def test_a_table_that_another_tool_moved_is_compared_and_never_written(
    ferry: Callable[..., Ferry], system: str
) -> None:
    hop, create, insert, damage = COPIES[system]
    one = ferry(f"['{hop}']", *SOURCE, write="none", ranges="{rows: 10}")
    name, session = one.table, one.session
    missing = command("check", name)
    assert missing.exit_code == 2 and f"{hop.format(t=name)} does not exist" in missing.stderr

    def copy(sql: str, **values: object) -> None:
        looking.run(one.stack, system, sql.format(t=name, **values))

    copy(create)
    for n in range(1, 41):
        if n != 7:
            copy(insert, n=n)
    first = runner.check(session, name)
    assert not first.good, [check.summary() for check in first.checks]
    failed = {check.range for check in first.checks if check.failed and check.range}
    states = {range_.range: range_.state for range_ in runner.status(session, name).ranges}
    assert len(failed) == 1 and len(states) > 2
    assert {range_ for range_, state in states.items() if state is State.ADOPTED} == (
        {*states} - failed
    )
    (range_name,) = failed
    shown = command("diff", name, "--range", str(range_name))
    assert "7" in shown.stdout, shown.output

    copy(insert, n=7)
    second = runner.check(session, name)
    assert second.good, second.errors
    assert command("status", "--all").exit_code == 0
    assert command("report", name).exit_code == 0

    copy(damage)
    third = runner.check(session, name)
    (damaged,) = {check.range for check in third.checks if check.failed and check.range}
    assert "33" in command("diff", name, "--range", str(damaged)).stdout
    assert command("report", name).exit_code == 1


def test_a_source_that_has_moved_on_is_a_warning(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *SOURCE, write="none", ranges="{rows: 10}")
    looking.run(one.stack, "sqlserver", COPIES["sqlserver"][1].format(t=one.table))
    for n in range(1, 41):
        looking.run(one.stack, "sqlserver", COPIES["sqlserver"][2].format(t=one.table, n=n))
    assert runner.check(one.session, one.table).good
    one.source("UPDATE {t} SET note = 'newer' WHERE id = 5")
    behind = runner.check(one.session, one.table)
    assert behind.good and "the source is newer" in behind.closing
    assert not runner.check(one.session, one.table, up_to_date=True).good


def test_its_checks_are_all_that_dagster_can_execute(ferry: Callable[..., Ferry]) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *SOURCE, write="none", check_schedule="'0 5 * * *'")
    looking.run(one.stack, "sqlserver", COPIES["sqlserver"][1].format(t=one.table))
    definitions = build(one.session.declared, bound=one.session.servers)
    graph = definitions.resolve_asset_graph()
    target = dg.AssetKey(["sqlserver", "dbo", one.table])
    assert target in graph.external_asset_keys and target not in graph.executable_asset_keys
    assert graph.get(target).partitions_def is not None
    assert {key.name for key in graph.get_check_keys_for_assets({target})} >= {"checksum"}
    schedules = [schedule.name for schedule in definitions.schedules or ()]
    assert schedules == [f"{one.table}_check_schedule"]
    with pytest.raises(InputError, match=r"moves nothing: `ferry check"):
        one.run()
    for arguments in (("run", one.table), ("plan", one.table), ("adopt", one.table)):
        refused = command(*arguments)
        assert refused.exit_code == 2 and "moves nothing" in refused.stderr, arguments
    assert command("validate").exit_code == 0
    one.declare("['sqlserver://dbo.{t}']", write="none", schedule="'0 5 * * *'")
    refused = command("validate")
    assert refused.exit_code == 2 and "takes check_schedule" in refused.stderr


DAMAGES = {
    "sqlserver": (
        "DELETE FROM dbo.{t} WHERE id = 7",
        "UPDATE dbo.{t} SET note = N'wrong' WHERE id IN (8, 33)",
        "INSERT INTO dbo.{t} VALUES (41, N'stray')",
    ),
    "clickhouse": (
        "DELETE FROM warehouse.{t} WHERE id = 7",
        "ALTER TABLE warehouse.{t} UPDATE note = 'wrong' WHERE id IN (8, 33)"
        " SETTINGS mutations_sync = 1",
        "INSERT INTO warehouse.{t} VALUES (41, 'stray')",
    ),
}


def damaged(ferry: Callable[..., Ferry], system: str) -> Ferry:
    """A pair that is only compared, of which the copy has other rows, and none was ever equal."""
    hop, create, insert, _ = COPIES[system]
    one = ferry(f"['{hop}']", *SOURCE, write="none", ranges="{bounds: [1, 10, 20]}")
    looking.run(one.stack, system, create.format(t=one.table))
    for n in range(1, 41):
        looking.run(one.stack, system, insert.format(t=one.table, n=n))
    for statement in DAMAGES[system]:
        looking.run(one.stack, system, statement.format(t=one.table))
    return one


@pytest.mark.parametrize("system", COPIES)
def test_it_is_repaired_where_the_user_asks_for_it(
    ferry: Callable[..., Ferry], system: str
) -> None:
    one = damaged(ferry, system)
    name, session = one.table, one.session
    before = command("repair", name, "--dry-run", "--json")
    assert before.exit_code == 1, before.output
    shown = json.loads(before.stdout)["differences"]
    assert len(shown) == 2, "the ranges with damage"
    assert not runner.check(session, name).good, "nothing was put right"
    done = command("repair", name, "--json")
    assert done.exit_code == 0, done.output
    ranges = json.loads(done.stdout)["ranges"]
    written = [
        sum(each[what] or 0 for each in ranges) for what in ("inserted", "updated", "deleted")
    ]
    assert written == [1, 2, 1]
    after = runner.check(session, name, level="full_hash")
    assert after.good, after.errors
    assert command("repair", name, "--dry-run").stdout.strip() == f"{name}: no row differs"
    assert command("status", "--all").exit_code == 0
    assert command("report", name).exit_code == 0
    # it is watched as before
    one.source("UPDATE {t} SET note = 'newer' WHERE id = 5")
    behind = runner.check(session, name)
    assert behind.good and "the source is newer" in behind.closing
    refused = command("run", name)
    assert refused.exit_code == 2 and "moves nothing" in refused.stderr


def test_the_statements_of_its_repair_are_printed(ferry: Callable[..., Ferry]) -> None:
    one = damaged(ferry, "sqlserver")
    printed = command("repair", one.table, "--sql", "--json")
    assert printed.exit_code == 1, printed.output
    scripts = json.loads(printed.stdout)["scripts"]
    assert sum(each["updated"] for each in scripts) == 2
    assert not runner.check(one.session, one.table).good, "nothing was put right"
    for each in scripts:
        looking.run(one.stack, "sqlserver", "; ".join(each["statements"]))
    assert runner.check(one.session, one.table).good


REFUSED = {
    "view": (
        "sqlserver://dbo.{t}",
        ("CREATE VIEW dbo.{t} AS SELECT 1 AS id, CAST(N'n1' AS nvarchar(max)) AS note",),
        "it is a view, which shows rows of other tables",
    ),
    "narrow": (
        "sqlserver://dbo.{t}",
        ("CREATE TABLE dbo.{t} (id int NOT NULL PRIMARY KEY, note int)",),
        "'note'",
    ),
    "missing": ("sqlserver://dbo.{t}", (), "does not exist"),
    "lacking": (
        "sqlserver://dbo.{t}",
        ("CREATE TABLE dbo.{t} (id int NOT NULL PRIMARY KEY)",),
        "has no column 'note'",
    ),
    "folder": ("files://archive/{t}/", (), "rows of files are not written by themselves"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_repair_cannot_write_is_refused(ferry: Callable[..., Ferry], case: str) -> None:
    hop, statements, says = REFUSED[case]
    one = ferry(f"['{hop}']", *SOURCE, write="none")
    for statement in statements:
        looking.run(one.stack, "sqlserver", statement.format(t=one.table))
    for options in ((), ("--dry-run",), ("--sql",)):
        refused = command("repair", one.table, *options)
        assert refused.exit_code == 2, refused.output
        assert f"{one.table} cannot be repaired: " in refused.stderr and says in refused.stderr
    if case == "view":
        looking.run(one.stack, "sqlserver", f"DROP VIEW dbo.{one.table}")


def test_without_a_primary_key_no_row_is_repaired(ferry: Callable[..., Ferry]) -> None:
    one = ferry(
        "['sqlserver://dbo.{t}']",
        "CREATE TABLE {t} (id int NOT NULL, note text)",
        "INSERT INTO {t} VALUES (1, 'n1')",
        write="none",
    )
    looking.run(one.stack, "sqlserver", COPIES["sqlserver"][1].format(t=one.table))
    assert not runner.check(one.session, one.table).good
    refused = command("repair", one.table)
    assert refused.exit_code == 2
    assert "has no primary key that is copied as a whole" in refused.stderr


def test_rows_are_not_repaired_without_a_column_that_both_tables_have(
    ferry: Callable[..., Ferry],
) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *SOURCE, write="none", exclude="[note]")
    looking.run(one.stack, "sqlserver", COPIES["sqlserver"][1].format(t=one.table))
    assert not runner.check(one.session, one.table).good
    for options in ((), ("--dry-run",), ("--sql",)):
        refused = command("repair", one.table, *options)
        assert refused.exit_code == 2, refused.output
        assert "rows would be written without 'note', which is left out" in refused.stderr
