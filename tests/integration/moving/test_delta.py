"""Only the rows of a range that differ are moved, and the range is proven with them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableferry.assets.log import ledger
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.planning.snapshots import SnapshotTooOld
from tableferry.assets.running import actions
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.session import open_session
from tableferry.pipelines.reporting.collect import report
from tableferry.resources.connecting.guard import SourceBusy
from tableferry.resources.errors import InputError, SetLost, TableferryError
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.beside import beside

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]

TEXTS = [
    "",
    "a",
    "A",
    "a ",
    "ä",
    "a\u0308",
    "b'c",
    "b\\c",
    "%_[",
    "ß",
    "\U0001f600",
    "x" * 250,
]


@dataclass(frozen=True)
class Shape:
    """A table whose primary key is made of a number."""

    columns: str
    identity: str
    """The primary key's columns."""
    key: str
    of: Callable[[int], str]
    """The values of the primary key's columns for a number, in SQL of PostgreSQL."""


SHAPES = {
    "integer": Shape("id integer", "id", "id", str),
    "composite": Shape(
        "tenant integer, line bigint", "tenant, line", "tenant", lambda n: f"{n // 7}, {n % 7}"
    ),
    "text": Shape(
        'code varchar(300) COLLATE "C.utf8", part smallint',
        "code, part",
        "code",
        lambda n: f"{literal(TEXTS[n % len(TEXTS)])}, {n}",
    ),
    "uuid": Shape("code uuid", "code", "code", lambda n: f"'{n * 7919:032x}'"),
    "timestamp": Shape(
        "at timestamp(6), id integer",
        "id, at",
        "at",
        lambda n: (
            f"timestamp '2024-02-29 23:59:59.99999' + {n % 9} * interval '1 microsecond', {n}"
        ),
    ),
}


def literal(text: str) -> str:
    return " E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def there(one: Ferry, system: str, schema: str, sql: str) -> list[tuple[Any, ...]]:
    """Rows of the target; `{t}` is the table."""
    return looking.ask(one.stack, system, sql.replace("{t}", f"{schema}.{one.table}"))


def records(one: Ferry, hop: int = 1) -> dict[str, RangeRecord]:
    """The newest records of a hop by range."""
    table = one.session.transfer(one.table).hops[hop - 1].to
    names = one.session.instance.get_dynamic_partitions(f"{one.table}_ranges")
    return ledger.records(one.session.instance, table, names)


def shown(one: Ferry, system: str, schema: str) -> list[tuple[Any, ...]]:
    """The values of all rows in a target that tell it from its source, in any order."""
    rows = there(one, system, schema, "SELECT n, name, amount FROM {t}")
    return sorted((n, name, amount) for n, name, amount in rows)


