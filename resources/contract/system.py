"""What a system has to offer: its SQL, its types, its row digest, and how rows leave and enter it.

Adding a system is writing these parts in a folder of its own and naming it in `resources.registry`;
docs/adding-a-system.md shows how.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from tableferry.resources.contract.dialect import Dialect
from tableferry.resources.contract.digest_writer import DigestWriter
from tableferry.resources.contract.overflow_sql import OverflowSql
from tableferry.resources.contract.settings import Scheme
from tableferry.resources.errors import InputError
from tableferry.resources.types.type_map import TypeMap


@dataclass(frozen=True, eq=False)
class System:
    """One kind of server: what it is called, and its parts.

    Three parts are about tables, which know their system; so their types are not known here.
    `source_of`, `loader_of` and `inspection_of`, beside the types, return them.
    """

    name: str
    """As it stands in `name://schema.table`."""
    title: str
    """As its makers write it."""
    resource: Callable[..., Any]
    """What makes an `Endpoint`, which reaches a server: a `ServerResource`, or else `dagster` names
    one."""
    schemes: Mapping[str, Scheme]
    """Of connection URLs; the usual one comes first."""
    database: str
    """The database that each server has."""
    dialect: Dialect
    types: TypeMap
    digest: DigestWriter
    slow_digests: Collection[str] = ()
    """Variants of `digest` that were measured to cost the server more than it costs to send the
    rows and to digest them: there the client does, unless the connection's `digest_by` decides."""
    record_digest: int | None = None
    """The digest of the row of all `digest.probe.VALUES` that it has, where `digest` also writes it
    by the system's own hash of a record; see `digest.definition.RECORD`."""
    overflow: OverflowSql | None = None
    """How its SQL tells what `on_overflow` makes of values; None where it cannot, and such columns
    are not compared."""
    by_path: str | None = None
    """A table is `name://folder/pattern`, the files of a folder whose names match; and the pattern
    that is meant where none is given."""
    is_transient: Callable[[BaseException], bool | None] = lambda error: None
    """Whether what failed with a driver's error may succeed later; None for what is not one of the
    system's drivers."""
    inspection: object = None
    """A `contract.inspection.Inspection`, where there is something to find out."""
    source: object = None
    """A `contract.source.Source`: how rows leave it."""
    no_source: str = "there is no export from it"
    """Why `source` is None."""
    extra: str | None = None
    """Tableferry's extra that brings its driver, where not every installation has it."""
    dagster: str = ""
    """`module:class` of `resource` as Dagster's; imported by those who need Dagster only."""
    loader: object = None
    """A `contract.loader.Loader`: how rows enter it."""
    no_loader: str = "there is no loader for it"
    """Why `loader` is None."""

    def __str__(self) -> str:
        return self.name

    @property
    def url_variable(self) -> str:
        """The environment variable that addresses its usual server."""
        return f"TABLEFERRY_{self.name.upper()}_URL"

    @property
    def dagster_resource(self) -> Any:
        """What reaches a server, as a class of Dagster's resources."""
        return resolve_name(self.dagster) if self.dagster else self.resource

    def quote(self, identifier: str) -> str:
        """See `Dialect.quote`.

        Raises:
            InputError: the identifier is empty or holds NUL, which no server can name.
        """
        if not identifier or "\0" in identifier:
            raise InputError(f"{identifier!r} is not a possible name in {self.name}")
        return self.dialect.quote(identifier)
