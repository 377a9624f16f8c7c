"""Columns named like what our own queries name: everything moves, and everything is seen."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tableferry.assets.planning.ranges.boundaries import key_statistics
from tableferry.checks.levels import LEVELS, Level
from tableferry.checks.table_side import TableSide
from tableferry.checks.whole_table import repeated_keys
from tableferry.resources.columns.conform import conform, schema
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target_options import TargetOptions, WriteMode
from tableferry.resources.digest.fingerprinting import SourceReading, fingerprints
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.registry import system
from tests.integration.support import looking
from tests.integration.support.pairs import Hop, graph
from tests.servers import SQLSERVER, Servers, named, own

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
SUFFIXES = ("g", "d", "k", "n", "s", "t", "at", "rows", "f0", "c0", "c1", "c2", "0", "1", "2", "9")
ONCE = (
    "r",
    "a0",
    "a1",
    "counted",
    "q",
    "s",
    "t",
    "w",
    "probe",
    "k",
    "i",
    "n",
    "numbered",
    "e",
    "x",
)
VIRTUAL = ("_partition_id", "file_row_number", "json", "changed")
"""What servers, and readers of files, have in tables besides their columns."""
PREFIXES = [f"{prefix}{suffix}" for prefix in ("ferry__", "FERRY2__") for suffix in SUFFIXES]
PAIRS = [
    ("postgres", "sqlserver"),
    ("postgres", "clickhouse"),
    ("postgres", "files"),
    ("postgres", "postgres"),
    ("sqlserver", "postgres"),
    ("clickhouse", "clickhouse"),
    ("files", "clickhouse"),
]
EVERYTHING = KeyRange("integer")
UNREADABLE = ("found",) if named(SQLSERVER) else ()
"""Babelfish takes it for a variable of its own, and refuses any query with such a column."""


def named_in_sources() -> Iterator[str]:
    """What follows AS in the texts of the product."""
    for room in ("resources", "checks"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from re.findall(r'\bAS "?([a-z_]\w*)', node.value)


def columns() -> list[str]:
    """All such names, each once in whatever case."""
    found = dict.fromkeys([*PREFIXES, *ONCE, *VIRTUAL, *named_in_sources()])
    taken = ("id", "ctid", *UNREADABLE)
    return list({name.lower(): name for name in found if name not in taken}.values())


NAMES = columns()
ROWS = len(NAMES)


@pytest.fixture(scope="module")
def hops(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Hop]]:
    """Some hops of a table of such columns, each of them moved."""
    assert "bigint" in named_in_sources()
    table = own("own_names")
    create = ", ".join(f"{system('postgres').quote(name)} integer NOT NULL" for name in NAMES)
    folder = tmp_path_factory.mktemp("files")
    with graph(stack, folder, PAIRS, table, f"{create}, PRIMARY KEY (id)") as made:
        values = ", ".join(f"i + {number}" for number in range(ROWS))
        looking.ask_postgres(
            stack.postgres_url,
            f"INSERT INTO {table} SELECT i, {values} FROM generate_series(1, {ROWS}) i",
        )
        move(made)
        yield {hop.name: hop for hop in made.values()}


def move(hops: dict[tuple[str, str], Hop]) -> None:
    for hop in hops.values():
        hop.move(EVERYTHING)


def test_rows_arrive_and_every_level_compares_them(hops: dict[str, Hop]) -> None:
    for name, hop in hops.items():
        for level in LEVELS:
            (verdict,) = hop.verdicts(level, [EVERYTHING]).values()
            assert verdict.passed, (name, level, verdict)
        (counted,) = hop.verdicts("count", [EVERYTHING]).values()
        assert counted.target["rows"] == ROWS, name


@pytest.mark.parametrize("damaged", ["ferry__0", "r"])
def test_a_damaged_value_is_found(hops: dict[str, Hop], damaged: str) -> None:
    for target in ("sqlserver", "clickhouse", "postgres"):
        hop = hops[f"postgres -> {target}"]
        right = NAMES.index(damaged) + 7
        damage(hop, damaged, -5)
        try:
            levels: tuple[Level, ...] = ("checksum", "full_hash")
            for level in levels:
                (verdict,) = hop.verdicts(level, [EVERYTHING]).values()
                assert not verdict.passed
            found = hop.both(EVERYTHING).search()
            assert (found.different, list(found.by_column)) == (1, [damaged])
        finally:
            damage(hop, damaged, right)


def damage(hop: Hop, column: str, value: int) -> None:
    """Change a value of the row 7 of the target."""
    table = hop.plan.target
    begin, end = f"UPDATE {qualified(table)} SET", ""
    if table.system_name == "clickhouse":
        begin, end = f"ALTER TABLE {qualified(table)} UPDATE", " SETTINGS mutations_sync = 2"
    hop.target.endpoint.execute(f"{begin} {table.system.quote(column)} = {value} WHERE id = 7{end}")


def test_keys_are_counted_whatever_they_are_called(hops: dict[str, Hop]) -> None:
    for hop in hops.values():
        if hop.plan.source.system_name == "files":
            continue
        by_name = {one.name: one for one in hop.source.endpoint.columns(hop.plan.source)}
        for name in ("k", "i", "n", "numbered", "ferry__k", "FERRY2__k", "ferry__at"):
            found = key_statistics(
                hop.source.endpoint,
                hop.plan.source,
                by_name[name],
                where=f"{hop.plan.source.system.quote('ferry__at')} >= 0",
            )
            low = NAMES.index(name) + 1
            assert (found.rows, found.minimum, found.maximum) == (ROWS, low, low + ROWS - 1), name
            assert sorted(set(found.quantiles)) == list(range(low, low + ROWS)), (hop.name, name)


def test_primary_keys_of_any_name_are_told_apart(hops: dict[str, Hop]) -> None:
    for hop in hops.values():
        if hop.plan.target.system_name != "files":
            plan = replace(hop.plan, primary_key=("ferry__n", "q"))
            assert repeated_keys(TableSide(plan, "target", hop.target.endpoint)) == (0, 0)


@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.UPSERT])
def test_rows_that_are_there_are_found_by_their_keys(hops: dict[str, Hop], mode: WriteMode) -> None:
    options = TargetOptions(mode=mode)
    for target in ("sqlserver", "clickhouse", "postgres"):
        hop = hops[f"postgres -> {target}"]
        plan = replace(hop.plan, primary_key=("id", "s", "ferry__s"))
        damage(hop, "t", -5)
        reading = hop.source.endpoint.read_arrow(plan.select(EVERYTHING, "arrow"))
        writing = hop.target.loader.attempt(Publication(plan, EVERYTHING, mode, "test"), options)
        with reading as reader, writing as load:
            load.load_arrow((conform(batch, plan, {}) for batch in reader), schema(plan))
            load.finalise()
        (verdict,) = hop.verdicts("checksum", [EVERYTHING]).values()
        assert verdict.passed == (mode == "upsert"), (target, verdict)
        damage(hop, "t", NAMES.index("t") + 7)


def test_updates_of_each_column_are_seen(hops: dict[str, Hop], stack: Servers) -> None:
    """In the row whose number is its own, by all that reads the column."""
    sources = list({one.plan.source.system: one for one in hops.values()}.values())
    sources = [hop for hop in sources if hop.plan.source.system_name != "files"]
    before = {hop.name: fingerprints_of(hop) for hop in sources}
    table = qualified(sources[0].plan.source)
    looking.ask_postgres(
        stack.postgres_url,
        *(
            f"UPDATE {table} SET {system('postgres').quote(name)} = 100000 WHERE id = {number}"
            for number, name in enumerate(NAMES, start=1)
        ),
    )
    for hop in hops.values():
        hop.move(EVERYTHING)
    for hop in sources:
        assert len(before[hop.name]) == ROWS + len(MARKS)
        same = [
            key for key, value in fingerprints_of(hop).items() if value == before[hop.name][key]
        ]
        assert same == [], hop.name


MARKS = ["r", "a0", "counted", "ferry__g", "ferry__0", "FERRY2__g", "FERRY2__0", "t"]


def fingerprints_of(hop: Hop) -> dict[str, str]:
    """The content of each row, and that of all rows by each column as a watermark."""
    endpoint, system = hop.source.endpoint, hop.plan.source.system
    where = " AND ".join(f"{system.quote(name)} >= 0" for name in NAMES)
    plan = replace(hop.plan, where=where)
    rows = [KeyRange("integer", number, number + 1) for number in range(1, ROWS + 1)]
    by_row = fingerprints(SourceReading(endpoint, plan), rows)
    assert {one.rows for one in by_row.values()} == {1}
    found = {name: one.value for name, one in by_row.items()}
    for name in MARKS:
        # two, so that their number has to be computed
        halves = [KeyRange("integer", upper=0), KeyRange("integer", 0)]
        marks = fingerprints(
            SourceReading(endpoint, plan, watermark=name, greatest=True), halves, "watermark"
        )
        found[f"by {name}"] = marks[halves[1].name].value
        assert marks[halves[1].name].rows == ROWS
    return found
