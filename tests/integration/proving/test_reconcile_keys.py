"""Reconciliation by keys of every kind: ranges, samples, buckets, and the whole table."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from tableferry.checks.levels import LEVELS
from tableferry.checks.reconcile import reconcile, reconcile_all
from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Difference
from tableferry.checks.whole_table import whole_table
from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.columns.planner import plan_copy
from tableferry.resources.connecting.probe import NUMBER
from tableferry.resources.connecting.resource import ConnectionSettings
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import BATCH_ROWS, Endpoint
from tableferry.resources.contract.system import System
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import SchemaDrift, TableMissing
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column
from tests.integration.support import looking

pytestmark = pytest.mark.integration

ROWS = 3000
UUID_OF = "md5(i::text)::uuid"

KEYS: dict[str, tuple[str, str, KeyKind]] = {
    "dense": ("bigint", "i", "integer"),
    "even": ("integer", "-2000000000 + i * 1000", "integer"),
    "sparse": ("bigint", "i::bigint * i * i * 1000000", "integer"),
    "day": ("date", "date '1990-01-01' + i", "date"),
    "moment": ("timestamp", "timestamp '2000-01-01' + i * interval '37.000001 s'", "timestamp"),
    "instant": (
        "timestamptz",
        "timestamptz '1999-12-31 12:00+00' + i * interval '1 h'",
        "timestamp",
    ),
    "ident": ("uuid", UUID_OF, "uuid"),
    "repeated": ("integer", "i / 10", "integer"),
}


@dataclass
class Counting:
    """An endpoint that passes all on, and remembers which queries read a table."""

    inner: Endpoint
    scans: list[str] = field(default_factory=list)

    @property
    def system(self) -> System:  # type: ignore[override]
        return self.inner.system

    def ping(self) -> str:
        return self.inner.ping()

    def columns(self, table: TableRef) -> list[Column]:
        return self.inner.columns(table)

    def execute(self, sql: str) -> None:
        self.inner.execute(sql)

    def settings(self) -> ConnectionSettings:
        return self.inner.settings()

    def digests_by(self) -> str:
        return "server"

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[object, ...]]:
        if NUMBER not in sql and "system." not in sql:  # of constants, or the catalog
            self.scans.append(sql)
        return self.inner.query(sql, snapshot=snapshot)

    @contextmanager
    def read_arrow(
        self, sql: str, *, batch_rows: int = BATCH_ROWS, snapshot: str | None = None
    ) -> Iterator[pa.RecordBatchReader]:
        self.scans.append(sql)
        with self.inner.read_arrow(sql, batch_rows=batch_rows, snapshot=snapshot) as reader:
            yield reader


@pytest.fixture(scope="module")
def postgres(pg_url: str) -> PostgresResource:
    return PostgresResource(url=pg_url)


@pytest.fixture(scope="module")
def clickhouse(ch_url: str) -> ClickHouseResource:
    return ClickHouseResource(url=ch_url)


@pytest.fixture
def make(
    request: pytest.FixtureRequest, postgres: PostgresResource, clickhouse: ClickHouseResource
) -> Iterator[object]:
    """Makes the source of one key kind, with NULL keys, and a copy of it as text."""
    made: list[CopyPlan] = []

    def _make(key: str, rows: int = ROWS) -> CopyPlan:
        type_, expression, _ = KEYS[key]
        name = f"keys_{key}_{uuid.uuid4().hex[:8]}"
        looking.execute(postgres, f"CREATE TABLE {name} (k {type_}, note text, n integer)")
        looking.execute(
            postgres,
            f"INSERT INTO {name} SELECT {expression}, 'note ' || i, i "
            f"FROM generate_series(1, {rows}) i",
        )
        looking.execute(
            postgres, f"INSERT INTO {name} VALUES (NULL, 'no key', 1), (NULL, 'no key', 2)"
        )
        source = TableRef("postgres", "public", name)
        target = TableRef("clickhouse", "warehouse", name)
        plan = plan_copy(source, postgres.columns(source), target, key="k")
        declared = ", ".join(
            f"{c.name} {f'Nullable({c.type})' if c.nullable else c.type}"
            for c in plan.target_columns
        )
        clickhouse.execute(f"CREATE TABLE {name} ({declared}) ENGINE = MergeTree ORDER BY ()")
        with postgres.read_text(f"SELECT k, note, n FROM public.{name}") as chunks:
            clickhouse.insert(target, ["k", "note", "n"], chunks, "TabSeparated")
        made.append(plan)
        return plan

    yield _make
    for plan in made:
        looking.execute(postgres, f"DROP TABLE IF EXISTS {plan.source.name}")
        clickhouse.execute(f"DROP TABLE IF EXISTS {plan.target.name}")


def ranges_of(key: str) -> list[KeyRange]:
    kind = KEYS[key][2]
    low: object
    high: object
    match key:
        case "day":
            low, high = dt.date(1990, 6, 1), dt.date(1994, 1, 1)
        case "moment" | "instant":
            low, high = dt.datetime(2000, 1, 1, 5, 0, 0, 1), dt.datetime(2000, 1, 2)
        case "ident":
            low, high = uuid.UUID(int=2**126), uuid.UUID(int=2**127 + 2**126)
        case _:
            low, high = 100, 10**12
    return [
        KeyRange(kind, None, low),  # type: ignore[arg-type]
        KeyRange(kind, low, high),  # type: ignore[arg-type]
        KeyRange(kind, high, None),  # type: ignore[arg-type]
        KeyRange(kind, null=True),
    ]


@pytest.mark.parametrize("key", KEYS)
def test_every_range_agrees_and_every_row_is_in_one(
    key: str, make, postgres: PostgresResource, clickhouse: ClickHouseResource
) -> None:
    plan, ranges = make(key), ranges_of(key)
    for level in LEVELS:
        verdicts = reconcile_all(Comparison(plan, postgres, clickhouse, ranges), level)
        assert [name for name, verdict in verdicts.items() if not verdict.passed] == []
        rows = [verdicts[key_range.name].source["rows"] for key_range in ranges]
        assert sum(rows) == ROWS + 2
        assert rows[-1] == 2
    verdicts_of_table = whole_table(Comparison(plan, postgres, clickhouse, ranges))
    names = [verdict.check for verdict in verdicts_of_table]
    assert names == ["total_rows", "unique_key", "no_stray_rows", "schema"]
    assert all(verdict.passed for verdict in verdicts_of_table)


@pytest.mark.parametrize("key", KEYS)
def test_one_damaged_row_is_found_by_its_key(
    key: str, make, postgres: PostgresResource, clickhouse: ClickHouseResource
) -> None:
    plan = make(key)
    everything = KeyRange(KEYS[key][2])
    clickhouse.execute(
        f"ALTER TABLE {plan.target.name} UPDATE note = 'damaged' WHERE n = 1234 AND k IS NOT NULL "
        "SETTINGS mutations_sync = 2"
    )
    own, other = Counting(postgres), Counting(clickhouse)
    found = Comparison(plan, own, other, [everything]).search()
    assert (found.different, found.missing_in_target, found.extra_in_target) == (1, 0, 0)
    ((expected,),) = postgres.query(f"SELECT k::text FROM {qualified(plan.source)} WHERE n = 1234")
    (example,) = found.examples
    assert (example.column, example.source, example.target) == ("note", "note 1234", "damaged")
    assert str(example.key).removesuffix(".000000") == expected.removesuffix("+00")
    assert len(own.scans) == len(other.scans) == 2
    assert found.rows_compared < ROWS / 20


@pytest.mark.parametrize("key", [key for key in KEYS if key != "repeated"])
def test_the_sample_covers_the_whole_range_and_is_the_same_on_both_sides(
    key: str, make, postgres: PostgresResource, clickhouse: ClickHouseResource
) -> None:
    plan = make(key)
    both = Comparison(plan, postgres, clickhouse, ())
    picked = []
    for side, identity in both.digests.identity.items():
        there = both.sides[side]
        rows = there.endpoint.query(
            f"SELECT n FROM {qualified(there.table)} WHERE {there.in_sample(identity, 10)} "
            f"AND {there.table.system.quote('k')} IS NOT NULL ORDER BY n"
        )
        picked.append([int(str(row[0])) for row in rows])
    assert picked[0] == picked[1]
    assert ROWS / 20 < len(picked[0]) < ROWS / 5
    tenths = {number * 10 // (ROWS + 1) for number in picked[0]}
    assert tenths == set(range(10))


def test_sample_hash_reads_a_sample(
    make, postgres: PostgresResource, clickhouse: ClickHouseResource
) -> None:
    plan, everything = make("dense", 20_000), KeyRange("integer")
    both = Comparison(plan, postgres, clickhouse, [everything])
    verdict = reconcile(both, "sample_hash")
    assert verdict.passed
    assert verdict.source["one_in"] == 20
    assert 500 < verdict.source["hashed"] == verdict.target["hashed"] < 2000
    sample = both.sides["target"].in_sample(both.digests.identity["target"], 20)
    clickhouse.execute(
        f"ALTER TABLE {plan.target.name} UPDATE n = -n WHERE {sample} SETTINGS mutations_sync = 2"
    )
    damaged = reconcile(both, "sample_hash")
    assert damaged.differences is not None
    assert damaged.differences.different == damaged.source["hashed"]


def test_a_range_reads_the_snapshot_that_it_is_given(
    make, postgres: PostgresResource, clickhouse: ClickHouseResource
) -> None:
    plan, everything = make("dense"), KeyRange("integer")
    with postgres.snapshot() as snapshot:
        looking.execute(postgres, f"UPDATE {plan.source.name} SET note = 'later'")
        both = Comparison(plan, postgres, clickhouse, [everything])
        for level in [*LEVELS][1:]:
            then = reconcile(replace(both, snapshot=snapshot), level)
            now = reconcile(both, level)
            assert (then.passed, now.passed) == (True, False), level


def test_rows_without_a_key_are_told_apart(
    make, postgres: PostgresResource, clickhouse: ClickHouseResource
) -> None:
    plan, no_key = make("day"), KeyRange("date", null=True)
    clickhouse.execute(f"DELETE FROM {plan.target.name} WHERE k IS NULL AND n = 1")
    found = Comparison(plan, postgres, clickhouse, [no_key]).search()
    assert found.examples == (Difference(None, "missing_in_target", row={"k": None}),)


def test_whole_table_damage(
    make, postgres: PostgresResource, clickhouse: ClickHouseResource
) -> None:
    plan = replace(make("dense"), primary_key=("k",))
    ranges = [KeyRange("integer", 1, 2000), KeyRange("integer", 2000, 3001)]
    clickhouse.execute(f"INSERT INTO {plan.target.name} VALUES (7, 'again', 7), (9999, 'stray', 1)")
    clickhouse.execute(f"ALTER TABLE {plan.target.name} MODIFY COLUMN n Nullable(Int16)")
    clickhouse.execute(f"ALTER TABLE {plan.target.name} ADD COLUMN mine String")
    total, unique, strays, schema = whole_table(Comparison(plan, postgres, clickhouse, ranges))
    assert total.summary() == "total_rows FAILED: 3,002 rows in source, 3,004 in target"
    assert not unique.passed
    # a primary key has no NULLs, so that two of them are a repetition too
    assert unique.metadata["examples"] == ["7 (2 times)", "None (2 times)"]
    assert strays.target == {"stray_rows": 3}
    # ranges that leave out no key but NULL
    ranges = [KeyRange("integer", None, 2000), KeyRange("integer", 2000, None)]
    counted = whole_table(Comparison(plan, postgres, clickhouse, ranges))
    assert (counted[0].summary(), counted[2].target) == (total.summary(), {"stray_rows": 2})
    no_key = KeyRange("integer", null=True)
    counted = whole_table(Comparison(plan, postgres, clickhouse, [*ranges, no_key]))
    assert (counted[0].summary(), counted[2].passed) == (total.summary(), True)
    assert schema.disagreeing == ("n",)
    assert schema.metadata["notes"] == ["mine is not in the transfer"]


def test_a_missing_table_or_column_is_said(
    make, postgres: PostgresResource, clickhouse: ClickHouseResource
) -> None:
    plan, everything = make("dense"), KeyRange("integer")
    clickhouse.execute(f"ALTER TABLE {plan.target.name} RENAME COLUMN note TO remark")
    with pytest.raises(SchemaDrift, match="has no column 'note'"):
        reconcile(Comparison(plan, postgres, clickhouse, [everything]), "checksum")
    clickhouse.execute(f"DROP TABLE {plan.target.name}")
    with pytest.raises(TableMissing, match="does not exist"):
        reconcile(Comparison(plan, postgres, clickhouse, [everything]), "count")
