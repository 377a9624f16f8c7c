"""Tables of a thousand columns, SQL Server's limit being 1,024: every pair, in the long run."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tableferry.checks.levels import Level
from tableferry.resources.keys.range import KeyRange
from tests.integration.conftest import table_name
from tests.integration.support.pairs import PAIRS, graph
from tests.servers import Servers

pytestmark = pytest.mark.integration

EVERYTHING = KeyRange("integer")
ROWS = 3
COLUMNS = 999
"""Besides `id`."""

KINDS = {
    "integer": "i + {n}",
    "text": "'x' || i + {n}",
    "timestamp": "timestamp '2024-02-28 23:59:59.999999' + i * interval '{n} s'",
    "numeric(12,4)": "i + {n} / 10000.0",
    "double precision": "i / ({n} + 1)::double precision",
}
EMPTY = 3
"""Every third column is NULL, so that a row of the widest types is within a page of 8 kB."""

TYPES = [list(KINDS)[number % len(KINDS)] for number in range(COLUMNS)]

DAMAGED = "c1"

HERE = [("postgres", "clickhouse"), ("postgres", "sqlserver")]


@pytest.mark.parametrize(
    ("pairs", "levels"),
    [
        pytest.param(HERE, ("checksum", "full_hash"), marks=pytest.mark.slow),
        pytest.param(PAIRS, get_args(Level), marks=pytest.mark.soak),
    ],
    ids=["two", "all"],
)
def test_both_sides_agree_and_one_damaged_value_is_found(
    stack: Servers, tmp_path: Path, pairs: list[tuple[str, str]], levels: tuple[Level, ...]
) -> None:
    declared = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(TYPES))
    values = ", ".join(
        KINDS[type_].format(n=number) if number % EMPTY else f"NULL::{type_}"
        for number, type_ in enumerate(TYPES)
    )
    name = table_name()
    with graph(stack, tmp_path, pairs, name, declared) as hops:
        first = next(iter(hops.values())).source.endpoint
        rows = f"SELECT i, {values} FROM generate_series(1, {ROWS}) i"
        first.execute(f"INSERT INTO public.{name} {rows}")
        for hop in hops.values():
            hop.move(EVERYTHING)
            for level in levels:
                (verdict,) = hop.verdicts(level, [EVERYTHING]).values()
                assert verdict.passed, (hop.name, level, verdict.disagreeing)
                assert verdict.source["rows"] == ROWS
        first.execute(f"UPDATE public.{name} SET {DAMAGED} = 'damaged' WHERE id = 2")
        for pair, hop in hops.items():
            if pair[0] == "postgres":
                (verdict,) = hop.verdicts("checksum", [EVERYTHING]).values()
                assert verdict.disagreeing == ("digest",), hop.name
                found = hop.both(EVERYTHING).search()
                assert (found.different, list(found.by_column)) == (1, [DAMAGED])
