"""Where a server is and how to log in: URLs and separate fields, with secrets kept out of print."""

from __future__ import annotations

import functools
import os
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from tableferry.resources import registry
from tableferry.resources.connecting import secret_files
from tableferry.resources.contract.settings import ConnectionSettings, DigestsBy
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError
from tableferry.resources.tables import TableRef


@functools.lru_cache(64)
def parse_url(system: System, url: str) -> ConnectionSettings:
    """Read a connection URL, e.g. `postgresql://user:pass@host:port/database?sslmode=require`.

    User, password and database may be percent-encoded. A missing port or database means the
    system's usual one.

    Raises:
        InputError: the URL has another scheme, no host, or a port that is none. The message does
            not repeat the URL, because it may hold a password.
    """
    usual = next(iter(system.schemes))
    expected = f"a {system} URL should look like {usual}://user:pass@host:port/database"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InputError(f"{expected}; its host or port cannot be read") from None
    scheme = system.schemes.get(parts.scheme)
    if scheme is None:
        found = f"{parts.scheme!r}" if "://" in url else "no scheme"
        raise InputError(f"{expected}; found {found} instead")
    if "@" in parts.path + parts.query + parts.fragment:
        # what follows the first / ? or # of such a password would be taken for host and database
        raise InputError(f"{expected}; special characters in user and password should be %-encoded")
    if not parts.hostname:
        raise InputError(f"{expected}; it names no host")
    options = {**scheme.options, **dict(parse_qsl(parts.query, keep_blank_values=True))}
    return ConnectionSettings(
        system=system.name,
        host=unquote(parts.hostname),
        port=scheme.port if port is None else port,
        database=unquote(parts.path.strip("/")) or system.database,
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        options=options,
    )


class Variable(str):
    """A field's value that an environment variable has: its name. Dagster's `EnvVar` is alike."""

    @property
    def env_var_name(self) -> str:
        """The variable."""
        return str(self)

    def get_value(self) -> str | None:
        """What it holds; None if it is not set."""
        return os.environ.get(self)


class Server(BaseModel):
    """The fields that the servers of all systems share: one URL, or separate fields.

    Fields that are given separately win over the URL's. Each may be a `Variable`, which is looked
    up when the server is first used. The files of `url_file` and `password_file` are read whenever
    a connection is made, so that a new password needs no restart.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    system_name: ClassVar[str]

    url: str | None = Field(default=None, repr=False, description="Connection URL.")
    url_file: str | None = Field(default=None, description="File that holds the connection URL.")
    host: str | None = Field(default=None, description="Host name or address.")
    port: int | None = Field(default=None, description="TCP port.")
    user: str | None = Field(default=None, repr=False, description="Login name.")
    password: str | None = Field(default=None, repr=False, description="Password; use EnvVar.")
    password_file: str | None = Field(default=None, description="File that holds the password.")
    database: str | None = Field(default=None, description="Database name.")

    _policies_apply: bool = PrivateAttr(default=False)
    """Whether a table is read as row-level security shows it; else one that it hides rows of is
    refused."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        # pydantic makes plain texts of them
        named = {name: one for name, one in given.items() if isinstance(one, Variable)}
        self.__dict__.update(named)

    @property
    def system(self) -> System:
        """The system that it is a server of."""
        return registry.system(self.system_name)

    @property
    def addressed(self) -> bool:
        """Whether it is said where the server is."""
        return bool(self.url or self.url_file or self.host)

    def under_policies(self) -> Self:
        """The server as its row-level security shows it, where it would refuse a table else."""
        shown = self.model_copy()
        shown._policies_apply = True
        return shown

    def elsewhere(self, table: TableRef) -> str | None:
        """Where a table is that another process may look for somewhere else; None for most."""
        return None

    def settings(self) -> ConnectionSettings:
        """The merged settings.

        Raises:
            InputError: neither `url` nor `host` is given, an environment variable is not set, the
                URL cannot be read, or its file or the password's cannot be used.
        """
        url, host = self._secret("url"), self._value("host")
        if url:
            base = parse_url(self.system, url)
        elif host:
            usual = next(iter(self.system.schemes.values()))
            base = ConnectionSettings(self.system_name, host, usual.port, self.system.database)
        else:
            raise InputError(f"the {self.system} resource should be given url or host")
        return ConnectionSettings(
            system=self.system_name,
            host=host or base.host,
            port=int(self._value("port") or base.port),
            database=self._value("database") or base.database,
            user=self._value("user") or base.user,
            password=self._secret("password") or base.password,
            options=base.options,
        )

    def identity(self) -> str:
        """What tells its database from others, whatever address leads there.

        Raises:
            ConnectionFailed: the server has to be asked, and does not answer.
        """
        at = self.settings()
        return f"{at.host.lower()}:{at.port}/{at.database}"

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
        return secret_files.read(path, variable or f"{field} of the {self.system} resource")

    def _value(self, name: str) -> Any:
        value = getattr(self, name)
        # a Variable, Dagster's EnvVar, or the class of EnvVar.int, which is not public
        if hasattr(value, "env_var_name"):
            variable = str(value.env_var_name)
            value = value.get_value()
            if value is None:
                raise InputError(f"the environment variable {variable} is not set")
        return value
