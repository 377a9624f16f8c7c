"""Features of a ClickHouse table that may change published rows.

Projections do not: each part has its own, which the server updates with the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tableferry.resources.clickhouse.cluster import SHARED
from tableferry.resources.clickhouse.ddl import without_texts
from tableferry.resources.clickhouse.server import among
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.looking_ahead import answer
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.tables import TableRef

HAZARDS_SQL = (
    "SELECT name, engine, create_table_query, sorting_key, "
    "arrayMap((d, t) -> concat(d, '.', t), dependencies_database, dependencies_table) "
    "FROM system.tables WHERE {tables}"
)

MERGING = re.compile(
    r"(Replacing|Summing|Aggregating|VersionedCollapsing|Collapsing|Coalescing|Graphite)MergeTree"
)
BY_VALUE = ("Summing", "Graphite")
"""Engines that may drop or change even a row with a unique sorting key, if its sums are all zero or
it is old."""

MARKED = re.compile(r"ReplacingMergeTree\((?:'', '', )?[^,()]+, [^,()]+\)")
"""A ReplacingMergeTree with a column that marks rows as deleted."""

EXPIRY = re.compile(r"\bTTL\b(?P<what>.*?)(?=\bSETTINGS\b|\bTTL\b|$)", re.DOTALL)
KEEPS = re.compile(r"\b(TO\s+(DISK|VOLUME)|RECOMPRESS)\b", re.IGNORECASE)
LATER = "later than any check of a range; ferry check sees it then"


def hazards(endpoint: Endpoint, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
    """See `Target.hazards`."""
    features = answer(endpoint, _features, plan.target)
    if features is None:
        return []
    engine, definition, sorting_key, readers = features
    if engine == "Distributed":
        says = "spreads rows over the tables of several servers, which are published each by itself"
        do = "Write to these tables, by a transfer for each server"
        return [Hazard("engine", engine, "refused", says, do)]
    if not engine.endswith("MergeTree"):
        says = "cannot delete and replace rows"
        return [Hazard("engine", engine, "refused", says, "Use one of the MergeTree family")]
    return [
        *_replicated(str(engine)),
        *_merging(str(engine), str(definition), str(sorting_key), plan),
        *_expiring(str(definition)),
        *_readers(readers),
    ]


def _features(
    endpoint: Endpoint, tables: Sequence[TableRef]
) -> dict[TableRef, tuple[str, str, str, Sequence[str]]]:
    """Return engine, definition, sorting key and reading views of tables of one database."""
    rows = endpoint.query(HAZARDS_SQL.format(tables=among(tables)))
    features = {name: (engine, *others) for name, engine, *others in rows}
    return {table: features[table.name] for table in tables if table.name in features}


def _merging(engine: str, definition: str, sorting_key: str, plan: CopyPlan) -> Iterator[Hazard]:
    merging = MERGING.search(engine)
    if merging is None:
        return
    columns = {part.strip().strip("`") for part in sorting_key.split(",")}
    identity = plan.row_identity
    unique = bool(identity) and columns.issuperset(identity)
    if not unique or merging[1] in BY_VALUE or MARKED.search(without_texts(definition)):
        says = f"merges rows that have one sorting key ({sorting_key}), {LATER}"
        do = "ORDER BY all of the primary key, or use MergeTree"
        yield Hazard("engine", engine, "changes", says, do)


def _replicated(engine: str) -> Iterator[Hazard]:
    if engine.startswith(SHARED):
        says = "shows a range to readers of another replica when that has fetched it"
        yield Hazard("replicas", engine, "noted", says)


def _expiring(definition: str) -> Iterator[Hazard]:
    clauses = EXPIRY.finditer(without_texts(definition))
    if any(not KEEPS.search(clause["what"]) or "," in clause["what"] for clause in clauses):
        says = f"removes or changes rows when they are old enough, {LATER}"
        do = "Keep such rows out with `where`, or ALTER TABLE ... REMOVE TTL"
        yield Hazard("TTL", "of the table", "changes", says, do)


def _readers(views: Sequence[str]) -> Iterator[Hazard]:
    for view in views:
        says = "reads what is inserted, and is not told of partitions that are replaced"
        yield Hazard("materialized view", view, "noted", says, "Refresh it after a run")
