"""References to tables, and the names of their staging tables."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tableferry.resources import registry
from tableferry.resources.errors import InputError

if TYPE_CHECKING:
    from tableferry.resources.contract.system import System


@dataclass(frozen=True)
class TableRef:
    """A table on a server. For ClickHouse the schema is the database.

    Its text is `connection://schema.table`. The connection is the name of a system, which means its
    usual server, or has a `TABLEFERRY_CONNECTION_<NAME>`. Schema and table are spelled as on the
    server. The schema ends at the first dot, the table at the end of the text. Names for which that
    is wrong are quoted, with quotation marks inside them doubled:
    `sqlserver://"my.schema"."the ""best"" orders"`.

    For files, the schema is a folder and the table a pattern: `files://folder/*.parquet`, which is
    also the meaning of `files://folder/`.
    """

    system_name: str
    schema: str
    name: str
    connection: str = ""
    """The server's name; by default the system's."""
    asset: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The table's asset key, if a project does not derive it from the table's name."""
    read_as: str = field(default="", compare=False, repr=False)
    """The SQL that its rows are read from, if columns of it are computed; see `read_from`."""
    query: str = ""
    """A query of the server whose rows are meant, in the place of a table; then the schema is empty
    and the name means nothing. Such a reference is only ever read."""

    def __post_init__(self) -> None:
        if not self.connection:
            object.__setattr__(self, "connection", self.system_name)

    @property
    def system(self) -> System:
        """The system of its server."""
        return registry.system(self.system_name)

    @classmethod
    def parse(cls, text: str, system_of: Callable[[str], System] = registry.system) -> TableRef:
        """Read what `str` wrote; names may be quoted without need.

        Args:
            text: the reference.
            system_of: returns the system of a connection, or raises `InputError`. By default the
                only connections are the systems' usual ones.

        Raises:
            InputError: the text has another form, or the connection is unknown.
        """
        before, _, path = text.partition("://")
        connection, match = before.lower(), _REFERENCE.fullmatch(text)
        try:
            system = system_of(connection) if path else None
        except InputError as error:
            if match is not None:
                raise InputError(
                    f"{_shown(text)} should have the form system://schema.table: {error}"
                ) from None
            system = None
        if system is not None and system.by_path:
            folder, _, pattern = path.rpartition("/")
            return cls(system.name, folder or ".", pattern or system.by_path, connection)
        if system is None or match is None or _LOGIN.match(match["schema"]):
            raise InputError(
                f"{_shown(text)} should have the form system://schema.table, with a connection or "
                f"a system out of {', '.join(registry.system_names())}; "
                'a name with a dot or a quotation mark as "order-lines.2024" or "say ""hi"""'
            )
        return cls(system.name, _unquoted(match["schema"]), _unquoted(match["table"]), connection)

    def __str__(self) -> str:
        if self.query:
            return f"{self.connection}:{' '.join(self.query.split())}"
        if self.system.by_path:
            folder = "" if self.schema == "." else f"{self.schema}/"
            return f"{self.connection}://{folder}{self.name}"
        schema = _quoted(self.schema) if _QUOTED_SCHEMA.search(self.schema) else self.schema
        table = _quoted(self.name) if _QUOTED_TABLE.search(self.name) else self.name
        return f"{self.connection}://{schema}.{table}"


_REFERENCE = re.compile(
    r"""(?P<connection>\w+)://
    (?P<schema> "(?:[^"]|"")+" | [^".][^.]* )
    \.
    (?P<table> "(?:[^"]|"")+" | [^"].* )""",
    re.DOTALL | re.VERBOSE,
)
_QUOTED_TABLE = re.compile(r'\A["\s]|\s\Z')
_LOGIN = re.compile(r"[^\":@]*:[^@]*@")
"""How a URL begins that somebody took for a reference."""
_QUOTED_SCHEMA = re.compile(_QUOTED_TABLE.pattern + r"|\.|:.*@")
"""Names that need quotation marks, or are easily misread without."""


def _shown(text: str) -> str:
    """Quote a text for a message; a URL that was taken for a reference, without its login."""
    return repr(re.sub("(?<=://).*@", "***@", text, flags=re.DOTALL))


def _unquoted(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def staging_name(target: TableRef, range_name: str) -> str:
    """Name the staging table of a key range.

    All attempts on a range share it: `CREATE TABLE` fails while another attempt is running, and the
    next attempt finds what a dead one left.
    """
    return f"{staging_prefix(target)}{_digest(range_name)}"


def staging_prefix(target: TableRef) -> str:
    """The prefix of a target's staging tables, the same by whichever connection it is reached."""
    return f"__ferry_{_digest(str(replace(target, connection=target.system_name)))}_"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
