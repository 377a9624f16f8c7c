"""What of a PostgreSQL table may show its readers other rows than are published into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import Hazard
from tableferry.resources.contract.target import TargetOptions, replaces, row_identity
from tableferry.resources.postgres.dialect import DIALECT

INSERT, DELETE, UPDATE = 4, 8, 16
"""Events, as pg_trigger.tgtype has them (catalog/pg_trigger.h)."""

# By name, kind, and which of the three events it is about. Triggers fire on the table that has the
# row, be it a partition; those by which the server keeps foreign keys and deferred unique keys are
# its own. Rules and views are those of the table that a statement names.
HAZARDS_SQL = """
WITH RECURSIVE named AS (
    SELECT c.oid, c.relkind FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = {schema} AND c.relname = {name}
), tables AS (
    SELECT oid, 0 AS depth FROM named UNION
    SELECT i.inhrelid, depth + 1 FROM pg_catalog.pg_inherits i JOIN tables t ON i.inhparent = t.oid
), firing AS (
    SELECT CASE pg_catalog.current_setting('session_replication_role')
        WHEN 'replica' THEN 'RA' ELSE 'OA' END AS states
)
SELECT CASE WHEN g.tginitdeferred THEN 'deferred ' ELSE '' END
        || CASE WHEN g.tgconstraint <> 0 THEN 'constraint ' ELSE '' END || 'trigger' AS kind,
    pg_catalog.quote_ident(g.tgname) AS name, g.tgrelid::regclass::text AS place,
    CASE WHEN g.tgtype & 2 <> 0 THEN 'BEFORE' WHEN g.tgtype & 64 <> 0 THEN 'INSTEAD OF'
        ELSE 'AFTER' END
        || ' ' || pg_catalog.concat_ws(' OR ', CASE WHEN g.tgtype & 4 <> 0 THEN 'INSERT' END,
            CASE WHEN g.tgtype & 16 <> 0 THEN 'UPDATE' END,
            CASE WHEN g.tgtype & 8 <> 0 THEN 'DELETE' END)
        || CASE WHEN g.tgtype & 1 <> 0 THEN ', for each row' ELSE ', for each statement' END AS how,
    g.tgtype & 28 AS events, false AS certain, NULL::text[] AS columns, depth
FROM pg_catalog.pg_trigger g JOIN tables t ON t.oid = g.tgrelid, firing
WHERE pg_catalog.strpos(states, g.tgenabled::text) > 0 AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_proc p WHERE p.oid = g.tgfoid
        AND p.pronamespace = 'pg_catalog'::regnamespace
        AND (pg_catalog.starts_with(p.proname::text, 'RI_FKey_')
            OR p.proname = 'unique_key_recheck'))
UNION ALL
SELECT 'rule', pg_catalog.quote_ident(r.rulename), n.oid::regclass::text,
    CASE WHEN r.is_instead THEN 'DO INSTEAD' ELSE 'DO ALSO' END,
    CASE r.ev_type WHEN '2' THEN 16 WHEN '3' THEN 4 ELSE 8 END,
    r.is_instead AND r.ev_qual::text = '<>', NULL, 0
FROM pg_catalog.pg_rewrite r JOIN named n ON n.oid = r.ev_class, firing
WHERE r.ev_type <> '1' AND pg_catalog.strpos(states, r.ev_enabled::text) > 0
UNION ALL
SELECT 'foreign key', pg_catalog.quote_ident(coalesce(
        (SELECT p.conname FROM pg_catalog.pg_constraint p WHERE p.oid = k.conparentid), k.conname)),
    k.conrelid::regclass::text,
    CASE action WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT'
        WHEN 'r' THEN 'RESTRICT' ELSE 'NO ACTION' END,
    event, k.conrelid <> n.oid, (SELECT array_agg(a.attname::text) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = k.confrelid AND a.attnum = ANY (k.confkey)), 0
FROM named n, pg_catalog.pg_constraint k JOIN tables t ON t.oid = k.confrelid
CROSS JOIN LATERAL (VALUES (8, k.confdeltype), (16, k.confupdtype)) AS e(event, action)
WHERE k.contype = 'f' AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_constraint p JOIN tables o ON o.oid = p.confrelid
    WHERE p.oid = k.conparentid)
UNION ALL
SELECT 'table', '', c.oid::regclass::text, '', 0, false, NULL, depth
FROM tables t JOIN pg_catalog.pg_class c ON c.oid = t.oid
WHERE depth > 0 AND NOT c.relispartition
UNION ALL
SELECT CASE relkind WHEN 'v' THEN 'view' ELSE 'foreign table' END, '', oid::regclass::text, '', 0,
    false, NULL, 0
FROM named WHERE relkind IN ('v', 'f')
UNION ALL
SELECT 'row security', '', oid::regclass::text, '', 0, false, NULL, 0
FROM named WHERE pg_catalog.row_security_active(oid)
UNION ALL
SELECT DISTINCT 'reading view', '', v.oid::regclass::text, '', 0, false, NULL::text[], 0
FROM named n JOIN pg_catalog.pg_depend d ON d.refobjid = n.oid
    AND d.refclassid = 'pg_catalog.pg_class'::regclass
    AND d.classid = 'pg_catalog.pg_rewrite'::regclass
JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid
JOIN pg_catalog.pg_class v ON v.oid = r.ev_class AND v.oid <> n.oid
ORDER BY depth, kind, place, name, events
"""

DESTROYING = ("CASCADE", "SET NULL", "SET DEFAULT")
UPSERT = "Declare write: upsert, which deletes nothing"
APART = "or load into a table of its own"


class Row(NamedTuple):
    """One of the query's rows."""

    kind: str
    name: str
    place: str
    how: str
    events: int
    certain: bool
    """Of a rule, that it always replaces the statement; of a foreign key, that it is another
    table's."""
    columns: Sequence[str] | None
    """Those that a foreign key refers to."""
    depth: int

    @property
    def where(self) -> str:
        """What it is called."""
        return f"{self.name} on {self.place}" if self.name else self.place


def hazards(endpoint: Endpoint, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
    """See `Target.hazards`."""
    schema, name = (DIALECT.literal(text) for text in (plan.target.schema, plan.target.name))
    rows = [Row(*row) for row in endpoint.query(HAZARDS_SQL.format(schema=schema, name=name))]
    if options.mode.whole_table:
        return [hazard for row in rows for hazard in _of_swap(row)]
    events = _events(plan, options)
    seen: set[tuple[str, str]] = set()
    hazards: list[Hazard] = []
    for row in rows:
        # a trigger of a partitioned table is one of each partition, too
        if (row.events and not row.events & events) or (row.name, row.how) in seen:
            continue
        seen |= {(row.name, row.how)} if row.kind.endswith("trigger") else set()
        hazards += _READ.get(row.kind, _trigger)(row, plan, events)
    return hazards


def _events(plan: CopyPlan, options: TargetOptions) -> int:
    if replaces(plan, options):
        return INSERT | DELETE
    return INSERT | UPDATE if options.mode.updates_known else INSERT


def _of_swap(row: Row) -> Iterator[Hazard]:
    """What a table has that another one is to take the place of."""
    refers = row.kind == "foreign key" and row.certain and row.events == DELETE
    if refers or row.kind == "reading view":
        kind = "view" if row.kind == "reading view" else row.kind
        says = "is of a table that a swap drops"
        yield Hazard(
            kind, row.where, "refused", says, f"Declare another write mode, or drop the {kind}"
        )
    elif row.kind.endswith("trigger") or row.kind in ("rule", "row security"):
        yield Hazard(row.kind, row.where, "noted", "is not carried over to the new table by a swap")


def _trigger(row: Row, plan: CopyPlan, events: int) -> Iterator[Hazard]:
    yield Hazard(
        row.kind,
        row.where,
        "changes",
        f"{row.how}, may change rows as they are published",
        "Have it leave them as they are, "
        f"ALTER TABLE {row.place} DISABLE TRIGGER {row.name}, {APART}",
    )


def _rule(row: Row, plan: CopyPlan, events: int) -> Iterator[Hazard]:
    yield Hazard(
        "rule",
        row.where,
        "refused" if row.certain else "changes",
        f"{row.how}, {'replaces' if row.certain else 'may change'} statements that publish rows",
        f"DROP RULE {row.name} ON {row.place}, {APART}",
    )


def _foreign_key(row: Row, plan: CopyPlan, events: int) -> Iterator[Hazard]:
    if row.events == UPDATE:
        if row.how in DESTROYING[1:] and not set(row.columns or ()) <= set(row_identity(plan)):
            says = f"ON UPDATE {row.how}, changes rows of {row.place} that refer to what is updated"
            yield Hazard("foreign key", row.where, "refused", says, "Drop it, or have it CASCADE")
    elif row.how in DESTROYING:
        says = f"ON DELETE {row.how}, changes the rows that refer to those which are replaced"
        yield Hazard(
            "foreign key", row.where, "destroys", says, f"{UPSERT}, or drop the constraint"
        )
    else:
        says = f"ON DELETE {row.how}, refuses to have rows replaced that are referred to"
        yield Hazard("foreign key", row.where, "noted", says, f"{UPSERT}, or drop the constraint")


def _table(row: Row, plan: CopyPlan, events: int) -> Iterator[Hazard]:
    if events & DELETE:
        says = "inherits from it, so that rows of a range that is replaced are deleted there, too"
        yield Hazard("table", row.where, "destroys", says, f"{UPSERT}, {APART}")


def _elsewhere(row: Row, plan: CopyPlan, events: int) -> Iterator[Hazard]:
    says = "is no table: what lies behind it may change rows"
    yield Hazard(row.kind, row.where, "changes", says, "Name the table itself as the target")


def _row_security(row: Row, plan: CopyPlan, events: int) -> Iterator[Hazard]:
    # where that is not declared, the table is refused before: see `catalog.hidden`
    says = "hides rows from this role, or refuses them, as 'row_security: apply' lets it"
    yield Hazard("row security", f"of {row.place}", "noted", says)


def _nothing(row: Row, plan: CopyPlan, events: int) -> Iterator[Hazard]:
    """A view that reads a table is of no concern where it stays."""
    yield from ()


_READ: dict[str, Callable[[Row, CopyPlan, int], Iterator[Hazard]]] = {
    "rule": _rule,
    "foreign key": _foreign_key,
    "table": _table,
    "view": _elsewhere,
    "foreign table": _elsewhere,
    "row security": _row_security,
    "reading view": _nothing,
}
