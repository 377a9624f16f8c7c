"""The key is changed after a first run: told, with both keys, and moved anew where one asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, d date NOT NULL, u uuid NOT NULL, "
    's text COLLATE "C" NOT NULL, n bigint)',
    "INSERT INTO {t} SELECT g, date '2024-01-01' + g, lpad(to_hex(g), 32, '0')::uuid, "
    "'s' || g, 1000 - g FROM generate_series(1, 200) g",
)


def ids(one: Ferry, system: str, schema: str) -> list[int]:
    sql = f"SELECT id FROM {schema}.{one.table} ORDER BY id"
    return [int(number) for (number,) in looking.ask(one.stack, system, sql)]


CUTS: dict[str, dict[str, Any]] = {
    "id": {"ranges": "{bounds: [101, 151]}"},
    "n": {"ranges": "{bounds: [850, 900]}"},
    "d": {"ranges": "{bounds: [2024-04-11, 2024-05-31]}"},
    "u": {"ranges": "{rows: 100}"},
    "s": {"ranges": "{bounds: [s5, s7]}"},
}


@pytest.mark.parametrize(
    ("system", "before", "after"),
    [
        ("postgres", "id", "d"),
        ("clickhouse", "d", "id"),
        ("clickhouse", "s", "u"),
        ("postgres", "n", "s"),
    ],
)
def test_another_key_is_told_and_moves_into_tables_made_anew(
    ferry: Make, copies: str, system: str, before: str, after: str
) -> None:
    schema = {"postgres": copies}.get(system, "warehouse")
    hops = f"['{system}://{schema}.{{t}}']"
    one = ferry(hops, *TABLE, key=before, **CUTS[before])
    command("run", one.table, code=0)
    one.declare(hops, key=after, **CUTS[after])
    kinds = {"id": "integer", "n": "integer", "d": "date", "u": "uuid", "s": "text"}
    for word in ("run", "plan", "check", "report", "adopt", "repair"):
        output = command(word, one.table, code=1 if word == "report" else 2).output
        assert f"t.yaml:4: the key is '{after}' ({kinds[after]})" in output, output
        assert (
            f"were divided by '{before}' ({kinds[before]}): declare 'key: {before}' again" in output
        )
        assert f"ferry run {one.table} --recreate" in output
    assert ids(one, system, schema) == list(range(1, 201))
    command("run", one.table, "--recreate", code=0)
    one.source("DELETE FROM {t} WHERE id = 7")
    command("run", one.table, code=0)
    assert ids(one, system, schema) == [*range(1, 7), *range(8, 201)]
    command("check", one.table, code=0)
    assert "no range" not in command("status", one.table, code=0).output
    command("report", one.table, code=0)


@pytest.mark.parametrize("system", ["postgres", "clickhouse"])
def test_another_key_of_the_same_kind(ferry: Make, copies: str, system: str) -> None:
    schema = {"postgres": copies}.get(system, "warehouse")
    hops = f"['{system}://{schema}.{{t}}']"
    one = ferry(hops, *TABLE, key="id", **CUTS["id"])
    command("run", one.table, code=0)
    one.declare(hops, key="n", **CUTS["id"])
    one.source("UPDATE {t} SET n = NULL WHERE id = 9", "DELETE FROM {t} WHERE id = 7")
    command("run", one.table, code=0)
    assert ids(one, system, schema) == [*range(1, 7), *range(8, 201)]
    command("check", one.table, code=0)


def test_a_key_whose_own_type_changes(ferry: Make, copies: str) -> None:
    hops = f"['postgres://{copies}.{{t}}']"
    one = ferry(hops, *TABLE, key="d", **CUTS["d"], on_schema_drift="evolve")
    command("run", one.table, code=0)
    one.source("ALTER TABLE {t} ALTER d TYPE timestamp USING d::timestamp")
    output = command("run", one.table, code=2).output
    assert "the key is 'd' (timestamp), and the ranges of" in output
    assert "were divided by 'd' (date): have the targets recreated" in output
    command("run", one.table, "--recreate", code=0)
    command("check", one.table, code=0)
