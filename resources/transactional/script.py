"""The statements that write a delta with its rows as constants, for somebody who reviews them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target_options import TargetOptions, Written
from tableferry.resources.errors import InputError
from tableferry.resources.tables import staging_name
from tableferry.resources.transactional.statements import Statements
from tableferry.resources.types.column import Column

ROWS_PER_STATEMENT = 500
"""SQL Server takes at most 1,000 rows of constants.
https://learn.microsoft.com/sql/t-sql/queries/table-value-constructor-transact-sql"""


def script(
    sql: Statements,
    publication: Publication,
    options: TargetOptions,
    rows: Iterable[pa.RecordBatch],
    *,
    identity: bool,
) -> Iterator[str]:
    """Write the transaction that puts a range right, for the target's command line.

    See `Target.script`, and `_statements`.

    Raises:
        InputError: a name, value or condition cannot be written so.
    """
    target = publication.plan.target
    for statement in _statements(sql, publication, options, rows, identity=identity):
        try:
            yield target.system.dialect.scripted(statement)
        except InputError as error:
            raise InputError(f"{target}: {error}") from None


def _statements(
    sql: Statements,
    publication: Publication,
    options: TargetOptions,
    rows: Iterable[pa.RecordBatch],
    *,
    identity: bool,
) -> Iterator[str]:
    """Write the transaction that puts a range right.

    The rows go through a table of their own, as those of a repair go through staging, so that they
    are found and written by the same statements.

    Args:
        sql: the target's SQL.
        publication: the range, with the delta.
        options: how it is written.
        rows: the rows of the delta to insert or update, in the plan's columns.
        identity: whether an identity column is written.
    """
    plan, delta = publication.plan, publication.delta
    table = plan.target
    name = f"{staging_name(table, publication.key_range.name)}_repair"
    staging = replace(table, name=name)
    allowing = [sql.allow_identity(table, allowed) for allowed in (True, False)]
    yield from sql.script_begin
    yield from sql.begin
    options = replace(options, single_rows=Written.of(delta, options.mark))
    _, removes, updates, inserts = sql.publish(publication, options, table, staging)
    yield from removes
    if delta.moved:
        columns = sql.columns(plan)
        definitions = ", ".join(sql.definitions(plan, staging=True))
        yield f"CREATE TABLE {qualified(staging)} ({definitions})"
        for batch in rows:
            for at in range(0, batch.num_rows, ROWS_PER_STATEMENT):
                values = _values(plan, batch.slice(at, ROWS_PER_STATEMENT))
                yield f"INSERT INTO {qualified(staging)} ({columns}) VALUES\n{values}"
        if identity and allowing[0]:
            yield allowing[0]
        yield from (*updates, *inserts)
        if identity and allowing[1]:
            yield allowing[1]
        yield drop_table(staging)
    yield sql.commit


def _values(plan: CopyPlan, batch: pa.RecordBatch) -> str:
    columns = [
        _constants(plan, column, array)
        for column, array in zip(plan.target_columns, batch.columns, strict=True)
    ]
    return ",\n".join(f"({', '.join(row)})" for row in zip(*columns, strict=True))


def _constants(plan: CopyPlan, column: Column, array: pa.Array) -> list[str]:
    """Write the values of a column as constants that its type takes exactly."""
    dialect = plan.target.system.dialect
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return [
            "NULL" if value is None else dialect.binary(value, column)
            for value in array.to_pylist()
        ]
    try:
        if pa.types.is_fixed_size_binary(array.type):
            texts = [value and str(uuid.UUID(bytes=value)) for value in array.to_pylist()]
        elif pa.types.is_decimal(array.type):
            # Arrow writes small ones with an exponent, which SQL Server takes for a float's
            texts = [None if value is None else format(value, "f") for value in array.to_pylist()]
        else:
            texts = pc.cast(array, pa.large_string()).to_pylist()
    except pa.ArrowNotImplementedError:
        raise InputError(
            f"{plan.target}: the values of {column.name!r}, {column.type}, cannot be written as "
            "constants; `ferry repair` without --sql puts them right"
        ) from None
    return ["NULL" if text is None else dialect.constant(text, column) for text in texts]
