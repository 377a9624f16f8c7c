"""Names of tables and columns, as every room uses them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tableferry.resources import registry
from tableferry.resources.contract.system import System
from tableferry.resources.errors import InputError


@dataclass(frozen=True)
class TableRef:
    """A table on one server. For ClickHouse the schema is the database.

    Its text is `connection://schema.table`, where the name of a system stands for its usual server,
    and others are named by `TABLEFERRY_CONNECTION_<NAME>`. Schema and table are as the server has
    them, with blanks and all. The schema ends at the first dot, and the table's name at the end of
    the text. Where that does not do, a name stands in quotation marks, with those inside of it
    doubled, as in
    `sqlserver://"my.schema"."the ""best"" orders"`.

    Of files, the schema is a folder and the table a pattern: `files://folder/*.parquet`, which
    `files://folder/` means, too.
    """

    system_name: str
    schema: str
    name: str
    connection: str = ""
    """The server's name; the system's, if not given."""
    asset: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """What Dagster calls the table, where a project calls it otherwise than by its name."""

    def __post_init__(self) -> None:
        if not self.connection:
            object.__setattr__(self, "connection", self.system_name)

    @property
    def system(self) -> System:
        """The system of its server."""
        return registry.system(self.system_name)

    @classmethod
    def parse(cls, text: str, system_of: Callable[[str], System] = registry.system) -> TableRef:
        """The inverse of `str`; quotation marks may also stand where they need not.

        Args:
            text: the reference.
            system_of: which system a connection leads to; raises `InputError` if to none. By
                default there are no connections but the systems' usual ones.

        Raises:
            InputError: the text has another form, or names a server that nobody has named.
        """
        before, _, path = text.partition("://")
        connection, found = before.lower(), _REFERENCE.fullmatch(text)
        try:
            system = system_of(connection) if path else None
        except InputError as error:
            if found is not None:
                raise InputError(
                    f"{text!r} should have the form system://schema.table: {error}"
                ) from None
            system = None
        if system is not None and system.by_path:
            folder, _, pattern = path.rpartition("/")
            return cls(system.name, folder or ".", pattern or system.by_path, connection)
        if system is None or found is None:
            raise InputError(
                f"{text!r} should have the form system://schema.table, with a connection or a "
                f"system out of {', '.join(registry.system_names())}; "
                'a name with a dot or a quotation mark as "order-lines.2024" or "say ""hi"""'
            )
        return cls(system.name, _name(found["schema"]), _name(found["table"]), connection)

    def __str__(self) -> str:
        if self.system.by_path:
            folder = "" if self.schema == "." else f"{self.schema}/"
            return f"{self.connection}://{folder}{self.name}"
        schema = f'"{_doubled(self.schema)}"' if _QUOTED_SCHEMA.search(self.schema) else self.schema
        table = f'"{_doubled(self.name)}"' if _QUOTED_TABLE.search(self.name) else self.name
        return f"{self.connection}://{schema}.{table}"


_REFERENCE = re.compile(
    r"""(?P<connection>\w+)://
    (?P<schema> "(?:[^"]|"")+" | [^".][^.]* )
    \.
    (?P<table> "(?:[^"]|"")+" | [^"].* )""",
    re.DOTALL | re.VERBOSE,
)
_QUOTED_TABLE = re.compile(r'\A["\s]|\s\Z')
_QUOTED_SCHEMA = re.compile(_QUOTED_TABLE.pattern + r"|\.")
"""Names that need quotation marks, or are easily misread without."""


def _name(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _doubled(name: str) -> str:
    return name.replace('"', '""')


def staging_name(target: TableRef, range_name: str) -> str:
    """Name of the staging table of one key range: the same for every attempt on that range.

    A fixed name makes `CREATE TABLE` itself tell that another attempt is there, and lets the next
    run find what a dead one left.
    """
    return f"{staging_prefix(target)}{_digest(range_name)}"


def staging_prefix(target: TableRef) -> str:
    """What the names of all staging tables of a target begin with.

    Whatever connection leads to the table: two names of one server mean the same staging tables.
    """
    return f"__ferry_{_digest(str(replace(target, connection=target.system_name)))}_"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
