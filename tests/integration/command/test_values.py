"""Every value that a run would refuse is listed before it, with lines of YAML that help."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

ODD = (
    "CREATE TABLE {t} (id int PRIMARY KEY, day date, at timestamp, price numeric(30,3),"
    ' ratio float8, note text, "of day" time, lists int[], plain int, label varchar(20))',
    "INSERT INTO {t} SELECT i, '2024-01-01', '2024-01-01', 1, 1, 'n', '12:00', '{{1}}', i, 'x'"
    " FROM generate_series(1, 40) i",
    "UPDATE {t} SET day = 'infinity' WHERE id = 3",
    "UPDATE {t} SET day = '0044-03-15 BC' WHERE id IN (4, 5, 6, 7, 8, 9, 10)",
    "UPDATE {t} SET at = '-infinity' WHERE id = 5",
    "UPDATE {t} SET price = 'NaN' WHERE id = 6",
    "UPDATE {t} SET price = 1.125, label = NULL WHERE id = 7",
    "UPDATE {t} SET ratio = 'Infinity' WHERE id = 8",
    "UPDATE {t} SET note = 'far too long', \"of day\" = '24:00' WHERE id = 9",
    "UPDATE {t} SET lists = '{{{{1,2}},{{3,4}}}}' WHERE id = 10",
    "UPDATE {t} SET note = U&'\\FFFD' WHERE id = 11",
)


def values(*arguments: str, code: int | None = None) -> dict[str, Any]:
    result = command("plan", *arguments, "--values", "--json")
    assert code is None or result.exit_code == code, result.output
    assert result.stdout, result.exception
    return dict(json.loads(result.stdout))


def listed(document: Mapping[str, Any], hop: int = 1) -> dict[str, int]:
    (found,) = [each for each in document["hops"] if each["hop"] == hop]
    return {each["column"]: each["rows"] for each in found["columns"]}


def remedied(document: Mapping[str, Any], which: int) -> dict[str, Any]:
    """The settings that the first or last remedy of each column asks for."""
    settings: dict[str, Any] = {"columns": {}, "exclude": []}
    for hop in document["hops"]:
        for column in hop["columns"]:
            said = yaml.safe_load(column["remedies"][which]["yaml"])
            settings["exclude"] += said.get("exclude", [])
            for name, declared in said.get("columns", {}).items():
                settings["columns"].setdefault(name, {}).update(declared)
    gone = settings["exclude"]
    settings["columns"] = {k: v for k, v in settings["columns"].items() if k not in gone}
    return settings


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        (
            ["sqlserver://dbo.{t}"],
            {
                "day": 8,
                "at": 1,
                "price": 2,
                "ratio": 1,
                "note": 1,
                "of day": 1,
                "lists": 0,
            },
        ),
        (
            ["clickhouse://warehouse.{t}"],
            {"day": 8, "at": 1, "price": 2, "note": 0, "lists": 1},
        ),
    ],
    ids=["sqlserver", "clickhouse"],
)
def test_all_refused_values_are_listed_and_the_remedies_help(
    ferry: Callable[..., Ferry], hops: list[str], expected: dict[str, int]
) -> None:
    system = hops[0].partition(":")[0]
    price, note = {
        "sqlserver": ("decimal(20,2)", "nvarchar(5)"),
        "clickhouse": ("Decimal(20, 2)", "String"),
    }[system]
    columns = {"price": {"type": price}, "note": {"type": note}}
    one = ferry(str(hops), *ODD, columns=json.dumps(columns))
    document = values(one.table, code=1)
    assert document["ok"] is False and document["hops"][0]["rows"] == 40
    assert listed(document) == {name: rows for name, rows in expected.items() if rows}
    (day,) = [each for each in document["hops"][0]["columns"] if each["column"] == "day"]
    assert [each["key"] for each in day["examples"]] == [{"id": str(n)} for n in range(3, 8)]
    assert day["examples"][0]["value"] == "infinity"

    shown = command("plan", one.table, "--values")
    assert shown.exit_code == 1
    assert (
        f"{one.table}: {hops[0].format(t=one.table)}: day: 8 values would be refused"
        in shown.stdout
    )
    assert "declare columns: {day: {on_overflow: null}}" in shown.stdout
    assert "or exclude: [day]" in shown.stdout
    assert not one.run().good, "a run refuses them"

    for which in (-1, 0):
        settings = remedied(document, which)
        merged = {
            name: {**columns.get(name, {}), **settings["columns"].get(name, {})}
            for name in {*columns, *settings["columns"]} - {*settings["exclude"]}
        }
        one.declare(str(hops), columns=json.dumps(merged), exclude=json.dumps(settings["exclude"]))
        assert values(one.table, code=0)["ok"] is True
    one.session.servers.endpoints[system].execute(
        f"DROP TABLE IF EXISTS {hops[0].format(t=one.table).partition('://')[2]}"
    )
    moved = one.run()
    assert moved.good, moved.errors


def test_later_hops_are_foreseen_from_the_source(ferry: Callable[..., Ferry]) -> None:
    hops = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
    one = ferry(
        hops,
        "CREATE TABLE {t} (id int PRIMARY KEY, n int, note text, doubtful int[])",
        "INSERT INTO {t} SELECT i, 1, 'n', '{{1}}' FROM generate_series(1, 20) i",
        "UPDATE {t} SET n = 300 WHERE id = 3",
        "UPDATE {t} SET note = U&'\\FFFD' WHERE id IN (11, 12)",
        columns="{n: {type: {clickhouse: Int8}}, note: {type: {sqlserver: nvarchar(10)}}}",
    )
    document = values(one.table, code=1)
    assert listed(document, 1) == {}
    later = listed(document, 2)
    assert later["n"] == 1
    # each remedy is the hop's own line, and all of them are one
    to = f'{{to: "clickhouse://warehouse.{one.table}", columns: {{n: {{on_overflow: null}}'
    shown = command("plan", one.table, "--values").stdout
    assert f"declare - {to}}}}}  # NULL in their place" in shown
    assert "hops: [{" not in shown
    if "note" in later:
        assert f"  - {to}, note: " in shown
    refused = "\n".join(one.run().errors)
    assert "'n'" in refused
    one.source("UPDATE {t} SET n = 3 WHERE id = 3")
    refused = "\n".join(one.run().errors)
    assert ("U+FFFD" in refused) == ("note" in later)


def test_only_what_can_be_refused_is_read(ferry: Callable[..., Ferry]) -> None:
    one = ferry(
        "['clickhouse://warehouse.{t}']",
        "CREATE TABLE {t} (id int PRIMARY KEY, note text)",
        "INSERT INTO {t} VALUES (1, 'x')",
    )
    document = values(one.table, code=0)
    assert document["hops"][0]["rows"] is None
    assert "no value can be refused" in command("plan", one.table, "--values").stdout
    every = command("plan", "--all", "--values")
    assert every.exit_code == 0 and one.table in every.stdout


def test_a_text_key_has_no_remedy_but_its_type(ferry: Callable[..., Ferry]) -> None:
    one = ferry(
        "['sqlserver://dbo.{t}']",
        "CREATE TABLE {t} (id text PRIMARY KEY, n int)",
        "INSERT INTO {t} VALUES ('short', 1), ('a key that is \"too\" long', 2)",
        columns="{id: {type: nvarchar(10)}}",
    )
    (column,) = values(one.table, code=1)["hops"][0]["columns"]
    (example,) = column["examples"]
    assert example["key"] == {"id": 'a key that is "too" long'}
    assert [remedy["meaning"] for remedy in column["remedies"]] == ["it is the key"]


@pytest.mark.parametrize("system", ["sqlserver", "clickhouse"])
def test_other_sources_have_odd_values_too(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    hops = f"['postgres://{copies}.{{t}}']"
    one = ferry(hops)
    schema = "dbo" if system == "sqlserver" else "warehouse"
    table = f"{schema}.{one.table}"
    if system == "sqlserver":
        create = f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, note nvarchar(20))"
        odd = f"INSERT INTO {table} VALUES (1, N'ok'), (2, N'a' + NCHAR(65533)), (3, NULL)"
    else:
        create = (
            f"CREATE TABLE {table} (id Int32, note Nullable(String)) ENGINE = MergeTree ORDER BY id"
        )
        odd = f"INSERT INTO {table} VALUES (1, 'ok'), (2, 'a\\0b'), (3, NULL), (4, unhex('ff'))"
    for statement in (create, odd):
        looking.run(one.stack, system, statement)
    one.declare(hops, source=f"{system}://{table}")
    document = values(one.table, code=1)
    assert listed(document) == {"note": 1 if system == "sqlserver" else 2}


def test_init_examines_what_it_has_written(ferry: Callable[..., Ferry], tmp_path: Path) -> None:
    one = ferry("['sqlserver://dbo.{t}']", *ODD)
    arguments = ["init", "--from", "postgres", "--tables", f"public.{one.table}", "--values"]
    arguments += ["--to", "sqlserver://dbo.{table}", "--output", str(tmp_path / "new")]
    result = command(*arguments)
    assert result.exit_code == 1, result.output
    assert "day: 8 values would be refused" in result.stdout
    document = json.loads(command(*arguments[:-1], str(tmp_path / "newer"), "--json").stdout)
    (values,) = document["values"]
    assert "day" in listed(values)


def test_types_that_travel_as_their_text_are_examined_and_changed_as_text(
    ferry: Callable[..., Ferry],
) -> None:
    names = {
        "doc": "jsonb",
        "address": "inet",
        "span": "interval",
        "range": "int4range",
        "at": "time",
        "bits": "bit varying(40)",
    }
    columns: dict[str, dict[str, Any]] = {name: {"type": "nvarchar(8)"} for name in names}
    one = ferry(
        "['sqlserver://dbo.{t}']",
        "CREATE TABLE {t} (id int PRIMARY KEY, "
        + ", ".join(f"{name} {type_}" for name, type_ in names.items())
        + ")",
        "INSERT INTO {t} SELECT i, '{{}}', '10.0.0.1', '1 day', '[1,2)', '12:00', B'101'"
        " FROM generate_series(1, 20) i",
        "UPDATE {t} SET doc = '[1, 2, 3, 4, 5, 6]', address = '192.168.100.200/24',"
        " span = '1 year 2 mons 3 days', range = '[1000000,2000000)',"
        " at = '12:00:00.123456', bits = repeat('1', 30)::varbit WHERE id IN (3, 4)",
        columns=json.dumps(columns),
    )
    document = values(one.table, code=1)
    # times are written with six decimals
    assert listed(document) == {**dict.fromkeys(names, 2), "at": 20}
    for policy in ("null", "clamp"):
        settings = {name: {**declared, "on_overflow": policy} for name, declared in columns.items()}
        one.declare("['sqlserver://dbo.{t}']", columns=json.dumps(settings))
        assert values(one.table, code=0)["ok"] is True
        moved = one.run()
        assert moved.good, (policy, moved.errors)
        ((doc,),) = looking.ask_sqlserver(
            one.stack.sqlserver_url, f"SELECT doc FROM dbo.{one.table} WHERE id = 3"
        )
        assert doc == {"null": None, "clamp": "[1, 2, 3"}[policy]
