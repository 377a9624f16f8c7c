"""Any two tables compared: what is equal, what differs and why, and what is told of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import table_name
from tests.integration.support.command import command
from tests.integration.support.pairs import Place, places
from tests.servers import Servers

pytestmark = pytest.mark.integration

PLAIN = {
    "postgres": "CREATE TABLE public.{t} (id int PRIMARY KEY, price numeric(12,4), ratio float8, "
    "note text, at timestamp(6), day date, ident uuid, fixed char(5))",
    "sqlserver": "CREATE TABLE dbo.{t} (ID int NOT NULL PRIMARY KEY, Price decimal(12,4), "
    "Ratio float, Note nvarchar(100), At datetime2(6), Day date, Ident uniqueidentifier, "
    "Fixed nvarchar(5))",
    "clickhouse": "CREATE TABLE warehouse.{t} (id Int32, price Nullable(Decimal(12,4)), "
    "ratio Nullable(Float64), note Nullable(String), at Nullable(DateTime64(6, 'UTC')), "
    "day Nullable(Date32), ident Nullable(UUID), fixed Nullable(String)) "
    "ENGINE MergeTree ORDER BY id",
}
VALUES = "({i}, {price}, 0.1, '{note}', '{at}', '2024-02-29', '{ident}', '{fixed}')"
COUNT = 200


@dataclass
class Tables:
    """A table of the same name on every server, and the command."""

    name: str
    found: dict[str, Place]

    def ref(self, system: str) -> str:
        return str(self.found[system].table(self.name))

    def execute(self, system: str, *statements: str) -> None:
        for statement in statements:
            self.found[system].endpoint.execute(statement.format(t=self.name))

    def compare(self, first: str, second: str, *options: str) -> dict[str, Any]:
        """The document of `ferry compare`; tables by system, or as they are written."""
        names = [self.ref(one) if one in self.found else one for one in (first, second)]
        result = command("compare", *names, "--json", *options)
        document: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (0 if document["ok"] else 1), result.output
        return document


def row(i: int, **changed: Any) -> str:
    values = {
        "i": i,
        "price": f"{i}.5000",
        "note": f"Größe {i}",
        "at": f"2024-03-01 12:34:56.{i:06d}",
        "ident": f"{i:08d}-3333-4444-8555-666677778888",
        "fixed": "ab",
    }
    return VALUES.format(**values | changed)


@pytest.fixture(scope="module")
def tables(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    folder = tmp_path_factory.mktemp("files")
    found = places(stack, folder)
    tables = Tables(table_name(), found)
    rows = ", ".join(row(i) for i in range(1, COUNT + 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TABLEFERRY_POSTGRES_URL", stack.postgres_url)
        patch.setenv("TABLEFERRY_SQLSERVER_URL", stack.sqlserver_url)
        patch.setenv("TABLEFERRY_CLICKHOUSE_URL", stack.clickhouse_url)
        patch.chdir(folder)
        for system, create in PLAIN.items():
            schema = found[system].schema
            texts = rows.replace("'Gr", "N'Gr") if system == "sqlserver" else rows
            tables.execute(system, create, f"INSERT INTO {schema}.{{t}} VALUES {texts}")
        yield tables
        for system in PLAIN:
            found[system].drop(found[system].table(tables.name))


PAIRS = [("postgres", "sqlserver"), ("postgres", "clickhouse"), ("sqlserver", "clickhouse")]


@pytest.mark.parametrize(("first", "second"), [*PAIRS, *(pair[::-1] for pair in PAIRS)])
def test_equal_tables_are_equal(tables: Tables, first: str, second: str) -> None:
    found = tables.compare(first, second)
    assert found["ok"], found
    assert found["read"]["a"] == {"counted": COUNT, "again": 0, "sent": 0}
    assert [name.lower() for name in found["key"]] == ["id"]
    assert len(found["columns"]) == 8


CHANGES = {
    11: {"price": "11.5678"},
    12: {"price": "12.57"},
    21: {"note": ""},
    22: {"note": "größe 22"},
    23: {"note": "Größe 23 "},
    24: {"note": "GrÃ¶ÃŸe 24"},
    25: {"note": "Gr??e 25"},
    26: {"note": "Grö"},
    31: {"at": "2024-03-01 14:34:56.000031"},
    32: {"at": "2024-03-01 12:34:56.000000"},
}
"""What of the rows of the copy is another value."""

ORIGINALS = {11: {"price": "11.5678"}, 12: {"price": "12.5678"}}
CAUSES = {
    "price": {"rounded to 2 decimals"},
    "note": {
        "'' instead of a value",
        "upper and lower case",
        "trailing blanks",
        "encoding: UTF-8 read as another code page",
        "encoding: characters replaced",
        "cut to 3 characters",
    },
    "at": {"shifted by +2 hours (time zone)", "cut to seconds"},
}


@pytest.fixture(scope="module")
def copy(tables: Tables) -> Iterator[str]:
    """A view and a damaged copy in ClickHouse, of the table in PostgreSQL."""
    name = table_name()
    tables.execute(
        "postgres",
        f"CREATE VIEW public.{name} AS SELECT id, note, at, "
        "CASE id WHEN 11 THEN 11.5678 WHEN 12 THEN 12.5678 ELSE price END AS price FROM public.{t}",
    )
    rows = ", ".join(row(i, **CHANGES.get(i, {})) for i in range(2, COUNT + 2))
    tables.execute(
        "clickhouse",
        PLAIN["clickhouse"].replace("{t}", name),
        f"INSERT INTO warehouse.{name} VALUES {rows}",
    )
    yield name
    tables.execute("postgres", f"DROP VIEW public.{name}")
    tables.execute("clickhouse", f"DROP TABLE warehouse.{name}")


def test_what_differs_is_found_with_its_likely_cause(tables: Tables, copy: str) -> None:
    first, second = f"postgres://public.{copy}", f"clickhouse://warehouse.{copy}"
    found = tables.compare(first, second, "--key", "id", "--ranges", "20", "--limit", "100")
    differences = found["differences"]
    assert (differences["only_in_a"], differences["only_in_b"]) == (1, 1)
    assert differences["different"] == len(CHANGES) - 1
    assert differences["by_column"] == {"note": 6, "at": 2, "price": 1}
    causes = {name: {one["cause"] for one in each} for name, each in found["causes"].items()}
    assert causes == CAUSES
    (shift,) = [one for one in found["causes"]["at"] if "hours" in one["cause"]]
    assert shift["examples"][0]["row"] == {"id": "31"}
    assert found["not_compared"]["only_in_b"] == ["ratio", "day", "ident", "fixed"]
    assert found["rules"] == {}
    # only the ranges that differ were read again, and of them only a few rows were sent
    for side in "ab":
        assert found["read"][side]["counted"] == COUNT
        assert 0 < found["read"][side]["again"] < COUNT / 2
        assert found["read"][side]["sent"] < 30


def test_a_page_and_lines_say_the_same(tables: Tables, copy: str, tmp_path: Path) -> None:
    first, second = f"postgres://public.{copy}", f"clickhouse://warehouse.{copy}"
    page = tmp_path / "page.html"
    result = command("compare", first, second, "--key", "id", "--html", str(page))
    assert result.exit_code == 1
    for text in (result.stdout, page.read_text(encoding="utf-8")):
        assert "1 row only in A, 1 row only in B, 9 rows differ by checksum" in text
        assert "shifted by +2 hours (time zone)" in text
        assert "columns only in B, not compared: ratio, day, ident, fixed" in text
    assert f"ferry: {first} and {second} differ" in result.stderr
    facts = dict(re.findall("<dt>(.+?)</dt><dd>(.+?)</dd>", page.read_text(encoding="utf-8")))
    assert re.match(r"20\d\d-\d\d-\d\d", facts["Compared at"]), facts
    assert all(":" in facts[f"{side} is on"] for side in "AB"), facts
    assert facts["Level"] == "checksum" and "note" in facts["Columns"], facts
    assert facts["Rows"].endswith(" in B"), facts


def test_a_key_that_is_named_twice_is_that_key(tables: Tables, copy: str) -> None:
    first, second = f"postgres://public.{copy}", f"clickhouse://warehouse.{copy}"
    result = command("compare", first, second, "--key", "id,id", "--key", "id", "--limit", "1")
    assert result.exit_code == 1, result.output
    assert "9 rows differ" in result.stdout


def test_without_a_key_counts_and_sums_are_compared(tables: Tables, copy: str) -> None:
    first, second = f"postgres://public.{copy}", f"clickhouse://warehouse.{copy}"
    found = tables.compare(first, second)
    assert found["differences"] is None
    assert "only counts and the sum of the digests are; --key" in found["notes"][-1]
    counted = tables.compare(first, second, "--level", "count")
    assert counted["ok"] and "compared: only counts are; --key" in counted["notes"][-1]
    assert found["read"]["a"] == {"counted": COUNT, "again": 0, "sent": 0}


def test_tolerances_are_applied_by_both_servers_and_shown(tables: Tables, copy: str) -> None:
    first, second = f"postgres://public.{copy}", f"clickhouse://warehouse.{copy}"
    among = [
        "--key",
        "id",
        "--where-a",
        "id BETWEEN 11 AND 32 AND id <> ALL (ARRAY[21,24,25,26,31])",
    ]
    among += ["--where-b", "id BETWEEN 11 AND 32 AND NOT has([21, 24, 25, 26, 31], id)"]
    assert not tables.compare(first, second, *among)["ok"]
    rules = ["price:round=2", "note:trim=true,case=ignore", "at:truncate=seconds"]
    options = [part for rule in rules for part in ("--tolerance", rule)]
    for level in ("checksum", "full_hash"):
        found = tables.compare(first, second, *among, *options, "--level", level)
        assert found["ok"], found
        assert (
            "within tolerances: price (round: 2), note (trim: true, case: ignore), "
            "at (truncate: seconds)"
        ) in found["says"]
    only_one = tables.compare(first, second, *among, *options[:2])
    assert only_one["differences"]["by_column"] == {"note": 2, "at": 1}


JSON = {
    1: ('{"a":1,"b":[1,2]}', '{ "b": [1, 2], "a": 1 }', True),
    2: ('{"a": 1.50, "b": 2.0, "c": 1e2}', '{"a": 1.5, "b": 2, "c": 100}', True),
    3: (r'["\u00fc", "x.0 1.50"]', '["ü", "x.0 1.50"]', True),
    4: ('{"a": 1, "a": 2}', '{"a": 2}', True),
    5: ('["1.50"]', '["1.5"]', False),
    6: ("[1, 2]", "[2, 1]", False),
    7: ("null", None, False),
    8: ('{"a": null}', "{}", False),
    9: ("1.05", "1.5", False),
    10: (None, None, True),
    11: (r'{"a\"b": "\\"}', r'{ "a\"b":"\\" }', True),
}
"""JSON on both sides, and whether it means the same."""


@pytest.mark.parametrize("types", [("jsonb", "json"), ("text", "jsonb"), ("text", "varchar(99)")])
def test_json_is_compared_by_what_it_means(tables: Tables, types: tuple[str, str]) -> None:
    names = ("public.{t}_j", "public.{t}_k")
    for side, (name, type_) in enumerate(zip(names, types, strict=True)):
        tables.execute("postgres", f"CREATE TABLE {name} (id int PRIMARY KEY, doc {type_})")
        for i, row in JSON.items():
            text = "NULL" if row[side] is None else f"'{row[side]}'"
            statement = f"INSERT INTO {name} VALUES ({i}, {text})"
            tables.found["postgres"].endpoint.execute(statement.replace("{t}", tables.name))
    refs = [f"{tables.ref('postgres')}_{suffix}" for suffix in "jk"]
    differing = {i for i, (_, _, same) in JSON.items() if not same}
    try:
        assert not tables.compare(*refs)["ok"], "no tolerance is implied"
        for level in ("checksum", "full_hash"):
            options = ["--tolerance", "doc:json=canonical", "--level", level]
            found = tables.compare(*refs, *options)
            rows = {int(each["row"]["id"]) for each in found["differences"]["examples"]}
            assert rows == differing
            assert "within tolerances: doc (json: canonical)" in found["says"]
    finally:
        tables.execute("postgres", *(f"DROP TABLE {name}" for name in names))


def test_json_is_canonical_on_postgres_alone(tables: Tables) -> None:
    for system, title in (("clickhouse", "ClickHouse"), ("sqlserver", "SQL Server")):
        refs = tables.ref("postgres"), tables.ref(system)
        refused = command("compare", *refs, "--tolerance", "note:json=canonical")
        assert refused.exit_code == 2
        assert f"column 'note': {title} has no canonical form of JSON" in refused.stderr
    name = tables.ref("postgres")
    refused = command("compare", name, name, "--tolerance", "note:json=canonical")
    assert refused.exit_code == 2, "no JSON, which is no difference"
    assert "invalid input syntax for type json" in refused.stderr


def test_a_tolerance_of_no_digits_is_shown(tables: Tables) -> None:
    first = f"postgres:SELECT id, price + 0.25 AS price FROM public.{tables.name}"
    options = ["--key", "id", "--tolerance", "price:round=0"]
    # half a unit is rounded away from zero, and so is more
    found = tables.compare(first, "clickhouse", *options)
    assert found["ok"], found
    assert "within tolerances: price (round: 0)" in found["says"]


def test_empty_texts_may_count_as_null(tables: Tables) -> None:
    for system, text in (("postgres", "text"), ("sqlserver", "nvarchar(9)")):
        name = "dbo.{t}_e" if system == "sqlserver" else "public.{t}_e"
        rows = (
            "(1, ''), (2, ' '), (3, 'x')"
            if system == "postgres"
            else "(1, NULL), (2, ' '), (3, 'x')"
        )
        tables.execute(
            system,
            f"CREATE TABLE {name} (id int PRIMARY KEY, note {text})",
            f"INSERT INTO {name} VALUES {rows}",
        )
    first, second = (f"{ref}_e" for ref in (tables.ref("postgres"), tables.ref("sqlserver")))
    try:
        found = tables.compare(first, second)
        assert [one["cause"] for one in found["causes"]["note"]] == ["NULL instead of ''"]
        assert tables.compare(first, second, "--tolerance", "note:null=''")["ok"]
        assert tables.compare(first, second, "--tolerance", "note:ignore=true")["ok"]
    finally:
        tables.execute("postgres", "DROP TABLE public.{t}_e")
        tables.execute("sqlserver", "DROP TABLE dbo.{t}_e")


def test_queries_are_compared_as_tables_are(tables: Tables, copy: str) -> None:
    first = (
        "postgres:SELECT day, count(*) AS n, sum(price)::numeric(20,4) AS total "
        f"FROM public.{tables.name} WHERE id > 1 GROUP BY day -- by day;"
    )
    second = (
        "clickhouse:SELECT day, count() AS n, sum(price) AS total "
        f"FROM warehouse.{tables.name} WHERE id > 1 GROUP BY day;"
    )
    third = (
        "sqlserver:SELECT Day, COUNT(*) AS n, CAST(SUM(Price) AS decimal(20,4)) AS total "
        f"FROM dbo.{tables.name} WHERE ID > 1 GROUP BY Day"
    )
    for one, other in ((first, second), (second, third), (third, first)):
        found = tables.compare(one, other, "--key", "Day" if one is third else "day")
        assert found["ok"], found
        assert [name.lower() for name in found["columns"]] == ["day", "n", "total"]
        assert found["rules"] == {}
    missing = "postgres:SELECT 1 AS a, 2 AS a"
    result = command("compare", missing, second)
    assert result.exit_code == 2
    assert "several columns are named 'a'" in result.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--key", "nope"], "has no column 'nope'"),
        (["--map", "id"], "--map: 'id' should have the form name=value"),
        (["--map", "note=fixed,fixed=fixed"], "--map: 'fixed' is mapped twice"),
        (["--map", "note=fixed", "--map", "note=ident"], "--map: 'note' is mapped twice"),
        (["--tolerance", "price:bend=2"], "--tolerance price: bend: '2' is no tolerance"),
        (["--tolerance", "day:round=2"], "round does not go with it, which is compared as date"),
        (["--map", "ident=ratio", "--exclude", "ratio"], "leave it out: --exclude ident"),
        (["--columns", "id", "--key", "day"], "the key column 'day' is not compared"),
        (["--recheck", "x"], "recheck: 'x' should be"),
        (["--limit", "-1"], "-1 is not in the range 0<=x<=10000"),
        (["--where", "nonsense >"], "syntax error"),
        (["--where", "1 = 1) OR (1 = 1"], "parentheses do not match"),
        (["--save", "no_transfer.txt"], "no_transfer.txt should end in .yaml"),
        (["--save", "no name.yaml"], "--save: no transfer can compare that: "),
    ],
)
def test_what_cannot_be_compared_is_said(tables: Tables, options: list[str], says: str) -> None:
    result = command("compare", tables.ref("postgres"), tables.ref("clickhouse"), *options)
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert "Traceback" not in result.output
    assert not Path("no name.yaml").exists()


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT id FROM public.{t} WHERE note = 1", "operator does not exist"),
        ("SELECT id, 1 AS note, id / (id - 7) AS price FROM public.{t}", "division by zero"),
    ],
)
def test_what_a_server_refuses_is_no_difference(tables: Tables, query: str, says: str) -> None:
    """1 would say that the tables differ."""
    first = f"postgres:{query.format(t=tables.name)}"
    result = command("compare", first, tables.ref("clickhouse"), "--json")
    assert result.exit_code == 2, result.output
    assert says in result.stderr and json.loads(result.stdout)["ok"] is False


def test_a_difference_stands_if_its_table_is_dropped_meanwhile(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.execute("postgres", "CREATE TABLE public.{t}_gone AS SELECT * FROM public.{t} LIMIT 9")

    def drop(*_: object) -> None:
        tables.execute("postgres", "DROP TABLE IF EXISTS public.{t}_gone")

    monkeypatch.setattr("tableferry.checks.recheck.pause", drop)
    first = f"{tables.ref('postgres')}_gone"
    found = command("compare", first, tables.ref("clickhouse"), "--key", "id", "--recheck", "1x1s")
    assert found.exit_code == 1, found.output
    assert "which rows differ cannot be shown" in found.output
    assert "does not exist" in found.output


OTHER_TYPES = {
    "postgres": (
        "id int PRIMARY KEY, price numeric(12,4), whole int, bare numeric, day date, ident text, "
        "fixed char(6), at timestamptz, shown timestamp(3), yes boolean, single real, name text",
        "({i}, {price}, {i}, {bare}, '2024-02-29', '{upper}', 'ab', '2024-03-10 01:59:59.123+00', "
        "'2024-03-01 10:00:00.{ms}', true, 0.1, 'Zoë')",
    ),
    "sqlserver": (
        "id bigint NOT NULL PRIMARY KEY, price float, whole decimal(12,3), bare decimal(10,2), "
        "day datetime2(0), ident uniqueidentifier, fixed nchar(6), at datetimeoffset(3), "
        "shown datetime, yes bit, single real, name nvarchar(9) COLLATE Latin1_General_CI_AI",
        "({i}, {price}, {i}, {bare}, '2024-02-29', '{upper}', N'ab', "
        "'2024-03-10 03:59:59.123+02:00', '2024-03-01T10:00:00.{ms}', 1, 0.1, N'Zoë')",
    ),
    "clickhouse": (
        "id UInt64, price Float64, whole Float64, bare Nullable(Decimal(20,6)), "
        "day DateTime64(3, 'UTC'), ident UUID, fixed String, at DateTime64(3, 'America/New_York'), "
        "shown DateTime64(6, 'UTC'), yes UInt8, single Float32, name LowCardinality(String)",
        "({i}, {price}, {i}, {bare}, '2024-02-29 00:00:00', '{lower}', 'ab', "
        "toDateTime64('2024-03-10 01:59:59.123', 3, 'UTC'), '2024-03-01 10:00:00.{ms}', 1, 0.1, "
        "'Zoë')",
    ),
}
"""The same values in types that other tools choose, as columns and as a row."""


def meant(i: int) -> dict[str, str]:
    """Values that drivers, floats and formats are known to trip over."""
    ident = f"aabbccdd-{i:04x}-4444-8555-66667777888f"
    prices = ["9.01", "91.0000", "2.675", "-0.0100", "99999999.9999", "0.0001", "1.005", "33.3333"]
    milliseconds = ["000", "003", "010", "013", "990"]
    return {
        "price": prices[i % len(prices)],
        "bare": "NULL" if i == 7 else f"{i}.50",
        "upper": ident.upper(),
        "lower": ident,
        "ms": milliseconds[i % len(milliseconds)],
    }


@pytest.fixture(scope="module")
def others(tables: Tables) -> Iterator[dict[str, str]]:
    name = table_name()
    found = {}
    for system, (columns, values) in OTHER_TYPES.items():
        found[system] = f"{tables.found[system].schema}.{name}"
        engine = " ENGINE MergeTree ORDER BY id" if system == "clickhouse" else ""
        rows = ", ".join(values.format(i=i, **meant(i)) for i in range(1, 41))
        tables.execute(
            system,
            f"CREATE TABLE {found[system]} ({columns}){engine}",
            f"INSERT INTO {found[system]} VALUES {rows}",
        )
    yield {system: f"{system}://{table}" for system, table in found.items()}
    for system, table in found.items():
        tables.execute(system, f"DROP TABLE {table}")


@pytest.mark.parametrize(("first", "second"), [*PAIRS, *(pair[::-1] for pair in PAIRS)])
def test_values_in_other_types_are_no_phantoms(
    tables: Tables, others: dict[str, str], first: str, second: str
) -> None:
    found = tables.compare(others[first], others[second])
    assert found["ok"], (found["causes"], found["rules"])
    assert len(found["columns"]) == 12
    rules = found["rules"]
    if {first, second} == {"postgres", "clickhouse"}:
        assert rules["price"] == "numeric(12,4) is compared as the nearest double"
        assert rules["ident"] == "as text in lower case"
        assert rules["day"] == "a date is compared as its midnight"
        assert rules["fixed"] == "trailing blanks do not count, as one side pads"
    assert not {"yes", "single", "name", "at", "bare"} & rules.keys()
    strict = tables.compare(others[first], others[second], "--level", "full_hash")
    assert strict["ok"], strict["causes"]


def test_a_double_that_is_none_of_the_decimal_differs(
    tables: Tables, others: dict[str, str]
) -> None:
    query = (
        f"clickhouse:SELECT id, if(id = 3, 90.1, price) AS price FROM {others['clickhouse'][13:]}"
    )
    found = tables.compare(others["postgres"], query)
    assert found["differences"]["by_column"] == {"price": 1}
    assert found["not_compared"]["only_in_a"][0] == "whole"


def test_numbers_that_no_double_holds_differ(tables: Tables) -> None:
    """A copy that went through doubles has lost them, though its doubles are the nearest."""
    bigs = [1, 2**53, 2**53 + 1, -(2**63) + 1, 10**17]
    decimals = ["0.1000000000", "2.6750000000", "12345678901234567.1234567891", "-1", "90.01"]
    rows = ", ".join(f"({i}, {big}, {decimals[i]})" for i, big in enumerate(bigs))
    tables.execute(
        "postgres",
        "CREATE TABLE public.{t}_n (id int PRIMARY KEY, big bigint, total numeric(38,10))",
        f"INSERT INTO public.{{t}}_n VALUES {rows}",
    )
    doubles = ", ".join(
        f"({i}, {float(big)!r}, {float(decimals[i])!r})" for i, big in enumerate(bigs)
    )
    tables.execute(
        "clickhouse",
        "CREATE TABLE warehouse.{t}_n (id Int32, big Float64, total Nullable(Float64)) "
        "ENGINE MergeTree ORDER BY id",
        f"INSERT INTO warehouse.{{t}}_n VALUES {doubles}",
    )
    try:
        refs = [f"{tables.ref(system)}_n" for system in ("postgres", "clickhouse")]
        for first, second in (refs, refs[::-1]):
            found = tables.compare(first, second)
            assert found["differences"]["by_column"] == {"big": 2, "total": 1}
            for causes in found["causes"].values():
                assert [one["cause"] for one in causes] == [
                    "a number that no double holds, or NULL"
                ]
            assert found["rules"]["big"] == (
                "bigint is compared as the nearest double; what no double holds differs"
            )
    finally:
        tables.execute("postgres", "DROP TABLE public.{t}_n")
        tables.execute("clickhouse", "DROP TABLE warehouse.{t}_n")


def test_keys_that_are_null_or_written_as_texts_are_found(tables: Tables, tmp_path: Path) -> None:
    """In the order of their values, which is another one for texts and for NULL."""
    lines = [f"{i},note {i}" for i in (*range(1, 30), 100, -5)]
    (tmp_path / "rows.csv").write_text("\n".join(["id,note", *lines, ",none"]) + "\n")
    values = ", ".join(f"({i}, 'note {i}')" for i in (*range(2, 31), 100, -5))
    tables.execute(
        "postgres",
        "CREATE TABLE public.{t}_k (id int, note text)",
        f"INSERT INTO public.{{t}}_k VALUES {values}, (NULL, 'none'), (NULL, 'more')",
        "UPDATE public.{t}_k SET note = 'other' WHERE id = 9",
    )
    try:
        first = f"{tables.ref('postgres')}_k"
        for level in ("checksum", "full_hash"):
            options = ["--key", "id", "--ranges", "4", "--level", level]
            found = tables.compare(first, f"files://{tmp_path}/*.csv", *options)["differences"]
            counts = found["only_in_a"], found["only_in_b"], found["different"]
            assert counts == (2, 1, 1), found
            assert {each["row"]["id"] for each in found["examples"]} == {None, "1", "9", "30"}
    finally:
        tables.execute("postgres", "DROP TABLE public.{t}_k")


def test_a_sample_reads_few_rows(tables: Tables) -> None:
    found = tables.compare("postgres", "clickhouse", "--sample", "--key", "id")
    assert found["ok"]
    assert found["level"] == "sample_hash"


def test_rows_that_are_being_written_are_no_differences(
    tables: Tables, copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what still differs after the pause does."""
    first, second = f"postgres://public.{copy}", f"clickhouse://warehouse.{copy}"
    options = ["--key", "id", "--where", "id BETWEEN 40 AND 60", "--recheck", "2x1s"]
    change = (
        f"ALTER TABLE warehouse.{copy} UPDATE note = '{{}}' WHERE id = 50 "
        "SETTINGS mutations_sync = 2"
    )
    tables.execute("clickhouse", change.format("being written"))
    monkeypatch.setattr(
        "tableferry.checks.recheck.pause",
        lambda _: tables.execute("clickhouse", change.format("Größe 50")),
    )
    found = tables.compare(first, second, *options)
    assert found["ok"], found
    assert "1 row differed while being written" in found["says"]
    tables.execute("clickhouse", change.format("damaged"))
    monkeypatch.setattr("tableferry.checks.recheck.pause", lambda _: None)
    found = tables.compare(first, second, *options)
    assert found["differences"]["different"] == 1
    assert found["causes"]["note"][0]["examples"][0]["b"] == "damaged"
    tables.execute("clickhouse", change.format("Größe 50"))
    result = command("compare", first, second, "--recheck", "1x1s")
    assert result.exit_code == 2
    assert "--recheck looks at rows, which need a key" in result.stderr


