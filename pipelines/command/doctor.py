"""`ferry doctor`: the servers, and what they make of values at the edges of their types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assets.planning.resolve import Servers
from resources.clickhouse.resource import ClickHouseResource
from resources.errors import InputError, TableferryError
from resources.plan import WireFormat
from resources.postgres.resource import PostgresResource
from resources.sqlserver.resource import SqlServerResource
from resources.tables import Column, System, TableRef
from resources.types.planner import plan_copy
from resources.wires import wrong_values

WIRES: dict[System, Sequence[tuple[WireFormat, System]]] = {
    "postgres": (("text", "clickhouse"), ("text", "sqlserver")),
    "sqlserver": (("arrow", "clickhouse"), ("text", "clickhouse")),
    "clickhouse": (),
}
"""The wire formats out of each system that are probed, and where they lead. PostgreSQL's `arrow` is
its own binary format, which no server prints."""

TYPES: dict[System, Sequence[str]] = {
    "postgres": (
        *("boolean", "smallint", "integer", "bigint", "numeric(38,10)", "numeric(18,0)", "real"),
        *("double precision", "text", "character(10)", "character varying(40)", "date", "uuid"),
        *("timestamp without time zone", "timestamp with time zone"),
        *("timestamp(3) without time zone", "time(3) without time zone"),
    ),
    "sqlserver": (
        *("bit", "tinyint", "smallint", "int", "bigint", "decimal(38,10)", "decimal(18,0)"),
        *("money", "smallmoney", "float(53)", "real", "char(10)", "varchar(40)", "varchar(max)"),
        *("nchar(10)", "nvarchar(40)", "nvarchar(4000)", "nvarchar(max)", "date", "time(0)"),
        *("time(3)", "time(7)", "datetime", "smalldatetime", "datetime2(0)", "datetime2(3)"),
        *("datetime2(6)", "datetime2(7)", "datetimeoffset(0)", "datetimeoffset(3)"),
        *("datetimeoffset(6)", "datetimeoffset(7)", "uniqueidentifier"),
    ),
    "clickhouse": (),
}
"""Column types that are sent by way of example; planning sends those of the transfer."""

NOT_AVAILABLE = "not available"


@dataclass(frozen=True)
class WireHealth:
    """One wire format out of a server."""

    wire: WireFormat
    to: System
    wrong: tuple[str, ...] = ()
    """Values that did not come out as they must."""
    unavailable: str | None = None
    """Why it could not be tried, though nothing is wrong: a tool is not installed."""
    error: str | None = None
    """Why it could not be tried."""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.wrong and self.error is None

    def json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "wire": self.wire,
            "to": self.to,
            "ok": self.good,
            "wrong": list(self.wrong),
            "unavailable": self.unavailable,
            "error": self.error,
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        label = f"wire {self.wire} to {self.to}"
        if self.error or self.unavailable:
            yield f"{label}: {self.error or f'{NOT_AVAILABLE}: {self.unavailable}'}"
        elif not self.wrong:
            yield f"{label}: exact"
        else:
            yield f"{label}: {len(self.wrong)} kinds of values come out wrong"
            yield from (f"  {one}" for one in self.wrong)


@dataclass(frozen=True)
class ServerHealth:
    """One configured server."""

    name: System
    address: str
    version: str | None = None
    error: str | None = None
    """Why it cannot be reached."""
    wires: tuple[WireHealth, ...] = ()

    @property
    def good(self) -> bool:
        """Whether it can be reached, and none of its wires is wrong."""
        return self.error is None and all(wire.good for wire in self.wires)

    def json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "name": self.name,
            "address": self.address,
            "ok": self.good,
            "reachable": self.error is None,
            "version": self.version,
            "error": self.error,
            "wires": [wire.json() for wire in self.wires],
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.address}: {self.version}" if self.error is None else self.error
        for wire in self.wires:
            yield from (f"  {line}" for line in wire.lines())


def examine(servers: Servers, configured: Sequence[System]) -> list[ServerHealth]:
    """Reach every configured server, and probe its wires.

    Args:
        servers: where they are.
        configured: those that the environment names.
    """
    return [_server(servers, name) for name in configured]


def _server(servers: Servers, name: System) -> ServerHealth:
    resource: PostgresResource | SqlServerResource | ClickHouseResource = getattr(servers, name)
    address = str(resource.settings())
    try:
        version = resource.ping()
    except TableferryError as error:
        return ServerHealth(name, address, error=str(error))
    return ServerHealth(name, address, version, wires=tuple(_wires(servers, name)))


def _wires(servers: Servers, name: System) -> Iterator[WireHealth]:
    key = Column("id", "integer" if name == "postgres" else "int", nullable=False)
    columns = [
        key,
        *(Column(f"c{number}", type_) for number, type_ in enumerate(TYPES[name], start=1)),
    ]
    for wire, to in WIRES[name]:
        if wire == "text" and "sqlserver" in (name, to):
            try:
                servers.sqlserver.bcp_tool()
            except InputError as error:
                yield WireHealth(wire, to, unavailable=str(error))
                continue
        plan = plan_copy(
            TableRef(name, "doctor", "types"),
            columns,
            TableRef(to, "doctor", "types"),
            key="id",
            # a release without the long calendar has values to refuse
            target_version="26.7",
        )
        source = servers.postgres if name == "postgres" else servers.sqlserver
        try:
            wrong = wrong_values(source, wire, plan)
        except TableferryError as error:
            yield WireHealth(wire, to, error=str(error))
        else:
            yield WireHealth(wire, to, tuple(map(str, wrong)))
