"""What a ClickHouse table that is recreated has of the one that it replaces.

The table's comment is carried over; row policies and privileges are by its name. Whatever else
somebody has given to the old table is refused before anything happens, unless the transfer
declares it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tableferry.resources.clickhouse.ddl import shape, without_texts
from tableferry.resources.clickhouse.dialect import RANGE_COLUMN, literal
from tableferry.resources.clickhouse.locks import MARK
from tableferry.resources.clickhouse.server import ClickHouseServer, among
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.tables import TableRef

TABLE_SQL = (
    "SELECT engine, engine_full, create_table_query, sorting_key, primary_key, sampling_key, "
    "arrayMap((d, t) -> concat(d, '.', t), dependencies_database, dependencies_table) "
    "FROM system.tables WHERE database = {schema} AND name = {name}"
)

PARTS_SQL = (
    "SELECT 'skipping index', name FROM system.data_skipping_indices "
    "WHERE database = {schema} AND table = {name} AND NOT startsWith(name, 'auto_') "
    "UNION ALL SELECT 'projection', name FROM system.projections "
    "WHERE database = {schema} AND table = {name} "
    "UNION ALL SELECT lower(default_kind), concat('of column ', name) FROM system.columns "
    "WHERE database = {schema} AND table = {name} AND default_kind != '' "
    f"AND (name, default_kind) != ('{RANGE_COLUMN}', 'MATERIALIZED') "
    "UNION ALL SELECT 'codec', concat('of column ', name) FROM system.columns "
    "WHERE database = {schema} AND table = {name} AND compression_codec != ''"
)

USUAL = ("index_granularity", "allow_nullable_key")
"""Settings that every table of ours has."""

PLAIN = re.compile(r"(Replicated|Shared)?MergeTree")
CONSTRAINT = re.compile(r"\bCONSTRAINT (\S+) (?:CHECK|ASSUME)\b")
STATISTICS = re.compile(r"\bSTATISTICS\s*\(")
SETTING = re.compile(r"(\w+) = ")


def lost(endpoint: Endpoint, plan: CopyPlan, options: TargetOptions) -> Iterator[tuple[str, str]]:
    """Yield the kind and name of what the target has and a new table would not."""
    names = {"schema": literal(plan.target.schema), "name": literal(plan.target.name)}
    rows = endpoint.query(TABLE_SQL.format(**names))
    if not rows:
        return
    engine, full, definition, sorting, primary, sampling, readers = rows[0]
    declared, text = without_texts("".join(shape(plan, options))), without_texts(definition)
    yield from sorted(endpoint.query(PARTS_SQL.format(**names)))
    if not options.engine and not PLAIN.fullmatch(engine):
        yield "engine", f"{engine}, which the transfer does not declare"
    for constraint in CONSTRAINT.findall(text):
        yield "constraint", constraint
    if re.search(r"\bTTL\b", text) and not re.search(r"\bTTL\b", declared):
        yield "TTL", "of the table"
    if STATISTICS.search(text):
        yield "statistics", "of columns"
    if sampling:
        yield "sampling key", sampling
    if primary != sorting:
        yield "primary key", primary
    settings = without_texts(full).rpartition(" SETTINGS ")[2] if " SETTINGS " in full else ""
    for setting in SETTING.findall(settings):
        if setting not in (*USUAL, *SETTING.findall(declared)):
            yield "setting", setting
    for view in readers:
        yield "materialized view", view


def commented(endpoint: Endpoint, table: TableRef) -> bool:
    """Whether a table that a run has made, or a column of it, has a comment."""
    names = f"database = {literal(table.schema)} AND {{}} = {literal(table.name)}"
    return bool(
        endpoint.query(
            f"SELECT 1 FROM system.tables WHERE {names.format('name')} AND comment != '' "
            f"UNION ALL SELECT 1 FROM system.columns WHERE {names.format('table')} "
            "AND comment != ''"
        )
    )


def drop_former(resource: ClickHouseServer, table: TableRef, former: TableRef) -> None:
    """Drop an outdated shadow. If it is the table that has been exchanged for this one, this one
    gets its comment, unless it has one of its own already. Where there is none, nothing is altered,
    for which a login needs a grant of its own (ALTER MODIFY COMMENT)."""
    rows = resource.query(f"SELECT name, comment FROM system.tables WHERE {among([table, former])}")
    comments = dict(rows)
    text = comments[former.name]
    if comments[table.name].startswith(MARK) and text and not text.startswith(MARK):
        resource.execute(f"ALTER TABLE {qualified(table)} MODIFY COMMENT {literal(text)}")
    resource.execute(drop_table(former))