@pytest.mark.invariant("I12")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("system", ["postgres", "sqlserver"])
def test_only_rows_that_differ_are_written(
    ferry: Make, copies: str, system: str, shape: str
) -> None:
    """After random changes at both ends; what is in a column of the target alone shows who was
    written anew."""
    made, schema = SHAPES[shape], {"postgres": copies, "sqlserver": "dbo"}[system]
    insert = "INSERT INTO {{t}} VALUES ({}, {}, {}, {})".format
    one = ferry(
        f"['{system}://{schema}.{{t}}']",
        f"CREATE TABLE {{t}} ({made.columns}, n integer, name text, amount numeric(12,2), "
        f"PRIMARY KEY ({made.identity}))",
        *(
            insert(made.of(n), n, "NULL" if n % 5 == 0 else f"'name {n}'", n * 1.5)
            for n in range(60)
        ),
        key=made.key,
        ranges="{rows: 1000}",
        delta="always",
    )
    if (shape, system) == ("text", "sqlserver"):
        folding = "nvarchar(300) COLLATE Latin1_General_CI_AS NOT NULL"
        columns = f"code {folding}, part smallint NOT NULL, n int, name nvarchar(max)"
        there(one, system, schema, f"CREATE TABLE {{t}} ({columns}, amount decimal(12,2))")
    first = one.run()
    assert first.good, first.errors
    there(one, system, schema, "ALTER TABLE {t} ADD mark integer")
    place = "ctid::text, xmin::text" if system == "postgres" else "mark, mark"

    @given(seed=st.integers(0, 2**32))
    @settings(
        max_examples=2,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    def follows(seed: int) -> None:
        chance = random.Random(seed)
        numbers = sorted(n for (n,) in one.rows("SELECT n FROM {t}"))
        some = chance.sample(numbers, 9)
        new = [n for n in range(200) if n not in numbers][:3]
        one.source(
            f"UPDATE {{t}} SET name = name || '.', amount = NULL WHERE n IN {tuple(some[:3])}",
            f"DELETE FROM {{t}} WHERE n IN {tuple(some[3:5])}",
            *(insert(made.of(n), n, "'new'", 0) for n in new),
        )
        there(one, system, schema, "UPDATE {t} SET mark = n")
        there(one, system, schema, f"DELETE FROM {{t}} WHERE n IN {tuple(some[5:7])}")
        there(one, system, schema, f"UPDATE {{t}} SET amount = 7 WHERE n IN {tuple(some[7:])}")
        before = {
            row[0]: row[1:]
            for row in there(one, system, schema, f"SELECT n, {place}, name, amount FROM {{t}}")
        }
        view = one.run()
        assert view.good, view.errors
        expected = {n: row for n, *row in one.rows("SELECT n, name, amount FROM {t}")}
        after = there(one, system, schema, f"SELECT n, {place}, name, amount, mark FROM {{t}}")
        assert {row[0]: list(row[3:5]) for row in after} == expected
        for n, *now, _, _, mark in after:
            same = n in before and list(before[n][2:]) == expected[n]
            assert not same or now == list(before[n][:2]), "an equal row has been written"
            assert mark == (n if n in before else None), "a row was deleted to be inserted again"
        done = [record for record in records(one).values() if record.deleted]
        assert [(r.inserted, r.updated, r.deleted) for r in done] == [(5, 5, 2)]
        assert done[0].whole_because is None and done[0].rows_moved == 10

    follows()


PEOPLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, day date NOT NULL, email text)",
    "INSERT INTO {t} SELECT g, date '2024-01-01' + g % 10, 'mail ' || g "
    "FROM generate_series(1, 1200) g",
)


def mails(count: int) -> tuple[str, str]:
    """Statements for a table of so many rows."""
    return (
        "CREATE TABLE {t} (id integer PRIMARY KEY, email text)",
        f"INSERT INTO {{t}} SELECT g, 'mail ' || g FROM generate_series(1, {count}) g",
    )


def compare(one: Ferry, schema: str) -> RangeRecord:
    """Run the transfer; the target has to equal its source. Return the record of its rows."""
    view = one.run()
    assert view.good, view.errors
    rows = "SELECT id, day, email FROM {t} ORDER BY id"
    assert there(one, "postgres", schema, rows) == one.rows(rows)
    return of_rows(one)


def of_rows(one: Ferry) -> RangeRecord:
    """The record of the range with most rows; the last one is for keys to come."""
    return max(records(one).values(), key=lambda record: record.rows or 0)


def figures(record: RangeRecord) -> tuple[int | None, ...]:
    return record.rows, record.inserted, record.updated, record.deleted


