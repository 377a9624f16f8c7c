"""What reads rows one by one orders infinite keys, and keys that 64 bits do not reach, as well."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

LATE = "294276-12-31 23:59:59.999999"
KEYS = {
    "date": ("date '2024-01-01' + i", "5874897-12-31"),
    "timestamp": ("timestamp '2024-01-01' + i * interval '1 h'", LATE),
    "timestamptz": ("timestamptz '2024-01-01 00:00+00' + i * interval '1 h'", f"{LATE}+00"),
    "timestamp(0)": ("timestamp '2024-01-01' + i * interval '1 h'", "294250-01-01 00:00:00"),
}


@pytest.mark.parametrize("primary", [True, False], ids=["primary_key", "no_key"])
@pytest.mark.parametrize("key", KEYS)
def test_infinite_keys_are_compared_and_repaired(
    ferry: Callable[..., Ferry], copies: str, key: str, primary: bool
) -> None:
    values, late = KEYS[key]
    one = ferry(
        f"['postgres://{copies}.{{t}}']",
        f"CREATE TABLE {{t}} (k {key} NOT NULL, n int, share float8"
        f"{', PRIMARY KEY (share, k)' if primary else ''})",
        f"INSERT INTO {{t}} SELECT {values}, i, 'infinity' FROM generate_series(1, 40) i",
        "INSERT INTO {t} VALUES ('infinity', 41, '-infinity'), ('-infinity', 42, 'nan'), "
        f"('{late}', 43, 0), ('0044-03-15 BC', 44, 1)",
        key="k",
        ranges="{count: 2}",
    )
    name, target = one.table, f"{copies}.{one.table}"
    assert one.run().good
    for level in ("checksum", "full_hash", "sample_hash"):
        checked = runner.check(one.session, name, level=level)
        assert checked.good, checked.errors
    tables = f"postgres://public.{name}", f"postgres://{target}"
    compared = command("compare", *tables, "--key", "k", "--json")
    assert compared.exit_code == 0, compared.output

    looking.ask_postgres(
        one.stack.postgres_url,
        f"UPDATE {target} SET n = -1 WHERE k IN ('infinity', '-infinity', '{late}')",
        f"DELETE FROM {target} WHERE n = 44",
    )
    compared = command("compare", *tables, "--key", "k", "--json")
    assert compared.exit_code == 1, compared.output
    assert json.loads(compared.stdout)["differences"]["different"] == 3
    found = runner.check(one.session, name, level="full_hash")
    assert not found.good
    examples = command("diff", name, "--range", str(found.checks[0].range))
    assert "infinity" in examples.output, examples.output
    assert not runner.check(one.session, name).good
    assert not runner.status(one.session, name).good
    if primary:
        shown = command("repair", name, "--dry-run")
        assert shown.exit_code == 1 and "infinity" in shown.output, shown.output
        statements = command("repair", name, "--sql")
        assert statements.exit_code == 1 and "infinity" in statements.output, statements.output
        repaired = command("repair", name, "--json")
        assert repaired.exit_code == 0, repaired.output
        moved = [each["rows_moved"] or 0 for each in json.loads(repaired.stdout)["ranges"]]
        assert sum(moved) == 4
    else:
        assert one.run().good
    assert runner.check(one.session, name, level="full_hash").good
    one.source("UPDATE {t} SET n = n + 1 WHERE k IN ('infinity', '-infinity')")
    assert one.run().good
    assert runner.check(one.session, name, level="full_hash").good
