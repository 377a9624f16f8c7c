"""A server that is away when a command begins is waited for, by every command that needs it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tableferry.resources.connecting import retry
from tests.integration.conftest import Ferry
from tests.integration.support.command import command
from tests.integration.support.proxy import ComesLate

pytestmark = pytest.mark.integration

SECONDS = 1.5
HOPS = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
ROWS = (
    "CREATE TABLE {t} (id integer PRIMARY KEY)",
    "INSERT INTO {t} SELECT generate_series(1, 20)",
)
AWAY = [
    ("postgres", True),
    ("postgres", False),
    ("sqlserver", True),
    ("sqlserver", False),
    ("clickhouse", False),
]


@pytest.mark.parametrize(("system", "closes"), AWAY)
def test_it_is_waited_for(
    ferry: Callable[..., Ferry], monkeypatch: pytest.MonkeyPatch, system: str, closes: bool
) -> None:
    one = ferry(HOPS, *ROWS)
    variable = f"TABLEFERRY_{system.upper()}_URL"
    url = one.stack.environment()[variable]
    for words in (("plan", one.table), ("run", one.table), ("check", one.table)):
        began = time.monotonic()
        with ComesLate(url, SECONDS, closes=closes) as late:
            monkeypatch.setenv(variable, late.url)
            ended = command(*words)
        assert ended.exit_code == 0, (words, ended.output)
        assert time.monotonic() - began > SECONDS


def test_one_that_stays_away_is_named(
    ferry: Callable[..., Ferry], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry(HOPS, *ROWS)
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "2")
    url = one.stack.environment()["TABLEFERRY_POSTGRES_URL"]
    with ComesLate(url, 600.0, closes=False) as late:
        monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", late.url)
        began = time.monotonic()
        ended = command("doctor")
        assert time.monotonic() - began < 20 and "connection refused" in ended.output.lower()
        for name in ("validate", "plan", "run", "check"):
            retry.forget_outages()  # as a process of its own knows of none
            ended = command(name, one.table)
            assert ended.exit_code != 0
            waiting, *_, last = ended.stderr.splitlines()
            assert waiting.startswith("ferry: cannot connect to postgres"), name
            assert waiting.endswith("waiting up to 2 s for it (TABLEFERRY_PATIENCE_SECONDS)"), name
            assert "(TABLEFERRY_POSTGRES_URL)" in last and "`ferry doctor`" in last, name
