"""The checks of `ferry doctor` for a ClickHouse."""

from __future__ import annotations

from collections.abc import Iterator

from tableferry.resources.clickhouse.cluster import require_place
from tableferry.resources.clickhouse.dialect import DIALECT, literal
from tableferry.resources.clickhouse.layout import layouts_of
from tableferry.resources.clickhouse.policies import ACCESS_DENIED, policies_of, user_of
from tableferry.resources.clickhouse.server import ClickHouseServer, databases
from tableferry.resources.connecting import health
from tableferry.resources.connecting.health import examine
from tableferry.resources.contract.catalog import Finding, Use
from tableferry.resources.contract.looking_ahead import groups
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.tables import TableRef

ON_DATABASE = (
    *("SELECT", "INSERT", "CREATE TABLE", "DROP TABLE"),
    *("ALTER COLUMN", "ALTER SETTINGS", "ALTER DELETE"),
)
"""Privileges that loading needs in a target's database; docs/operations.md says for what."""

EVERYWHERE = ("TABLE ENGINE ON MergeTree", "TABLE ENGINE ON Null", "SELECT ON system.parts")
OF_CLUSTERS = (
    *("TABLE ENGINE ON ReplicatedMergeTree", "SELECT ON system.clusters"),
    *("CLUSTER ON *.*", "REMOTE ON *.*"),
)
OF_OTHERWISE_PARTITIONED = "SELECT ON system.processes"

VERIFY = "Use https:// without verify=no; ?ca_cert=/path/ca.pem names an authority."


def findings(resource: ClickHouseServer, use: Use) -> Iterator[Finding]:
    """See `System.health`."""
    now = "SELECT toUnixTimestamp64Milli(now64(3)) / 1000"
    return health.asked(
        [
            ("version", lambda: [Finding("version", "ok", f"ClickHouse {resource.ping()}")]),
            ("servers", lambda: _servers(resource)),
            ("targets", lambda: _targets(resource, use)),
            ("login", lambda: [_login(resource)]),
            ("TLS", lambda: _encryption(resource)),
            ("privileges", lambda: _privileges(resource, use)),
            ("row security", lambda: _policies(resource, use)),
            ("disk", lambda: _disks(resource)),
            ("clock", lambda: health.clock(resource, now)),
        ]
    )


def _servers(resource: ClickHouseServer) -> Iterator[Finding]:
    try:
        answering = resource.answering()
    except InputError as error:
        yield Finding("servers", "problem", str(error))
        return
    clusters = [
        f"{cluster} of {shards} x {replicas}"
        for cluster, shards, replicas in resource.query(
            "SELECT cluster, uniqExact(shard_num), max(replica_num) FROM system.clusters "
            "GROUP BY cluster HAVING count() > 1 ORDER BY cluster"
        )
    ]
    if clusters:
        by = "answers" if len(answering) == 1 else "answer"
        says = f"{', '.join(answering)} {by}; clusters (shards x replicas): {', '.join(clusters)}"
        yield Finding("servers", "note", says, ())


def _targets(resource: ClickHouseServer, use: Use) -> Iterator[Finding]:
    cluster = resource.clustered()
    engines = databases(resource)
    for tables in groups(use.writes):
        layouts = layouts_of(resource, tables)
        for table in tables:
            engine = layouts[table].engine_full if table in layouts else ""
            try:
                require_place(
                    resource,
                    table,
                    engine=engine,
                    database_engine=engines.get(table.schema, ""),
                    cluster=cluster.name if cluster else None,
                )
            except InputError as error:
                yield Finding("targets", "problem", str(error))


def _login(resource: ClickHouseServer) -> Finding:
    settings = resource.settings()
    how = resource.login(settings)
    by = settings.secret("token" if how.token else "password")
    if how.certificate and not settings.has_password:
        by = "a client certificate"
    return health.login(str(resource.query("SELECT currentUser()")[0][0]), by)


def _encryption(resource: ClickHouseServer) -> Iterator[Finding]:
    settings = resource.settings()
    secure, verify, authority = resource.encryption()
    yield from health.encryption(
        settings.host,
        "HTTPS" if secure else None,
        verified=verify,
        certificate=examine(settings.host, settings.port, authority=authority) if secure else None,
        do=VERIFY,
    )


def _privileges(resource: ClickHouseServer, use: Use) -> Iterator[Finding]:
    user, readonly = resource.query("SELECT currentUser(), getSetting('readonly')")[0]
    if int(readonly):
        says = f"{user} has a profile with readonly = {readonly}, which refuses inserts"
        yield Finding("privileges", "problem", says, ("Give it a profile with readonly = 0.",))
    databases = list(dict.fromkeys(table.schema for table in use.writes))
    known = {name for (name,) in resource.query("SELECT name FROM system.databases")}
    for name in databases:
        if name not in known:
            do = f"CREATE DATABASE {DIALECT.quote(name)};"
            says = f"there is no database {literal(name)}, or it is hidden"
            yield Finding("database", "problem", says, (do,))
    needed = _needed(resource, use)
    missing = [right for right in needed if not resource.query(f"CHECK GRANT {right}")[0][0]]
    missing += [f"SELECT ON {qualified(table)}" for table in _unreadable(resource, use)]
    grants = [f"GRANT {right} TO {DIALECT.quote(user)};" for right in missing]
    yield from health.privileges(str(user), grants, len({*use.reads, *use.writes}))


def _needed(resource: ClickHouseServer, use: Use) -> list[str]:
    """What a login needs to write to its targets."""
    if not use.writes:
        return []
    databases = dict.fromkeys(table.schema for table in use.writes)
    needed = [f"{right} ON {DIALECT.quote(name)}.*" for name in databases for right in ON_DATABASE]
    needed += EVERYWHERE
    if resource.clustered():
        needed += OF_CLUSTERS
    there = [layouts_of(resource, tables) for tables in groups(use.writes)]
    if not all(layout.atomic for layouts in there for layout in layouts.values()):
        needed.append(OF_OTHERWISE_PARTITIONED)
    return needed


def _unreadable(resource: ClickHouseServer, use: Use) -> Iterator[TableRef]:
    """Yield the sources of which the login may read no column at all."""
    written = {table.schema for table in use.writes}
    for table in use.reads:
        if table.schema not in written and not table.query:
            try:
                resource.query(f"SELECT 1 FROM {qualified(table)} LIMIT 0")
            except StatementFailed as error:
                if str(error.code) == ACCESS_DENIED:
                    yield table


def _policies(resource: ClickHouseServer, use: Use) -> Iterator[Finding]:
    for tables in groups((*use.reads, *use.writes)):
        messages = policies_of(resource, tables)
        for table, why in messages.items():
            if why:
                yield Finding("row security", "warning", f"{table}: {why}", ())
        if len(messages) < len(tables):
            user = user_of(resource)
            says = f"{user} may not see whether row policies hide rows of its tables"
            do = f"GRANT SHOW ROW POLICIES ON *.* TO {user};"
            yield Finding("row security", "note", says, (do,))
            return


def _disks(resource: ClickHouseServer) -> Iterator[Finding]:
    for name, free, total in resource.query(
        "SELECT name, free_space, total_space FROM system.disks ORDER BY name"
    ):
        yield health.disk(str(name), int(free), int(total))
