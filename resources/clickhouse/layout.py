"""A table's engine, identity and partitioning, and the shadow that takes its place.

A table that is recreated keeps its comment; row policies and privileges are by its name. Whatever
else somebody has given to the old table is refused before anything happens, unless the transfer
declares it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tableferry.resources.clickhouse.ddl import create_table, shape, without_texts
from tableferry.resources.clickhouse.dialect import RANGE_COLUMN, literal
from tableferry.resources.clickhouse.locks import MARK, Owner, read_owner
from tableferry.resources.clickhouse.markers import ClickHouseMarkers, table_identity
from tableferry.resources.clickhouse.server import ClickHouseServer, among
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.table_sql import drop_table, qualified
from tableferry.resources.contract.target_names import shadow_of
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


@dataclass(frozen=True)
class TableLayout:
    """Properties of a table from `system.tables`."""

    engine: str
    engine_full: str
    """The engine with its arguments and what belongs to it, as `CREATE TABLE` has them."""
    uuid: str
    atomic: bool
    """Whether it has one partition per key range, like the tables that we create."""
    database_engine: str


def layout_of(resource: ClickHouseServer, table: TableRef) -> TableLayout | None:
    """The layout of a table; None if it does not exist."""
    return layouts_of(resource, [table]).get(table)


def layouts_of(
    resource: ClickHouseServer, tables: Sequence[TableRef]
) -> dict[TableRef, TableLayout]:
    """Return the layouts of tables of one database, without tables that do not exist."""
    rows = resource.query(
        "SELECT name, engine, engine_full, toString(uuid), partition_key, "
        f"position(create_table_query, '`{RANGE_COLUMN}` UInt64 MATERIALIZED '), "
        f"(SELECT engine FROM system.databases WHERE name = {literal(tables[0].schema)}) "
        f"FROM system.tables WHERE {among(tables)}"
    )
    layouts = {
        name: TableLayout(
            engine,
            engine_full,
            identity,
            bool(hidden) and partition_key == RANGE_COLUMN,
            str(database_engine),
        )
        for name, engine, engine_full, identity, partition_key, hidden, database_engine in rows
    }
    return {table: layouts[table.name] for table in tables if table.name in layouts}


def shadow_owner(
    resource: ClickHouseServer, plan: CopyPlan, options: TargetOptions, layout: TableLayout
) -> Owner:
    """What the comment of a shadow says: which table it replaces, and what it was made like."""
    made_like = resource.definition(plan.target) + create_table(plan, options)
    made_like += str(options.recreate)
    token = hashlib.blake2b(made_like.encode(), digest_size=8).hexdigest()
    return Owner(token=token, replaces=layout.uuid)


def ensure_shadow(
    resource: ClickHouseServer, plan: CopyPlan, options: TargetOptions, layout: TableLayout
) -> None:
    """Create a shadow unless there is one of the shape that it should have.

    It has all rows of the target, and so the ranges that are skipped; or none, and the shape that
    is declared, if the target is recreated. It is filled under another name, so that a shadow of
    the right name is always complete. Attaching partitions links their files and copies nothing.
    """
    target, shadow = plan.target, shadow_of(plan.target)
    owner = shadow_owner(resource, plan, options, layout)
    if read_owner(resource, shadow, shadow.name) == owner:
        return
    if former := layout_of(resource, shadow):
        # a run that has prepared it must not publish in the new one
        ClickHouseMarkers(resource, target).remove(table_identity(shadow, former.uuid))
        drop_former(resource, target, shadow)
        owner = shadow_owner(resource, plan, options, layout)
    filling = replace(shadow, name=f"{shadow.name}_filling")
    if options.recreate is None:
        made = f"CREATE TABLE {qualified(filling)} AS {qualified(target)}"
        parts = resource.query(
            f"SELECT DISTINCT partition_id FROM system.parts WHERE active "
            f"AND database = {literal(target.schema)} AND table = {literal(target.name)}"
        )
    else:
        made, parts = create_table(replace(plan, target=filling), options), []
    resource.execute(drop_table(filling))
    resource.execute(f"{made} COMMENT {owner.comment()}")
    for (identity,) in parts:
        resource.execute(
            f"ALTER TABLE {qualified(filling)} "
            f"ATTACH PARTITION ID {literal(identity)} FROM {qualified(target)}"
        )
    resource.execute(f"RENAME TABLE {qualified(filling)} TO {qualified(shadow)}")


def unapplied(resource: ClickHouseServer, plan: CopyPlan, options: TargetOptions) -> list[str]:
    """Name the declared options that an existing table does not have; see `Target.unapplied`."""
    if not any((options.engine, options.order_by, options.partition_by)):
        return []
    table = options.written_to(plan)
    rows = resource.query(
        "SELECT engine_full, sorting_key, partition_key FROM system.tables "
        f"WHERE database = {literal(table.schema)} AND name = {literal(table.name)}"
    )
    if not rows:
        return []
    engine, sorting_key, partition_key = map(_plain, rows[0])
    declared = {
        "engine": (options.engine, engine.startswith(_plain(options.engine or ""))),
        "order_by": (options.order_by, sorting_key == _plain(options.order_by or "")),
        "partition_by": (options.partition_by, partition_key == _plain(options.partition_by or "")),
    }
    return [
        f"{plan.target} was made without {name} {wanted!r}: `ferry run --recreate` recreates it"
        for name, (wanted, applied) in declared.items()
        if wanted and not applied
    ]


def _plain(sql: str) -> str:
    """SQL without what the server writes otherwise: blanks, quotes of names, outer parentheses."""
    text = re.sub(r"[\s`\"]", "", sql).removesuffix("()")
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text
