"""What may show readers of a PostgreSQL table other rows than those published into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import Effect, Hazard
from tableferry.resources.contract.looking_ahead import answer
from tableferry.resources.contract.target_options import TargetOptions
from tableferry.resources.postgres.names import about_all
from tableferry.resources.tables import TableRef

INSERT, DELETE, UPDATE = 4, 8, 16
"""Events as bits of pg_trigger.tgtype (catalog/pg_trigger.h)."""

# Triggers fire on the table that has the row, which may be a partition; the server's own triggers
# for foreign keys and deferred unique keys are left out. Rules and views are looked up by the table
# that a statement names.
HAZARDS_SQL = """
WITH RECURSIVE named AS (
    SELECT c.oid, c.relkind, c.relname::text AS root FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = {schema} AND c.relname IN ({names})
), tables AS (
    SELECT oid, 0 AS depth, root FROM named UNION
    SELECT i.inhrelid, depth + 1, root
    FROM pg_catalog.pg_inherits i JOIN tables t ON i.inhparent = t.oid
), firing AS (
    SELECT CASE pg_catalog.current_setting('session_replication_role')
        WHEN 'replica' THEN 'RA' ELSE 'OA' END AS states
)
SELECT root, CASE WHEN g.tginitdeferred THEN 'deferred ' ELSE '' END
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
SELECT root, 'rule', pg_catalog.quote_ident(r.rulename), n.oid::regclass::text,
    CASE WHEN r.is_instead THEN 'DO INSTEAD' ELSE 'DO ALSO' END,
    CASE r.ev_type WHEN '2' THEN 16 WHEN '3' THEN 4 ELSE 8 END,
    r.is_instead AND r.ev_qual::text = '<>', NULL, 0
FROM pg_catalog.pg_rewrite r JOIN named n ON n.oid = r.ev_class, firing
WHERE r.ev_type <> '1' AND pg_catalog.strpos(states, r.ev_enabled::text) > 0
UNION ALL
SELECT n.root, 'foreign key', pg_catalog.quote_ident(coalesce(
        (SELECT p.conname FROM pg_catalog.pg_constraint p WHERE p.oid = k.conparentid), k.conname)),
    k.conrelid::regclass::text,
    CASE action WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT'
        WHEN 'r' THEN 'RESTRICT' ELSE 'NO ACTION' END,
    event, k.conrelid <> n.oid, (SELECT array_agg(a.attname::text) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = k.confrelid AND a.attnum = ANY (k.confkey)), 0
FROM named n JOIN tables t ON t.root = n.root
JOIN pg_catalog.pg_constraint k ON k.confrelid = t.oid
CROSS JOIN LATERAL (VALUES (8, k.confdeltype), (16, k.confupdtype)) AS e(event, action)
WHERE k.contype = 'f' AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_constraint p JOIN tables o ON o.oid = p.confrelid
    WHERE p.oid = k.conparentid AND o.root = n.root)
UNION ALL
SELECT root, 'table', '', c.oid::regclass::text, '', 0, false, NULL, depth
FROM tables t JOIN pg_catalog.pg_class c ON c.oid = t.oid
WHERE depth > 0 AND NOT c.relispartition
UNION ALL
SELECT root, CASE relkind WHEN 'v' THEN 'view' ELSE 'foreign table' END, '', oid::regclass::text,
    '', 0, false, NULL, 0
FROM named WHERE relkind IN ('v', 'f')
UNION ALL
SELECT root, 'row security', '', oid::regclass::text, '', 0, false, NULL, 0
FROM named WHERE pg_catalog.row_security_active(oid)
UNION ALL
SELECT root, 'part', 'its partitions', oid::regclass::text, '', 0, false, NULL, 0
FROM named WHERE relkind = 'p'
UNION ALL
SELECT root, 'part', 'its row-level security', c.oid::regclass::text, '', 0, false, NULL, 0
FROM named n JOIN pg_catalog.pg_class c ON c.oid = n.oid
WHERE relrowsecurity OR EXISTS (SELECT FROM pg_catalog.pg_policy WHERE polrelid = c.oid)
UNION ALL
SELECT root, 'part', pg_catalog.format('the sequence of column %L', a.attname),
    n.oid::regclass::text, '', 0, false, NULL, 0
FROM named n JOIN pg_catalog.pg_depend d ON d.refobjid = n.oid AND d.deptype IN ('a', 'i')
    AND d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = d.classid
JOIN pg_catalog.pg_class s ON s.oid = d.objid AND s.relkind = 'S'
JOIN pg_catalog.pg_attribute a ON a.attrelid = n.oid AND a.attnum = d.refobjsubid
UNION ALL
SELECT DISTINCT n.root, 'reading view', '', v.oid::regclass::text, '', 0, false, NULL::text[], 0
FROM named n JOIN pg_catalog.pg_depend d ON d.refobjid = n.oid
    AND d.refclassid = 'pg_catalog.pg_class'::regclass
    AND d.classid = 'pg_catalog.pg_rewrite'::regclass
JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid
JOIN pg_catalog.pg_class v ON v.oid = r.ev_class AND v.oid <> n.oid
ORDER BY root, depth, kind, place, name, events
"""

DESTROYING = ("CASCADE", "SET NULL", "SET DEFAULT")
UPSERT = "Declare write: upsert, which deletes nothing"
KEEP = "Declare deletes: keep"
APART = "or load into a table of its own"


class HazardRow(NamedTuple):
    """A row of the query."""

    kind: str
    name: str
    place: str
    how: str
    events: int
    """The events that it is about; 0 for any."""
    certain: bool
    """For a rule: it always replaces the statement. For a foreign key: it is another table's."""
    columns: Sequence[str] | None
    """The columns that a foreign key refers to."""
    depth: int

    @property
    def where(self) -> str:
        """Its name and table."""
        return f"{self.name} on {self.place}" if self.name else self.place


def hazards(endpoint: Endpoint, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
    """See `Target.hazards`."""
    rows = answer(endpoint, _features, plan.target) or []
    if options.mode.whole_table:
        return [hazard for row in rows if (hazard := _of_swap(row))]
    written = zip((INSERT, UPDATE, DELETE), options.written_by(plan), strict=True)
    events = sum(event for event, occurs in written if occurs)
    triggers: set[tuple[str, str]] = set()
    hazards: list[Hazard] = []
    for row in rows:
        # each partition has the triggers of its table
        if (row.events and not row.events & events) or (row.name, row.how) in triggers:
            continue
        if row.kind.endswith("trigger"):
            triggers.add((row.name, row.how))
        if hazard := _hazard(row, plan, events, KEEP if options.removes else UPSERT):
            hazards.append(hazard)
    return hazards


def _features(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, list[HazardRow]]:
    rows: dict[str, list[HazardRow]] = {}
    for root, *row in endpoint.query(about_all(HAZARDS_SQL, tables)):
        rows.setdefault(root, []).append(HazardRow(*row))
    return {table: rows[table.name] for table in tables if table.name in rows}


def _of_swap(row: HazardRow) -> Hazard | None:
    """What the table has that another one cannot take over."""
    refers = row.kind == "foreign key" and row.certain and row.events == DELETE
    if refers or row.kind == "reading view":
        kind = "view" if row.kind == "reading view" else row.kind
        remedy = f"Declare another write mode, or drop the {kind}"
        return Hazard(kind, row.where, "refused", "is of a table that a swap drops", remedy)
    if row.kind == "part":
        lost = f"would lose {row.name} by a swap"
        return Hazard("table", row.place, "refused", lost, "Declare another write mode")
    if row.kind.endswith("trigger") or row.kind in ("rule", "row security"):
        says = "is not carried over to the new table by a swap"
        return Hazard(row.kind, row.where, "noted", says)
    return None


def _hazard(row: HazardRow, plan: CopyPlan, events: int, without: str) -> Hazard | None:
    """Describe a row of the query; `without` says how nothing would be deleted."""
    match row.kind:
        case "reading view" | "part":
            return None  # concerns a swap only
        case "foreign key":
            return _foreign_key(row, plan, without)
        case "rule":
            effect: Effect = "refused" if row.certain else "changes"
            verb = "replaces" if row.certain else "may change"
            says = f"{row.how}, {verb} statements that publish rows"
            remedy = f"DROP RULE {row.name} ON {row.place}, {APART}"
            return Hazard("rule", row.where, effect, says, remedy)
        case "table":
            if not events & DELETE:
                return None
            says = "inherits from it, so rows of a range that is replaced are deleted there, too"
            return Hazard("table", row.where, "destroys", says, f"{without}, {APART}")
        case "view" | "foreign table":
            says = "is no table: what lies behind it may change rows"
            remedy = "Name the table itself as the target"
            return Hazard(row.kind, row.where, "changes", says, remedy)
        case "row security":
            # `catalog.withheld` refuses the table unless 'row_security: apply' is declared
            says = "hides rows from this role, or refuses them, as 'row_security: apply' lets it"
            return Hazard("row security", f"of {row.place}", "noted", says)
    disable = f"ALTER TABLE {row.place} DISABLE TRIGGER {row.name}"
    says = f"{row.how}, may change rows as they are published"
    remedy = f"Have it leave them as they are, {disable}, {APART}"
    return Hazard(row.kind, row.where, "changes", says, remedy)


def _foreign_key(row: HazardRow, plan: CopyPlan, without: str) -> Hazard | None:
    if row.how not in DESTROYING:
        return None  # the server refuses what it says
    if row.events == UPDATE:
        if row.how == "CASCADE" or set(row.columns or ()) <= set(plan.row_identity):
            return None
        says = f"ON UPDATE {row.how}, changes rows of {row.place} that refer to what is updated"
        return Hazard("foreign key", row.where, "refused", says, "Drop it, or have it CASCADE")
    says = f"ON DELETE {row.how}, changes the rows that refer to those which are replaced"
    remedy = f"{without}, or drop the constraint"
    return Hazard("foreign key", row.where, "destroys", says, remedy)
