"""`ferry repair` puts right the rows of a target that differ, and touches no other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command
from tests.integration.support.crashing import Command, reopen

pytestmark = pytest.mark.integration

SCHEMAS = {"sqlserver": "dbo", "postgres": "copies"}
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
    "INSERT INTO {t} SELECT i, 'n' || i FROM generate_series(1, 300) i",
)
DAMAGE = (
    "DELETE FROM {t} WHERE id = 7",
    "UPDATE {t} SET note = 'wrong' WHERE id IN (8, 150)",
    "INSERT INTO {t} (id, note) VALUES (301, 'stray')",
)


@pytest.fixture(params=SCHEMAS)
def damaged(request: pytest.FixtureRequest, ferry: Callable[..., Ferry], copies: str) -> Ferry:
    """A moved table of which rows were damaged in the target."""
    system = request.param
    schema = copies if system == "postgres" else SCHEMAS[system]
    one = ferry(f"['{system}://{schema}.{{t}}']", *TABLE, ranges="{bounds: [1, 100, 200]}")
    assert one.run().good
    for statement in DAMAGE:
        looking.run(one.stack, system, statement.format(t=f"{schema}.{one.table}"))
    return one


@pytest.mark.invariant("I12")
def test_only_the_rows_that_differ_are_put_right(damaged: Ferry) -> None:
    name, session = damaged.table, damaged.session
    before = command("repair", name, "--dry-run", "--json")
    assert before.exit_code == 1 and "would be repaired" in before.stderr
    shown = json.loads(before.stdout)
    assert len(shown["differences"]) == 3, "the ranges with damage"
    assert not runner.check(session, name).good, "nothing was put right"
    done = command("repair", name, "--json")
    assert done.exit_code == 0, done.output
    repaired = [
        each for each in json.loads(done.stdout)["ranges"] if each["rows_moved"] is not None
    ]
    assert sum(each["inserted"] for each in repaired) == 1
    assert sum(each["updated"] for each in repaired) == 2
    assert sum(each["deleted"] for each in repaired) == 1
    assert runner.check(session, name).good
    assert command("repair", name, "--dry-run").stdout.strip() == f"{name}: no row differs"
    records = session.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=asset_key(session.transfer(name).hops[0].to)), limit=100
    ).records
    tables = [
        materialization.metadata["repaired_rows"]
        for record in records
        if (materialization := record.asset_materialization)
        and "repaired_rows" in materialization.metadata
    ]
    rows = [row.data for table in tables for row in table.records]  # type: ignore[attr-defined]
    assert {row["target"] for row in rows if row["column"] == "note"} >= {"wrong"}


WIDE = (
    "CREATE TABLE {t} (id bigint, part text, note text, price numeric(30,10), share float8, "
    "data bytea, at timestamp(6), day date, flag boolean, code uuid, PRIMARY KEY (id, part))",
    r"""INSERT INTO {t} SELECT g, E'k\'"\\' || g, E'it''s \\ "quoted"\n\t;--ü\U0001F600', """
    "12345678901234567890.0123456789, 0.1 + 1e300 * (g % 2), decode('00ff5c27', 'hex'), "
    "timestamp '0001-01-01 00:00:00.000001' + g * interval '1 day', date '9999-12-31', g % 2 = 0, "
    "md5(g::text)::uuid FROM generate_series(1, 40) g",
    "INSERT INTO {t} VALUES (41, '', '', 0, '-0', '', '9999-12-31 23:59:59.999999', NULL)",
)


@pytest.mark.parametrize("system", SCHEMAS)
def test_the_statements_are_printed_for_somebody_else_to_run(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    schema = copies if system == "postgres" else SCHEMAS[system]
    one = ferry(f"['{system}://{schema}.{{t}}']", *WIDE, ranges="{bounds: [1, 20]}")
    assert one.run().good
    table, name = f"{schema}.{one.table}", one.table
    assert command("repair", name, "--sql").stdout.strip() == f"-- {name}: no row differs"
    for statement in (
        "DELETE FROM {t} WHERE id IN (3, 41)",
        "UPDATE {t} SET note = '', price = NULL, share = 1, code = NULL WHERE id IN (5, 39)",
        "INSERT INTO {t} (id, part) VALUES (5, 'stray')",
    ):
        looking.run(one.stack, system, statement.format(t=table))
    printed = command("repair", name, "--sql", "--json")
    assert printed.exit_code == 1 and "2 ranges would be repaired" in printed.stderr
    assert not runner.check(one.session, name).good, "nothing was put right"
    scripts = json.loads(printed.stdout)["scripts"]
    assert [(each["inserted"], each["updated"], each["deleted"]) for each in scripts] == [
        (1, 1, 1),
        (1, 1, 0),
    ]
    shown = command("repair", name, "--sql").stdout
    assert "2 ranges" not in shown and all(
        statement in shown for each in scripts for statement in each["statements"]
    )
    for each in scripts:
        # sqlcmd takes our names for texts otherwise
        assert (each["statements"][0] == "SET QUOTED_IDENTIFIER ON") is (system == "sqlserver")
        looking.run(one.stack, system, "; ".join(each["statements"]))
    checked = runner.check(one.session, name, level="full_hash")
    assert checked.good, checked.errors
    assert command("repair", name, "--dry-run").exit_code == 0


HOSTILE = (
    "a\nGO\nb",
    "$(NAME) it''s",
    "\r\n:r x",
    "x" * 9000 + "$(A)\n",
    r"\! ls",
    ":'v' :v",
    "GO",
    "\n",
)


def by_command_line(system: str, script: str) -> list[str]:
    """The batches that the system's command line sends of a script."""
    if system == "postgres":
        return [script]  # psql reads nothing in constants
    assert not re.search(r"\$\(|^\s*(:|!!)", script, re.MULTILINE), "sqlcmd's own"
    return re.split(r"(?im)^\s*GO\s*\d*\s*$", script)


