"""A report with everything in it that a report can have, long names and nasty values included."""

from __future__ import annotations

from tableferry.assets.judging import ProofState, RangeJudgement, TableJudgement
from tableferry.checks.verdict import Difference
from tableferry.pipelines.reporting.collect import problems_of
from tableferry.pipelines.reporting.evidence import CheckEntry, ExpectationEntry
from tableferry.pipelines.reporting.report import (
    ColumnEntry,
    HopEntry,
    RangeEntry,
    Report,
    RunEntry,
)

PROVEN = TableJudgement(ProofState.PROVEN)
NASTY = "<script>alert('|')</script>\r\n`&"
NAMES = (
    "..0000000000000000001",
    "0000000000000000001..0000000000000250001",
    "0000000000000250001..0000000000000500001",
    "0000000000000500001..",
)
MOVED = "5c0f1061-8a1b-4c4e-9a53-0f6d1fd1c2a7"
CHECKED = "b7e4d0aa-31f5-4bb5-8d2a-7f1be1dd0c11"
REFUSED = "e21f4a90-6c1d-4b57-a1a0-2f8a0f6f1e3d"
MOVED_AT, CHECKED_AT = "2026-07-29T02:14:09+00:00", "2026-07-29T06:00:31+00:00"

ROW_COUNT = CheckEntry(
    "row_count",
    True,
    "row_count passed: 250000 rows on both sides",
    at=MOVED_AT,
    run_id=MOVED,
    seconds=0.01,
    figures=(("rows", "250000", "250000"),),
)
CHECKSUM = CheckEntry(
    "checksum",
    True,
    "checksum passed: 250000 rows agree",
    at=MOVED_AT,
    run_id=MOVED,
    seconds=0.25,
    figures=(
        ("rows", "250000", "250000"),
        *(
            (f"{column} {figure}", str(number), str(number))
            for number, column in enumerate(("id", "note", "amount"), start=10**24)
            for figure in ("values", "sum", "sum weighted by key")
        ),
    ),
)
DAMAGED = CheckEntry(
    "checksum",
    False,
    "checksum FAILED: 250000 rows on both sides, note differs; 1 row extra in target, 1 different",
    at=CHECKED_AT,
    run_id=CHECKED,
    figures=(("note length", "9", "8"), ("n sum", "6", "6"), ("note values", "3", None)),
    differences=(
        Difference("2", "different", "note", NASTY, "NULL", {"id": "2", "line": "1"}),
        Difference(
            "7", "different", "customer_reference", "x" * 120, "y" * 120, {"id": "7", "line": "2"}
        ),
        Difference("9", "extra_in_target", row={"id": "9", "line": "1"}),
    ),
    differing_rows=2,
    rows_named_by="primary key (id, line)",
)
MET = ExpectationEntry(
    "expect_column_values_to_not_be_null(origin)",
    "expect_column_values_to_not_be_null",
    {"column": "origin"},
    True,
)
UNMET = ExpectationEntry(
    "no order without a price",
    "sql",
    {"query": "SELECT id, price FROM {table} WHERE {range} AND price <= 0"},
    False,
    "2 rows",
    2,
    ('{"id": 61, "price": "0.00"}', '{"id": 62, "price": "-1.00"}'),
)
SUITE = CheckEntry(
    "expectations",
    False,
    "expectations FAILED: not met: no order without a price",
    at=CHECKED_AT,
    run_id=CHECKED,
    expectations=(MET, UNMET),
    sampled=4,
    warning=True,
    blocking=False,
)
TOTAL = CheckEntry(
    "total_rows",
    True,
    "total_rows passed: 750000 rows on both sides",
    at=MOVED_AT,
    run_id=MOVED,
    figures=(("rows", "750000", "750000"),),
)
SCHEMA = CheckEntry(
    "schema",
    False,
    "schema FAILED: note differs",
    at=CHECKED_AT,
    run_id=CHECKED,
    figures=(
        ("id", "bigint NOT NULL", "bigint NOT NULL"),
        ("note", "nvarchar(400)", "varchar(40)"),
    ),
    details={"column note": "is varchar(40)", "notes": ["extra is not in the transfer"]},
)
SERVERS = (
    "postgres at orders-db.internal.example.com:5432, database shop, 18.6",
    "sqlserver at sql01.internal.example.com:1433, database staging, Microsoft SQL Server 2022 "
    "(RTM-CU14) (KB5038325) - 16.0.4135.4 (X64) Jul 10 2024 14:09:09 Copyright (C) 2022 Microsoft "
    "Corporation Developer Edition (64-bit) on Linux (Ubuntu 22.04.4 LTS) <X64>",
    "clickhouse at ch1.internal.example.com:8443, database warehouse, 26.9.2.1",
)


