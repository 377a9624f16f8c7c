"""Columns with `on_overflow` are compared as the transfer makes them, on every target and level."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from tableferry.assets.planning.resolve import Hop, resolve_hops
from tableferry.checks.levels import Level
from tableferry.checks.reconcile import reconcile
from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Verdict
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.session import open_session
from tableferry.pipelines.reporting.collect import report
from tableferry.pipelines.reporting.html import render
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.keys.range import KeyRange
from tests.integration.conftest import Ferry
from tests.integration.support import looking

Make = Callable[..., Ferry]

LEVELS: tuple[Level, ...] = ("checksum", "sample_hash", "full_hash")
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, f int, n text, d numeric(12,4), at timestamp)",
    "INSERT INTO {t} SELECT i, i, 'n' || i, i + 0.25, '2024-01-01'::timestamp + i * '1 s'::interval"
    " FROM generate_series(1, 40) i",
    "UPDATE {t} SET f = 99999, n = repeat('x', 11), d = 1.0001, at = '2024-01-01 00:00:00.0009' "
    "WHERE id > 36",
)
COLUMNS = {
    "sqlserver": ("smallint", "nvarchar(10)", "decimal(9,2)", "datetime2(3)"),
    "clickhouse": ("Int16", "", "Decimal(9, 2)", "DateTime64(3, 'UTC')"),
    "postgres": ("smallint", "character varying(10)", "numeric(9,2)", "timestamp(3)"),
    "files": ("SMALLINT", "", "DECIMAL(9,2)", ""),
}
POLICIES = ("null", "clamp", "null", "clamp")
NAMES = ("f", "n", "d", "at")
FITTING = {"f": "{0}", "n": "'n{0}'", "d": "{0}.25", "at": "'2024-01-01 00:00:0{0}'"}
CHANGED = {"f": "NULL", "n": f"'{'x' * 10}'", "d": "NULL", "at": "'2024-01-01 00:00:00'"}
WRONG = {"f": "99", "n": "'other'", "d": "99.5", "at": "'2020-01-01 00:00:00'"}


def declared(system: str) -> str:
    """The columns' settings for a hop into a system."""
    types = dict(zip(NAMES, zip(COLUMNS[system], POLICIES, strict=True), strict=True))
    found = {
        name: {"type": type_, "on_overflow": how} for name, (type_, how) in types.items() if type_
    }
    return json.dumps(found)


def damaged(hop: Hop, one: Ferry, column: str, value: str, key: int) -> None:
    """Change one value of a target by hand."""
    table, server = hop.plan.target, one.session.servers.endpoint(hop.plan.target)
    name = qualified(table)
    if table.system_name == "files":
        files = Path(hop.spec.to.schema).glob("*.parquet")
        has_row = f"SELECT 1 FROM '{{}}' WHERE id = {key}"
        file = next(path for path in files if duckdb.sql(has_row.format(path)).fetchone())
        duckdb.execute(f"CREATE OR REPLACE TABLE t AS SELECT * FROM '{file}'")
        duckdb.execute(f"UPDATE t SET {column} = {value} WHERE id = {key}")
        duckdb.execute(f"COPY t TO '{file}'")
    elif table.system_name == "clickhouse":
        server.execute(
            f"ALTER TABLE {name} UPDATE {column} = {value} WHERE id = {key} "
            "SETTINGS mutations_sync = 2"
        )
    else:
        server.execute(f"UPDATE {name} SET {column} = {value} WHERE id = {key}")


def verdict(one: Ferry, plan: CopyPlan, level: Level) -> Verdict:
    servers = one.session.servers
    source, target = servers.endpoint(plan.source), servers.endpoint(plan.target)
    return reconcile(Comparison(plan, source, target, [KeyRange("integer")]), level)


