"""The databases' own bulk tools, simply connected: they plan, check and record nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode

from tableferry.resources.clickhouse.settings import INSERT
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import InputError
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.postgres.ddl import STATEMENTS as POSTGRES
from tableferry.resources.registry import system
from tableferry.resources.sqlserver.bcp_tool import find_tool
from tableferry.resources.sqlserver.ddl import STATEMENTS
from tableferry_bench.contenders.base import (
    POSTGRES_POSTGRES,
    POSTGRES_SQLSERVER,
    SQLSERVER_CLICKHOUSE,
    Contender,
    Outcome,
    create_in_clickhouse,
    needs,
    planned,
    private,
)
from tableferry_bench.meter import Command, Finished
from tableferry_bench.servers import Servers
from tableferry_bench.workloads import Table

EVERYTHING = KeyRange("integer")

CURL = (
    'curl --silent --show-error --fail-with-body -K "$CURL_CONFIG" '
    # --data-binary would take all rows into memory first
    "--request POST --header Expect: --upload-file -"
)
"""Login and address are in a file for its owner's eyes: command lines are for all to see."""


class Pipe(Contender):
    """`psql COPY | curl`: what a user would write at first, and as fast as the servers go."""

    name = "psql-curl"

    def missing(self, servers: Servers) -> str | None:
        return super().missing(servers) or needs("bash", "psql", "curl")

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        plan = _into_clickhouse(self, servers, table)
        script = f'psql -X -q -v ON_ERROR_STOP=1 -c "$COPY" | {CURL}'
        copy = f"COPY (SELECT {_columns(plan)} FROM {qualified(plan.source)}) TO STDOUT"
        return [bash(script, servers, CURL_CONFIG=str(self._config(servers, plan)), COPY=copy)]

    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        return self.arrived(servers, table)

    def _config(self, servers: Servers, plan: CopyPlan) -> Path:
        names = ", ".join(system("clickhouse").quote(column.name) for column in plan.target_columns)
        query = f"INSERT INTO {qualified(plan.target)} ({names}) FORMAT TabSeparated"
        return curl_config(servers, self.name, query)


class Pull(Pipe):
    """`INSERT ... SELECT FROM postgresql(...)`: ClickHouse reads by itself."""

    name = "clickhouse-pull"

    def missing(self, servers: Servers) -> str | None:
        return Contender.missing(self, servers) or needs("bash", "curl")

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        plan = _into_clickhouse(self, servers, table)
        source = servers.settings["postgres"]
        place = [
            f"{source.host}:{source.port}",
            source.database,
            plan.source.name,
            source.user or "",
            source.password or "",
            plan.source.schema,
        ]
        arguments = ", ".join(system("clickhouse").dialect.literal(text) for text in place)
        query = (
            f"INSERT INTO {qualified(plan.target)} SELECT {_columns(plan)} "
            f"FROM postgresql({arguments})"
        )
        config = curl_config(servers, self.name, "")
        return [bash(CURL, servers, CURL_CONFIG=str(config), stdin=query)]


class CopyPipe(Contender):
    """`psql COPY binary | psql COPY binary`, into a table with its primary key."""

    name = "psql-psql"
    route = POSTGRES_POSTGRES

    def missing(self, servers: Servers) -> str | None:
        return super().missing(servers) or needs("bash", "psql")

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        target = self.target(servers, table, "postgres")
        plan = planned(servers, servers.table("postgres", table.name), target, table.key)
        servers.drop(target)
        for statement in POSTGRES.create_table(plan, target):
            servers.execute("postgres", statement)
        psql = "psql -X -q -v ON_ERROR_STOP=1 -c"
        names = f"({_columns(plan)})"
        return [
            bash(
                f'{psql} "$OUT" | {psql} "$IN"',
                servers,
                OUT=f"COPY {qualified(plan.source)} {names} TO STDOUT (FORMAT binary)",
                IN=f"COPY {qualified(target)} {names} FROM STDIN (FORMAT binary)",
            )
        ]

    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        return self.arrived(servers, table, "postgres")


class FreebcpIn(Contender):
    """`psql COPY | freebcp in`: whatever bcp's character mode makes of the values."""

    name = "psql-freebcp"
    route = POSTGRES_SQLSERVER

    def missing(self, servers: Servers) -> str | None:
        return super().missing(servers) or needs("bash", "psql", "mkfifo") or _no_freebcp(servers)

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        target = self.target(servers, table, "sqlserver")
        plan = planned(servers, servers.table("postgres", table.name), target, table.key)
        servers.drop(target)
        for statement in STATEMENTS.create_table(plan, target):
            # its character mode knows no offsets
            servers.execute("sqlserver", statement.replace("datetimeoffset", "datetime2"))
        values = ", ".join(
            _for_bcp(column.source.name, column.source.type) for column in plan.columns
        )
        copy = f"COPY (SELECT {values} FROM {qualified(plan.source)}) TO STDOUT WITH (NULL '')"
        script = 'psql -X -q -v ON_ERROR_STOP=1 -c "$COPY" > pipe & "$@" && wait $!'
        return [_freebcp(self, servers, qualified(target), "in", script, COPY=copy)]

    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        return self.arrived(servers, table, "sqlserver")