def test_a_comparison_is_saved_as_a_transfer_that_only_compares(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "transfers"
    folder.mkdir()
    path = folder / f"{tables.name}.yaml"
    found = tables.compare("postgres", "sqlserver", "--exclude", "fixed", "--save", str(path))
    assert found["ok"]
    text = path.read_text(encoding="utf-8")
    assert "write: none" in text
    assert "rename: Price" in text
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(folder))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    assert command("validate").exit_code == 0, command("validate").output
    checked = command("check", tables.name)
    assert checked.exit_code == 0, checked.output
    again = command("compare", tables.ref("postgres"), tables.ref("sqlserver"), "--save", str(path))
    assert again.exit_code == 2
    assert "File exists" in again.stderr
    refs = tables.ref("postgres"), tables.ref("clickhouse"), "--tolerance", "note:trim=true"
    refused = command("compare", *refs, "--save", str(folder / "other.yaml"))
    assert refused.exit_code == 2
    assert "--save: a transfer does not compare tolerances" in refused.stderr
    query = f"postgres:SELECT id, note FROM public.{tables.name}"
    refused = command(
        "compare", query, tables.ref("clickhouse"), "--save", str(folder / "other.yaml")
    )
    assert "--save: a transfer does not compare queries" in refused.stderr
    assert not (folder / "other.yaml").exists()


def test_what_a_transfer_would_not_make_is_not_saved(
    tables: Tables, others: dict[str, str], tmp_path: Path
) -> None:
    """A decimal is compared with a double by a rule; a transfer makes none of it."""
    path = tmp_path / "saved.yaml"
    pair = others["postgres"], others["clickhouse"]
    refused = command("compare", *pair, "--columns", "id,price", "--save", str(path))
    assert refused.exit_code == 2
    assert "--save: no transfer can compare that: " in refused.stderr and "price" in refused.stderr
    assert not path.exists()
