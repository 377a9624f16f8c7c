"""A range whose partition somebody deletes in Dagster is told, and made again with its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]

KEYS = {
    "integer": ("integer", "g"),
    "text": ('text COLLATE "C"', "'k' || lpad(g::text, 4, '0')"),
    "uuid": ("uuid", "lpad(to_hex(g), 32, '0')::uuid"),
    "date": ("date", "date '2020-01-01' + g"),
    "timestamp": ("timestamp", "timestamp '2020-01-01' + g * interval '1 hour'"),
}
CUTS = {
    "integer": "[101, 201, 301]",
    "text": "[k0101, k0201, k0301]",
    "uuid": "{}",
    "date": "[2020-04-11, 2020-07-20, 2020-10-28]",
    "timestamp": "[2020-01-05 05:00:00, 2020-01-09 09:00:00, 2020-01-13 13:00:00]",
}


def names(one: Ferry) -> list[str]:
    return list(one.session.instance.get_dynamic_partitions(f"{one.table}_ranges"))


def delete(one: Ferry, *gone: str) -> None:
    """What Dagster's UI does."""
    for name in gone:
        one.session.instance.delete_dynamic_partition(f"{one.table}_ranges", name)


def add(one: Ferry, name: str) -> None:
    one.session.instance.add_dynamic_partitions(f"{one.table}_ranges", [name])


def in_target(one: Ferry, system: str, schema: str) -> list[tuple[Any, ...]]:
    sql = f"SELECT n, note FROM {schema}.{one.table}"
    return sorted((int(n), str(note)) for n, note in looking.ask(one.stack, system, sql))


def in_source(one: Ferry) -> list[tuple[Any, ...]]:
    return sorted((int(n), note) for n, note in one.rows("SELECT n, note FROM {t}"))


def make(
    ferry: Make, system: str, schema: str, key: str = "integer", nulls: int = 0, **settings: Any
) -> Ferry:
    type_, value = KEYS[key]
    ranges = f"{{bounds: {CUTS[key]}}}" if key != "uuid" else "{rows: 100}"
    one = ferry(
        f"['{system}://{schema}.{{t}}']",
        f"CREATE TABLE {{t}} (id {type_}{'' if nulls else ' PRIMARY KEY'}, n integer, note text)",
        f"INSERT INTO {{t}} SELECT {value}, g, 'A' FROM generate_series(1, 400) g",
        f"INSERT INTO {{t}} SELECT NULL, 1000 + g, 'A' FROM generate_series(1, {nulls}) g",
        ranges=ranges,
        **settings,
    )
    command("run", one.table, code=0)
    assert len(names(one)) >= 4
    return one


PLACES: dict[str, Callable[[Sequence[str]], Sequence[str]]] = {
    "first": lambda known: known[:1],
    "middle": lambda known: known[1:2],
    "last": lambda known: known[-1:],
    "two in the middle": lambda known: known[1:3],
    "all but one": lambda known: [*known[:1], *known[2:]],
}


@pytest.mark.parametrize(
    ("system", "key", "where"),
    [
        ("postgres", "integer", "first"),
        ("clickhouse", "integer", "all but one"),
        ("sqlserver", "integer", "two in the middle"),
        ("clickhouse", "text", "middle"),
        ("postgres", "uuid", "two in the middle"),
        ("clickhouse", "date", "first"),
        ("postgres", "timestamp", "last"),
    ],
)
def test_a_deleted_range_is_told_and_comes_back(
    ferry: Make, schemas: dict[str, str], system: str, key: str, where: str
) -> None:
    one = make(ferry, system, schemas[system], key)
    known = names(one)
    gone = PLACES[where](known)
    one.source("UPDATE {t} SET note = 'B' WHERE n IN (5, 150, 250, 399)")
    delete(one, *gone)
    status = command("status", one.table, code=1)
    assert gone[0] in status.output and f"ferry run {one.table} adds it again" in status.output
    for asked in (["report", one.table], ["check", one.table, "--as-of", "last-run"]):
        assert gone[0] in command(*asked, code=1).output
    whole = json.loads(command("status", "--json", code=1).stdout)
    assert gone[0] in str(whole)
    planned = command("plan", one.table, code=0)
    assert gone[0] in planned.output and "adds it again" in planned.output
    command("run", one.table, code=0)
    assert sorted(names(one)) == sorted(known)
    assert in_target(one, system, schemas[system]) == in_source(one)
    command("check", one.table, code=0)
    assert "adds it again" not in command("status", one.table, code=0).output
    report = command("report", one.table, "--json", code=0)
    listed = json.loads(report.stdout)["hops"][0]["ranges"]
    assert [each["name"] for each in listed] == known, "in the order of keys"