def test_other_tables_see_the_changed_rows_alone(ferry: Make, copies: str) -> None:
    """Neither do foreign keys take rows with them, nor do triggers fire for rows that stay."""
    one = ferry(f"['postgres://{copies}.{{t}}']", *PEOPLE, ranges="{rows: 5000}")
    compare(one, copies)
    table = f"{copies}.{one.table}"
    one.source(
        f"CREATE TABLE {table}_child (id integer REFERENCES {table} ON DELETE CASCADE)",
        f"INSERT INTO {table}_child SELECT id FROM {table}",
        "UPDATE {t} SET email = 'new' WHERE id = 7",
        "INSERT INTO {t} VALUES (2000, '2024-01-01', 'x')",
    )
    details = {planned.detail for planned in one.plan().ranges if planned.state == "run"}
    assert details == {"only rows that differ"}
    counted = runner.plan(one.session, one.table, count_rows=True)
    (changed,) = [planned for planned in counted.ranges if planned.state == "run"]
    assert changed.why == (
        "source_changed (only rows that differ: 1 to insert, 1 to update, 0 to delete)"
    )
    named = ("rows_moved", "inserted", "updated", "deleted", "whole_because")
    assert [changed.json()[name] for name in named] == [2, 1, 1, 0, None]
    assert figures(compare(one, copies)) == (1201, 1, 1, 0)
    told = runner.status(one.session, one.table)
    assert told.notes == [
        f"postgres://{table}: rows that differed in 1 range: 1 inserted, 1 updated, 0 deleted"
    ]
    assert [view.json()["inserted"] for view in told.ranges if view.rows] == [1]
    entries = [entry for hop in report(one.session, one.table).hops for entry in hop.ranges]
    assert {"inserted": 1, "updated": 1, "deleted": 0} in [entry.written for entry in entries]
    assert one.rows(f"SELECT count(*) FROM {table}_child") == [(1200,)]

    one.source("DELETE FROM {t} WHERE id = 10", f"DELETE FROM {table}_child WHERE id = 10")
    assert figures(compare(one, copies)) == (1200, 0, 0, 1), "nothing refers to the row"
    one.source("DELETE FROM {t} WHERE id = 8")
    refused = one.run()
    assert not refused.good and "the row with id '8' would" in refused.errors[0]
    assert "_child" in refused.errors[0], "it would lose a row of the child"
    one.source(
        f"DROP TABLE {table}_child",
        f"CREATE TABLE {table}_fired (what text, id integer)",
        f"CREATE FUNCTION {table}_fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"INSERT INTO {table}_fired VALUES (TG_OP, coalesce(NEW.id, OLD.id)); RETURN NULL; END $$",
        f"CREATE TRIGGER fires AFTER INSERT OR UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_fires()",
        "UPDATE {t} SET email = 'newer' WHERE id = 7",
    )
    assert figures(compare(one, copies)) == (1199, 0, 1, 1)
    assert one.rows(f"SELECT * FROM {table}_fired") == [("DELETE", 8), ("UPDATE", 7)]

    one.source(
        f"CREATE OR REPLACE FUNCTION {table}_fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF NEW.id <> 9 THEN UPDATE {table} SET day = day + 1 WHERE id = 9; END IF; "
        "RETURN NULL; END $$",
        "UPDATE {t} SET email = 'newest' WHERE id = 7",
    )
    refused = one.run()
    assert not refused.good, "a row outside of the delta would have changed"
    assert there(one, "postgres", copies, "SELECT email FROM {t} WHERE id = 7") == [("newer",)]


