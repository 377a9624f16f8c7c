"""SQL Server, and Babelfish: a source and a target of rows."""

from __future__ import annotations

from resources.server import Scheme
from resources.sqlserver import digest
from resources.sqlserver.catalog import hidden
from resources.sqlserver.ddl import indexable
from resources.sqlserver.dialect import SqlServerDialect
from resources.sqlserver.errors import verdict
from resources.sqlserver.health import findings
from resources.sqlserver.overflow import SqlServerOverflow
from resources.sqlserver.server import SqlServerServer
from resources.sqlserver.source import SqlServerSource, require_bcp
from resources.sqlserver.target import SqlServerTarget, rehearsal
from resources.sqlserver.types import TYPES
from resources.system import Loader, System

SYSTEM = System(
    name="sqlserver",
    title="SQL Server",
    resource=SqlServerServer,
    dagster="resources.sqlserver.resource:SqlServerResource",
    schemes={"mssql": Scheme(1433), "sqlserver": Scheme(1433)},
    database="master",
    dialect=SqlServerDialect(),
    types=TYPES,
    digest=digest,
    overflow=SqlServerOverflow(),
    verdict=verdict,
    health=findings,
    hidden=hidden,
    source=SqlServerSource(),
    loader=Loader(
        SqlServerTarget,
        accepts=("arrow", "delimited"),
        orders_key=lambda plan: indexable(plan.key.target),
        require_tools=require_bcp,
        rehearsals={"delimited": rehearsal},
    ),
)
