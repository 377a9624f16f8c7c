"""What a server cannot have is told by `init`, `validate` and `plan`, each with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tableferry.assets.declaring.transfer_files import load_transfers
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

SCHEMA = own("limits")
LONG = own("n" * 50)  # with the name of a schema in front, longer than PostgreSQL's names
TABLES = {
    "hidden": (
        "id int PRIMARY KEY, _range text, _part text, _row_exists int, _block_number int",
        "(1, 'r', 'p', 2, 3)",
    ),
    "nested": (
        'id int PRIMARY KEY, "id.array" text[] NOT NULL, "p.x" int[] NOT NULL,'
        ' "p.y" text[] NOT NULL, "q.z" text[] NOT NULL, "q.w" text',
        "(1, '{a}', '{1,2}', '{b}', '{c}', 'd')",
    ),
    "nulls": ("id int PRIMARY KEY, tags text[], ns int[]", "(1, NULL, '{1}'), (2, '{a}', '{}')"),
    "square": ("id int PRIMARY KEY, ns int[][]", "(1, '{{1,2},{3,4}}')"),
    "digits": (
        "id int PRIMARY KEY, a numeric(1000,500), b numeric(1000,0), c numeric(100,2)",
        f"(1, 1.5, {'9' * 100}, NULL)",
    ),
    "kinds": (
        "id int PRIMARY KEY, m {s}.mood NOT NULL, ms {s}.mood[] NOT NULL, p {s}.place,"
        " f {s}.floats, d {s}.percentage",
        "(1, 'ok', '{sad}', ROW('High St', 5), '[1,2)', 7)",
    ),
    LONG: ("id int PRIMARY KEY", "(1)"),
}
TYPES = (
    "CREATE TYPE {s}.mood AS ENUM ('sad', 'ok')",
    "CREATE TYPE {s}.place AS (street text, number int)",
    "CREATE TYPE {s}.floats AS RANGE (subtype = float8)",
    "CREATE DOMAIN {s}.percentage AS int CHECK (VALUE BETWEEN 0 AND 100)",
)


@pytest.fixture
def transfers(
    stack: Servers, copies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path / "transfers"))
    monkeypatch.setenv("TABLEFERRY_FILES_URL", f"file://{tmp_path}")
    statements = [f"CREATE SCHEMA {SCHEMA}", *(one.replace("{s}", SCHEMA) for one in TYPES)]
    for name, (columns, rows) in TABLES.items():
        statements.append(f"CREATE TABLE {SCHEMA}.{name} ({columns.replace('{s}', SCHEMA)})")
        statements.append(f"INSERT INTO {SCHEMA}.{name} VALUES {rows}")
    looking.ask_postgres(stack.postgres_url, *statements)
    yield tmp_path / "transfers"
    for (table,) in looking.ask_clickhouse(
        stack.clickhouse_url,
        f"SELECT name FROM system.tables WHERE database = 'warehouse' AND name LIKE '{SCHEMA}%'",
    ):
        looking.run(stack, "clickhouse", f"DROP TABLE warehouse.`{table}` SYNC")
    looking.ask_postgres(stack.postgres_url, f"DROP SCHEMA {SCHEMA} CASCADE")


def declared(transfers: Path) -> dict[str, dict[str, object]]:
    return {
        path.stem: yaml.safe_load(path.read_text())
        for path in transfers.glob("*.yaml")
        if path.name != "defaults.yaml"
    }


@pytest.mark.parametrize(
    "targets",
    [
        ("clickhouse://warehouse.{schema}_{table}",),
        ("postgres://{copies}.{schema}_{table}", "clickhouse://warehouse.{schema}_{table}"),
        pytest.param(("sqlserver://dbo.{schema}_{table}",), marks=pytest.mark.slow),
        pytest.param(("files://{copies}/{schema}_{table}/",), marks=pytest.mark.slow),
    ],
    ids=("clickhouse", "chain", "sqlserver", "files"),
)
def test_what_init_writes_runs_as_it_is(
    transfers: Path, copies: str, targets: tuple[str, ...]
) -> None:
    to = [part for one in targets for part in ("--to", one.replace("{copies}", copies))]
    arguments = ["init", "--from", "postgres", "--tables", f"{SCHEMA}.*", *to]
    written = command(*arguments, *chained(targets))
    assert written.exit_code == 0 and "left out" not in written.output, written.output
    assert declared(transfers).keys() == TABLES.keys()
    assert command("validate").exit_code == 0, command("validate").output
    ran = command("run", "--all", "--quiet")
    assert ran.exit_code == 0, ran.output
    if len(targets) > 1:
        assert f"review {LONG}: postgres://{copies}.{SCHEMA}_" in written.output
        assert "REVIEW: shortened from postgres://" in (transfers / f"{LONG}.yaml").read_text()
    if targets[-1].startswith("clickhouse"):
        files = declared(transfers)
        assert files["hidden"]["columns"]["_range"] == {"rename": "_range_2"}  # type: ignore[index]
        nested = files["nested"]["columns"]
        assert set(nested) == {"id.array", "p.x", "p.y"}  # type: ignore[call-overload]
        text = (transfers / "nulls.yaml").read_text()
        assert 'tags: {type: {clickhouse: "String"}}' in text
        assert '# tags: {type: {clickhouse: "Array(Nullable(String))"}}' in text


@pytest.mark.parametrize("clickhouse", ["{schema}_{table}", "{table}"])
def test_tables_declared_in_one_file_are_declared_as_init_does(
    transfers: Path, copies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clickhouse: str
) -> None:
    to = (f"postgres://{copies}.{{schema}}_{{table}}", f"clickhouse://warehouse.{clickhouse}")
    pattern = f"{SCHEMA}.*"
    arguments = ["--tables", pattern, "--exclude", "square", "--to", to[0], "--to", to[1]]
    written = command("init", "--from", "postgres", *arguments, "--chain")
    assert written.exit_code == 0, written.output
    many = tmp_path / "many"
    many.mkdir()
    (many / "all.yaml").write_text(
        yaml.safe_dump({"tables": f"postgres://{pattern}", "exclude": ["square"], "hops": [*to]})
    )
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(many))
    refreshed = command("refresh")
    assert refreshed.exit_code == 0, refreshed.output
    assert command("refresh", "--check").exit_code == 0
    by_file, by_lock = (
        {transfer.source: transfer for transfer in load_transfers(folder).transfers.values()}
        for folder in (transfers, many)
    )
    assert by_file == by_lock and len(by_lock) == len(TABLES) - 1
    reviewed = {line.strip() for line in written.stdout.splitlines() if "review" in line}
    locked = {line.strip() for line in refreshed.stdout.splitlines() if "review" in line}
    assert {each.replace(f"{SCHEMA}.", "") for each in locked} == {
        each.replace(f"{SCHEMA}.", "") for each in reviewed
    }


@pytest.mark.parametrize(
    "targets",
    [
        ("clickhouse://warehouse.{table}_copy",),
        (
            "postgres://{copies}.{table}",
            "clickhouse://warehouse.{table}_copy",
        ),
    ],
    ids=("clickhouse", "chain"),
)
def test_so_does_what_it_writes_of_clickhouse(
    transfers: Path, stack: Servers, copies: str, targets: tuple[str, ...]
) -> None:
    """A type that is declared for a system of both source and target is the target's."""
    columns = (
        "id UInt32, ip IPv4, big UInt256, at DateTime64(9), pairs Array(Array(Int32)), "
        "m Map(String, Int32), t Tuple(a Int32, b Nullable(String)), v Variant(Int64, String)"
    )
    table = f"warehouse.{SCHEMA}_odd"
    looking.run(
        stack, "clickhouse", f"CREATE TABLE {table} ({columns}) ENGINE = MergeTree ORDER BY id"
    )
    looking.run(stack, "clickhouse", f"INSERT INTO {table} (id) VALUES (1), (2)")
    to = [part for one in targets for part in ("--to", one.replace("{copies}", copies))]
    written = command("init", "--from", "clickhouse", "--tables", table, *to, *chained(targets))
    assert written.exit_code == 0 and "left out" not in written.output, written.output
    assert command("validate").exit_code == 0, command("validate").output
    ran = command("run", "--all", "--quiet")
    assert ran.exit_code == 0, ran.output
    assert command("check", "--all", "--level", "full_hash").exit_code == 0


