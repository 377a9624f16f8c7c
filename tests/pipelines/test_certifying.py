"""Certifying knows every type, tells rows and certificates apart, and gives no secret away."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from tableferry.pipelines.certifying import commands
from tableferry.pipelines.certifying.certificate import differences, headline, without_secrets
from tableferry.pipelines.certifying.looking import difference
from tableferry.pipelines.certifying.plain import as_text, normal, plain_of, types_of
from tableferry.resources.clickhouse.types import INTEGERS as CLICKHOUSE_INTEGERS
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import InputError
from tableferry.resources.postgres import types as postgres
from tableferry.resources.registry import system
from tableferry.resources.types.kinds import Array, Binary, Decimal, Float, Timestamp

NOT_IN_EVERY_DATABASE = {"citext", "enum"}
"""Types that somebody has to make first."""
SERVERS = ("postgres", "sqlserver", "clickhouse")


@pytest.mark.parametrize("name", SERVERS)
def test_every_type_that_the_product_probes_is_certified(name: str) -> None:
    assert {*source_of(system(name)).examples} <= {*types_of(system(name))}


def test_every_type_that_is_known_by_its_name_is_certified() -> None:
    known = {*postgres.INTEGERS, *postgres.TEXT, *postgres.RANGES}
    certified = {postgres.read(type_).name for type_ in types_of(system("postgres"))}
    assert known - NOT_IN_EVERY_DATABASE - certified == set()
    of_clickhouse = " ".join(types_of(system("clickhouse")))
    assert {name for name in CLICKHOUSE_INTEGERS if f"({name})" not in of_clickhouse} == set()


def test_a_command_that_takes_too_long_is_stopped_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\necho waiting for orders >&2\nexec sleep 60\n", encoding="utf-8")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(commands, "PATIENCE", 0.5)
    ran = commands.CommandLine(tmp_path).ferry("run", "orders")
    assert ran.exit_code is None
    assert ran.why == "`ferry run orders` ended with None: waiting for orders"


def test_files_are_not_certified() -> None:
    with pytest.raises(InputError, match="files cannot be certified"):
        plain_of(system("files"))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ([(1, "a"), (2, "b")], "1 lost (id 3)"),
        ([(1, "a"), (2, "b"), (2, "b"), (3, "c")], "1 doubled (id 2)"),
        ([(1, "a"), (2, ""), (3, "c"), (4, "d")], "1 extra (id 4), 1 with other values (id 2)"),
        ([(2, "b"), (1, "a"), (3, "c")], "in another order"),
    ],
)
def test_rows_that_differ_are_told_by_their_ids(target: list[tuple[Any, ...]], said: str) -> None:
    assert difference([(1, "a"), (2, "b"), (3, "c")], target) == said


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (Timestamp(6, 0, 1), "2024-01-02 03:04:05.600000", "2024-01-02T03:04:05.6"),
        (Decimal(12, 2), "1.50", "1.5"),
        (Float(32), "0.1", "0.10000000149011612"),
        (Float(64), "NaN", "nan"),
        (Binary(), "00ff", "00FF"),
        (Array(Decimal(12, 2)), "[1.50, null]", '["1.5", null]'),
    ],
)
def test_equal_values_are_equal_in_any_notation(kind: Any, one: str, other: str) -> None:
    assert normal(kind, one) == normal(kind, other)
    assert normal(kind, one) != normal(kind, None)
    assert normal(None, "1.50") != normal(None, "1.5"), "texts count as they are"


def test_an_empty_text_is_not_null() -> None:
    assert normal(None, as_text("")) != normal(None, as_text(None))


CERTIFICATE = {
    "passed": True,
    "created_at": "2026-01-01T00:00:00Z",
    "rows": 100,
    "tableferry": {"version": "0.1.0", "commit": None},
    "packages": {"psycopg": "3.2"},
    "servers": [
        {"connection": "postgres", "system": "postgres", "settings": {"version": "17.4"}},
        {"connection": "lake", "system": "clickhouse", "settings": {"version": "26.1"}},
    ],
    "types": {"integer": 5, "xml": 1},
    "scenarios": [{"name": "full run", "result": "passed"}],
}


def test_what_differs_since_an_older_certificate_is_said() -> None:
    assert [*differences(CERTIFICATE, CERTIFICATE)] == []
    newer = copy.deepcopy(CERTIFICATE)
    newer["servers"][1]["settings"]["version"] = "26.9"  # type: ignore[index]
    newer["packages"] = {"psycopg": "3.3"}
    newer["types"] = {"integer": 5}
    newer["scenarios"] = [
        {"name": "full run", "result": "failed"},
        {"name": "second run", "result": "passed"},
    ]
    assert [*differences(CERTIFICATE, newer)] == [
        "packages psycopg: 3.2 became 3.3",
        "lake version: 26.1 became 26.9",
        "type xml: moved became absent",
        "scenario full run: passed became failed",
        "scenario second run: absent became passed",
    ]
    assert headline(CERTIFICATE) == "postgres -> clickhouse: passed"


def test_neither_passwords_nor_hosts_are_in_a_certificate() -> None:
    settings = [ConnectionSettings("postgres", "db", 5432, "shop", "me", "s3cret-word")]
    document = {"seen": ["at db:5432, as s3cret-word; no feedback", {"db": "of db."}]}
    clean = {"seen": ["at <host>, as ***; no feedback", {"db": "of <host>."}]}
    assert without_secrets(settings, document, with_hosts=False) == clean
    shown = without_secrets(settings, document, with_hosts=True)
    assert shown["seen"][0] == "at db:5432, as ***; no feedback"