def test_what_only_updates_set_off_is_seen(ferry: Make, copies: str) -> None:
    """A whole range is deleted and inserted, so that its hazards lack those of an UPDATE."""
    one = ferry(
        f"['postgres://{copies}.{{t}}']",
        *PEOPLE,
        ranges="{count: 1}",
    )
    compare(one, copies)
    one.source("INSERT INTO {t} VALUES (900000, '2024-01-01', 'elsewhere')")
    compare(one, copies)
    assert len([record for record in records(one).values() if record.rows]) == 2
    table = f"{copies}.{one.table}"
    one.source(
        f"CREATE FUNCTION {table}_fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF NEW.id <> 900000 THEN UPDATE {table} SET day = day + 1 WHERE id = 900000; END IF; "
        "RETURN NULL; END $$",
        f"CREATE TRIGGER fires AFTER UPDATE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_fires()",
        "UPDATE {t} SET email = 'new' WHERE id = 7",
    )
    record = compare(one, copies)
    assert record.rows_moved is None, "deleted and inserted, nothing fires"
    assert "along with it" in (record.whole_because or "")

    one.source(
        f"DROP TRIGGER fires ON {table}",
        f"CREATE RULE spread AS ON UPDATE TO {table} DO INSTEAD NOTHING",
        "UPDATE {t} SET email = 'newer' WHERE id = 7",
    )
    record = compare(one, copies)
    assert record.rows_moved is None and "rule spread" in (record.whole_because or "")

    one.source(
        f"DROP RULE spread ON {table}",
        f"CREATE UNIQUE INDEX {one.table}_mail ON {table} (email)",
        f"CREATE TABLE {table}_child (email text REFERENCES {table} (email) "
        "ON UPDATE SET NULL DEFERRABLE INITIALLY DEFERRED)",
        f"INSERT INTO {table}_child VALUES ('newer'), ('mail 8')",
        "UPDATE {t} SET email = 'newest' WHERE id = 7",
    )
    refused = one.run()
    assert not refused.good, "the child refers to the row by what changes"
    children = one.rows(f"SELECT email FROM {table}_child ORDER BY email")
    assert children == [("mail 8",), ("newer",)]


def test_unique_values_change_hands(ferry: Make, copies: str) -> None:
    """Rows are deleted first; where one statement cannot do it, the whole range moves."""
    one = ferry(f"['postgres://{copies}.{{t}}']", *PEOPLE, key="day", ranges="{rows: 5000}")
    compare(one, copies)
    there(one, "postgres", copies, "CREATE UNIQUE INDEX ON {t} (email)")
    one.source(
        "DELETE FROM {t} WHERE id = 1",
        "UPDATE {t} SET email = 'mail 1' WHERE id = 2",
        "INSERT INTO {t} VALUES (3000, '2024-01-03', 'mail 2')",
        # the key of the ranges is not part of the primary key
        "UPDATE {t} SET day = '2024-01-09' WHERE id = 4",
    )
    record = compare(one, copies)
    assert (figures(record), record.whole_because) == ((1200, 1, 2, 1), None)

    one.source(
        "UPDATE {t} SET email = CASE id WHEN 5 THEN 'mail 6' ELSE 'mail 5' END WHERE id IN (5, 6)"
    )
    assert one.rows("SELECT email FROM {t} WHERE id = 5") == [("mail 6",)]
    record = compare(one, copies)
    assert record.rows_moved is None and "duplicate key" in (record.whole_because or "")


def test_many_changes_move_the_whole_range(ferry: Make, copies: str) -> None:
    one = ferry(f"['postgres://{copies}.{{t}}']", *PEOPLE, ranges="{rows: 5000}")
    assert compare(one, copies).whole_because is None
    one.source("UPDATE {t} SET email = 'changed' WHERE id % 9 = 0")
    planned = CliRunner().invoke(main, ["plan", one.table])
    assert planned.exit_code == 0, planned.output
    assert "(only rows that differ: all rows: " in planned.output
    record = compare(one, copies)
    assert record.rows_moved is None
    assert "more than 100 of 1,200 rows differ" in (record.whole_because or "")
    one.declare(f"['postgres://{copies}.{{t}}']", ranges="{rows: 5000}", delta="never")
    one.source("UPDATE {t} SET email = 'again' WHERE id = 1")
    assert compare(one, copies).whole_because is None
    one.declare(f"['postgres://{copies}.{{t}}']", ranges="{rows: 5000}", delta="always")
    one.source("UPDATE {t} SET email = 'half' WHERE id % 2 = 0")
    record = compare(one, copies)
    assert (figures(record), record.wire) == ((1200, 0, 600, 0), "pgcopy"), "in several queries"
    # nothing differs any more
    one.declare(f"['postgres://{copies}.{{t}}']", ranges="{rows: 5000}", reconcile="full_hash")
    one.source("UPDATE {t} SET email = 'once more' WHERE id = 1")
    there(one, "postgres", copies, "UPDATE {t} SET email = 'once more' WHERE id = 1")
    assert figures(compare(one, copies)) == (1200, 0, 0, 0)


