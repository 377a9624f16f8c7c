"""Tables of extensions that keep rows elsewhere than PostgreSQL: Citus, and TimescaleDB.

Both are asked by what they document, and only where it is there: the first query is one of
PostgreSQL's own catalog.
"""

from __future__ import annotations

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.postgres.names import about
from tableferry.resources.postgres.storage import BELOW
from tableferry.resources.tables import TableRef

PRESENT_SQL = """
SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL,
    to_regclass('timescaledb_information.hypertables') IS NOT NULL
"""

# those of the coordinator alone have neither; see the view `citus_tables`
DISTRIBUTED_SQL = f"""
{BELOW}
SELECT DISTINCT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM below JOIN pg_catalog.pg_dist_partition d ON d.logicalrelid = below.oid
JOIN pg_class c ON c.oid = below.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE d.partkey IS NOT NULL OR d.repmodel = 't' OR d.colocationid <> 0
ORDER BY 1
"""

TIMESCALE_SQL = """
SELECT 'hypertable' FROM timescaledb_information.hypertables
WHERE hypertable_schema = {schema} AND hypertable_name = {name}
UNION ALL
SELECT 'continuous aggregate' FROM timescaledb_information.continuous_aggregates
WHERE view_schema = {schema} AND view_name = {name}
"""


def distributed(endpoint: Endpoint, table: TableRef) -> str | None:
    """Say why a table of Citus, or a view of one, is refused; None for all others.

    https://github.com/citusdata/citus/pull/6489
    """
    citus, _ = _present(endpoint)
    names = [name for (name,) in endpoint.query(about(DISTRIBUTED_SQL, table))] if citus else []
    if not names:
        return None
    return (
        f"{', '.join(names)} is distributed by Citus: a snapshot of the coordinator is none of its "
        "workers, so that a range would be read, and seen by readers, in states of different "
        "moments; move tables of the workers, or a copy in a local table"
    )


def of_timescale(endpoint: Endpoint, table: TableRef) -> str | None:
    """Say what a table of TimescaleDB is, and what follows; None if it is none."""
    _, timescale = _present(endpoint)
    rows = endpoint.query(about(TIMESCALE_SQL, table)) if timescale else []
    if not rows:
        return None
    if rows[0][0] == "hypertable":
        return (
            "a hypertable of TimescaleDB, which is untried: its chunks are moved with it, and the "
            "target gets no primary key. Rows of compressed chunks have no versions, so that a "
            "changed range is found by its content; a chunk that is compressed or decompressed "
            "during a run makes it read anew"
        )
    return (
        "a continuous aggregate of TimescaleDB, which is untried: what a query of it shows is "
        "moved, and a refresh may change that"
    )


def _present(endpoint: Endpoint) -> tuple[bool, bool]:
    """Whether there are Citus and TimescaleDB."""

    def ask() -> tuple[bool, bool]:
        ((citus, timescale),) = endpoint.query(PRESENT_SQL)
        return bool(citus), bool(timescale)

    return endpoint.settings().facts.known("extensions", ask)
