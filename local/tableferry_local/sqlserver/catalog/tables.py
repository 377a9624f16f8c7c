"""Names and declared types: what T-SQL calls a table, and what PostgreSQL calls it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from tableferry_local.sqlserver.catalog.link import Link
from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.types.sqltype import ResultColumn, SqlType

DEFAULT_SCHEMA = "dbo"
_SYSTEM_COLUMNS = {"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}

_LOOKUP = """
SELECT c.oid::bigint, r.name, r.kind, n.nspname, (
  SELECT json_agg(json_build_array(k.attnum, k.name, k.type, k.length, k.precision, k.scale,
      k.nullable, k.collated, k.identity_seed IS NOT NULL, k.computed, k.default_definition,
      k.default_name) ORDER BY k.attnum)
  FROM sys._column k WHERE k.oid = c.oid)
FROM pg_class c JOIN sys._relation r ON r.oid = c.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1)
"""


def pg_name(name: str) -> str:
    """The PostgreSQL name of a T-SQL name: lower case, because T-SQL ignores case, and at most
    63 bytes, because PostgreSQL would cut the rest and T-SQL allows 128 characters."""
    key = name.lower()
    if key in _SYSTEM_COLUMNS:
        key += "~"
    encoded = key.encode()
    if len(encoded) > 63:
        digest = hashlib.blake2b(encoded, digest_size=8).hexdigest()
        key = encoded[:40].decode(errors="ignore") + "~" + digest
    return key


def quoted(name: str) -> str:
    """A PostgreSQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class ObjectName:
    """A table or view as a statement names it, completed with the session's database."""

    database: str
    schema: str
    name: str

    @property
    def temporary(self) -> bool:
        return self.name.startswith("#")

    @property
    def pg_schema(self) -> str:
        if self.temporary:
            return "pg_temp"
        return pg_name(f"{self.database}.{self.schema}")

    @property
    def sql(self) -> str:
        """The qualified PostgreSQL name."""
        return f"{quoted(self.pg_schema)}.{quoted(pg_name(self.name))}"

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def full(self) -> str:
        return f"{self.database}.{self.schema}.{self.name}"


def object_name(parts: list[str], database: str) -> ObjectName:
    """Complete a name of one to four parts; `db..table` means the default schema.

    Raises:
        SqlError: 117 or 7202, the name has too many parts (there are no linked servers).
    """
    if len(parts) > 3:
        raise SqlError(7202, 11, f"Could not find server '{parts[0]}' in sys.servers.")
    padded = [""] * (3 - len(parts)) + parts
    if padded[2].startswith("#"):
        return ObjectName("tempdb", DEFAULT_SCHEMA, padded[2])
    return ObjectName(padded[0] or database, padded[1] or DEFAULT_SCHEMA, padded[2])


@dataclass(frozen=True)
class TableColumn:
    """A column of a table as declared."""

    attnum: int
    name: str
    type: SqlType
    nullable: bool = True
    collation: str | None = None
    identity: bool = False
    computed: str | None = None
    default: str | None = None
    default_name: str | None = None

    @property
    def sql(self) -> str:
        return quoted(pg_name(self.name))

    @property
    def result(self) -> ResultColumn:
        return ResultColumn(
            self.name, self.type, self.nullable, self.identity, self.computed is not None
        )


@dataclass(frozen=True)
class Table:
    """A table or view that exists."""

    oid: int
    name: ObjectName
    kind: str
    columns: tuple[TableColumn, ...]
    sql: str
    """How a FROM clause names it in PostgreSQL."""
    by_name: dict[str, TableColumn] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.by_name.update({column.name.lower(): column for column in self.columns})

    def column(self, name: str) -> TableColumn:
        """The column of that name, in any case.

        Raises:
            SqlError: 207, there is none.
        """
        found = self.by_name.get(name.lower())
        if found is None:
            raise SqlError(207, 16, f"Invalid column name '{name}'.")
        return found


class Catalog:
    """Reads declared tables from PostgreSQL; nothing is cached, other sessions may change them."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def find(self, name: ObjectName) -> Table | None:
        """The table or view, or None."""
        rows = self._link.rows(_LOOKUP, [name.sql], often=True)
        if not rows:
            return None
        oid, shown, kind, pg_schema, columns = rows[0]
        parts = [
            TableColumn(
                attnum, column, SqlType(kind_name, length, precision, scale), nullable, collation,
                identity, computed, default, default_name,
            )
            for (
                attnum, column, kind_name, length, precision, scale, nullable, collation, identity,
                computed, default, default_name,
            ) in json.loads(columns or "[]")
        ]  # fmt: skip
        real = ObjectName(name.database, name.schema, str(shown))
        sql = (
            name.sql
            if not name.temporary
            else f"{quoted(str(pg_schema))}.{quoted(pg_name(name.name))}"
        )
        return Table(int(oid or 0), real, str(kind).strip(), tuple(parts), sql)

    def get(self, name: ObjectName, shown: str | None = None) -> Table:
        """The table or view.

        Raises:
            SqlError: 208, there is none.
        """
        found = self.find(name)
        if found is None:
            raise SqlError(208, 16, f"Invalid object name '{shown or name}'.")
        return found
