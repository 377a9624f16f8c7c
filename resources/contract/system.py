"""A system: its SQL, types and row digest, and how rows leave and enter it.

A new system has these parts in a folder of its own, and a line in `resources.registry`, see
docs/contributing/adding-a-system.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.contract.digest_writer import DigestWriter, OverflowSql
from tableferry.resources.contract.settings import Scheme
from tableferry.resources.errors import InputError
from tableferry.resources.types.type_map import TypeMap


@dataclass(frozen=True, eq=False)
class System:
    """A kind of server: its names and parts.

    `source`, `loader` and `inspection` are plain objects here, because their types refer to tables,
    and tables to their system. `source_of`, `loader_of` and `inspection_of` return them typed.
    """

    name: str
    """The name in `name://schema.table`."""
    title: str
    """The name as its makers write it."""
    resource: Callable[..., Any]
    """Makes an `Endpoint`: a `ServerResource`, unless `dagster` names one."""
    schemes: Mapping[str, Scheme]
    """The schemes of connection URLs, the usual one first."""
    database: str
    """A database that every server has."""
    dialect: Dialect
    types: TypeMap
    digest: DigestWriter
    slow_digests: Collection[str] = ()
    """Variants of `digest` that were measured to cost the server more than sending the rows, so
    that the client computes the digests, unless the connection's `digest_by` decides."""
    record_digest: int | None = None
    """The digest of a row of all its `digest.probe.VALUES`, if `digest` can also use the system's
    own hash of a record; see `digest.definition.RECORD`."""
    overflow: OverflowSql | None = None
    """Writes what `on_overflow` makes of values; if None, such columns are not compared."""
    libpq: bool = False
    """Whether connection URLs have what libpq's have: a list of hosts, `host`, `port` and `dbname`
    as options, and the database of the user's name if none is given."""
    by_path: str | None = None
    """The default pattern, if tables are `name://folder/pattern`, files of a folder."""
    is_transient: Callable[[BaseException], bool | None] = lambda error: None
    """Whether a retry may succeed after a driver's error; None for errors of other drivers."""
    inspection: object = None
    """A `contract.catalog.Inspection`, or None."""
    source: object = None
    """A `contract.source.Source`: how rows leave it."""
    no_source: str = "there is no export from it"
    """Why `source` is None."""
    extra: str | None = None
    """The extra that installs its driver, if not every installation has it."""
    dagster: str = ""
    """`module:class` of `resource` as a Dagster resource, imported only where Dagster is needed."""
    loader: object = None
    """A `contract.loader.Loader`: how rows enter it."""
    no_loader: str = "there is no loader for it"
    """Why `loader` is None."""

    def __str__(self) -> str:
        return self.name

    @property
    def url_variable(self) -> str:
        """The environment variable with the address of its usual server."""
        return f"TABLEFERRY_{self.name.upper()}_URL"

    @property
    def dagster_resource(self) -> Any:
        """The class of the Dagster resource of a server."""
        return resolve_name(self.dagster) if self.dagster else self.resource

    def quote(self, identifier: str) -> str:
        """Quote an identifier, see `Dialect.quote`.

        Raises:
            InputError: it is empty or contains NUL, which no server allows.
        """
        if not identifier or "\0" in identifier:
            raise InputError(f"{identifier!r} is not a possible name in {self.name}")
        return self.dialect.quote(identifier)
