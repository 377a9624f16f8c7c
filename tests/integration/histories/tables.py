"""Tables of any server as somebody beside Tableferry writes and reads them: by plain drivers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.integration.support import looking
from tests.servers import Servers

Values = dict[str, Any]
"""A row by column, in the form in which values of all systems are equal or not."""

TYPES = {
    "postgres": {
        "int": "integer",
        "small": "smallint",
        "wide": "integer",
        "widest": "bigint",
        "text": "text",
        "price": "numeric(12,2)",
        "prices": "numeric(16,2)",
        "at": "timestamp(6)",
        "ratio": "double precision",
    },
    "sqlserver": {
        "int": "int",
        "small": "smallint",
        "wide": "int",
        "widest": "bigint",
        "text": "nvarchar(400)",
        "price": "decimal(12,2)",
        "prices": "decimal(16,2)",
        "at": "datetime2(6)",
        "ratio": "float",
    },
    "clickhouse": {
        "int": "Int32",
        "small": "Int16",
        "wide": "Int32",
        "widest": "Int64",
        "text": "String",
        "price": "Decimal(12, 2)",
        "prices": "Decimal(16, 2)",
        "at": "DateTime64(6, 'UTC')",
        "ratio": "Float64",
    },
}
"""The types of a source's columns, by what they hold."""

WIDER = {"small": "wide", "wide": "widest", "price": "prices"}

EARLY, LATE = dt.datetime(1900, 1, 1, 0, 0, 0, 1), dt.datetime(2299, 12, 31, 23, 59, 59, 999999)
VALUES: dict[str, list[Any]] = {
    "int": [None, 0, 7, -(2**31), 2**31 - 1],
    "small": [None, 0, 1, -(2**15), 2**15 - 1],
    "wide": [None, 0, -1, -(2**31), 2**31 - 1],
    "widest": [None, 0, -(2**63), 2**63 - 1],
    "text": [
        None,
        "",
        " ",
        "a",
        "A",
        "a ",
        "a\u0308",
        "ä",
        "b'c",
        "b\\N",
        "\t\r\n",
        "😀",
        "x" * 300,
    ],
    "price": [None, Decimal("0.00"), Decimal("-0.01"), Decimal("9999999999.99")],
    "prices": [None, Decimal("0.10"), Decimal("-99999999999999.99")],
    "at": [None, dt.datetime(1970, 1, 1), EARLY, LATE],
    "ratio": [None, 0.0, 0.1, -1.5, 1.7976931348623157e308],
}
"""What is put into columns: empty and extreme values, and some that other comparisons mix up."""