@pytest.mark.parametrize("delta", ["never", "always"])
@pytest.mark.parametrize("system", ["postgres", "sqlserver"])
def test_upsert_deletes_what_the_source_has_deleted(
    ferry: Make, copies: str, system: str, delta: str
) -> None:
    """With `deletes: apply`; rows that stay keep what another column of the target says."""
    schema = {"postgres": copies, "sqlserver": "dbo"}[system]
    hops = f"['{system}://{schema}.{{t}}']"
    one = ferry(
        hops,
        *mails(400),
        ranges="{rows: 5000}",
        write="upsert",
        delta=delta,
    )
    assert one.run().good
    there(one, system, schema, "ALTER TABLE {t} ADD note integer")
    there(one, system, schema, "UPDATE {t} SET note = id")
    one.source("DELETE FROM {t} WHERE id IN (5, 6)", "UPDATE {t} SET email = '' WHERE id = 7")
    assert one.run().good
    rows = "SELECT count(*), min(email) FROM {t}"
    assert there(one, system, schema, rows) == [(400, "")], "kept by default"

    one.declare(hops, ranges="{rows: 5000}", write="upsert", delta=delta, deletes="apply")
    view = one.run()
    assert view.good, view.errors
    assert there(one, system, schema, rows) == [(398, "")], "what was kept before goes, too"
    one.source("DELETE FROM {t} WHERE id = 8", "UPDATE {t} SET email = 'x' WHERE id = 9")
    there(one, system, schema, "INSERT INTO {t} (id, email) VALUES (405, 'extra')")
    view = one.run()
    assert view.good, view.errors
    shown = "SELECT id, email FROM {t}"
    assert sorted(there(one, system, schema, shown)) == sorted(one.rows(shown))
    assert there(one, system, schema, "SELECT count(*) FROM {t} WHERE note <> id") == [(0,)]
    assert there(one, system, schema, "SELECT note FROM {t} WHERE id = 9") == [(9,)], "updated"
    if delta == "always":
        assert figures(of_rows(one)) == (397, 0, 1, 2)
    assert {each.state for each in one.plan().ranges} == {"skip"}
    there(one, system, schema, "INSERT INTO {t} (id, email) VALUES (405, 'extra')")
    assert not runner.check(one.session, one.table).good, (
        "a row beyond the source's is a difference now"
    )

    # the child's rows would go with a row that is deleted, not with one that is updated
    if system == "postgres":
        table = f"{copies}.{one.table}"
        one.source(
            f"CREATE TABLE {table}_child (id integer REFERENCES {table} ON DELETE CASCADE)",
            f"INSERT INTO {table}_child SELECT id FROM {table} WHERE id > 300",
            f"DELETE FROM {table} WHERE id = 405",
            "UPDATE {t} SET email = 'y' WHERE id = 350",
        )
        view = one.run()
        assert view.good, view.errors
        one.source("DELETE FROM {t} WHERE id = 351")
        refused = one.run()
        assert not refused.good and "deletes: keep" in refused.errors[0]
        assert one.rows(f"SELECT count(*) FROM {table}_child WHERE id = 351") == [(1,)]