@pytest.mark.parametrize("client", [False, True], ids=["server", "client"])
@pytest.mark.parametrize(
    "hops",
    [
        "[sqlserver://dbo.{t}]",
        "[clickhouse://warehouse.{t}]",
        "[postgres://{copies}.{t}]",
        "['files://{folder}/{t}/']",
    ],
)
def test_damage_to_what_fits_and_to_what_was_changed_is_seen(
    ferry: Make,
    copies: str,
    hops: str,
    client: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = hops.strip("['").partition(":")[0]
    if client and system != "sqlserver":
        pytest.skip("only SQL Server's digests are ever the client's")
    hops = hops.replace("{copies}", copies).replace("{folder}", str(tmp_path))
    one = ferry(hops, *TABLE, columns=declared(system))
    if client:
        url = looking.with_options(os.environ["TABLEFERRY_SQLSERVER_URL"], digest_by="client")
        monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", url)
        one.session = open_session()
    view = one.run()
    assert view.good, view.errors
    (hop,) = resolve_hops(one.session.transfer(one.table), one.session.servers)
    plan = hop.plan
    overflowing = [c.target.name for c in plan.columns if c.on_overflow != "refuse"]
    for level in LEVELS:
        found = verdict(one, plan, level)
        assert found.passed, found.summary()
        for name in overflowing:
            policy = POLICIES[NAMES.index(name)]
            assert f"4 values of {name} ({policy})" in found.summary()
    wrong = [(name, key) for at, name in enumerate(overflowing) for key in (at + 1, at + 37)]
    for name, key in wrong:
        damaged(hop, one, name, WRONG[name], key)
        assert not verdict(one, plan, "checksum").passed, (name, key)
        damaged(hop, one, name, FITTING[name].format(key) if key < 37 else CHANGED[name], key)
    assert verdict(one, plan, "checksum").passed
    for name, key in wrong:
        damaged(hop, one, name, WRONG[name], key)
    for level in LEVELS:
        found = verdict(one, plan, level)
        assert not found.passed, level
    assert found.differences is not None
    named = [(example.column, int(example.key or 0)) for example in found.differences.examples]
    assert sorted(named) == sorted(wrong)


CHAIN = "[sqlserver://dbo.{t}, clickhouse://warehouse.{t}]"


def test_every_view_names_what_was_changed_and_left_out(ferry: Make) -> None:
    types = {
        "f": {"sqlserver": "smallint", "clickhouse": "Int8"},
        "n": {"sqlserver": "nvarchar(10)", "clickhouse": "String"},
    }
    columns = {name: {"type": one, "on_overflow": "null"} for name, one in types.items()}
    more = "UPDATE {t} SET f = 1000, n = E'\\uFFFD' WHERE id = 5"
    given = {"columns": json.dumps(columns), "exclude": "[d]", "where": "id > 2"}
    one = ferry(CHAIN, *TABLE, more, fingerprint="content", **given)
    view = one.run()
    assert view.good, view.errors
    for hop, counts in enumerate(("4 of f, 4 of n", "1 of f, 1 of n")):
        target = str(one.session.transfer(one.table).hops[hop].to)
        note = f"{target}: values changed by on_overflow: {counts}"
        assert note in view.notes and note in runner.status(one.session, one.table).notes
    assert {"f": 1, "n": 1} in [entry["changed"] for entry in view.json()["ranges"]]
    assert one.run().good, "there is nothing to do, and what was changed is still told"
    assert note in runner.status(one.session, one.table).notes
    summaries = {
        (str(checked.hop.plan.target.system), checked.verdict.check): checked.verdict.summary()
        for checked in runner.check(one.session, one.table, level="full_hash").checks
        if checked.range and checked.verdict.source.get("rows")
    }
    assert summaries["sqlserver", "full_hash"] == (
        "full_hash passed: 38 rows agree; compared as on_overflow makes them: 4 values of "
        "f (null), 4 values of n (null); not copied: d; of the source's rows with id > 2"
    )
    assert summaries["clickhouse", "full_hash"] == (
        "full_hash passed: 38 rows agree; compared as on_overflow makes them: 1 value of f (null), "
        "1 value of n (null)"
    )
    made = report(one.session, one.table)
    told = "values changed by on_overflow: 1 of f, 1 of n"
    assert told in render(made, "md") and told in render(made, "html")
    entries = [entry for hop in made.hops for entry in hop.ranges]
    assert {"f": 4, "n": 4} in [entry.changed for entry in entries]
    *_, hop = resolve_hops(one.session.transfer(one.table), one.session.servers)
    damaged(hop, one, "n", "'back'", 5)
    damaged(hop, one, "f", "1", 40)
    (checked,) = [
        found
        for found in runner.check(one.session, one.table, level="full_hash").checks
        if not found.verdict.passed and found.range
    ]
    assert checked.verdict.differences is not None
    examples = checked.verdict.differences.examples
    assert [(found.key, found.column) for found in examples] == [("5", "n"), ("40", "f")]
    found = runner.differences(one.session, one.table, checked.range or "", hop=2)
    (differences,) = found.values()
    assert differences.remarks == ("compared as on_overflow makes them: f (null), n (null)",)
