"""ClickHouse: a source and a target of rows."""

from __future__ import annotations

from tableferry.resources.clickhouse import ddl, digest, policies
from tableferry.resources.clickhouse.dialect import DIALECT
from tableferry.resources.clickhouse.errors import is_transient
from tableferry.resources.clickhouse.health import findings
from tableferry.resources.clickhouse.overflow import ClickHouseOverflow
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.clickhouse.source import ClickHouseSource
from tableferry.resources.clickhouse.target import ClickHouseTarget
from tableferry.resources.clickhouse.types import TYPES
from tableferry.resources.contract.catalog import Inspection
from tableferry.resources.contract.loader import Loader, Part
from tableferry.resources.contract.settings import Scheme
from tableferry.resources.contract.system import System

SYSTEM = System(
    name="clickhouse",
    title="ClickHouse",
    resource=ClickHouseServer,
    extra="clickhouse",
    dagster="tableferry.resources.clickhouse.resource:ClickHouseResource",
    schemes={"http": Scheme(8123, {"secure": "no"}), "https": Scheme(8443, {"secure": "yes"})},
    database="default",
    dialect=DIALECT,
    types=TYPES,
    digest=digest,
    overflow=ClickHouseOverflow(),
    is_transient=is_transient,
    inspection=Inspection(health=findings, withheld=policies.withheld, refused=policies.unseen),
    source=ClickHouseSource(),
    loader=Loader(
        ClickHouseTarget,
        accepts=("arrow", "tab_separated"),
        deltas=True,
        stored_share=0.4,
        # min_insert_block_size_rows and ..._bytes of an INSERT, as servers come
        most_in_part=Part(1_048_449, 268_402_944),
        # only the server can parse SQL
        options={
            "engine": ddl.engine_problem,
            "order_by": lambda _: None,
            "partition_by": lambda _: None,
        },
    ),
)