@pytest.mark.parametrize("delta", ["never", "always"])
@pytest.mark.parametrize(
    ("system", "column"),
    [("postgres", ""), ("sqlserver", ""), ("postgres", "boolean"), ("sqlserver", "bit")],
)
def test_deleted_rows_are_marked(
    ferry: Make, copies: str, system: str, column: str, delta: str
) -> None:
    """What is proven are the rows without a mark; a row that comes back has none."""
    schema = {"postgres": copies, "sqlserver": "dbo"}[system]
    settings = {"ranges": "{rows: 5000}", "write": "upsert", "delta": delta}
    hops = f"['{system}://{schema}.{{t}}']"
    one = ferry(
        hops,
        *mails(400),
        **settings,
    )
    if column:
        assert one.run().good
        one.declare(hops, **settings, deletes="{mark: gone}")
        with pytest.raises(InputError, match="has no column 'gone' that marks rows; add it: ALTER"):
            one.run()
        there(one, system, schema, f"ALTER TABLE {{t}} ADD gone {column}")
    one.declare(hops, **settings, deletes="{mark: gone}")
    assert one.run().good
    live = "SELECT id, email FROM {t} WHERE gone IS NULL" + (" OR gone = '0'" if column else "")

    def follows() -> None:
        view = one.run()
        assert view.good, view.errors
        assert sorted(there(one, system, schema, live)) == one.rows("SELECT * FROM {t} ORDER BY 1")
        assert runner.check(one.session, one.table).good
        assert {each.state for each in one.plan().ranges} == {"skip"}

    one.source("DELETE FROM {t} WHERE id IN (5, 6)", "UPDATE {t} SET email = '' WHERE id = 7")
    follows()
    rows = "SELECT email FROM {t} WHERE id = 5"
    assert there(one, system, schema, rows) == [("mail 5",)], "still there, with its mark"
    one.source(
        "INSERT INTO {t} VALUES (5, 'back')",
        "INSERT INTO {t} VALUES (401, 'new')",
        "DELETE FROM {t} WHERE id = 8",
    )
    follows()
    assert there(one, system, schema, rows) == [("back",)]
    if delta == "always":
        assert figures(of_rows(one)) == (399, 2, 0, 1)
    assert there(one, system, schema, "SELECT count(*) FROM {t}") == [(401,)]


def test_marked_rows_are_marked_hop_after_hop(ferry: Make, copies: str) -> None:
    one = ferry(
        f"['sqlserver://dbo.{{t}}', 'postgres://{copies}.{{t}}']",
        *mails(40),
        write="upsert",
        deletes="{mark: gone}",
    )
    assert one.run().good
    one.source("DELETE FROM {t} WHERE id = 5")
    view = one.run()
    assert view.good, view.errors
    for system, schema in (("sqlserver", "dbo"), ("postgres", copies)):
        marked = "SELECT id FROM {t} WHERE gone IS NOT NULL"
        assert there(one, system, schema, marked) == [(5,)]
    assert runner.check(one.session, one.table).good
    assert runner.check(one.session, one.table, as_of_last_run=True).good


def test_rows_of_the_target_alone_are_kept_or_told(ferry: Make) -> None:
    one = ferry(
        "['sqlserver://dbo.{t}']",
        "CREATE TABLE {t} (id varchar(9) PRIMARY KEY, email text)",
        "INSERT INTO {t} SELECT 'k' || g, 'mail ' || g FROM generate_series(1, 1200) g",
        ranges="{rows: 5000}",
        write="upsert",
        delta="always",
    )
    assert one.run().good
    one.source("DELETE FROM {t} WHERE id = 'k5'", "UPDATE {t} SET email = NULL WHERE id = 'k6'")
    assert one.run().good
    record = of_rows(one)
    assert figures(record) == (1199, 0, 1, 0), "upsert keeps rows"
    rows = "SELECT id, email FROM {t} WHERE id IN ('k5', 'k6', 'k7') ORDER BY id"
    assert there(one, "sqlserver", "dbo", rows) == [
        ("k5", "mail 5"),
        ("k6", None),
        ("k7", "mail 7"),
    ]

    one.declare("['sqlserver://dbo.{t}']", ranges="{rows: 5000}")
    assert one.run().good
    one.source("UPDATE {t} SET email = email || 'x' WHERE id > 'k5'")
    one.declare("['sqlserver://dbo.{t}']", ranges="{rows: 5000}", delta="always")
    assert one.run().good
    assert (of_rows(one).updated or 0) > 500, "in several queries"
    shown = "SELECT id, email FROM {t}"
    assert sorted(there(one, "sqlserver", "dbo", shown)) == sorted(one.rows(shown))
    one.source("UPDATE {t} SET email = 'y' WHERE id = 'k8'")
    there(one, "sqlserver", "dbo", "INSERT INTO {t} (id, email) VALUES ('k7', 'twice')")
    view = one.run()
    assert view.good, view.errors
    record = of_rows(one)
    assert "2 rows share a primary key (id): id = k7" in (record.whole_because or "")
    assert there(one, "sqlserver", "dbo", "SELECT count(*) FROM {t}") == [(1199,)]


