"""PostgreSQL: a source and a target of rows."""

from __future__ import annotations

from tableferry.resources.contract.catalog import Inspection
from tableferry.resources.contract.loader import Loader
from tableferry.resources.contract.settings import Scheme
from tableferry.resources.contract.system import System
from tableferry.resources.postgres import catalog, digest, health, record_digest, storage
from tableferry.resources.postgres.ddl import STATEMENTS
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.errors import is_transient
from tableferry.resources.postgres.overflow import PostgresOverflow
from tableferry.resources.postgres.server import PostgresServer
from tableferry.resources.postgres.source import PostgresSource, require_adbc
from tableferry.resources.postgres.target import PostgresTarget
from tableferry.resources.postgres.types import TYPES

SYSTEM = System(
    name="postgres",
    title="PostgreSQL",
    resource=PostgresServer,
    dagster="tableferry.resources.postgres.resource:PostgresResource",
    schemes={"postgresql": Scheme(5432), "postgres": Scheme(5432)},
    database="postgres",
    libpq=True,
    dialect=DIALECT,
    types=TYPES,
    digest=digest,
    overflow=PostgresOverflow(),
    record_digest=record_digest.EXPECTED,
    is_transient=is_transient,
    inspection=Inspection(
        health=health.findings,
        unique_by=catalog.unique_by,
        withheld=catalog.withheld,
        refused=storage.distributed,
    ),
    source=PostgresSource(),
    loader=Loader(
        PostgresTarget,
        accepts=("pgcopy", "copy_text", "arrow"),
        deltas=True,
        delta_share=0.05,
        updates_in_place=True,
        removes=True,
        orders_key=STATEMENTS.orders,
        require_tools=require_adbc,
    ),
)