def chained(targets: tuple[str, ...]) -> list[str]:
    return ["--chain"] if len(targets) > 1 else []


TOO_LONG = "t" * 80


@pytest.mark.parametrize(
    ("hop", "columns", "settings", "refusal"),
    [
        (
            "postgres://{s}." + TOO_LONG,
            "",
            {},
            "its name has 80 bytes, and may have 63; give the hop a shorter one",
        ),
        (
            "postgres://{s}." + "é" * 40,
            "",
            {},
            "its name has 80 bytes, and may have 63; give the hop a shorter one",
        ),
        (
            "sqlserver://dbo." + "t" * 129,
            "",
            {},
            "its name has 129 characters, and may have 128; give the hop a shorter one",
        ),
        (
            "clickhouse://warehouse." + "é" * 40,
            "",
            {},
            "its name has 240 characters in that of a file, and may have 204; give the hop a",
        ),
        ("files://{s}/" + "t" * 256 + "/", "", {}, "has 256 bytes, and a part of a path may have"),
        (
            "postgres://{s}.{t}",
            ", a text, b text",
            {"columns": f"{{a: {{rename: {TOO_LONG}a}}, b: {{rename: {TOO_LONG}b}}}}"},
            f'which has 81 bytes, and may have 63; rename it: columns: {{"b": {{rename: '
            f'"{"t" * 61}_2"}}}}',
        ),
        (
            "sqlserver://dbo.{t}",
            ", a text",
            {"columns": f"{{a: {{rename: {'c' * 129}}}}}"},
            "which has 129 characters, and may have 128; rename it",
        ),
        (
            "clickhouse://warehouse.{t}",
            ", _range text",
            {},
            'which is our own; rename it: columns: {"_range": {rename: "_range_2"}}',
        ),
        (
            "clickhouse://warehouse.{t}",
            ', a text, "a.b" text[]',
            {},
            "which ClickHouse takes for a part of 'a', as it does not go with 'a'; rename it: "
            'columns: {"a.b": {rename: "a_b"}}',
        ),
        ("files://{s}/{t}/", ", _file text", {}, "which a table of files has of its own; rename"),
    ],
)
def test_what_a_server_cannot_have_is_refused_before_anything_is_made(
    ferry: Callable[..., Ferry],
    copies: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hop: str,
    columns: str,
    settings: dict[str, str],
    refusal: str,
) -> None:
    monkeypatch.setenv("TABLEFERRY_FILES_URL", f"file://{tmp_path}")
    hop = hop.replace("{s}", copies)
    one = ferry(f"['{hop}']", f"CREATE TABLE {{t}} (id int PRIMARY KEY{columns})", **settings)
    ended = [command("validate"), command("plan", one.table), command("run", one.table)]
    assert [result.exit_code for result in ended] == [2, 2, 2], [one.output for one in ended]
    for result in ended:
        assert refusal in result.output
