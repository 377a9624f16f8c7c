"""SQL Server, and Babelfish: a source and a target of rows."""

from __future__ import annotations

from tableferry.resources.contract.catalog import Inspection
from tableferry.resources.contract.loader import Loader
from tableferry.resources.contract.settings import Scheme
from tableferry.resources.contract.system import System
from tableferry.resources.sqlserver import ddl, digest, health, policies
from tableferry.resources.sqlserver.dialect import DIALECT
from tableferry.resources.sqlserver.errors import is_transient
from tableferry.resources.sqlserver.overflow import SqlServerOverflow
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.sqlserver.source import SqlServerSource, require_bcp
from tableferry.resources.sqlserver.target import SqlServerTarget
from tableferry.resources.sqlserver.trial import rehearsal, shut_out, trial
from tableferry.resources.sqlserver.types import TYPES

SYSTEM = System(
    name="sqlserver",
    title="SQL Server",
    resource=SqlServerServer,
    extra="sqlserver",
    dagster="tableferry.resources.sqlserver.resource:SqlServerResource",
    schemes={"mssql": Scheme(1433), "sqlserver": Scheme(1433)},
    database="master",
    dialect=DIALECT,
    types=TYPES,
    digest=digest,
    slow_digests=("nvarchar",),
    overflow=SqlServerOverflow(),
    is_transient=is_transient,
    inspection=Inspection(health=health.findings, withheld=policies.withheld),
    source=SqlServerSource(),
    loader=Loader(
        SqlServerTarget,
        accepts=("arrow", "delimited"),
        deltas=True,
        delta_share=0.1,
        updates_in_place=True,
        removes=True,
        orders_key=lambda plan: ddl.indexable(plan.key.target),
        require_tools=require_bcp,
        rehearsals={"delimited": rehearsal},
        shut_out=shut_out,
        trial=trial,
    ),
)
