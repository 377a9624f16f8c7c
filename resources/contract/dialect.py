"""A system's SQL."""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from tableferry.resources.keys.range import Bound, KeyKind
from tableferry.resources.types.type_map import Column


class Dialect:
    """A system's SQL. This class writes standard SQL; systems override what differs.

    Names of tables and columns are quoted; a `Column` beside a name is its type and collation.
    """

    count = "count(*)"
    """The number of rows, as a 64-bit integer."""

    barrier = ""
    """What ends a subquery that the planner must not merge into the query around it."""

    moment, now = "timestamp with time zone", "CURRENT_TIMESTAMP"
    """A type for moments, and the present one."""

    longest_name = 128
    """Maximum length of the name of a table of ours. ClickHouse's names a file, with the database's
    in it."""

    longest_identifier: int | None = None
    """Maximum length of a name; None: there is none for columns."""

    length_unit = "characters"
    """What `longest_identifier` counts."""

    taken: Mapping[str, str] = MappingProxyType({})
    """Names, folded, that columns of tables that we create cannot have, and why, as predicates."""

    not_distinct = "the target would not tell from another column's"
    """Why a name cannot be that of a column, as a predicate."""

    not_in_shadows = ""
    """Characters that are left out of the name of a shadow table."""

    most_branches: int | None = None
    """Maximum branches of CASE expressions nested as a balanced tree; None: unlimited."""

    def quote(self, identifier: str) -> str:
        """Quote an identifier, so that case, blanks and quotation marks survive."""
        return '"' + identifier.replace('"', '""') + '"'

    def literal(self, text: str) -> str:
        """Write a text constant; on SQL Server a Unicode one."""
        return "'" + text.replace("'", "''") + "'"

    def constant(self, text: str, column: Column) -> str:
        """Write a value as a constant that is converted to a column's type exactly.

        Args:
            text: the value as text: a number, `true` or `false`, an ISO date or time, or a text.
            column: the column that it is for.
        """
        return self.literal(text)

    def scripted(self, statement: str) -> str:
        """Write a statement so that the system's own command line runs it as it is.

        Raises:
            InputError: no way to write it does that.
        """
        return statement

    def binary(self, value: bytes, column: Column) -> str:
        """Write bytes as a constant for a column."""
        raise NotImplementedError

    ordered_texts: Collection[str] = ()
    """The text types, by `ColumnType.name`, that `in_key_order` orders by their UTF-8 bytes."""

    def in_key_order(self, name: str, column: Column, kind: KeyKind) -> str:
        """Write a key to compare in the order of ranges: uuids by bytes, texts see `keys.text`."""
        return name

    def below(self, name: str, column: Column, kind: KeyKind, bound: Bound) -> str:
        """Write the condition that a key is below a bound."""
        return f"{self.in_key_order(name, column, kind)} < {self.bound(bound, column)}"

    def not_below(self, name: str, column: Column, kind: KeyKind, bound: Bound) -> str:
        """Write the condition that a key is a bound or above it."""
        return f"{self.in_key_order(name, column, kind)} >= {self.bound(bound, column)}"

    def key_value(self, name: str, column: Column, kind: KeyKind) -> str:
        """Write a key for statistics: in key order, timestamps with a zone in UTC without it."""
        return self.in_key_order(name, column, kind)

    def key_extent(self, name: str, column: Column, kind: KeyKind) -> str:
        """Write a key as an argument of MIN and MAX."""
        if kind == "text":
            return self.in_key_order(name, column, kind)
        return f"CAST({name} AS char(36))" if kind == "uuid" else name

    def bound(self, bound: Bound, column: Column) -> str:
        """Write a constant to compare a key with; naive timestamps mean UTC."""
        if isinstance(bound, int):
            return str(bound)
        if isinstance(bound, str):
            return self.literal(bound)
        if isinstance(bound, uuid.UUID):
            return f"'{bound}'"
        if isinstance(bound, dt.datetime):
            return f"timestamp '{bound.isoformat(sep=' ', timespec='microseconds')}'"
        return f"date '{bound.isoformat()}'"

    def whole_steps(self, name: str, first: int, width: int) -> str:
        """Write how many whole steps lead from a number to an integer key that is not below it."""
        return f"(CAST({name} AS bigint) - CAST({first} AS bigint)) / CAST({width} AS bigint)"

    def of_file(self, name: str, file: str, column: Column) -> str:
        """Write the condition that a row comes from a file, whose name is in the quoted column."""
        return f"{name} = {self.literal(file)}"

    def limited(self, rows: int) -> tuple[str, str]:
        """Write a limit of rows: the part after SELECT, and the part at the end of the query."""
        return "", f" LIMIT {rows}"

    def exact_sum(self, number: str) -> str:
        """Write the sum of 64-bit integers as text; it may need more than 64 bits."""
        raise NotImplementedError

    def text(self, value: str) -> str:
        """Write a value as the server prints it."""
        return f"CAST({value} AS text)"

    def cast(self, value: str, column: Column) -> str:
        """Write a value as one of a column's type."""
        return f"CAST({value} AS {column.type})"

    def exact_decimal(self, double: str, column: Column) -> str:
        """Write a double as a decimal, with all digits that tell it apart.

        It has the scale of a column's type. A double that the type does not hold is NULL.
        """
        return self.cast(self.text(double), column)

    def rounded(self, number: str, digits: int) -> str:
        """Round a number to digits after the point, halves away from zero."""
        return f"ROUND({number}, {digits})"

    def trimmed(self, text: str) -> str:
        """Write a text without leading and trailing blanks."""
        return f"TRIM(BOTH ' ' FROM {text})"

    def lower(self, text: str) -> str:
        """Write a text in lower case, as the server understands it."""
        return f"LOWER({text})"

    def empty_as_null(self, text: str) -> str:
        """Write a text, but NULL for the empty one."""
        return f"NULLIF({text}, '')"

    def canonical_json(self, text: str) -> str | None:
        """Write JSON the same for all texts that mean the same; None if the server cannot."""
        return None

    def constants(self, rows: Sequence[Sequence[str]], names: Sequence[str]) -> str:
        """Write a table expression of constants, with quoted column names."""
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        return f"(VALUES {values}) AS probe({', '.join(names)})"

    def grouping_key(self, name: str, column: Column) -> str:
        """Write a column by which GROUP BY distinguishes case, accents and blanks."""
        return name

    def folded(self, name: str) -> str:
        """Return a column's name, the same for all names that are equal to the system."""
        return name

    def length(self, name: str) -> int:
        """Return the length of a name in `length_unit`."""
        return len(name)

    def shortened(self, name: str, suffix: str = "") -> str:
        """Shorten a name so that it is not too long with a suffix, which is appended."""
        while self.excess(name + suffix):
            name = name[:-1]
        return name + suffix

    def excess(self, name: str) -> str:
        """Say that a name is too long, as a predicate; an empty text if it is not."""
        longest, length = self.longest_identifier, self.length(name)
        if longest is None or length <= longest:
            return ""
        return f"has {length:,} {self.length_unit}, and may have {longest:,}"

    def unfit_table(self, schema: str, name: str) -> str:
        """Say why there cannot be a table of a name; an empty text if there can be."""
        for what, text in (("schema", schema), ("name", name)):
            if why := self.excess(text):
                return f"its {what} {why}"
        return ""

    def fitting_table(self, schema: str, name: str) -> str:
        """Shorten a table's name that is too long, with a digest that tells it from others."""
        digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
        kept = name
        while self.unfit_table(schema, name) and kept:
            kept = kept[:-1]
            name = f"{kept}_{digest}"
        return name

    def unfit_names(self, columns: Sequence[Column]) -> dict[str, tuple[str, str]]:
        """Find the columns of a new table that cannot have their names.

        Returns:
            By name, the reason as a predicate of the name, and another name for the column.
        """
        return {
            column.name: (why, self.shortened(column.name))
            for column in columns
            if (why := self.taken.get(self.folded(column.name)) or self.excess(column.name))
        }

    def exported(self, query: str) -> str:
        """Write a query that exports rows as text as the system's tool needs it."""
        return query

    def framed_row(self, fields: Sequence[str]) -> str:
        """Join text fields by the terminators of `contract.delimited`, with NULL as an empty field.

        Needed only by a system whose source sends `delimited`.
        """
        raise NotImplementedError

    def add_column(self, table: str, name: str, column: Column) -> str:
        """Write ALTER TABLE for a new, nullable column; an empty text if none is needed."""
        return f"ALTER TABLE {table} ADD {name} {column.type} NULL"

    def alter_column(self, table: str, name: str, before: Column, after: Column) -> tuple[str, ...]:
        """Write ALTER TABLE for a column that is widened, or may be NULL from now on.

        Args:
            table: the table, as written in a statement.
            name: the column, as written in a statement.
            before: the column as it is.
            after: the column as it should be; it holds all values that `before` holds.

        Returns:
            Statements of which a server takes the first that it knows; none if the system has none.
        """
        return ()

    def rename_column(self, schema: str, table: str, name: str, new: str) -> str:
        """Write the statement that renames a column, and leaves its values as they are.

        The arguments are names as they are, without quotes.
        """
        path = f"{self.quote(schema)}.{self.quote(table)}"
        return f"ALTER TABLE {path} RENAME COLUMN {self.quote(name)} TO {self.quote(new)}"

    def drop_column(self, table: str, name: str) -> str:
        """Write the statement that drops a column."""
        return f"ALTER TABLE {table} DROP COLUMN {name}"

    def empty_column(self, table: str, name: str) -> str:
        """Write the statement that makes a column NULL in all rows."""
        return f"UPDATE {table} SET {name} = NULL WHERE {name} IS NOT NULL"

    def drop_table(self, table: str) -> str:
        """Write DROP TABLE IF EXISTS; when it returns, the name can be used again."""
        return f"DROP TABLE IF EXISTS {table}"
