"""Loads key ranges into SQL Server tables: copied out of sight, each shown by one transaction."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.artifacts import artifact_folder, workspace
from tableferry.resources.columns.conform import key_of
from tableferry.resources.contract.copy_plan import ColumnPlan, CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target import LoadReceipt
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.errors import InputError, ReceiptMismatch, StatementFailed, ValueRefused
from tableferry.resources.sqlserver import anew, ddl, hazards, policies, types
from tableferry.resources.sqlserver.bcp import load_files
from tableferry.resources.sqlserver.connection import SqlServerConnection
from tableferry.resources.sqlserver.ddl import loaded, rows_of
from tableferry.resources.sqlserver.dialect import DIALECT, literal
from tableferry.resources.sqlserver.errors import copying
from tableferry.resources.sqlserver.server import SqlServerServer
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.load import TransactionalLoad
from tableferry.resources.transactional.target import TransactionalTarget
from tableferry.resources.types.type_map import Column
from tableferry.resources.wires.text_rows import Counted

DIGITS = ("9" * 38, ("1234567890" * 4)[:38])
"""Numbers that a server is tried with."""


@dataclass
class SqlServerLoad(TransactionalLoad[SqlServerConnection]):
    """See `TransactionalLoad`."""

    resource: SqlServerServer
    files: contextlib.ExitStack
    """Holds the artifact files until the commit or the attempt's end."""

    def load_arrow(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None = None
    ) -> LoadReceipt:
        """Bulk copy batches into the staging table. See `RangeLoad.load_arrow`."""
        receipt = bulk_copy(
            self.resource,
            self.session,
            self.plan,
            self.staging,
            _without_misread(self, batches),
            batch_rows=self.publication.batch_rows,
        )
        self._sent += receipt.rows
        return receipt

    def load_bytes(self, chunks: Iterator[bytes]) -> LoadReceipt:
        """Load framed rows by bcp. See `RangeLoad.load_bytes`."""
        if (framing := self.publication.framing) is None:
            raise InputError("text for sqlserver needs terminators: Publication.framing")
        receipt = load_files(
            self.resource,
            self.session,
            self.plan,
            self.staging,
            chunks,
            framing,
            self.files.enter_context(workspace(artifact_folder())),
        )
        self._sent += receipt.rows
        return receipt

    def finalise(self) -> int:
        """Remove the artifact files, too. See `TransactionalLoad.finalise`."""
        rows = super().finalise()
        self.files.close()
        return rows

    def _connect(self) -> SqlServerConnection:
        return self.resource.connected()


def bulk_copy(
    resource: SqlServerServer,
    session: SqlServerConnection,
    plan: CopyPlan,
    staging: TableRef,
    batches: Iterable[pa.RecordBatch],
    *,
    batch_rows: int = 65_536,
) -> LoadReceipt:
    """Copy batches into a staging table by the driver, on a connection with the session's options.

    The batches have the target's columns in the plan's order, of the plan's Arrow types; the server
    commits `batch_rows` rows at once.

    Raises:
        ReceiptMismatch: the driver reports another number of rows than it was given.
    """
    table, source = rows_of(staging), Counted(batches)
    schema = loaded(plan).arrow_schema
    reader = pa.RecordBatchReader.from_batches(schema, _renamed(source, schema))
    try:
        with session.raw.cursor() as cursor:
            result = cursor.bulkcopy_arrow(
                qualified(table),
                reader,
                batch_size=batch_rows,
                timeout=0,  # no limit; the default is 30 s for the whole copy
                column_mappings=list(enumerate(schema.names)),
                keep_nulls=True,
                table_lock=True,
            )
    except Exception as error:
        # the driver's own checks of the values raise ValueError
        raise (source.error or copying(error, session.login.settings, qualified(table))) from None
    if result["rows_copied"] != source.rows:
        raise ReceiptMismatch(
            f"{table}: the driver copied {result['rows_copied']} of {source.rows} rows"
        )
    return LoadReceipt(source.rows, source.bytes)


def takes_38_digits(load: SqlServerLoad) -> bool:
    """Whether decimals of 38 digits arrive in a bulk copy, by a trial beside a staging table.

    Babelfish 4 writes them into a text of 40 bytes without an end, and reads on behind it, so that
    what arrives depends on what is there (TdsTypeNumericToDatum, tdstypeio.c). Fewer digits arrive.
    Asked once per server, also in the middle of a bulk copy.
    """

    def ask() -> bool:
        # the driver copies once at a time in a thread
        with ThreadPoolExecutor(1) as other:
            return other.submit(_digits_arrive, load).result()

    return load.resource.settings().facts.known("38 digits", ask)


