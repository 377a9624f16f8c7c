"""The statements of the SQL Server target, as text, valid on Babelfish too."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from tableferry.resources.connecting.waiting import lock_milliseconds
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target_options import Mark
from tableferry.resources.errors import StatementFailed
from tableferry.resources.sqlserver.dialect import (
    BINARY,
    DIALECT,
    KEY_ORDER,
    literal,
    without_doubled,
)
from tableferry.resources.sqlserver.errors import broke
from tableferry.resources.sqlserver.types import MONEY, MOST_DIGITS, index_bytes, read
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.statements import RIGHTS, Statements, TargetSession, aliases
from tableferry.resources.types.kinds import Decimal, Text
from tableferry.resources.types.type_map import Column

KEY_BYTES = 900
"""Maximum bytes of a clustered index key (SQL Server's maximum capacity specifications)."""

INDEX_BYTES = 1700
"""Maximum bytes of a nonclustered index key."""

KEY_BROKEN = ("23000", "2601", "2627")
"""SQLSTATE of a violated constraint, and the server's errors of duplicate keys."""

OWN_INDEX = r"ix_[0-9a-f]{12}_key"
"""How the names of our indexes begin; Babelfish adds to them."""

MISREAD = re.compile("['\"\\]\U00010000-\U0010ffff]")
"""Characters of names that some tools or servers misread."""


class SqlServerStatements(Statements):
    """See `Statements`. Nothing uses TABLOCK: parallel ranges would wait for each other."""

    system_name = "sqlserver"
    collates_key = True
    indexed_text, any_text = "nvarchar(64)", "nvarchar(max)"

    # under XACT_ABORT any error ends the whole transaction, not one statement
    begin = ("SET XACT_ABORT ON", "BEGIN TRANSACTION")
    script_begin = ("SET QUOTED_IDENTIFIER ON",)
    """It is off in sqlcmd, which then takes our names for texts."""
    rollback = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION"

    def create_schema(self, table: TableRef) -> str:
        """CREATE SCHEMA must be the only statement of its batch, hence EXEC."""
        inner = f"CREATE SCHEMA {DIALECT.quote(table.schema)}"
        return f"IF SCHEMA_ID({literal(table.schema)}) IS NULL EXEC({literal(inner)})"

    def create_table(self, plan: CopyPlan, table: TableRef) -> list[str]:
        """The source's primary key becomes the table's unless it includes text: for SQL Server, 'a'
        equals 'A' under most collations and 'a ' under all, unlike in the source. A text key column
        gets the collation that orders its ranges.
        """
        lines, key = self.definitions(plan), plan.key.target
        keys = primary_key(plan)
        if keys:
            lines.append(f"PRIMARY KEY ({self.names(keys)})")
        statements = [f"CREATE TABLE {qualified(table)} ({', '.join(lines)})"]
        if keys[:1] != [key.name] and indexable(key):
            # a swap renames the table, not its index, and on Babelfish the index of the next shadow
            # needs another name
            index = DIALECT.quote(f"ix_{secrets.token_hex(6)}_key")
            columns = self.names([key.name])
            statements.append(f"CREATE INDEX {index} ON {qualified(table)} ({columns})")
        return statements

    def create_staging(self, plan: CopyPlan, staging: TableRef) -> list[str]:
        """The rows are in the table `rows_of(staging)` with the columns of `loaded(plan)`; the view
        `staging` shows them under the names of the target's columns. So no user's name reaches the
        drivers and tools, each of which quotes names in its own way.
        """
        rows = loaded(plan)
        lines = ", ".join(self.definitions(rows, staging=True))
        shown = ", ".join(
            f"CAST({column.name} AS {target.type})" if _is_time(target) else column.name
            for column, target in zip(rows.target_columns, plan.target_columns, strict=True)
        )
        return [
            f"CREATE TABLE {qualified(rows_of(staging))} ({lines})",
            f"CREATE VIEW {qualified(staging)} ({self.columns(plan)}) "
            f"AS SELECT {shown} FROM {qualified(rows_of(staging))}",
        ]

    def drop_staging(self, staging: TableRef) -> str:
        """The view must be dropped before its table."""
        return f"DROP VIEW IF EXISTS {qualified(staging)}; {drop_table(rows_of(staging))}"

    def tables_like(self, table: TableRef, prefix: str) -> str:
        """In any schema: `staging_schema` may differ from the table's."""
        return (
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES "
            f"WHERE LEFT(TABLE_NAME, {len(prefix)}) = {self.text(prefix)} ORDER BY TABLE_NAME"
        )

    def required_columns(self, table: TableRef) -> str:
        """But for those that the server fills: a default may be hidden or bound, and a rowversion
        has none."""
        return (
            f"{super().required_columns(table)} AND DATA_TYPE NOT IN ('timestamp', 'rowversion') "
            "AND NOT EXISTS (SELECT 1 FROM sys.columns AS c "
            f"WHERE c.object_id = OBJECT_ID({literal(qualified(table))}) "
            "AND c.name = COLUMN_NAME AND (c.default_object_id <> 0 OR c.is_computed = 1 "
            "OR c.is_identity = 1 OR c.generated_always_type <> 0))"
        )

    def stage_known(
        self, plan: CopyPlan, table: TableRef, staging: TableRef, where: str
    ) -> list[str]:
        """The rows are inserted beneath the view, which may compute what it shows."""
        return [
            self.drop_known(plan, table, staging),
            f"{self._insert(loaded(plan), rows_of(staging))} "
            f"SELECT {self.columns(plan)} FROM {qualified(table)} WHERE {where}",
        ]

    def key_order(self, column: Column) -> str:
        """The order of UTF-16 code units."""
        return KEY_ORDER

    def lock_table(self, table: TableRef) -> str:
        """Any change of its definition: Babelfish takes no notice of TABLOCKX."""
        return f"ALTER TABLE {qualified(table)} ADD ferry__locked bit NULL"

    def limit_waiting(self, seconds: int) -> tuple[str, str]:
        """A setting of the session, which is not used again if the statement fails."""
        after = lock_milliseconds("-1")
        return f"SET LOCK_TIMEOUT {seconds * 1000}", f"SET LOCK_TIMEOUT {after}"

    def object_ids(self, schema: str, names: Sequence[str]) -> str:
        """sp_rename keeps a table's id. Babelfish sends uncast names in a code page."""
        return (
            "SELECT CAST(t.name AS nvarchar(128)), t.object_id FROM sys.tables AS t "
            "INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id "
            f"WHERE s.name = {literal(schema)} AND t.name IN ({', '.join(map(literal, names))})"
        )

    def permissions(self, table: TableRef) -> str:
        """See `Statements.permissions`. Of a table that does not exist, Babelfish says that the
        login has none."""
        name = literal(qualified(table))
        has = [f"HAS_PERMS_BY_NAME({name}, 'OBJECT', '{right}')" for right in RIGHTS]
        return (
            f"SELECT CAST(USER_NAME() AS nvarchar(128)), {', '.join(has)} FROM sys.tables AS t "
            "INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id "
            f"WHERE s.name = {literal(table.schema)} AND t.name = {literal(table.name)}"
        )

    def may_alter(self, table: TableRef) -> str:
        """See `Statements.may_alter`. Of Babelfish it is unknown."""
        may = f"HAS_PERMS_BY_NAME({literal(qualified(table))}, 'OBJECT', 'ALTER')"
        grant = literal(f"GRANT ALTER ON {qualified(table)} TO ")
        return (
            "SELECT CAST(USER_NAME() AS nvarchar(128)), "
            f"CASE WHEN SERVERPROPERTY('babelfish') IS NULL THEN {may} END, "
            f"{grant} + QUOTENAME(USER_NAME(), N'\"')"
        )

    def by_age(self, table: TableRef, prefix: str) -> str:
        """See `Statements.by_age`."""
        return (
            "SELECT CAST(t.name AS nvarchar(128)) FROM sys.tables AS t "
            "INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id "
            f"WHERE s.name = {literal(table.schema)} "
            f"AND LEFT(t.name, {len(prefix)}) = {literal(prefix)} "
            "ORDER BY t.create_date, t.object_id"
        )

    def rename(self, table: TableRef, name: str) -> str:
        """Babelfish requires the object type, and its sp_rename reads no doubled quotes."""
        path = ".".join(without_doubled(part) for part in (table.schema, table.name))
        return f"EXEC sp_rename {literal(path)}, {literal(name)}, 'OBJECT'"

    def keep(self, plan: CopyPlan, staging: TableRef, kept: TableRef) -> list[str]:
        """Copy the rows to a table with the target's names; staging is dropped with the attempt."""
        lines = ", ".join(self.definitions(_widened(plan), staging=True))
        create = f"CREATE TABLE {qualified(kept)} ({lines})"
        return [*self.begin, create, self.insert_all(plan, kept, staging), self.commit]

    def take_lock(self, session: TargetSession, lock: str, seconds: float) -> bool:
        """See `Statements.take_lock`. It is an application lock."""
        return int(session.query(get_lock(lock, round(seconds * 1000)))[0][0]) >= 0

    holding = " WITH (HOLDLOCK)"
    """Key-range locks, https://learn.microsoft.com/sql/t-sql/queries/hints-transact-sql-table;
    Babelfish ignores it."""

    def referring(self, table: TableRef) -> str:
        """See `Statements.referring`. Both columns have one collation."""
        return (
            "SELECT CAST(k.name AS nvarchar(128)), CAST(s.name AS nvarchar(128)), "
            "CAST(c.name AS nvarchar(128)), CAST(f.name AS nvarchar(128)), "
            "CAST(r.name AS nvarchar(128)), '=', '' "
            "FROM sys.foreign_keys AS k INNER JOIN sys.foreign_key_columns AS p "
            "ON p.constraint_object_id = k.object_id "
            "INNER JOIN sys.tables AS c ON c.object_id = k.parent_object_id "
            "INNER JOIN sys.schemas AS s ON s.schema_id = c.schema_id "
            "INNER JOIN sys.columns AS f ON f.object_id = p.parent_object_id "
            "AND f.column_id = p.parent_column_id "
            "INNER JOIN sys.columns AS r ON r.object_id = p.referenced_object_id "
            "AND r.column_id = p.referenced_column_id "
            f"WHERE k.referenced_object_id = OBJECT_ID({literal(qualified(table))}) "
            "AND k.delete_referential_action <> 0 AND k.is_disabled = 0 "
            "ORDER BY k.object_id, p.constraint_column_id"
        )

    def lock_transaction(self, lock: str, seconds: float) -> str:
        """See `Statements.lock_transaction`."""
        return get_lock(lock, round(seconds * 1000), owner="Transaction")

    def release_lock(self, lock: str) -> str:
        """See `take_lock`."""
        return f"EXEC sp_releaseapplock @Resource = {literal(lock)}, @LockOwner = 'Session'"

    def allow_identity(self, table: TableRef, allowed: bool) -> str:
        """IDENTITY_INSERT."""
        return f"SET IDENTITY_INSERT {qualified(table)} {'ON' if allowed else 'OFF'}"

    def mark(self, session: TargetSession, staging: TableRef) -> str:
        """Empty the staging table: an existing empty one shows that the transaction committed."""
        session.execute(f"TRUNCATE TABLE {qualified(rows_of(staging))}")
        return "emptied"

    def committed(self, session: TargetSession, staging: TableRef, mark: str, rows: int) -> bool:
        """Without rows nothing shows it, and nothing is lost by publishing again."""
        return rows > 0 and int(session.query(self.count(staging))[0][0]) == 0

    def broke(self, error: StatementFailed) -> bool:
        """By the driver's SQLSTATE or text."""
        return broke(error)

    def breaks_key(self, error: StatementFailed) -> bool:
        """See `Statements.breaks_key`. The driver has an SQLSTATE for all constraints."""
        return str(error.code) in KEY_BROKEN

    def delete_known(self, plan: CopyPlan, table: TableRef, staging: TableRef) -> str:
        """T-SQL names the table to delete from by its alias."""
        _, own = aliases(plan)
        return f"DELETE {own} FROM {self.known_rows(plan, table, staging)}"

    def drop_known(self, plan: CopyPlan, table: TableRef, staging: TableRef) -> str:
        """T-SQL names the table to delete from by its alias."""
        staged, own = aliases(plan)
        return (
            f"DELETE {staged} FROM {qualified(staging)} AS {staged} WHERE EXISTS "
            f"(SELECT 1 FROM {qualified(table)} AS {own} WHERE {self.same_row(plan)})"
        )

    def remove_gone(
        self,
        plan: CopyPlan,
        table: TableRef,
        staging: TableRef,
        condition: str,
        mark: Mark | None,
    ) -> str:
        """T-SQL names the table to change by its alias."""
        _, own = aliases(plan)
        change = f"UPDATE {own} SET {mark.setting(self.system)}" if mark else f"DELETE {own}"
        return f"{change} FROM {self.kept_rows(plan, table, staging, condition)}"

    def update_known(
        self, plan: CopyPlan, table: TableRef, staging: TableRef, mark: Mark | None = None
    ) -> str | None:
        """T-SQL names the table to update by its alias."""
        assignments = self.assignments(plan, mark)
        if not assignments:
            return None
        staged, own = aliases(plan)
        return (
            f"UPDATE {own} SET {assignments} FROM {qualified(table)} AS {own} "
            f"INNER JOIN {qualified(staging)} AS {staged} ON {self.same_row(plan)}"
        )

    def equal(self, plan: CopyPlan, column: Column) -> str:
        """`=` ignores trailing blanks under every collation; DATALENGTH counts them."""
        same = super().equal(plan, column)
        if not _is_text(column):
            return same
        name, (staged, own) = DIALECT.quote(column.name), aliases(plan)
        return f"{same} COLLATE {BINARY} AND DATALENGTH({own}.{name}) = DATALENGTH({staged}.{name})"


STATEMENTS = SqlServerStatements()


def rows_of(staging: TableRef) -> TableRef:
    """The table behind a staging view; see `SqlServerStatements.create_staging`."""
    return replace(staging, name=f"{staging.name}_rows")


def loaded(plan: CopyPlan) -> CopyPlan:
    """The plan of the table behind a staging view, with the columns `c0`, `c1`, ...

    It holds times of day as timestamps: Babelfish 4 truncates times of day that it computed with
    doubles, so that one in four loses a microsecond, whereas it rounds timestamps.
    """
    columns = [
        replace(
            column,
            target=replace(
                column.target,
                name=f"c{number}",
                type=re.sub("^time", "datetime2", column.target.type, flags=re.IGNORECASE),
            ),
            arrow_type=pa.timestamp("us") if _is_time(column.target) else column.arrow_type,
        )
        for number, column in enumerate(_widened(plan).columns)
    ]
    names = [column.name for column in plan.target_columns]
    key = columns[names.index(plan.key.target.name)]
    return replace(plan, columns=tuple(columns), key=key)


def shown(plan: CopyPlan, rows: Iterable[Column]) -> list[Column]:
    """The columns of a staging view, derived from those of its table: Babelfish's catalog has the
    names of a view's columns in small letters."""
    staged = {column.name: column for column in rows}
    columns = []
    for number, target in enumerate(plan.target_columns):
        column = replace(staged[f"c{number}"], name=target.name)
        if _is_time(target):
            column = replace(column, type=re.sub("^datetime2", "time", column.type))
        columns.append(column)
    return columns


def staging_schema(session: TargetSession, table: TableRef) -> str:
    """The schema for a table's staging tables: its own, or the user's where tools would misread it.

    The driver puts names into brackets, in which Babelfish reads no escapes.
    """
    if not MISREAD.search(table.schema):
        return table.schema
    return str(session.query("SELECT SCHEMA_NAME()")[0][0])


def not_renamed(table: TableRef) -> str | None:
    """Why sp_rename of Babelfish would not find a table by its name; None if it would."""
    folded = [char for char in f"{table}" if char > "\x7f" and char != char.lower()]
    if folded:
        return f"makes small letters of {''.join(folded)}"
    return 'reads no schema with both " and ]' if {'"', "]"} <= set(table.schema) else None


def get_lock(resource: str, wait_milliseconds: int, owner: str = "Session") -> str:
    """Take an application lock for the session or the transaction; the result is negative if it is
    held by another."""
    return (
        "DECLARE @result int; "
        f"EXEC @result = sp_getapplock @Resource = {literal(resource)}, @LockMode = 'Exclusive', "
        f"@LockOwner = '{owner}', @LockTimeout = {wait_milliseconds}; "
        "SELECT @result AS result;"
    )


def _widened(plan: CopyPlan) -> CopyPlan:
    """The plan with decimals of 38 digits: in a bulk load Babelfish 4 reads 16 bytes for each,
    whereas a client sends as many as the column's precision needs (MS-TDS, 2.2.5.5.1.6).
    """
    columns = (
        replace(column, target=replace(column.target, type=_widest(column.target.type)))
        for column in plan.columns
    )
    return replace(plan, columns=tuple(columns))


def _widest(declared: str) -> str:
    type_ = read(declared)
    if not isinstance(type_.kind, Decimal) or type_.name in MONEY:
        return declared
    return f"decimal({MOST_DIGITS},{type_.kind.scale})"


def _is_time(column: Column) -> bool:
    return read(column.type).name == "time"


def indexable(key: Column) -> bool:
    """Whether an index can hold every possible value of a column."""
    size = index_bytes(key.type)
    return size is not None and size <= INDEX_BYTES


def primary_key(plan: CopyPlan) -> list[str]:
    """The columns of a new table's primary key; none if it has none."""
    identity = list(plan.row_identity)
    by_name = {column.name: column for column in plan.target_columns}
    columns = [by_name[name] for name in identity]
    if any(column.nullable or _is_text(column) for column in columns):
        return []
    sizes = [index_bytes(column.type) or KEY_BYTES + 1 for column in columns]
    return identity if sum(sizes) <= KEY_BYTES else []


def _is_text(column: Column) -> bool:
    return isinstance(read(column.type).kind, Text)
