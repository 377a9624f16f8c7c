"""PostgreSQL: a source and a target of rows."""

from __future__ import annotations

from resources.postgres import digest, record_digest
from resources.postgres.catalog import hidden, unique_by
from resources.postgres.ddl import STATEMENTS
from resources.postgres.dialect import PostgresDialect
from resources.postgres.errors import verdict
from resources.postgres.health import findings
from resources.postgres.overflow import PostgresOverflow
from resources.postgres.server import PostgresServer
from resources.postgres.source import PostgresSource
from resources.postgres.target import PostgresTarget
from resources.postgres.types import TYPES
from resources.server import Scheme
from resources.system import Loader, System

SYSTEM = System(
    name="postgres",
    title="PostgreSQL",
    resource=PostgresServer,
    dagster="resources.postgres.resource:PostgresResource",
    schemes={"postgresql": Scheme(5432), "postgres": Scheme(5432)},
    database="postgres",
    dialect=PostgresDialect(),
    types=TYPES,
    digest=digest,
    overflow=PostgresOverflow(),
    record_digest=record_digest,
    verdict=verdict,
    health=findings,
    unique_by=unique_by,
    hidden=hidden,
    source=PostgresSource(),
    loader=Loader(
        PostgresTarget, accepts=("pgcopy", "copy_text", "arrow"), orders_key=STATEMENTS.orders
    ),
)