def _digits_arrive(load: SqlServerLoad) -> bool:
    values = [Decimal(f"{sign}{digits}e-10") for digits in DIGITS for sign in ("", "-")] * 16
    number, value = pa.field("n", pa.int32()), pa.field("x", pa.decimal128(38, 10))
    arrays = [pa.array(range(len(values)), number.type), pa.array(values, value.type)]
    columns = tuple(
        ColumnPlan(Column(field.name, type_), Column(field.name, type_), None, field.type)
        for field, type_ in ((number, "int"), (value, "decimal(38,10)"))
    )
    plan = CopyPlan(load.plan.target, load.plan.target, columns, columns[0])
    # what a dead process leaves under such a name is dropped with the range's staging tables
    staging = replace(load.staging, name=f"{load.lock}_{uuid.uuid4().hex[:12]}")
    session = load.resource.connected()
    try:
        for statement in load.sql.create_staging(plan, staging):
            session.execute(statement)
        try:
            batch = pa.record_batch(arrays, schema=pa.schema([number, value]))
            bulk_copy(load.resource, session, plan, staging, [batch])
            # a driver cuts off digits that are stored behind the scale
            shown = "CAST(x AS varchar(60))"
            rows = session.query(f"SELECT n, {shown} FROM {qualified(staging)}")
        except (StatementFailed, ReceiptMismatch) as error:
            if getattr(error, "transient", False):
                raise
            return False
        finally:
            session.execute(load.sql.drop_staging(staging))
    finally:
        session.close()
    return sorted(map(tuple, rows)) == [*enumerate(format(value, "f") for value in values)]