@pytest.mark.parametrize("system", ["postgres", "clickhouse"])
def test_rows_without_a_key_that_no_range_has_are_told(
    ferry: Make, schemas: dict[str, str], system: str
) -> None:
    one = make(ferry, system, schemas[system], nulls=30)
    delete(one, "null")
    assert "null" in command("status", one.table, code=1).output
    checked = command("check", one.table, code=1).output
    assert "total_rows FAILED" in checked and "30 rows of the source in no range" in checked
    one.source("INSERT INTO {t} VALUES (NULL, 2000, 'new')")
    command("run", one.table, code=0)
    assert in_target(one, system, schemas[system]) == in_source(one)
    command("check", one.table, code=0)


def test_a_source_that_grows_explains_no_range_that_lacks(
    ferry: Make, schemas: dict[str, str]
) -> None:
    """The target never had the rows, and the other ranges have what was committed."""
    one = make(ferry, "postgres", schemas["postgres"])
    delete(one, names(one)[1])
    looking.ask_postgres(
        one.stack.postgres_url,
        f"DELETE FROM {schemas['postgres']}.{one.table} WHERE id BETWEEN 101 AND 200",
    )
    checked = command("check", one.table, code=1).output
    assert "total_rows FAILED: 400 rows in source, 300 in target" in checked
    assert "100 rows of the source in no range, which the next run adds again" in checked
    launched = one.launch(raise_on_error=False, partition_key=names(one)[0])
    failed = [check for check in launched.get_asset_check_evaluations() if not check.passed]
    assert "total_rows" in {check.check_name for check in failed}
    command("run", one.table, code=0)
    assert in_target(one, "postgres", schemas["postgres"]) == in_source(one)


def test_the_sensor_of_new_ranges_adds_it_again(ferry: Make, schemas: dict[str, str]) -> None:
    from tableferry.assets.planning.ranges.growing import not_growing

    one = make(ferry, "postgres", schemas["postgres"])
    transfer = one.session.transfer(one.table)
    servers = {one.table: one.session.servers_of(transfer)}

    def quiet() -> bool:
        return one.table in not_growing([transfer], servers, {one.table: names(one)})

    assert quiet()
    delete(one, names(one)[2])
    assert not quiet()


def test_stretches_of_blocks(ferry: Make, schemas: dict[str, str]) -> None:
    one = ferry(
        f"['postgres://{schemas['postgres']}.{{t}}']",
        "CREATE TABLE {t} (n integer, note text)",
        "INSERT INTO {t} SELECT g, repeat('A', 200) FROM generate_series(1, 2000) g",
        ranges="{by: ctid, count: 4}",
        key="",
    )
    command("run", one.table, code=0)
    known = names(one)
    delete(one, known[1], known[-1])
    assert known[1] in command("status", one.table, code=1).output
    command("run", one.table, code=0)
    assert sorted(names(one)) == sorted(known)
    command("check", one.table, code=0)


def test_a_file_whose_range_was_deleted(
    ferry: Make, schemas: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.csv").write_text(f"id,n,note\n1,{ord(name)},A\n")
    monkeypatch.setenv("TABLEFERRY_FILES_URL", f"file://{folder}")
    one = ferry(
        f"['postgres://{schemas['postgres']}.{{t}}']",
        source="files://*.csv",
        key="",
    )
    command("run", one.table, code=0)
    delete(one, "b.csv")
    (folder / "b.csv").write_text("id,n,note\n1,2,B\n")
    assert "b.csv" in command("status", one.table, code=1).output
    assert "b.csv" in command("check", one.table, code=1).output
    command("run", one.table, code=0)
    assert in_target(one, "postgres", schemas["postgres"]) == [(2, "B"), (97, "A"), (99, "A")]
    (folder / "c.csv").unlink()
    command("run", one.table, code=0)
    assert "no range" not in command("status", one.table, code=0).output


@pytest.mark.parametrize("added", ["mine", "0000000050..0000000150", "0000000401..0000000400"])
def test_a_partition_that_somebody_has_added_is_told_by_name(
    ferry: Make, schemas: dict[str, str], added: str
) -> None:
    one = make(ferry, "postgres", schemas["postgres"])
    add(one, added)
    for word in ("run", "plan", "check", "report", "adopt"):
        output = command(word, one.table, code=2 if word != "report" else 1).output
        assert f"partition '{added}'" in output, output
        assert "somebody has added this partition by hand; delete it in Dagster's UI" in output
    assert f"{added}: no range" in command("status", one.table, code=1).output
    delete(one, added)
    command("run", one.table, code=0)
    command("check", one.table, code=0)
