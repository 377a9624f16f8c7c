"""A folder of Parquet files as a target: every value, every check, and what a crash leaves."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.resources.errors import InputError
from tableferry.resources.files.resource import FilesResource
from tableferry.resources.files.types import UNREADABLE
from tableferry.resources.tables import TableRef
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import Command, ask_clickhouse, crash, reopen

pytestmark = pytest.mark.integration

Maker = Callable[..., Ferry]
NUMBERS = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
    "INSERT INTO {t} SELECT g, CASE WHEN g % 7 > 0 THEN 'größe ' || g END "
    "FROM generate_series(1, 300) g",
)
RANGES = [
    "..0000000101",
    "0000000101..0000000201",
    "0000000201..0000000301",
    "0000000301..",
]
"""The last one is empty."""
FILES = [f"range_{name}.parquet" for name in RANGES]

CORPUS: dict[str, tuple[str, list[str], list[Any]]] = {
    "small": ("smallint", ["-32768", "32767"], [-(2**15), 2**15 - 1]),
    "big": ("bigint", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
    "oid": ("oid", ["0", "4294967295"], [0, 2**32 - 1]),
    "long": (
        "numeric(38,10)",
        [f"-{'9' * 28}.{'9' * 10}", "0.0000000001"],
        [Decimal(f"-{'9' * 28}.{'9' * 10}"), Decimal("1E-10")],
    ),
    "short": ("numeric(5,2)", ["-0.5", "999.99"], [Decimal("-0.50"), Decimal("999.99")]),
    "f32": ("real", ["'NaN'", "'-0'"], [math.nan, -0.0]),
    "f64": ("double precision", ["'-Infinity'", "5e-324"], [-math.inf, 5e-324]),
    "flag": ("boolean", ["true", "false"], [True, False]),
    "txt": ("text", ["''", "E' \\t\\r\\n\\\\N 😀 '"], ["", " \t\r\n\\N 😀 "]),
    "padded": ("char(3)", ["'a'", "'ä€😀'"], ["a  ", "ä€😀"]),
    "doc": ("jsonb", ["'{{\"a\": [1, null]}}'", "'\"\"'"], ['{"a": [1, null]}', '""']),
    "raw": ("bytea", ["''", "'\\x00ff0a'"], [b"", b"\x00\xff\n"]),
    "day": ("date", ["'0001-01-01'", "'9999-12-31'"], [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "clock": ("time", ["'00:00'", "'23:59:59.999999'"], [dt.time.min, dt.time.max]),
    "wall": (
        "timestamp",
        ["'0001-01-01'", "'9999-12-31 23:59:59.999999'"],
        [dt.datetime.min, dt.datetime.max],
    ),
    "instant": (
        "timestamptz",
        ["'0001-01-01 00:00:00+00'", "'1970-01-01 01:00:00.000001+02'"],
        [
            dt.datetime(1, 1, 1),
            dt.datetime(1969, 12, 31, 23, 0, 0, 1),
        ],
    ),
    "uid": (
        "uuid",
        [f"'{uuid.UUID(int=0)}'", f"'{uuid.UUID(int=2**128 - 1)}'"],
        [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)],
    ),
    "items": ("integer[]", ["'{{}}'", "'{{1,NULL,-3}}'"], [[], [1, None, -3]]),
    "texts": ("text[]", ["ARRAY['', NULL, ',']", "'{{}}'"], [["", None, ","], []]),
    "sums": (
        "numeric(9,2)[]",
        ["'{{1.10,NULL}}'", "'{{-0.01}}'"],
        [[Decimal("1.10"), None], [Decimal("-0.01")]],
    ),
}


def out(one: Ferry) -> Path:
    return one.folder.parent / "out" / "orders"


def exported(ferry: Maker, tmp_path: Path, *statements: str, **settings: Any) -> Ferry:
    """A transfer into the folder `out/orders`."""
    given = {"ranges": "{rows: 100}", **settings}
    return ferry(f"['files://{tmp_path}/out/orders/']", *(statements or NUMBERS), **given)


def bare(value: Any) -> Any:
    """Without a time zone, which is UTC."""
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value


def rows(folder: Path) -> list[tuple[int, str | None]]:
    """What readers see, read by another program than the product's."""
    return sorted((row["id"], row["name"]) for row in content(folder).to_pylist())


def content(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.ParquetFile(path).read() for path in visible(folder)])


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix == ".parquet")


def staged(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".ferry").iterdir())