@pytest.mark.parametrize("system", SCHEMAS)
def test_a_script_holds_nothing_that_a_command_line_reads(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    schema = copies if system == "postgres" else SCHEMAS[system]
    rows = ", ".join(f"('k$(K) {i}', E'{_escaped(each)}')" for i, each in enumerate(HOSTILE))
    one = ferry(
        f"['{system}://{schema}.{{t}}']",
        "CREATE TABLE {t} (id text PRIMARY KEY, note text)",
        f"INSERT INTO {{t}} VALUES {rows}",
        columns="{id: {type: 'nvarchar(20)'}}" if system == "sqlserver" else "{}",
    )
    assert one.run().good
    looking.run(one.stack, system, f"UPDATE {schema}.{one.table} SET note = 'wrong'")
    printed = command("repair", one.table, "--sql", "--json")
    assert printed.exit_code == 1, printed.output
    (script,) = json.loads(printed.stdout)["scripts"]
    for batch in by_command_line(system, ";\n".join(script["statements"])):
        looking.run(one.stack, system, batch)
    checked = runner.check(one.session, one.table, level="full_hash")
    assert checked.good, checked.errors


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("'", "''")


def test_every_type_that_servers_print_alike_is_in_a_script(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    one = ferry(
        f"['postgres://{copies}.{{t}}']",
        "CREATE TABLE {t} (id date PRIMARY KEY, at timestamptz, took interval, tags text[], "
        "more jsonb, grid int[][], address inet, share float4, fixed char(5))",
        "INSERT INTO {t} VALUES ('infinity', '-infinity', '1 mon -2 days 03:00:00.000001', "
        r"""'{{"a,b",NULL,"\\"}}', '{{"a": [1.50, null]}}', '{{{{1,2}},{{3,4}}}}', '::1/64', """
        "'nan', 'a '), ('0044-03-15 BC', '294276-12-31 23:59:59.999999+00', NULL, '{{}}', 'null', "
        "NULL, NULL, 0.1, '')",
        key="id",
    )
    assert one.run().good
    target = f"{copies}.{one.table}"
    looking.ask_postgres(
        one.stack.postgres_url,
        f"DELETE FROM {target} WHERE id = 'infinity'",
        f"UPDATE {target} SET at = 'epoch', share = 1, tags = NULL",
    )
    printed = command("repair", one.table, "--sql")
    assert printed.exit_code == 1, printed.output
    looking.run(one.stack, "postgres", printed.stdout)
    checked = runner.check(one.session, one.table, level="full_hash")
    assert checked.good, checked.errors


def test_one_range_is_repaired(damaged: Ferry) -> None:
    (first, *_) = [
        check.range
        for check in runner.check(damaged.session, damaged.table).checks
        if check.failed and check.range
    ]
    repaired = command("repair", damaged.table, "--range", str(first))
    assert "total_rows" in repaired.stderr, "the others are still damaged"
    failed = {
        check.range for check in runner.check(damaged.session, damaged.table).checks if check.failed
    }
    assert first not in failed and len(failed - {None}) == 2


def test_what_cannot_be_repaired_is_said(ferry: Callable[..., Ferry]) -> None:
    never = ferry("['sqlserver://dbo.{t}']", *TABLE)
    refused = command("repair", never.table)
    assert refused.exit_code == 1 and "nothing to repair" in refused.stderr
    appended = ferry("['sqlserver://dbo.{t}']", *TABLE, write="append")
    assert appended.run().good
    looking.run(appended.stack, "sqlserver", f"DELETE FROM dbo.{appended.table} WHERE id = 5")
    refused = command("repair", appended.table)
    assert refused.exit_code == 1 and "cannot be put right by themselves" in refused.stderr


def test_a_killed_repair_is_repeated(damaged: Ferry, tmp_path: Path) -> None:
    process = Command(tmp_path)
    code = process.run("repair", damaged.table, TABLEFERRY_CRASH_AT="inside_finalise:1")
    assert code < 0, process.output
    reopen(damaged)
    assert command("repair", damaged.table).exit_code == 0
    assert runner.check(damaged.session, damaged.table).good