def test_a_chain_follows_while_its_source_is_written_to(
    ferry: Make, copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without a key are a range; the second hop reads its rows from SQL Server."""
    one = ferry(
        f"['sqlserver://dbo.{{t}}', 'copies://{copies}.{{t}}']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, day date, email text)",
        "INSERT INTO {t} SELECT g, nullif(date '2024-01-01' + g % 5, '2024-01-03'), 'mail ' || g "
        "FROM generate_series(1, 300) g",
        key="day",
        ranges="{rows: 500}",
        delta="always",
    )
    monkeypatch.setenv("TABLEFERRY_CONNECTION_COPIES", one.stack.postgres_url)
    one.session = open_session()
    assert one.run().good
    numbers = itertools.count(1)

    def write() -> None:
        number = next(numbers)
        one.source(
            f"UPDATE {{t}} SET email = email || {number} WHERE id % 40 = {number % 40}",
            f"INSERT INTO {{t}} VALUES ({300 + number}, NULL, 'new')",
            f"DELETE FROM {{t}} WHERE id = {number * 3}",
        )

    with beside(write, 0.02):
        view = one.run()
    assert view.good, view.errors
    one.source(
        "UPDATE {t} SET email = email || '!' WHERE id % 40 = 0", "DELETE FROM {t} WHERE id = 298"
    )
    view = one.run()
    assert view.good, view.errors
    rows = "SELECT id, email FROM {t} ORDER BY id"
    for system, schema in (("sqlserver", "dbo"), ("postgres", copies)):
        assert there(one, system, schema, rows) == one.rows(rows)
    for hop in (1, 2):
        of_hop = records(one, hop).values()
        assert not any(record.whole_because for record in of_hop)
        assert {bool(record.updated) for record in of_hop if record.range == "null"} == {True}


@pytest.mark.parametrize("error", [SourceBusy, SnapshotTooOld, SetLost])
def test_what_all_rows_would_meet_moves_none(
    ferry: Make, copies: str, monkeypatch: pytest.MonkeyPatch, error: type[TableferryError]
) -> None:
    one = ferry(
        f"['postgres://{copies}.{{t}}']",
        *mails(300),
        ranges="{rows: 500}",
        delta="always",
    )
    assert one.run().good
    one.source("UPDATE {t} SET email = 'new' WHERE id = 7")
    asked: list[str] = []

    def refused(*_: object, **__: object) -> None:
        asked.append("the rows that differ")
        raise error("as of now it cannot be read")

    with monkeypatch.context() as patched:
        patched.setattr(actions, "rows_that_differ", refused)
        view = one.run()
    (range_,) = view.ranges
    assert str(range_.error).endswith("range ..: as of now it cannot be read")
    assert len(asked) == 1
    assert there(one, "postgres", copies, "SELECT email FROM {t} WHERE id = 7") == [("mail 7",)]
    assert one.run().good
