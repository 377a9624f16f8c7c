"""Server addresses and logins, from URLs or separate fields; secrets are never printed."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from tableferry.resources import registry
from tableferry.resources.connecting import passwords
from tableferry.resources.connecting.gate import Gate, gate
from tableferry.resources.connecting.guard import BusyWait, Waiting, guard, unheard
from tableferry.resources.connecting.names import LIMITS, budget_prefix, declared_budget
from tableferry.resources.contract.endpoint import NO_LIMITS
from tableferry.resources.contract.limits import (
    Budget,
    Sharing,
    SourceLimits,
    Value,
    parse,
    unshared,
)
from tableferry.resources.contract.looking_ahead import LookAhead, answer
from tableferry.resources.contract.settings import ConnectionSettings, DigestsBy
from tableferry.resources.contract.source import source_of
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError, TableMissing
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

Item = TypeVar("Item")


ENCODE = (
    "special characters in user, password and database should be percent-encoded: % as %25, "
    "@ as %40, : as %3A, / as %2F, ? as %3F, & as %26"
)

PASSWORD_OPTIONS = ("password_command", "password_command_seconds")
"""Fields of a server that may be options of its URL as well; no driver sees them."""

OWN_OPTIONS = (*PASSWORD_OPTIONS, "source_limits")

_SCHEME = re.compile(r"([a-z][a-z0-9+.:-]*)://", re.IGNORECASE)
_HOST = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]@]*)(?::(?P<port>\d*))?")


@functools.lru_cache(64)
def parse_url(system: System, url: str) -> ConnectionSettings:
    """Read a connection URL, e.g. `postgresql://user:pass@host:port/database?sslmode=require`.

    User, password and database may be percent-encoded; user and password may also be options. A
    missing port or database defaults to the system's usual one. For `System.libpq`, see there and
    https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS

    Raises:
        InputError: the URL has another scheme, no host, or an invalid port. The message does not
            repeat the URL, which may hold a password.
    """
    usual = next(iter(system.schemes))
    expected = f"a {system} URL should look like {usual}://user:pass@host:port/database"
    begin = _SCHEME.match(url)
    scheme = system.schemes.get(begin[1].lower()) if begin else None
    if begin is None or scheme is None:
        given = repr(begin[1]) if begin else "no scheme"
        raise InputError(f"{expected}; found {given} instead")
    parts = re.fullmatch(r"([^/?]*)(?:/([^?]*))?(?:\?(.*))?", url[begin.end() :], re.DOTALL)
    assert parts is not None
    named, path, query = (part or "" for part in parts.groups())
    given_options = dict(_option(part) for part in query.split("&") if part)
    login = {
        name: given_options.pop(name) for name in ("user", "password") if name in given_options
    }
    if "@" in path or any("@" in name + value for name, value in given_options.items()):
        # an unencoded / or ? in a password would end it: its rest would be database and options
        raise InputError(f"{expected}; {ENCODE}")
    userinfo, _, listed = named.rpartition("@")
    user, colon, password = userinfo.partition(":")
    database = unquote(path.strip("/"))
    if system.libpq:
        listed = _as_options_say(listed, given_options, expected)
        database = given_options.pop("dbname", database) or login.get("user") or unquote(user)
    hosts = [_host(host, scheme.port, expected) for host in listed.split(",")]
    if len(hosts) > 1 and not system.libpq:
        raise InputError(f"{expected}; it names {len(hosts)} hosts: name the one to use")
    (host, port), *more = hosts
    return ConnectionSettings(
        system=system.name,
        host=host,
        port=port,
        database=database or system.database,
        user=login.get("user", unquote(user) if userinfo else None),
        given_password=login.get("password", unquote(password) if colon else None),
        options={**scheme.options, **given_options},
        more_hosts=tuple(more),
    )


def _option(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return unquote(name), unquote(value)


def _as_options_say(listed: str, options: dict[str, str], expected: str) -> str:
    """Take `host` and `port` out of the options; return the hosts that they name."""
    hosts, ports = options.pop("host", ""), options.pop("port", "").split(",")
    named = [quote(host, safe="") for host in hosts.split(",")] if hosts else listed.split(",")
    if ports == [""]:
        return ",".join(named)
    ports = ports * len(named) if len(ports) == 1 else ports
    if len(ports) != len(named):
        raise InputError(f"{expected}; it names {len(named)} hosts and {len(ports)} ports")
    return ",".join(map(":".join, zip(named, ports, strict=True)))


def _host(text: str, port: int, expected: str) -> tuple[str, int]:
    match = _HOST.fullmatch(text)
    number = int(match["port"] or port) if match else 0
    if match is None or (match["port"] and not 0 < number < 65536):
        raise InputError(f"{expected}; its host or port cannot be read: {ENCODE}")
    host = unquote(match["host"].strip("[]"))
    if not host:
        raise InputError(f"{expected}; it names no host")
    if "\\" in host:
        raise InputError(f"{expected}; instead of a named instance, name its port")
    return host, number


class Variable(str):
    """The name of an environment variable that holds a field's value, like Dagster's `EnvVar`."""

    @property
    def env_var_name(self) -> str:
        return str(self)

    def get_value(self) -> str | None:
        return os.environ.get(self)


class Server(BaseModel):
    """The fields that servers of all systems share: a URL, or separate fields, which override it.

    Each may be a `Variable`, which is read when the server is used. The files of `url_file` and
    `password_file` are read for every new connection, so that a new password needs no restart; the
    program of `password_command` is asked again after a time, and after a refused login.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    system_name: ClassVar[str]
    gone: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Fields and options of the URL that are there no more, and what to do instead."""

    url: str | None = Field(default=None, repr=False, description="Connection URL.")
    url_file: str | None = Field(default=None, description="File that holds the connection URL.")
    host: str | None = Field(default=None, description="Host name or address.")
    port: int | None = Field(default=None, description="TCP port.")
    user: str | None = Field(default=None, repr=False, description="Login name.")
    password: str | None = Field(default=None, repr=False, description="Password; use EnvVar.")
    password_file: str | None = Field(default=None, description="File that holds the password.")
    password_command: str | None = Field(
        default=None,
        repr=False,
        description="Program that prints the password, run without a shell.",
    )
    password_command_seconds: float | None = Field(
        default=None, description="For how long what it printed is used again (300)."
    )
    password_provider: str | None = Field(
        default=None,
        description="Object that gives the password when called, or by its method get_token; or "
        "its name, module:attribute.",
    )
    database: str | None = Field(default=None, description="Database name.")
    max_connections: int | None = Field(
        default=None, description="The most connections of all runs that read from it."
    )
    max_mb_per_second: float | None = Field(
        default=None, description="The most megabytes per second that all runs read from it."
    )
    source_limits: str | None = Field(
        default=None,
        description="Limits for reading from it, e.g. longest_statement=2s; active_sessions=50.",
    )

    _policies_apply: bool = PrivateAttr(default=False)
    """Whether tables are read as row-level security shows them; otherwise a table of which it
    hides rows is refused."""
    _ahead: LookAhead | None = PrivateAttr(default=None)

    _gate: Gate | None = PrivateAttr(default=None)
    """Lets connections be opened within a budget, see `within_budget`."""
    _guard: BusyWait | None = PrivateAttr(default=None)
    _limits: SourceLimits | None = PrivateAttr(default=None)

    def __init__(self, **values: Any) -> None:
        self._refuse_gone(values)
        if values.get("password_provider"):
            values["password_provider"] = passwords.named(values["password_provider"])
        super().__init__(**values)
        # pydantic has turned variables into plain strings
        variables = {name: value for name, value in values.items() if isinstance(value, Variable)}
        self.__dict__.update(variables)

    @property
    def system(self) -> System:
        """The server's system."""
        return registry.system(self.system_name)

    @property
    def has_address(self) -> bool:
        """Whether the server's address is given."""
        return bool(self.url or self.url_file or self.host)

    def under_policies(self) -> Self:
        """The server, read as its row-level security shows it instead of refusing such tables."""
        copy = self.model_copy()
        # the catalog may look different under policies
        copy._policies_apply, copy._ahead = True, None
        return copy

    def kept_by(self) -> str | None:
        """See `Endpoint.kept_by`."""
        return None

    def newest_versions(self) -> Self:
        """See `Endpoint.newest_versions`. Few systems keep several versions of a row."""
        return self

    @property
    def ahead(self) -> LookAhead | None:
        """What was read of the catalog ahead; None if each question is asked anew."""
        return self._ahead

    def looking_ahead(self, ahead: LookAhead) -> Self:
        """The server with a catalog that is read about many tables at once."""
        copy = self.model_copy()
        copy._ahead = ahead
        return copy

    def budget(self, connection: str) -> Budget | None:
        """Return what reading from the server may cost it; None if nothing bounds it.

        Args:
            connection: the name of the connection.

        Raises:
            InputError: a bound is no valid number, or the system has no connections.
        """
        connections, rate = self._value("max_connections"), self._value("max_mb_per_second")
        bounds = declared_budget(budget_prefix(connection), connections, rate)
        if bounds is not None and self.system.by_path:
            raise InputError(
                f"{connection} cannot have a budget ({bounds}): files are read without connections"
            )
        return bounds

    def declared_limits(self, connection: str) -> dict[str, Value]:
        """Return the limits that the connection declares: its variable, else the field or URL.

        Raises:
            InputError: they are invalid, or the system does not know one of them.
        """
        name, field = f"{budget_prefix(connection)}_{LIMITS}", "source_limits"
        variable, url = passwords.set_as(name), self._secret("url")
        text = os.environ[variable] if variable else self._value(field)
        if not text and url and field in url:
            text = parse_url(self.system, url).options.get(field)
        values = parse(text, variable or field) if text else {}
        if unknown := sorted(source_of(self.system).unlimited() & {*values}):
            raise InputError(
                f"{variable or field}: {self.system.title} has no {' and '.join(unknown)}"
            )
        return values

    def within_budget(
        self,
        connection: str,
        sharing: Sharing | None = None,
        limits: Mapping[str, Value] = NO_LIMITS,
    ) -> Self:
        """Return the server as a source that is read within the connection's budget and limits.

        Args:
            connection: the name of the connection.
            sharing: how processes share the budget; by default each has all of it.
            limits: those that a transfer declares; of both, the strictest hold.

        Raises:
            InputError: see `budget` and `declared_limits`.
        """
        bounds, declared = self.budget(connection), self.declared_limits(connection)
        copy = self.model_copy()
        if bounds is not None:
            # what a pooler lends each process is found out by each
            found = bounds.connections is None and bounds.rate is None
            copy._gate = gate(connection, bounds, unshared if found else sharing)
        if not self.system.by_path:
            copy._limits = SourceLimits.of(declared, limits)
            copy._guard = guard(connection, copy._limits) if copy._limits.above else None
        return copy

    @property
    def limits(self) -> SourceLimits | None:
        """The limits that it is read within; None if it is not read as a source."""
        return self._limits

    @property
    def asks_beside(self) -> bool:
        """Whether who reads from it can have another connection to ask something by."""
        return self._gate is None

    def guarded(self, waiting: Waiting = unheard, *, beside: bool = False) -> dict[str, float]:
        """See `Endpoint.guarded`."""
        limits, guard = self._limits, self._guard
        if guard is None or limits is None or (beside and not self.asks_beside):
            return {}
        return guard.wait(limits, source_of(self.system).signals, self.query, waiting)

    def columns(self, table: TableRef) -> list[Column]:
        """See `Endpoint.columns`."""
        columns = answer(self, _columns_of, table)
        if columns is None:
            raise self.missing(table)
        return columns

    def columns_of(self, tables: Sequence[TableRef]) -> dict[TableRef, list[Column]]:
        """See `Endpoint.columns_of`. A server overrides it, or `columns` if it is asked about each
        table alone."""
        columns: dict[TableRef, list[Column]] = {}
        for table in tables:
            with suppress(TableMissing):
                columns[table] = self.columns(table)
        return columns

    def query(self, sql: str, *, snapshot: str | None = None) -> list[tuple[Any, ...]]:
        """See `Endpoint.query`."""
        raise NotImplementedError

    @property
    def bounded(self) -> bool:
        """Whether it is read within a budget."""
        return self._gate is not None

    @property
    def shares_snapshots(self) -> bool:
        """Whether the budget leaves a connection to hold a snapshot beside one that reads."""
        return self._gate is None or self._gate.budget.has_snapshots

    def location_warning(self, table: TableRef) -> str | None:
        """Warn if another process might look for the table in another place."""
        return None

    def permit(self, *, ended: bool = False) -> AbstractContextManager[None]:
        """Hold the right to one connection that is closed at the end.

        Args:
            ended: whether the server is done with it then; otherwise it is given some time.
        """
        return self._gate.permit(ended=ended) if self._gate else nullcontext()

    def read_beside(self, other: object) -> AbstractContextManager[None]:
        """Hold the right to read two tables at the same time: one of this server, one of another.

        Of one budget, both connections are taken together: with each process having one of them,
        none would get its second.

        Raises:
            InputError: both are within one budget, of a single connection.
        """
        own = self._gate
        if own is None or not isinstance(other, Server) or other._gate is not own:
            return nullcontext()
        if not own.budget.has_snapshots:
            raise InputError(
                f"{own.connection} may have one connection only; to compare two of its tables "
                "takes two, one for each"
            )
        return own.holding()

    def keep_pace(self, size: int) -> None:
        """Wait for as long as bytes that were read should have taken by the budget."""
        if self._gate is not None:
            self._gate.keep_pace(size)

    def _paced(self, items: Iterator[Item], size: Callable[[Item], int]) -> Iterator[Item]:
        """Pass on what is read at the pace of the budget."""
        return self._gate.paced(items, size) if self._gate else items

    def settings(self) -> ConnectionSettings:
        """Merge the fields with those of the URL; nobody is asked for a password yet.

        Raises:
            InputError: neither `url` nor `host` is given, an environment variable is not set, the
                URL is invalid, or the file of the URL or the password cannot be used.
        """
        url, host = self._secret("url"), self._value("host")
        if url:
            base = parse_url(self.system, url)
        elif host:
            usual = next(iter(self.system.schemes.values()))
            base = ConnectionSettings(self.system_name, host, usual.port, self.system.database)
        else:
            raise InputError(f"the {self.system} resource should be given url or host")
        password = self._secret("password") or base.given_password
        command = self._password_command(base.options)
        if command is not None and password is not None:
            raise InputError(
                f"{command.named_by} of {base.address}: the password is given as well; one of them "
                "should be"
            )
        return ConnectionSettings(
            system=self.system_name,
            host=host or base.host,
            port=int(self._value("port") or base.port),
            database=self._value("database") or base.database,
            user=self._value("user") or base.user,
            given_password=password,
            options={k: v for k, v in base.options.items() if k not in OWN_OPTIONS},
            more_hosts=() if host else base.more_hosts,
            password_source=command,
            variable=getattr(self.host or self.url or self.url_file, "env_var_name", None),
        )

    def _password_command(self, options: Mapping[str, str]) -> passwords.PasswordCommand | None:
        field, kept = PASSWORD_OPTIONS
        command, seconds = self._value(field), self._value(kept)
        command, provider = command or options.get(field), self._value("password_provider")
        if command and provider:
            raise InputError(f"the {self.system} resource was given {field} and password_provider")
        seconds = passwords.kept_seconds(
            options.get(kept, passwords.KEPT_SECONDS) if seconds is None else seconds, kept
        )
        if provider:
            return passwords.PasswordProvider(provider, "password_provider", seconds)
        if not command:
            return None
        variable = getattr(getattr(self, field), "env_var_name", None)
        return passwords.PasswordCommand(command, variable or field, seconds)

    def identity(self) -> str:
        """A name that only this database has, whichever address leads to it.

        Raises:
            ConnectionFailed: the server has to be asked, and does not answer.
        """
        settings = self.settings()
        return f"{settings.host.lower()}:{settings.port}/{settings.database}"

    def missing(self, table: TableRef) -> TableMissing:
        """Return the error that says where a table is missing."""
        settings = self.settings()
        return TableMissing(
            f"{table} does not exist in the database {settings.database!r}, or the login "
            f"{settings.user!r} may not see it"
        )

    def place(self, table: TableRef) -> tuple[str, str, str]:
        """A name that only this table has, whichever connection or spelling leads to it.

        Raises:
            ConnectionFailed: the server has to be asked, and does not answer.
        """
        return self.identity(), table.schema, table.name

    def instance(self) -> str | None:
        """See `Endpoint.instance`. By default, the address is in its name."""
        return ""

    def digests_by(self) -> DigestsBy:
        """Who computes the digests of the server's rows."""
        return "auto"

    def _secret(self, name: str) -> str | None:
        field = f"{name}_file"
        path, value = self._value(field), self._value(name)
        if path and value:
            raise InputError(f"the {self.system} resource was given both {name} and {field}")
        if not path:
            return None if value is None else str(value)
        variable = getattr(getattr(self, field), "env_var_name", None)
        return passwords.read(path, variable or f"{field} of the {self.system} resource")

    def _declared(
        self, settings: ConnectionSettings, names: Iterable[str]
    ) -> dict[str, str | None]:
        """Return values that fields give, or else options of the URL."""
        return {name: self._value(name) or settings.options.get(name) for name in names}

    def _require_options(self, given: Mapping[str, str], known: Collection[str]) -> None:
        """Refuse options of the URL that are none."""
        self._refuse_gone(given)
        if unknown := sorted(given.keys() - known):
            raise InputError(f"a {self.system} URL cannot have the option {', '.join(unknown)}")

    def _refuse_gone(self, names: Iterable[str]) -> None:
        if lost := next(filter(self.gone.__contains__, names), None):
            raise InputError(f"{self.system_name}: {lost} is gone: {self.gone[lost]}")

    def _value(self, name: str) -> Any:
        value = getattr(self, name)
        # a Variable, Dagster's EnvVar, or the class of EnvVar.int, which is not public
        if hasattr(value, "env_var_name"):
            variable = str(value.env_var_name)
            value = value.get_value()
            if value is None:
                raise InputError(f"the environment variable {variable} is not set")
        return value


def _columns_of(endpoint: Server, tables: Sequence[TableRef]) -> dict[TableRef, list[Column]]:
    return endpoint.columns_of(tables)