@dataclass
class Table:
    """One table of a server."""

    servers: Servers
    system: str
    name: str
    """With its schema."""

    def run(self, statement: str) -> None:
        """Run a statement in which `{t}` is the table."""
        looking.run(self.servers, self.system, statement.replace("{t}", self.name))

    def ask(self, query: str) -> list[looking.Row]:
        """Return a query's rows; `{t}` is the table."""
        query = query.replace("{t}", self.name)
        if self.system == "sqlserver":
            return looking.ask_sqlserver(self.servers.sqlserver_url, query)
        if self.system == "clickhouse":
            return looking.ask_clickhouse(self.servers.clickhouse_url, query)
        return looking.ask_postgres(self.servers.postgres_url, query)

    def create(self, columns: Mapping[str, str]) -> None:
        """Make the table, with `n` as its primary key where there is such a thing."""
        types = TYPES[self.system]
        if self.system == "clickhouse":
            rest = [f"{name} Nullable({types[kind]})" for name, kind in columns.items()]
            given = ", ".join(["n Int32", *rest[1:]])
            self.run(f"CREATE TABLE {{t}} ({given}) ENGINE = MergeTree ORDER BY n")
        else:
            rest = [f"{name} {types[kind]} NULL" for name, kind in columns.items()]
            self.run(f"CREATE TABLE {{t}} ({', '.join(['n integer PRIMARY KEY', *rest[1:]])})")

    def columns(self) -> list[str]:
        """Return the names of its columns but our own; none if there is no such table."""
        schema, _, table = self.name.partition(".")
        query = (
            "SELECT column_name FROM information_schema.columns "
            f"WHERE table_schema = '{schema}' AND table_name = '{table}'"
        )
        return [str(name) for (name,) in self.ask(query) if not str(name).startswith("_")]

    def read(self, columns: Iterable[str]) -> list[Values]:
        """Return all rows."""
        names = list(columns)
        rows = self.ask(f"SELECT {', '.join(names)} FROM {{t}}")
        return [{name: seen(value) for name, value in zip(names, row, strict=True)} for row in rows]

    def insert(self, rows: Iterable[Values]) -> None:
        """Insert rows."""
        for row in rows:
            values = ", ".join(self.literal(value) for value in row.values())
            self.run(f"INSERT INTO {{t}} ({', '.join(row)}) VALUES ({values})")

    def update(self, condition: str, values: Values) -> None:
        """Set values in rows."""
        changes = ", ".join(f"{name} = {self.literal(value)}" for name, value in values.items())
        if self.system == "clickhouse":
            self.run(f"ALTER TABLE {{t}} UPDATE {changes} WHERE {condition} {SYNC}")
        else:
            self.run(f"UPDATE {{t}} SET {changes} WHERE {condition}")

    def delete(self, condition: str) -> None:
        """Delete rows."""
        if self.system == "clickhouse":
            self.run(f"ALTER TABLE {{t}} DELETE WHERE {condition} {SYNC}")
        else:
            self.run(f"DELETE FROM {{t}} WHERE {condition}")

    def add(self, column: str, kind: str) -> None:
        """Add a column that may be NULL."""
        given = TYPES[self.system][kind]
        if self.system == "clickhouse":
            given = f"Nullable({given})"
        word = "" if self.system == "sqlserver" else "COLUMN"
        self.run(f"ALTER TABLE {{t}} ADD {word} {column} {given}")

    def drop_column(self, column: str) -> None:
        self.run(f"ALTER TABLE {{t}} DROP COLUMN {column}")

    def rename(self, column: str, name: str) -> None:
        if self.system == "sqlserver":
            self.run(f"EXEC sp_rename '{self.name}.{column}', '{name}', 'COLUMN'")
        else:
            self.run(f"ALTER TABLE {{t}} RENAME COLUMN {column} TO {name}")

    def widen(self, column: str, kind: str) -> None:
        """Give a column a type that holds more."""
        given = TYPES[self.system][kind]
        if self.system == "clickhouse":
            self.run(f"ALTER TABLE {{t}} MODIFY COLUMN {column} Nullable({given}) {SYNC}")
        else:
            word = "TYPE " if self.system == "postgres" else ""
            self.run(f"ALTER TABLE {{t}} ALTER COLUMN {column} {word}{given}")

    def drop(self) -> None:
        self.run("DROP TABLE IF EXISTS {t}")

    def literal(self, value: Any) -> str:
        """Write a value in the server's SQL."""
        if value is None:
            return "NULL"
        if isinstance(value, str):
            quoted = value.replace("'", "''")
            if self.system == "sqlserver":
                return f"N'{quoted}'"
            escaped = quoted.replace("\\", "\\\\")
            return f"E'{escaped}'" if self.system == "postgres" else f"'{escaped}'"
        if isinstance(value, dt.datetime):
            text = value.isoformat(timespec="microseconds")
            kind = TYPES[self.system]["at"].replace(
                "DateTime64(6, 'UTC')", "DateTime64(6, \\'UTC\\')"
            )
        elif isinstance(value, Decimal):
            text, kind = str(value), TYPES[self.system]["prices"]
        elif isinstance(value, float):
            text, kind = repr(value), TYPES[self.system]["ratio"]
        else:
            return str(value)
        if self.system == "clickhouse":
            return f"CAST('{text}', '{kind}')"
        return f"CAST('{text}' AS {kind})"


SYNC = "SETTINGS mutations_sync = 2"


def seen(value: Any) -> Any:
    """Bring a driver's value into the form in which it is compared."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return value
