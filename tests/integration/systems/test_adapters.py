"""A transfer by the engines and resources that a project has."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import psycopg
import pytest
import sqlalchemy

import tableferry
from tests.guide import blocks
from tests.integration.support import looking, venvs
from tests.servers import Servers, own

pytestmark = pytest.mark.integration

TABLE = own("adapted")
TRANSFER = {"transfer": TABLE, "source": f"postgres://public.{TABLE}", "key": "id"}


@pytest.fixture
def table(stack: Servers) -> Iterator[str]:
    looking.ask_postgres(
        stack.postgres_url,
        f"DROP TABLE IF EXISTS {TABLE}",
        f"CREATE TABLE {TABLE} (id int PRIMARY KEY, note text)",
        f"INSERT INTO {TABLE} SELECT g, 'n' || g FROM generate_series(1, 50) g",
    )
    yield TABLE
    looking.ask_postgres(stack.postgres_url, f"DROP TABLE {TABLE}")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as made:
        yield made


def of_engine(stack: Servers) -> Any:
    engine = sqlalchemy.create_engine(stack.postgres_url.replace("://", "+psycopg://", 1))
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("SELECT 1")).scalar() == 1
    return tableferry.from_sqlalchemy(engine)


def of_connection(stack: Servers) -> Any:
    with psycopg.connect(stack.postgres_url) as connection:
        return tableferry.from_psycopg(connection)


@pytest.mark.parametrize("make", [of_engine, of_connection])
def test_a_table_moves_by_the_projects_engines(
    stack: Servers, table: str, instance: dg.DagsterInstance, make: Any
) -> None:
    url = sqlalchemy.make_url(stack.sqlserver_url.partition("?")[0])
    options = dict(part.split("=") for part in urlsplit(stack.sqlserver_url).query.split("&"))
    theirs = {"Encrypt": options.get("encrypt", "yes"), "driver": "ODBC Driver 18 for SQL Server"}
    if "trust_server_certificate" in options:
        theirs["TrustServerCertificate"] = options["trust_server_certificate"]
    url = url.set(drivername="mssql+pyodbc", query=theirs)
    servers = {"postgres": make(stack), "sqlserver": tableferry.from_sqlalchemy(url)}
    transfer = tableferry.Transfer(**TRANSFER, hops=[f"sqlserver://dbo.{table}"])
    session = tableferry.session([transfer], servers, instance)
    moved = session.run(table)
    assert moved.good, moved.errors
    looking.run(stack, "sqlserver", f"DROP TABLE dbo.{table}")


RUN = """
import dagster as dg
from dagster.components.testing.utils import component_defs
from dagster_shared.libraries import DagsterLibraryRegistry
import moves

assert "dagster-clickhouse" in DagsterLibraryRegistry.get()
definitions = component_defs(component=moves.load(None))
with dg.DagsterInstance.ephemeral() as instance:
    repository = definitions.get_repository_def()
    (sensor,) = [s for s in repository.sensor_defs if s.name.endswith("first_ranges")]
    sensor.evaluate_tick(dg.build_sensor_context(instance, repository_def=repository))
    job = definitions.resolve_implicit_global_asset_job_def()
    for name in instance.get_dynamic_partitions("orders_ranges"):
        assert job.execute_in_process(instance=instance, partition_key=name).success
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_guides_component_moves_by_dagster_clickhouse(
    stack: Servers, table: str, tmp_path: Path
) -> None:
    (program,) = [b.text for b in blocks("in-your-project.md") if "from_clickhouse" in b.text]
    lake, source = urlsplit(stack.clickhouse_url), stack.postgres_url
    (tmp_path / "moves.py").write_text(
        program.replace("shop.orders", f"public.{table}")
        .replace("warehouse.orders", f"warehouse.{table}")
        .replace("secure=True", f"secure=False, user={lake.username!r}")
        .replace("from_clickhouse(WAREHOUSE)", f"from_clickhouse(WAREHOUSE, http_port={lake.port})")
    )
    (tmp_path / "run.py").write_text(RUN)
    venvs.make(
        tmp_path / "venv",
        venvs.build_wheel(tmp_path),
        "dagster-clickhouse==0.29.27",
        "clickhouse-connect",
    )
    done = subprocess.run(
        [tmp_path / "venv/bin/python", "-W", "ignore", "run.py"],
        cwd=tmp_path,
        env=os.environ
        | {
            "SHOP_URL": source.replace("://", "+psycopg://", 1),
            "LAKE_HOST": str(lake.hostname),
            "LAKE_PASSWORD": lake.password or "",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = looking.ask_clickhouse(stack.clickhouse_url, f"SELECT count() FROM warehouse.{table}")
    assert rows == [(50,)]
    looking.ask_clickhouse(stack.clickhouse_url, f"DROP TABLE warehouse.{table}")