def _without_misread(
    load: SqlServerLoad, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield batches without decimals of 38 digits that the server gets wrong.

    Raises:
        ValueRefused: a batch has one.
    """
    plan = load.plan
    widest = {
        at: pa.scalar(Decimal(f"1e{37 - column.arrow_type.scale}"), column.arrow_type)
        for at, column in enumerate(plan.columns)
        if pa.types.is_decimal128(column.arrow_type) and column.arrow_type.precision == 38
    }
    for batch in batches:
        for at, least in widest.items():
            values = batch.column(at)
            row = pc.index(pc.greater_equal(pc.abs(values), least), True).as_py()
            if row >= 0 and not takes_38_digits(load):
                key = key_of(plan, batch, row)
                name, value = plan.columns[at].source.name, str(values[row].as_py())
                reason = (
                    "has 38 digits, of which this server gets the last ones wrong in a bulk copy "
                    f"(constants were tried); declare columns: {{{name}: {{type: nvarchar(41)}}}} "
                    "for its text, or exclude the column"
                )
                raise ValueRefused(str(plan.source), name, key, value, reason)
        yield batch


def _renamed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches with the names and types of the staged columns; see `ddl.loaded`."""
    for batch in batches:
        arrays = [
            array.cast(pa.int64()).cast(field.type) if pa.types.is_time64(array.type) else array
            for array, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class SqlServerTarget(TransactionalTarget[SqlServerConnection]):
    """A SQL Server or Babelfish as a load target, which holds ranges by application locks."""

    resource: SqlServerServer
    sql = ddl.STATEMENTS

    def require(self, plan: CopyPlan, options: TargetOptions) -> None:
        """Refuse a swap whose tables Babelfish could not rename, too. See `Target.require`."""
        super().require(plan, options)
        why = ddl.not_renamed(plan.target)
        if why and options.mode.whole_table and policies.is_babelfish(self.resource):
            raise InputError(
                f"{plan.target}: no swap on Babelfish, whose sp_rename {why}; "
                "take another name, or another write mode"
            )

    def altering(
        self, table: TableRef, before: Column, after: Column
    ) -> tuple[tuple[str, ...], str]:
        """A primary key and an index of ours make way for the statement, and are made again by its
        transaction. See `Target.altering`."""
        statements, _ = super().altering(table, before, after)
        if policies.is_babelfish(self.resource) or longer(before, after):
            return statements, ""
        return altered_with_indexes(self.resource, table, before, after, statements[0])

    def _session(self) -> AbstractContextManager[SqlServerConnection]:
        return self.resource.pooled_connection()

    def _in_catalog(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        return hazards.hazards(self.resource, plan, options)

    def lost(self, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
        """See `Target.lost`."""
        return anew.lost(self.resource, plan)

    def staged_columns(self, plan: CopyPlan, staging: TableRef) -> list[Column]:
        """Derived from the table behind the view. See `Target.staged_columns`."""
        return ddl.shown(plan, self.resource.columns(ddl.rows_of(staging)))

    def _staging_schema(self, session: SqlServerConnection, table: TableRef) -> str:
        return ddl.staging_schema(session, table)

    def _load(self, stack: contextlib.ExitStack, **parts: Any) -> SqlServerLoad:
        return SqlServerLoad(files=stack.enter_context(contextlib.ExitStack()), **parts)


OWN_INDEX = re.compile(r"ix_[0-9a-f]{12}_key")
"""The names of the indexes that `SqlServerStatements.create_table` makes."""

IN_PLACE = ("varchar", "nvarchar", "varbinary")
"""Types whose columns become longer though an index holds them,
https://learn.microsoft.com/sql/t-sql/statements/alter-table-transact-sql#alter-column"""

INDEXES = """
SELECT CAST(i.name AS nvarchar(128)), i.type, CAST(i.is_primary_key AS int),
       CAST(i.is_unique AS int), CAST(COALESCE(q.is_system_named, 0) AS int),
       CAST(c.name AS nvarchar(128))
FROM sys.tables AS t
INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id
INNER JOIN sys.indexes AS i ON i.object_id = t.object_id
INNER JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
INNER JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
LEFT JOIN sys.key_constraints AS q
    ON q.parent_object_id = i.object_id AND q.unique_index_id = i.index_id
WHERE s.name = {schema} AND t.name = {name}
ORDER BY i.index_id, k.key_ordinal
"""

REFERRING = """
SELECT CAST(f.name AS nvarchar(128)) FROM sys.foreign_keys AS f
INNER JOIN sys.tables AS t ON t.object_id = f.referenced_object_id
INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id
WHERE s.name = {schema} AND t.name = {name}
"""


@dataclass
class _Index:
    name: str
    clustered: bool
    primary: bool
    unique: bool
    system_named: bool
    columns: list[str] = field(default_factory=list)

    @property
    def own(self) -> bool:
        """Whether it is as we make them, so that it can be made again."""
        if self.primary:
            return self.system_named
        return bool(OWN_INDEX.fullmatch(self.name)) and not (self.unique or self.clustered)

    def drop(self, table: TableRef) -> str:
        name = DIALECT.quote(self.name)
        if self.primary:
            return f"ALTER TABLE {qualified(table)} DROP CONSTRAINT {name}"
        return f"DROP INDEX {name} ON {qualified(table)}"

    def create(self, table: TableRef) -> str:
        columns = ", ".join(map(DIALECT.quote, self.columns))
        if self.primary:
            kind = "CLUSTERED" if self.clustered else "NONCLUSTERED"
            return f"ALTER TABLE {qualified(table)} ADD PRIMARY KEY {kind} ({columns})"
        return f"CREATE INDEX {DIALECT.quote(self.name)} ON {qualified(table)} ({columns})"


def longer(before: Column, after: Column) -> bool:
    """Whether a column only becomes longer, which indexes do not prevent."""
    old, new = types.read(before.type).name, types.read(after.type).name
    return old == new and new in IN_PLACE and before.nullable == after.nullable


def altered_with_indexes(
    endpoint: Endpoint, table: TableRef, before: Column, after: Column, statement: str
) -> tuple[tuple[str, ...], str]:
    """See `Target.altering`; `statement` alters the column once no index holds it."""
    place = {"schema": literal(table.schema), "name": literal(table.name)}
    by_name: dict[str, _Index] = {}
    for name, type_, primary, unique, system_named, column in endpoint.query(
        INDEXES.format(**place)
    ):
        index = by_name.setdefault(
            name, _Index(name, type_ == 1, bool(primary), bool(unique), bool(system_named))
        )
        index.columns.append(column)
    holding = [index for index in by_name.values() if before.name in index.columns]
    if not holding:
        return (statement,), ""
    if others := [index.name for index in holding if not index.own]:
        return (statement,), f"the index {', '.join(map(repr, others))} holds it; drop that first"
    if any(index.primary for index in holding):
        if after.nullable:
            return (statement,), "the primary key holds it, which cannot be NULL"
        if keys := [str(name) for (name,) in endpoint.query(REFERRING.format(**place))]:
            referring = ", ".join(map(repr, keys))
            return (statement,), f"the foreign key {referring} refers to it; drop that first"
    steps = (
        "SET XACT_ABORT ON",
        "BEGIN TRANSACTION",
        *(index.drop(table) for index in holding),
        statement,
        *(index.create(table) for index in holding),
        "COMMIT TRANSACTION",
    )
    return ("; ".join(steps),), ""
