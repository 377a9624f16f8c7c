"""ClickHouse: a source and a target of rows."""

from __future__ import annotations

from resources.clickhouse import digest
from resources.clickhouse.ddl import engine_problem
from resources.clickhouse.dialect import ClickHouseDialect
from resources.clickhouse.errors import verdict
from resources.clickhouse.health import findings
from resources.clickhouse.overflow import ClickHouseOverflow
from resources.clickhouse.policies import hidden
from resources.clickhouse.server import ClickHouseServer
from resources.clickhouse.source import ClickHouseSource
from resources.clickhouse.target import ClickHouseTarget
from resources.clickhouse.types import TYPES
from resources.server import Scheme
from resources.system import Loader, System


def _fine(value: object) -> None:
    """The server alone can read SQL."""


SYSTEM = System(
    name="clickhouse",
    title="ClickHouse",
    resource=ClickHouseServer,
    dagster="resources.clickhouse.resource:ClickHouseResource",
    schemes={"http": Scheme(8123, {"secure": "no"}), "https": Scheme(8443, {"secure": "yes"})},
    database="default",
    dialect=ClickHouseDialect(),
    types=TYPES,
    digest=digest,
    overflow=ClickHouseOverflow(),
    verdict=verdict,
    health=findings,
    hidden=hidden,
    source=ClickHouseSource(),
    loader=Loader(
        ClickHouseTarget,
        accepts=("arrow", "tab_separated"),
        options={"engine": engine_problem, "order_by": _fine, "partition_by": _fine},
    ),
)
