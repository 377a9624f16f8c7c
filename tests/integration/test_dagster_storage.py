"""The containers' Dagster settings, against a real PostgreSQL."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import psycopg
import pytest

from tests.servers import Servers, own

SETTINGS = Path(__file__).resolve().parents[2] / "docker" / "dagster.yaml"
DATABASE = own("dagster")


def test_events_are_kept_in_postgresql(
    stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = urlsplit(stack.postgres_url)
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {DATABASE}")
    for name, value in {
        "HOST": url.hostname,
        "PORT": str(url.port),
        "USER": url.username,
        "PASSWORD": url.password,
        "DB": DATABASE,
    }.items():
        monkeypatch.setenv(f"DAGSTER_POSTGRES_{name}", value or "")
    shutil.copy(SETTINGS, tmp_path)

    @dg.asset
    def something() -> None:
        pass

    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        result = dg.materialize([something], instance=instance)
        assert result.success
        assert instance.get_latest_materialization_event(something.key) is not None
    database = url._replace(path=f"/{DATABASE}").geturl()
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT count(*) FROM event_logs WHERE run_id = %s"
            " AND dagster_event_type = 'ASSET_MATERIALIZATION'",
            (result.run_id,),
        ).fetchone()
    assert row == (1,)
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")
