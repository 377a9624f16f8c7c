"""Client memory does not grow with the table."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from tests.integration.conftest import Ferry

pytestmark = [pytest.mark.integration, pytest.mark.soak]

CHAIN = "['sqlserver://dbo.{t}', 'clickhouse://warehouse.{t}']"
MOST_BYTES = 400 * 1024 * 1024
NOISE = 1.4
"""Allocators keep what they once had, and batches wait where a server is slow; a client that held
the larger table would need half as much again."""


def peak(ferry: Ferry, rows: int) -> int:
    """Peak RSS in bytes of `ferry run` for a new table of that many rows."""
    ferry.source(
        "DROP TABLE IF EXISTS {t}",
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text NOT NULL, amount numeric(12,2), "
        "at timestamp NOT NULL, flag boolean, note text)",
        f"INSERT INTO {{t}} SELECT g, 'name ' || g, g * 1.5, timestamp '2024-01-01' + g * interval "
        f"'1 s', g % 2 = 0, repeat('x', 40) FROM generate_series(1, {rows}) g",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "tableferry.pipelines.cli", "run", ferry.table, "--json"],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    seen = 0
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            seen = max(seen, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.05)
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    return seen


@pytest.mark.timeout(900)
def test_the_client_stays_small_and_does_not_grow(ferry: Callable[..., Ferry]) -> None:
    one = ferry(CHAIN, "CREATE TABLE {t} (id integer PRIMARY KEY)", ranges="{rows: 100000}")
    small = peak(one, 300_000)
    large = peak(one, 2_000_000)
    assert large < MOST_BYTES, f"{large / 2**20:.0f} MiB"
    assert large < small * NOISE, f"{small / 2**20:.0f} MiB, then {large / 2**20:.0f} MiB"
