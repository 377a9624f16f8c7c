"""Rows with values that a target cannot hold are kept beside it, and the others move."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.log import ledger
from tableferry.assets.log.check_records import check_record
from tableferry.pipelines.cli import main
from tableferry.pipelines.command import runner
from tableferry.pipelines.command.session import open_session
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import Command, crash, reopen, staging_tables

pytestmark = pytest.mark.integration

SOURCE = (
    "CREATE TABLE {t} (id bigint PRIMARY KEY, n int, note text, price numeric(30,3))",
    "INSERT INTO {t} SELECT i, i, 'n' || i, i FROM generate_series(1, 40) i",
    "UPDATE {t} SET n = 99999 WHERE id = 3",
    "UPDATE {t} SET n = NULL, price = 1.125 WHERE id = 4",
    "UPDATE {t} SET n = -40000, price = 2.001 WHERE id = 35",
)
NARROW = {
    "sqlserver": {"n": {"type": "smallint"}, "price": {"type": "decimal(20,2)"}},
    "clickhouse": {"n": {"type": "Int16"}, "price": {"type": "Decimal(20, 2)"}},
    "postgres": {"n": {"type": "smallint"}, "price": {"type": "numeric(20,2)"}},
}
SETTINGS = {"on_reject": "quarantine", "ranges": "{count: 2}"}


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments], catch_exceptions=False)


def into(system: str, copies: str) -> str:
    schemas = {"sqlserver": "dbo", "clickhouse": "warehouse", "postgres": copies}
    return f"['{system}://{schemas[system]}.{{t}}']"


def kept(one: Ferry, hop: int = 0) -> list[tuple[Any, ...]]:
    """What stands beside the target, by row and column."""
    target = one.session.transfer(one.table).hops[hop].to
    quote, server = target.system.quote, one.session.servers.endpoints[target.connection]
    rows = server.query(
        "SELECT range_name, row_key, column_name, value, reason, run_id FROM "
        f"{quote(target.schema)}.{quote(target.name + '__rejected')}"
    )
    return sorted(
        (json.loads(key)["id"], column, value, *rest) for _, key, column, value, *rest in rows
    )


def present(one: Ferry, hop: int = 0) -> set[int]:
    target = one.session.transfer(one.table).hops[hop].to
    quote, server = target.system.quote, one.session.servers.endpoints[target.connection]
    return {
        int(row[0])
        for row in server.query(f"SELECT id FROM {quote(target.schema)}.{quote(target.name)}")
    }


ALL = {*range(1, 41)}


@pytest.mark.parametrize(
    ("system", "level"),
    [
        ("sqlserver", "checksum"),
        ("clickhouse", "checksum"),
        ("clickhouse", "full_hash"),
        ("postgres", "checksum"),
        ("postgres", "in_flight"),
    ],
)
def test_rows_that_do_not_fit_are_kept_beside_the_target(
    ferry: Callable[..., Ferry], copies: str, system: str, level: str
) -> None:
    settings = {**SETTINGS, "columns": json.dumps(NARROW[system]), "reconcile": level}
    settings |= {"fingerprint": "row_version"} if level == "in_flight" else {}
    one = ferry(into(system, copies), *SOURCE, **settings)
    moved = one.run()
    assert moved.good, moved.errors
    target = str(one.session.transfer(one.table).hops[0].to)
    assert f"{target}: 3 rows rejected, see {target}__rejected" in moved.notes
    assert present(one) == ALL - {3, 4, 35}
    first = kept(one)
    assert [row[:3] for row in first] == [
        ("3", "n", "99999"),
        ("35", "n", "-40000"),
        ("35", "price", "2.001"),
        ("4", "price", "1.125"),
    ]
    assert {row[4] for row in first} == {*moved.run_ids}
    assert all("smallint" in row[3] or "outside" in row[3] or row[1] == "price" for row in first)
    target_asset = asset_key(one.session.transfer(one.table).hops[0].to)
    found = ledger.evaluations(one.session.instance, target_asset, ["row_count", "total_rows"])
    told = [
        check_record(each, one.session.transfer(one.table)).summary
        for by in found.values()
        for each in by.values()
    ]
    assert len(told) == 4
    assert any("40 rows on both sides" in text and "without 3 rows that" in text for text in told)
    shown = json.loads(command("status", one.table, "--json").stdout)
    assert sum(one.get("quarantined") or 0 for one in shown["ranges"]) == 3
    for again in ("count", "checksum", "full_hash"):
        checked = runner.check(one.session, one.table, level=again)
        assert checked.good, checked.errors
    assert not one.moved(one.run()), "nothing has changed"
    assert kept(one) == first

    # another rejected row, one that is mended, one that is gone
    one.source(
        "UPDATE {t} SET n = 70000 WHERE id = 20",
        "UPDATE {t} SET n = 3 WHERE id = 3",
        "DELETE FROM {t} WHERE id = 35",
    )
    assert one.run().good
    assert present(one) == ALL - {4, 20, 35}
    assert [row[:3] for row in kept(one)] == [("20", "n", "70000"), ("4", "price", "1.125")]
    checked = runner.check(one.session, one.table, level="checksum")
    assert checked.good, checked.errors

    # tried again
    one.source("UPDATE {t} SET price = 4 WHERE id = 4", "UPDATE {t} SET n = 20 WHERE id = 20")
    result = command("run", one.table, "--rejected")
    assert result.exit_code == 0, result.output
    assert present(one) == ALL - {35} and kept(one) == []
    result = command("run", one.table, "--rejected")
    assert result.exit_code == 0 and "no row is rejected" in result.output


def test_a_table_without_a_key_names_rows_by_their_places(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    create = SOURCE[0].replace(" PRIMARY KEY", "")
    columns = json.dumps(NARROW["postgres"])
    settings = {"on_reject": "quarantine", "columns": columns, "ranges": "{by: ctid, count: 2}"}
    one = ferry(into("postgres", copies), create, *SOURCE[1:])
    text = (one.folder / "t.yaml").read_text().replace("key: id\n", "")
    text += "".join(f"{key}: {value}\n" for key, value in settings.items())
    (one.folder / "t.yaml").write_text(text)
    one.session = open_session()
    moved = one.run()
    assert moved.good, moved.errors
    assert present(one) == ALL - {3, 4, 35}
    assert runner.check(one.session, one.table, level="full_hash").good
    assert not one.moved(one.run())


def test_each_hop_of_a_chain_keeps_its_own(ferry: Callable[..., Ferry], copies: str) -> None:
    hops = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
    columns = "{price: {type: {sqlserver: 'decimal(20,2)'}}, n: {type: {clickhouse: Int16}}}"
    one = ferry(hops, *SOURCE, columns=columns, **SETTINGS)
    moved = one.run()
    assert moved.good, moved.errors
    assert (present(one), present(one, 1)) == (ALL - {4, 35}, ALL - {3, 4, 35})
    assert [row[:2] for row in kept(one)] == [("35", "price"), ("4", "price")]
    assert [row[:2] for row in kept(one, 1)] == [("3", "n")]
    assert runner.check(one.session, one.table, level="full_hash").good
    assert not one.moved(one.run())


@pytest.mark.parametrize("system", [*NARROW])
def test_a_transfer_that_is_in_use_begins_and_ranges_are_cut_anew(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    columns = json.dumps(NARROW[system])
    one = ferry(into(system, copies), *SOURCE[:2], columns=columns, ranges="{count: 2}")
    assert one.run().good
    one.declare(into(system, copies), columns=columns, **SETTINGS)
    assert runner.check(one.session, one.table, level="count").good
    one.source(*SOURCE[2:])
    assert one.run().good
    assert present(one) == ALL - {3, 4, 35} and len(kept(one)) == 4
    # the last range is cut as the table grows: what was kept of it is not kept twice
    one.source("INSERT INTO {t} SELECT i, i, 'n', 1 FROM generate_series(41, 200) i")
    one.source("UPDATE {t} SET n = 99999 WHERE id = 150")
    moved = one.run()
    assert moved.good, moved.errors
    assert present(one) == {*range(1, 201)} - {3, 4, 35, 150}
    assert [row[0] for row in kept(one)] == ["150", "3", "35", "35", "4"]


@pytest.mark.parametrize(
    ("system", "point"),
    [
        *itertools.product(("postgres", "sqlserver"), ("inside_finalise", "after_commit")),
        *itertools.product(
            ("clickhouse",), ("inside_quarantine", "inside_finalise", "after_commit")
        ),
    ],
)
def test_a_row_is_in_the_target_or_beside_it_after_a_kill(
    ferry: Callable[..., Ferry], copies: str, tmp_path: Path, system: str, point: str
) -> None:
    one = ferry(into(system, copies), *SOURCE, columns=json.dumps(NARROW[system]), **SETTINGS)
    assert one.run().good
    one.source(
        "UPDATE {t} SET n = 3 WHERE id = 3",
        "UPDATE {t} SET n = 70000 WHERE id = 20",
    )
    one.session.instance.dispose()
    crash(Command(tmp_path), one.table, point, "--profile", "safe")

    # a transaction is as before or as after; ClickHouse has none, but no row is in neither
    outside = {int(row[0]) for row in kept(one)}
    assert present(one) | outside == ALL
    if system != "clickhouse":
        committed = point == "after_commit"
        assert outside == ({4, 20, 35} if committed else {3, 4, 35})
        assert not present(one) & outside

    reopen(one)
    again = one.run()
    assert again.good, again.errors
    assert present(one) == ALL - {4, 20, 35}
    assert [row[:3] for row in kept(one)] == [
        ("20", "n", "70000"),
        ("35", "n", "-40000"),
        ("35", "price", "2.001"),
        ("4", "price", "1.125"),
    ]
    if system != "postgres":
        assert staging_tables(one, system) == []
    assert not one.moved(one.run())


@pytest.mark.parametrize(
    ("most", "good"), [("1", False), ("2", True), ("5%", False), ("10%", True)]
)
def test_more_than_are_allowed_fail_their_range(
    ferry: Callable[..., Ferry], copies: str, most: str, good: bool
) -> None:
    one = ferry(
        into("postgres", copies),
        *SOURCE,
        columns=json.dumps(NARROW["postgres"]),
        max_rejected=most,
        **SETTINGS,
    )
    moved = one.run()
    assert moved.good == good
    if not good:
        assert f"cannot hold values of 2 of 20 rows, and max_rejected ({most}) allows 1" in str(
            moved.errors
        )
        assert present(one) == {*range(21, 41)} - {35}, "the other range is there"


@pytest.mark.parametrize(
    ("hops", "settings", "message"),
    [
        ("['clickhouse://warehouse.{t}']", {"write": "upsert"}, "needs 'write: replace'"),
        ("['files://out/{t}/']", {}, "needs a table beside the target"),
        ("['clickhouse://warehouse.{t}']", {"max_rejected": "many"}, "a share of them"),
    ],
)
def test_where_rows_cannot_be_kept_the_file_is_refused(
    ferry: Callable[..., Ferry], hops: str, settings: dict[str, str], message: str
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", *SOURCE)
    one.declare(hops, on_reject="quarantine", **settings)
    result = command("validate")
    assert result.exit_code == 2
    assert message in result.output
