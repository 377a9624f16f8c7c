"""What can be seen of a PostgreSQL server that others use, besides the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping

_OWN = "application_name = current_setting('application_name') AND usename = current_user"

SIGNALS: Mapping[str, str] = {
    "active_sessions": f"""
SELECT CASE WHEN bool_or(query = '<insufficient privilege>') THEN NULL
    ELSE count(*) FILTER (WHERE state = 'active' AND backend_type = 'client backend'
        AND NOT ({_OWN})) END
FROM pg_catalog.pg_stat_activity
""",
    "replica_lag": """
SELECT CASE WHEN pg_is_in_recovery() THEN
    CASE WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
    ELSE coalesce(extract(epoch FROM now() - pg_last_xact_replay_timestamp()), 0) END
ELSE (SELECT CASE WHEN bool_or(state IS NULL) THEN NULL
    ELSE coalesce(max(extract(epoch FROM replay_lag)), 0) END FROM pg_catalog.pg_stat_replication)
END
""",
    "oldest_xmin": f"""
SELECT greatest(0, (SELECT max(age(backend_xmin)) FROM pg_catalog.pg_stat_activity
        WHERE backend_type IS DISTINCT FROM 'walsender' AND NOT coalesce({_OWN}, false)),
    (SELECT max(greatest(age(xmin), age(catalog_xmin))) FROM pg_catalog.pg_replication_slots),
    (SELECT max(age(transaction)) FROM pg_catalog.pg_prepared_xacts))
""",
}
"""What others do, without Tableferry's sessions of the same login and application name: the
sessions of clients that run a statement, the seconds that replicas are behind (of a standby: how
far it is behind itself), and the age in transactions of the oldest one whose dead rows VACUUM has
to keep. NULL where the login may not see it.
https://www.postgresql.org/docs/current/monitoring-stats.html"""

SCATTERED_SQL = """
SELECT max(abs(s.correlation)) < 0.9
FROM pg_catalog.pg_stats s
WHERE s.schemaname = {schema} AND s.tablename = {name} AND s.attname = {key}
"""
"""https://www.postgresql.org/docs/current/view-pg-stats.html"""
