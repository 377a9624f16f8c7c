"""Where things are: servers from the environment, transfer files, Dagster's home."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from resources.clickhouse.resource import ClickHouseResource
from resources.connection import URL_VARIABLES
from resources.postgres.resource import PostgresResource
from resources.sqlserver.resource import SqlServerResource

POSTGRES_URL = URL_VARIABLES["postgres"]
SQLSERVER_URL = URL_VARIABLES["sqlserver"]
CLICKHOUSE_URL = URL_VARIABLES["clickhouse"]
TRANSFERS = "TABLEFERRY_TRANSFERS"
URLS = (POSTGRES_URL, SQLSERVER_URL, CLICKHOUSE_URL)


def transfers_folder() -> Path:
    """The folder of YAML files: `TABLEFERRY_TRANSFERS`, or the shipped transfers."""
    given = os.environ.get(TRANSFERS)
    return Path(given) if given else Path(__file__).parent / "transfers"


def resources() -> dict[str, dg.ConfigurableResource]:
    """The three servers, addressed by the environment when a run starts.

    A server without its variable stays unaddressed: only a transfer that needs it complains.
    """
    return {
        "postgres": PostgresResource(url=_url(POSTGRES_URL)),
        "sqlserver": SqlServerResource(url=_url(SQLSERVER_URL)),
        "clickhouse": ClickHouseResource(url=_url(CLICKHOUSE_URL)),
    }


def _url(variable: str) -> dg.EnvVar | None:
    return dg.EnvVar(variable) if os.environ.get(variable) else None