class FreebcpOut(Contender):
    """`freebcp queryout | curl`, with the query that formats every column for ClickHouse."""

    name = "freebcp-curl"
    route = SQLSERVER_CLICKHOUSE

    def missing(self, servers: Servers) -> str | None:
        return super().missing(servers) or needs("bash", "curl", "mkfifo") or _no_freebcp(servers)

    def set_up(self, servers: Servers, table: Table) -> None:
        """Get the rows into SQL Server, by Tableferry."""
        from tableferry_bench.contenders.ferry import Ferry
        from tableferry_bench.meter import require_good, run

        first = Ferry("to-sqlserver", "", POSTGRES_SQLSERVER)
        for command in first.commands(servers, table):
            require_good(run(command), "ferry run", servers.secrets)
        self._loaded = first.target(servers, table, "sqlserver")

    def commands(self, servers: Servers, table: Table) -> Sequence[Command]:
        plan = planned(servers, self._loaded, self.target(servers, table), table.key)
        create_in_clickhouse(servers, plan)
        names = ", ".join(system("clickhouse").quote(column.name) for column in plan.target_columns)
        query = f"INSERT INTO {qualified(plan.target)} ({names}) FORMAT TabSeparated"
        config = curl_config(servers, self.name, query)
        script = f'{CURL} < pipe & "$@" && wait $!'
        sql = plan.select(EVERYTHING, "text")
        return [_freebcp(self, servers, sql, "queryout", script, CURL_CONFIG=str(config))]

    def outcome(self, servers: Servers, table: Table, done: Sequence[Finished]) -> Outcome:
        return self.arrived(servers, table)

    def clean_up(self, servers: Servers, table: Table) -> None:
        super().clean_up(servers, table)
        servers.drop(self._loaded)


def libpq(settings: ConnectionSettings) -> dict[str, str]:
    """The variables by which libpq's programs know where to go."""
    options = {f"PG{name.upper()}": value for name, value in settings.options.items()}
    return options | {
        "PGHOST": settings.host,
        "PGPORT": str(settings.port),
        "PGDATABASE": settings.database,
        "PGUSER": settings.user or "",
        "PGPASSWORD": settings.password or "",
        "PGTZ": "UTC",
    }


def curl_config(servers: Servers, name: str, query: str) -> Path:
    """Where curl posts to, with the login; a body that is a whole statement has no query."""
    settings = servers.settings["clickhouse"]
    scheme = "https" if settings.options.get("secure") == "yes" else "http"
    given = {"database": settings.database, **{one: str(value) for one, value in INSERT.items()}}
    if query:
        given["query"] = query
    lines = [
        f'url = "{scheme}://{settings.host}:{settings.port}/?{urlencode(given)}"',
        f'header = "X-ClickHouse-User: {settings.user or "default"}"',
        f'header = "X-ClickHouse-Key: {settings.password or ""}"',
    ]
    if settings.options.get("verify") == "no":
        lines.append("insecure")
    path = servers.folder / f"{name}.curl"
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _into_clickhouse(one: Contender, servers: Servers, table: Table) -> CopyPlan:
    source, target = servers.table("postgres", table.name), one.target(servers, table)
    plan = planned(servers, source, target, table.key)
    create_in_clickhouse(servers, plan)
    return plan


def _columns(plan: CopyPlan) -> str:
    return ", ".join(system("postgres").quote(column.source.name) for column in plan.columns)


def bash(script: str, servers: Servers, *, stdin: str = "", **variables: str) -> Command:
    """A script that finds PostgreSQL by libpq's variables."""
    environment = {**servers.environment, **libpq(servers.settings["postgres"]), **variables}
    return Command(["bash", "-o", "pipefail", "-c", script], environment, stdin)


def _no_freebcp(servers: Servers) -> str | None:
    try:
        tool = find_tool()
    except InputError:
        return needs("freebcp")
    if tool.kind != "freebcp":
        return "Microsoft's bcp takes its password from a terminal only; needs freebcp"
    return None


def _freebcp(
    one: Contender, servers: Servers, what: str, direction: str, script: str, **variables: str
) -> Command:
    """freebcp on a named pipe, which the script connects with something."""
    assert servers.sqlserver is not None
    folder = private(servers.folder / one.name)
    settings, how = servers.sqlserver.settings(), servers.sqlserver.encryption()
    tool = find_tool()
    (folder / "freetds.conf").write_text(tool.configuration(settings, how), encoding="utf-8")
    way = "in" if direction == "in" else "queryout"
    argv = tool.command(what, way, Path("pipe"), None, servers.sqlserver.login(), how)  # type: ignore[arg-type]
    if direction == "in":
        argv += ["-b", "100000"]
    environment: Mapping[str, str] = {
        **servers.environment,
        **libpq(servers.settings["postgres"]),
        "FREETDSCONF": str(folder / "freetds.conf"),
        "LC_ALL": "C.UTF-8",  # in another locale freebcp writes question marks and ends with 0
        **variables,
    }

    command = ["bash", "-o", "pipefail", "-c", f"mkfifo pipe && {script}", "bash", *argv]
    return Command(command, environment, f"{settings.password or ''}\n", folder)


def _for_bcp(name: str, type_: str) -> str:
    quoted = system("postgres").quote(name)
    if type_ == "boolean":
        return f"{quoted}::int"
    if type_ == "timestamp with time zone":
        return f"{quoted} AT TIME ZONE 'UTC'"
    return quoted


PIPES = (Pipe, Pull, CopyPipe, FreebcpIn, FreebcpOut)