def times(folder: Path) -> dict[str, tuple[int, int]]:
    stats = {path.name: path.stat() for path in visible(folder)}
    return {name: (one.st_mtime_ns, one.st_ino) for name, one in stats.items()}


def expected(one: Ferry) -> list[tuple[Any, ...]]:
    return one.rows("SELECT id, name FROM {t} ORDER BY id")


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(arguments))
    return done.exit_code, done.output


def test_every_value_of_postgresql_is_exact(ferry: Maker, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {type_}" for name, (type_, _, _) in CORPUS.items())
    values = ", ".join(
        f"({at + 1}, {', '.join(texts[at] for _, texts, _ in CORPUS.values())})" for at in (0, 1)
    )
    one = exported(
        ferry,
        tmp_path,
        f"CREATE TABLE {{t}} (id integer PRIMARY KEY, {columns})",
        f"INSERT INTO {{t}} VALUES {values}",
        "INSERT INTO {t} (id) VALUES (3)",
        reconcile="full_hash",
    )
    view = one.run()
    assert view.good, view.errors
    table = content(out(one)).sort_by("id")
    assert str(table.schema.field("instant").type) == "timestamp[us, tz=UTC]"
    for name, (_, _, wanted) in CORPUS.items():
        found = map(bare, table[name].to_pylist())
        assert list(map(repr, found)) == list(map(repr, [*wanted, None])), name
    assert table.schema.field("uid").type == pa.uuid()
    assert table.schema.field("long").type == pa.decimal128(38, 10)
    assert invoke("check", one.table, "--level", "full_hash")[0] == 0
    # polars, which has no part in it, reads the same
    names = [name for name in CORPUS if name != "uid"]
    shown = pl.concat(pl.read_parquet(path) for path in visible(out(one))).sort("id")
    for name in names:
        assert [*map(str, shown[name].to_list())] == [*map(str, table[name].to_pylist())], name
    # and so do pyarrow and DuckDB, by which a later hop reads it
    assert not any(
        UNREADABLE in one.type
        for one in FilesResource().columns(TableRef("files", str(out(one)), "*.parquet"))
    )


def test_a_value_that_no_file_holds_is_refused_by_name(ferry: Maker, tmp_path: Path) -> None:
    one = exported(
        ferry,
        tmp_path,
        "CREATE TABLE {t} (id integer PRIMARY KEY, day date, wall timestamp, at timestamptz, "
        "clock time, amount numeric(9,2))",
        "INSERT INTO {t} (id, day) VALUES (1, 'infinity'), (2, '4713-11-24 BC')",
        "INSERT INTO {t} (id, wall) VALUES (3, '-infinity'), (4, '200000-01-01')",
        "INSERT INTO {t} (id, at) VALUES (5, 'infinity')",
        "INSERT INTO {t} (id, clock) VALUES (6, '24:00')",
        "INSERT INTO {t} (id, amount) VALUES (7, 'NaN')",
        ranges="{rows: 1}",
    )
    view = one.run()
    problems = "\n".join(view.errors)
    for key, column, value in (
        (1, "day", "infinity"),
        (3, "wall", "-infinity"),
        (5, "at", "infinity"),
        (6, "clock", "24:00:00"),
        (7, "amount", "NaN"),
    ):
        assert f"column {column!r}, key {key}: value {value!r}" in problems
    assert len(one.moved(view)) == len(visible(out(one))) == len(view.ranges) - 5


def test_it_is_skipped_follows_its_source_and_is_mended(ferry: Maker, tmp_path: Path) -> None:
    one = exported(ferry, tmp_path)
    folder = out(one)
    assert one.run().good
    assert [path.name for path in visible(folder)] == FILES
    assert rows(folder) == expected(one) and not staged(folder)
    # nothing to do: nothing is written
    before = times(folder)
    again = one.run()
    assert again.good and not again.run_ids and times(folder) == before
    assert invoke("check", one.table)[0] == 0
    # a changed range
    one.source("UPDATE {t} SET name = 'new' WHERE id = 150")
    assert one.moved(one.run()) == [RANGES[1]]
    now = times(folder)
    assert [name for name in FILES if now[name] != before[name]] == [FILES[1]]
    assert rows(folder) == expected(one)
    # damage: a value, an end, a file
    table = pq.ParquetFile(folder / FILES[0]).read()
    names = [*table["name"].to_pylist()[:-1], "damaged"]
    pq.write_table(table.set_column(1, "name", [names]), folder / FILES[0])
    code, output = invoke("check", one.table)
    assert code == 1 and f"{RANGES[0]}: checksum FAILED: 1 row differs: name" in output
    assert "damaged" in invoke("diff", one.table, "--range", RANGES[0])[1]
    whole = (folder / FILES[2]).read_bytes()
    (folder / FILES[2]).write_bytes(whole[: len(whole) // 2])
    code, output = invoke("check", one.table)
    assert (
        code == 1 and f"{RANGES[2]}: checksum FAILED: 100 rows in source, 0 in target" in output
    ), output
    (folder / FILES[1]).unlink()
    mended = one.run()
    assert mended.good and one.moved(mended) == RANGES[:3], mended.errors
    assert rows(folder) == expected(one) and not staged(folder)
    # all of them at once
    for path in visible(folder):
        path.write_bytes(b"PAR1 torn")
    assert invoke("check", one.table)[0] != 0
    mended = one.run()
    assert mended.good and rows(folder) == expected(one), mended.errors


def test_a_failing_audit_leaves_the_old_file(ferry: Maker, tmp_path: Path) -> None:
    query = "SELECT id FROM {{table}} WHERE {{range}} AND name = 'bad'"
    suite = f'[{{{{type: sql, kwargs: {{{{query: "{query}"}}}}}}}}]'
    one = exported(ferry, tmp_path, expectations=suite.replace("{{", "{").replace("}}", "}"))
    assert one.run().good
    folder, before = out(one), times(out(one))
    one.source("UPDATE {t} SET name = 'bad' WHERE id = 7", "UPDATE {t} SET name = '' WHERE id = 8")
    assert not one.run().good
    assert times(folder) == before
    (kept,) = staged(folder)
    assert kept.endswith("_rejected.parquet")
    assert f"{folder}" in invoke("diff", one.table, "--range", RANGES[0], "--published")[1]
    assert invoke("clean", one.table)[0] == 0 and not staged(folder)
    one.source("UPDATE {t} SET name = 'good' WHERE id = 7")
    assert one.run().good and rows(folder) == expected(one)


def test_a_new_cut_replaces_files_and_strangers_are_left_alone(
    ferry: Maker, tmp_path: Path
) -> None:
    one = exported(ferry, tmp_path)
    folder = out(one)
    assert one.run().good
    one.source("INSERT INTO {t} SELECT g, 'later' FROM generate_series(301, 520) g")
    grown = one.run()
    assert grown.good, grown.errors
    assert FILES[2] in times(folder) and FILES[3] not in times(folder)
    assert rows(folder) == expected(one)
    assert invoke("check", one.table)[0] == 0
    # another column is in the files that are written from then on
    file = one.folder / "t.yaml"
    file.write_text(file.read_text() + "on_schema_drift: add_columns\n", encoding="utf-8")
    one.source("ALTER TABLE {t} ADD more integer DEFAULT 5")
    reopen(one)
    wider = one.run()
    assert wider.good, wider.errors
    for path in visible(folder):
        assert pq.ParquetFile(path).schema_arrow.names == ["id", "name", "more"]
    stranger = folder / "notes.parquet"
    pq.write_table(pa.table({"id": [1], "name": ["stranger"]}), stranger)
    before = stranger.read_bytes()
    for command in ("run", "check"):
        code, output = invoke(command, one.table)
        assert code and f"{stranger} is not a range of this table" in output, output
    assert stranger.read_bytes() == before
    stranger.unlink()
    assert one.run().good


@pytest.mark.parametrize("policy", ["keep", "null", "drop", "left out"])
def test_files_are_written_anew_without_a_column_that_is_gone(
    ferry: Maker, tmp_path: Path, policy: str
) -> None:
    one = exported(ferry, tmp_path)
    assert one.run().good
    file = one.folder / "t.yaml"
    line = "exclude: [name]\n" if policy == "left out" else f"dropped_columns: {policy}\n"
    file.write_text(file.read_text() + line, encoding="utf-8")
    if policy != "left out":
        one.source("ALTER TABLE {t} DROP name")
    reopen(one)
    plan = one.plan()
    assert {range_.reason for range_ in plan.ranges} == {"schema_changed"}
    assert any("'name'" in note for note in plan.notes)
    assert not any("ALTER TABLE" in note for note in plan.notes), plan.notes
    moved = one.run()
    assert moved.good, moved.errors
    assert not any("keep their values" in note for note in [*plan.notes, *moved.notes])
    for path in visible(out(one)):
        assert pq.ParquetFile(path).schema_arrow.names == ["id"]


@pytest.mark.parametrize("point", ["during_load", "inside_finalise", "after_commit"])
def test_a_killed_run_leaves_old_or_new_files(ferry: Maker, tmp_path: Path, point: str) -> None:
    one = exported(ferry, tmp_path)
    assert one.run().good
    folder, old = out(one), rows(out(one))
    one.source("UPDATE {t} SET name = coalesce(name, '') || '.' WHERE id <> 150")
    new = expected(one)
    reopen(one)
    crash(Command(tmp_path), one.table, f"{point}:2", "--profile", "safe")
    left = rows(folder)
    assert [one for one, _ in left] == [one for one, _ in old]
    # each range as a whole
    for start in range(0, 300, 100):
        part = slice(start, start + 100)
        assert left[part] in (old[part], new[part])
    reopen(one)
    resumed = one.run()
    assert resumed.good, resumed.errors
    assert rows(folder) == new and not staged(folder)


@pytest.mark.parametrize("between", ["sqlserver://dbo.{t}", "clickhouse://warehouse.{t}"])
def test_other_sources_and_back(
    ferry: Maker, tmp_path: Path, between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later hop into a folder, and the folder as the source of a transfer of its own."""
    monkeypatch.setenv("TABLEFERRY_FILES_URL", f"file://{tmp_path}")
    names = ["long", "f64", "flag", "txt", "day", "wall", "uid"]
    names += ["raw"] if "sqlserver" in between else []
    values = (", ".join(CORPUS[name][1][at] for name in names) for at in (0, 1))
    columns = ", ".join(f"{name} {CORPUS[name][0]}" for name in names)
    one = ferry(
        f"['{between}', 'files://out/orders/']",
        f"CREATE TABLE {{t}} (id integer PRIMARY KEY, {columns})",
        *(f"INSERT INTO {{t}} VALUES ({at + 1}, {v})" for at, v in enumerate(values)),
        "INSERT INTO {t} (id) SELECT g FROM generate_series(3, 150) g",
        "UPDATE {t} SET f64 = 0.1 WHERE id = 1",
        ranges="{rows: 100}",
        reconcile="full_hash",
    )
    view = one.run()
    assert view.good, view.errors
    table = content(out(one)).sort_by("id")
    assert table.num_rows == 150
    for name in names:
        found, wanted = table[name].to_pylist()[:3], [*CORPUS[name][2], None]
        if name == "f64":
            found, wanted = found[1:], wanted[1:]
        assert [repr(bare(value)) for value in found] == list(map(repr, wanted)), name
    if "clickhouse" in between:
        return
    back = one.table + "_back"
    (one.folder / "back.yaml").write_text(
        f"transfer: {back}\nsource: files://out/orders/\nhops: ['clickhouse://warehouse.{back}']\n"
        "reconcile: full_hash\n",
        encoding="utf-8",
    )
    assert invoke("run", back)[0] == 0
    code, output = invoke("check", back, "--level", "full_hash")
    assert code == 0, output


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("uuid", "md5(g::text)::uuid"),
        ('text COLLATE "C"', "substr('aÉZ!', g % 4 + 1, 1) || md5(g::text)"),
    ],
)
def test_keys_that_are_no_numbers(ferry: Maker, tmp_path: Path, type_: str, value: str) -> None:
    one = exported(
        ferry,
        tmp_path,
        f"CREATE TABLE {{t}} (id {type_} PRIMARY KEY, n integer)",
        f"INSERT INTO {{t}} SELECT {value}, g FROM generate_series(1, 300) g",
    )
    view = one.run()
    assert view.good, view.errors
    assert len(visible(out(one))) > 2 and content(out(one)).num_rows == 300
    code, output = invoke("check", one.table)
    assert code == 0, output


def test_a_later_hop_reads_the_folder(ferry: Maker, tmp_path: Path) -> None:
    one = ferry(
        f"['files://{tmp_path}/out/orders/', 'clickhouse://warehouse.{{t}}']",
        *NUMBERS,
        ranges="{rows: 100}",
        reconcile="full_hash",
    )
    view = one.run()
    assert view.good, view.errors
    one.source("UPDATE {t} SET name = 'new' WHERE id = 5")
    assert one.moved(one.run()) == [RANGES[0]]
    assert ask_clickhouse(one, f"SELECT id, name FROM warehouse.{one.table} ORDER BY id") == (
        expected(one)
    )


def test_a_column_that_every_table_of_files_has_is_refused(ferry: Maker, tmp_path: Path) -> None:
    one = exported(ferry, tmp_path, "CREATE TABLE {t} (id integer PRIMARY KEY, _row integer)")
    with pytest.raises(
        InputError, match="'_row', which a table of files has of its own; rename it"
    ):
        one.run()
