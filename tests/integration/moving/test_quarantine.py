"""Rows with values that a target cannot hold are kept beside it, and the others move."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tableferry.assets.asset_keys import asset_key, rejected_key
from tableferry.assets.log.ranges import read_status
from tableferry.pipelines.command.one import runner, running
from tableferry.pipelines.command.session import open_session
from tableferry.pipelines.definitions import build
from tests.integration.conftest import Ferry
from tests.integration.support.command import command
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


def into(system: str, copies: str) -> str:
    schemas = {"sqlserver": "dbo", "clickhouse": "warehouse", "postgres": copies}
    return f"['{system}://{schemas[system]}.{{t}}']"


def kept(one: Ferry, hop: int = 0) -> list[tuple[Any, ...]]:
    """What stands beside the target, by row and column."""
    return sorted(unsorted(one, hop))


def unsorted(one: Ferry, hop: int = 0) -> list[tuple[Any, ...]]:
    target = one.session.transfer(one.table).hops[hop].to
    quote, server = target.system.quote, one.session.servers.endpoints[target.connection]
    rows = server.query(
        "SELECT range_name, row_key, column_name, value, reason, run_id FROM "
        f"{quote(target.schema)}.{quote(target.name + '__rejected')}"
    )
    return [(json.loads(key)["id"], column, value, *rest) for _, key, column, value, *rest in rows]


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
    ],
)
def test_rows_that_do_not_fit_are_kept_beside_the_target(
    ferry: Callable[..., Ferry], copies: str, system: str, level: str
) -> None:
    settings = {**SETTINGS, "columns": json.dumps(NARROW[system]), "reconcile": level}
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
    transfer = one.session.transfer(one.table)
    status = read_status(one.session.instance, [transfer])[transfer.hops[0].to]
    told = [
        check.summary
        for checks in (status.checks, *(each.checks for each in status.ranges.values()))
        for check in checks
        if check.name in ("row_count", "total_rows")
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


def test_rejected_rows_are_known_after_an_attempt_that_failed(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    settings = {**SETTINGS, "columns": json.dumps(NARROW["postgres"]), "max_rejected": 3}
    one = ferry(into("postgres", copies), *SOURCE, **settings)
    assert one.run().good

    def shown() -> list[tuple[str, int, int]]:
        ranges = json.loads(command("status", one.table, "--json").stdout)["ranges"]
        return [(each["range"], each["rows"], each["quarantined"]) for each in ranges]

    first = shown()
    one.source("UPDATE {t} SET n = id + 70000 WHERE id BETWEEN 10 AND 15")
    assert not one.run().good
    # what is kept of the range is of its last commit
    moved = running.rejected_ranges(one.session, one.table)
    assert moved == [name for name, _, rejected in first if rejected]
    one.source("UPDATE {t} SET n = id WHERE id BETWEEN 10 AND 15")
    again = one.run()
    assert again.good and not one.moved(again)
    assert shown() == first
    assert {each.state for each in one.plan().ranges} == {"skip"}


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


LAX = (
    "CREATE TABLE {t} (id bigint, n int, note text, price numeric(30,3))",
    "INSERT INTO {t} SELECT i, i, 'n' || i, i FROM generate_series(1, 20) i",
    "INSERT INTO {t} VALUES (3, 99999, 'a', 1), (3, 99999, 'a', 1), (3, 99998, 'b', 1), "
    "(3, 1, 'c', 1.125), (4, 70000, 'd', 1.125), (4, 70000, 'e', 2), (NULL, 99997, 'f', 3), "
    "(NULL, 99997, 'f', 3)",
)
"""Eight rejected rows of a table without a primary key: duplicates, and rows that share a key."""
LAX_KEPT = [
    *[("3", "n", "99999")] * 2,
    ("3", "n", "99998"),
    ("3", "price", "1.125"),
    *[("4", "n", "70000")] * 2,
    ("4", "price", "1.125"),
    *[(None, "n", "99997")] * 2,
]


def whole(one: Ferry) -> dict[str, tuple[bool, dict[str, Any]]]:
    """Whether each check of the whole table passes, with its metadata."""
    found = runner.check(one.session, one.table, level="count")
    return {
        check.verdict.check: (check.verdict.passed, dict(check.verdict.metadata))
        for check in found.checks
        if check.range is None
    }


@pytest.mark.parametrize("system", [*NARROW])
def test_every_rejected_row_is_kept_also_of_rows_that_share_their_key(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    one = ferry(into(system, copies), *LAX, columns=json.dumps(NARROW[system]), **SETTINGS)
    moved = one.run()
    assert moved.good, moved.errors
    by_text = [tuple(map(str, row[:3])) for row in unsorted(one)]
    assert sorted(by_text) == sorted(tuple(map(str, row)) for row in LAX_KEPT)
    passed, metadata = whole(one)["total_rows"]
    assert passed and metadata["rejected"] == 8
    assert not one.moved(one.run())

    one.source("DELETE FROM {t} WHERE n = 99998")
    assert one.run().good
    assert len(unsorted(one)) == len(LAX_KEPT) - 1
    assert whole(one)["total_rows"][1]["rejected"] == 7


def test_rejected_keys_that_differ_in_case_or_blanks_are_rows_of_their_own(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    one = ferry(
        into("sqlserver", copies),
        "CREATE TABLE {t} (id varchar(20) PRIMARY KEY, n int)",
        "INSERT INTO {t} VALUES ('A', 99999), ('Ab', 1), ('a', 99999), ('a ', 99999), ('b', 1)",
        columns="{n: {type: smallint}}",
        **{**SETTINGS, "ranges": "{bounds: [A, B, a, b]}"},
    )
    moved = one.run()
    assert moved.good, moved.errors
    assert [row[0] for row in kept(one)] == ["A", "a", "a "]
    assert whole(one)["total_rows"][0]
    one.source("UPDATE {t} SET n = 2 WHERE id = 'A'")
    assert one.run().good
    assert [row[0] for row in kept(one)] == ["a", "a "], "those of the range a .. b stay"


@pytest.mark.parametrize("system", [*NARROW])
@pytest.mark.parametrize(
    "leaves",
    ["DELETE FROM {t} WHERE id = 25", "UPDATE {t} SET id = 7 WHERE id = 25"],
    ids=["deleted", "moved"],
)
def test_a_range_without_its_last_rejected_row_keeps_none(
    ferry: Callable[..., Ferry], copies: str, system: str, leaves: str
) -> None:
    settings = {**SETTINGS, "ranges": "{bounds: [20, 30]}"}
    one = ferry(
        into(system, copies),
        SOURCE[0],
        "INSERT INTO {t} VALUES (1, 1, 'a', 1), (25, 99999, 'b', 1), (31, 1, 'c', 1)",
        columns=json.dumps(NARROW[system]),
        **settings,
    )
    assert one.run().good
    assert [row[0] for row in kept(one)] == ["25"]
    one.source(leaves)
    moved = one.run()
    assert moved.good, moved.errors
    assert [row[0] for row in kept(one)] == ([] if "DELETE" in leaves else ["7"])
    assert all(passed for passed, _ in whole(one).values())


def test_rejected_rows_that_are_lost_fail_the_check_of_the_table(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    columns = json.dumps(NARROW["postgres"])
    one = ferry(into("postgres", copies), *SOURCE, columns=columns, **SETTINGS)
    assert one.run().good
    one.source(f"DELETE FROM {copies}.{one.table}__rejected WHERE row_key LIKE '%35%'")
    result = command("check", one.table)
    assert result.exit_code == 1, result.output
    assert "total_rows FAILED" in result.output


@pytest.mark.parametrize("point", ["inside_quarantine", "inside_finalise", "after_commit"])
def test_a_forced_run_that_is_killed_doubles_no_rejected_row(
    ferry: Callable[..., Ferry], copies: str, tmp_path: Path, point: str
) -> None:
    columns = json.dumps(NARROW["clickhouse"])
    one = ferry(into("clickhouse", copies), *LAX, columns=columns, **SETTINGS)
    assert one.run().good
    one.session.instance.dispose()
    crash(Command(tmp_path), one.table, point, "--force", "--profile", "safe")
    reopen(one)
    assert len(unsorted(one)) == len(LAX_KEPT)
    again = one.run()
    assert again.good, again.errors
    assert len(unsorted(one)) == len(LAX_KEPT)
    assert whole(one)["total_rows"][0]


@pytest.mark.parametrize("system", [*NARROW])
def test_a_rejected_row_of_a_range_that_is_cut_stays_until_its_successor_has_it(
    ferry: Callable[..., Ferry], copies: str, tmp_path: Path, system: str
) -> None:
    columns = json.dumps(NARROW[system])
    one = ferry(
        into(system, copies),
        "CREATE TABLE {t} (id varchar(20) PRIMARY KEY, n int, price numeric(30,3))",
        "INSERT INTO {t} SELECT 'k' || i, i, 1 FROM generate_series(100, 190) i",
        "UPDATE {t} SET n = 99999 WHERE id = 'k180'",
        columns=columns,
        **{**SETTINGS, "ranges": "{rows: 50}"},
    )
    assert one.run().good
    assert [row[0] for row in kept(one)] == ["k180"]
    one.source("INSERT INTO {t} SELECT 'k' || i, i, 1 FROM generate_series(191, 290) i")
    one.session.instance.dispose()
    crash(Command(tmp_path), one.table, "before_export", "--profile", "safe")
    reopen(one)
    assert [row[0] for row in kept(one)] == ["k180"]
    moved = one.run()
    assert moved.good, moved.errors
    assert [row[0] for row in kept(one)] == ["k180"]
    assert all(passed for passed, _ in whole(one).values())


@pytest.mark.parametrize("system", [*NARROW])
def test_values_that_fit_meanwhile_are_not_kept(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    source = (
        "CREATE TABLE {t} (id bigint PRIMARY KEY, n int)",
        "INSERT INTO {t} VALUES (1, 99999)",
    )
    narrow = json.dumps({"n": NARROW[system]["n"]})
    one = ferry(into(system, copies), *source, columns=narrow, **SETTINGS)
    assert one.run().good
    assert [row[0] for row in kept(one)] == ["1"]
    one.declare(into(system, copies), on_schema_drift="evolve", **SETTINGS)
    moved = one.run()
    assert moved.good, moved.errors
    assert present(one) == {1} and kept(one) == []


@pytest.mark.parametrize("system", [*NARROW])
def test_rejected_rows_of_ranges_that_were_not_moved_since_are_kept(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    """Values fit now, but these ranges are still without them."""
    source = (
        "CREATE TABLE {t} (id bigint PRIMARY KEY, n int)",
        "INSERT INTO {t} SELECT i, 99990 + i FROM generate_series(1, 4) i",
    )
    narrow = json.dumps({"n": NARROW[system]["n"]})
    one = ferry(into(system, copies), *source, columns=narrow, **SETTINGS)
    assert one.run().good
    assert [row[0] for row in kept(one)] == ["1", "2", "3", "4"]
    one.declare(into(system, copies), on_schema_drift="evolve", **SETTINGS)
    first = one.plan().ranges[0].range
    done = command("run", one.table, "--range", first)
    assert present(one) == {1, 2}, done.output
    assert [row[0] for row in kept(one)] == ["3", "4"]
    moved = one.run()
    assert moved.good, moved.errors
    assert present(one) == {1, 2, 3, 4} and kept(one) == []


def test_the_table_of_the_rejected_rows_is_an_asset_that_others_follow(
    ferry: Callable[..., Ferry], copies: str
) -> None:
    settings = {**SETTINGS, "columns": json.dumps(NARROW["clickhouse"]), "freshness": "36h"}
    one = ferry(into("clickhouse", copies), *SOURCE, **settings)
    (hop,) = one.session.transfer(one.table).hops
    target, rejected = asset_key(hop.to), rejected_key(hop.to)
    assert rejected.path == [*target.path[:-1], f"{one.table}__rejected"]
    instance, condition = one.session.instance, dg.AutomationCondition.any_deps_updated()

    @dg.asset(deps=[rejected], automation_condition=condition)
    def told() -> None: ...

    definitions = dg.Definitions.merge(build(), dg.Definitions(assets=[told]))
    graph = definitions.resolve_asset_graph()
    assert graph.get(rejected).parent_keys == {target} and graph.get(rejected).is_external
    assert graph.get(rejected).freshness_policy_or_from_metadata is not None
    seen = dg.evaluate_automation_conditions(definitions, instance)
    for rows, statement in ((3, "SELECT 1"), (2, "UPDATE {t} SET n = 0 WHERE id = 3")):
        one.source(statement)
        assert one.run().good
        event = instance.get_latest_materialization_event(rejected)
        assert event is not None and event.asset_materialization is not None
        assert event.asset_materialization.metadata["dagster/row_count"].value == rows
        seen = dg.evaluate_automation_conditions(definitions, instance, cursor=seen.cursor)
        assert seen.total_requested == 1
    one.declare(into("clickhouse", copies), exclude="[n, price]")
    assert {*build().resolve_asset_graph().get_all_asset_keys()} == {
        asset_key(one.session.transfer(one.table).source),
        target,
    }