def a_range(name: str, *checks: CheckEntry, rows: int = 250_000, **settings: object) -> RangeEntry:
    """A committed range."""
    given = {
        "state": "committed",
        "keys": "1 ≤ id < 250001",
        "rows_source": rows,
        "rows": rows,
        "rows_moved": rows,
        "bytes": 31_250_000,
        "wire": "arrow",
        "seconds": {"export": 0.5, "load": 2.25, "finalise": 0.125, "reconcile": 1.0},
        "fingerprint": "content:8b1a9953c4611296a827abf8c47804d7",
        "moved_at": MOVED_AT,
        "moved_by": MOVED,
        "source_server": SERVERS[0],
        "target_server": SERVERS[1],
        "checks": checks or (ROW_COUNT, CHECKSUM),
    }
    return RangeEntry(name, **{**given, **settings})  # type: ignore[arg-type]


def sample(*, bad: bool = True) -> Report:
    """Two hops of four ranges; everything that can be wrong is, unless `bad` is false."""
    good = [
        a_range(NAMES[0], rows=0, keys="id < 1"),
        a_range(NAMES[1]),
        a_range(
            NAMES[2],
            state="skipped_unchanged",
            confirmed_at=CHECKED_AT,
            confirmed_by=CHECKED,
            keys="250001 ≤ id < 500001",
        ),
        a_range(NAMES[3], rows=0, keys="500001 ≤ id"),
    ]
    wrong = [
        good[0],
        a_range(NAMES[1], ROW_COUNT, DAMAGED, SUITE, proof="failed"),
        a_range(
            NAMES[2],
            state="failed",
            proof="failed",
            rows=None,
            keys="250001 ≤ id < 500001",
            error="orders: sqlserver://dbo.orders range 0000000000000250001..0000000000000500001: "
            "column 'time_hour', key 300000: value '12000-01-01 00:00:00' is outside of SQL "
            "Server's 0001-01-01 to 9999-12-31",
            checks=(),
        ),
        a_range(
            NAMES[3],
            ROW_COUNT,
            rows=0,
            keys="500001 ≤ id",
            unchecked=("checksum",),
            proof="not proven",
        ),
    ]
    columns = (
        ColumnEntry("id", "bigint", False, "id bigint"),
        ColumnEntry("note", "nvarchar(400)", True, "note character varying(400)"),
        ColumnEntry("amount", "decimal(38,10)", True, "amount numeric(38,10)"),
    )
    hops = (
        HopEntry(
            "postgres://public.orders",
            'sqlserver://dbo."Order Details Заказы"',
            tuple(wrong if bad else good),
            (TOTAL, SCHEMA) if bad else (TOTAL,),
            columns=columns,
            drift="new source column 'extra' (integer)" if bad else "",
        ),
        HopEntry(
            'sqlserver://dbo."Order Details Заказы"',
            "clickhouse://warehouse.orders",
            tuple(good),
            (TOTAL,),
            columns=columns,
        ),
    )
    judged = [PROVEN, PROVEN]
    if bad:
        judged[0] = TableJudgement(
            ProofState.FAILED,
            (f"{hops[0].target} as a whole: {SCHEMA.summary}",),
            {
                NAMES[1]: RangeJudgement(ProofState.FAILED, (DAMAGED.summary,)),
                NAMES[2]: RangeJudgement(ProofState.FAILED, ("failed: column 'time_hour'",)),
                NAMES[3]: RangeJudgement(ProofState.NOT_PROVEN, ("no verdict of checksum",)),
            },
        )
    runs = [
        RunEntry(CHECKED, "check", "succeeded", "schedule", "", MOVED_AT, CHECKED_AT),
        RunEntry(MOVED, "move", "succeeded", "command line", f"{NAMES[0]} to {NAMES[3]}", MOVED_AT),
    ]
    if bad:
        refused = "source postgres://public.orders has a new column 'extra' (integer)"
        runs.insert(
            0,
            RunEntry(
                REFUSED, "move", "failed", "backfill", "", CHECKED_AT, CHECKED_AT, refused, True
            ),
        )
    return Report(
        transfer="orders",
        description="Orders of the shop, one row per line.",
        created_at="2026-07-29T08:30:00+00:00",
        hops=hops,
        problems=tuple(problems_of("", runs, hops, judged)),
        runs=tuple(runs),
        settings={"key": "id", "write": "replace", "ranges": "{rows: 250000}"},
        servers={"postgres": SERVERS[0], "sqlserver": SERVERS[1], "clickhouse": SERVERS[2]},
        packages={"tableferry": "0.1.0", "dagster": "1.13.27"},
        meanings={
            "row_count": "The range has as many rows in the target as in the source.",
            "total_rows": "Both tables hold the same number of rows, whatever their keys are.",
        },
        dagster_url="https://dagster.example.com",
    )
