"""What a PostgreSQL table that is recreated has of the one that it replaces.

Owner, privileges, the table's comment and the indexes, under names that the server chooses, are
carried over. Whatever else somebody has given to the old table is refused before anything happens.
"""

from __future__ import annotations

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import Hazard, not_carried_over
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import concerning
from tableferry.resources.postgres.ddl import STATEMENTS
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.names import about
from tableferry.resources.postgres.session import PostgresSession
from tableferry.resources.tables import TableRef

# Views, other tables' foreign keys and policies are hazards of every swap, see `hazards`.
LOST_SQL = """
WITH t AS (SELECT c.*, c.oid AS of FROM pg_catalog.pg_class c WHERE c.oid = {table}::regclass)
SELECT 'partitions' AS kind, '' AS name FROM t WHERE relkind = 'p'
UNION ALL
SELECT 'inheritance', 'of ' || i.inhparent::regclass FROM t
JOIN pg_catalog.pg_inherits i ON i.inhrelid = t.of
UNION ALL
SELECT 'inheritance', 'by ' || i.inhrelid::regclass FROM t
JOIN pg_catalog.pg_inherits i ON i.inhparent = t.of AND t.relkind <> 'p'
UNION ALL
SELECT 'row security', coalesce((SELECT string_agg(quote_ident(p.polname), ', ' ORDER BY p.polname)
    FROM pg_catalog.pg_policy p WHERE p.polrelid = t.of), '') FROM t
WHERE relrowsecurity OR EXISTS (SELECT FROM pg_catalog.pg_policy p WHERE p.polrelid = t.of)
UNION ALL
SELECT CASE WHEN a.attidentity <> '' THEN 'identity' WHEN a.attgenerated <> '' THEN 'expression'
    ELSE 'default' END, 'of column ' || quote_ident(a.attname) FROM t
JOIN pg_catalog.pg_attribute a ON a.attrelid = t.of
WHERE a.attnum > 0 AND NOT a.attisdropped AND (a.atthasdef OR a.attidentity <> '')
UNION ALL
SELECT 'setting', 'of column ' || quote_ident(a.attname) FROM t
JOIN pg_catalog.pg_attribute a ON a.attrelid = t.of
JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
WHERE a.attnum > 0 AND NOT a.attisdropped AND (coalesce(a.attstattarget, -1) >= 0
    OR a.attoptions IS NOT NULL OR a.attcompression <> '' OR a.attstorage <> y.typstorage)
UNION ALL
SELECT 'trigger', quote_ident(g.tgname) FROM t
JOIN pg_catalog.pg_trigger g ON g.tgrelid = t.of AND NOT g.tgisinternal
UNION ALL
SELECT 'rule', quote_ident(r.rulename) FROM t
JOIN pg_catalog.pg_rewrite r ON r.ev_class = t.of AND r.ev_type <> '1'
UNION ALL
SELECT CASE k.contype WHEN 'f' THEN 'foreign key' WHEN 'c' THEN 'check' WHEN 'u' THEN 'unique'
    WHEN 'p' THEN 'primary key' ELSE 'exclusion' END, quote_ident(k.conname) FROM t
JOIN pg_catalog.pg_constraint k ON k.conrelid = t.of
WHERE k.contype IN ('f', 'c', 'u', 'x') OR (k.contype = 'p' AND {identity} IS DISTINCT FROM (
    SELECT array_agg(a.attname::text ORDER BY a.attname::text COLLATE "C")
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.of AND a.attnum = ANY (k.conkey)))
UNION ALL
SELECT 'clustering', 'on ' || i.indexrelid::regclass FROM t
JOIN pg_catalog.pg_index i ON i.indrelid = t.of AND i.indisclustered
UNION ALL
SELECT 'extended statistics', quote_ident(s.stxname) FROM t
JOIN pg_catalog.pg_statistic_ext s ON s.stxrelid = t.of
UNION ALL
SELECT 'publication', quote_ident(p.pubname) FROM t
JOIN pg_catalog.pg_publication_rel r ON r.prrelid = t.of
JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
UNION ALL
SELECT 'subscription', 'of the table' FROM t
JOIN pg_catalog.pg_subscription_rel s ON s.srrelid = t.of
UNION ALL
SELECT 'replica identity', 'of the table' FROM t WHERE relreplident <> 'd'
UNION ALL
SELECT 'storage parameters', array_to_string(reloptions, ', ') FROM t WHERE reloptions IS NOT NULL
UNION ALL
SELECT 'tablespace', quote_ident(s.spcname) FROM t
JOIN pg_catalog.pg_tablespace s ON s.oid = t.reltablespace
UNION ALL
SELECT 'persistence', 'UNLOGGED' FROM t WHERE relpersistence = 'u'
UNION ALL
SELECT 'access method', m.amname FROM t JOIN pg_catalog.pg_am m ON m.oid = t.relam
WHERE m.amname <> current_setting('default_table_access_method')
UNION ALL
SELECT 'type', t.reloftype::regtype::text FROM t WHERE reloftype <> 0
UNION ALL
SELECT 'security label', l.provider FROM t JOIN pg_catalog.pg_seclabel l ON l.objoid = t.of
    AND l.classoid = 'pg_catalog.pg_class'::regclass
UNION ALL
SELECT 'dependent', pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) FROM t
JOIN pg_catalog.pg_depend d ON d.deptype = 'n'
    AND d.classid IN ('pg_catalog.pg_proc'::regclass, 'pg_catalog.pg_class'::regclass)
    AND ((d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = t.of)
        OR (d.refclassid = 'pg_catalog.pg_type'::regclass AND d.refobjid IN (t.reltype,
            (SELECT y.typarray FROM pg_catalog.pg_type y WHERE y.oid = t.reltype))))
UNION ALL
SELECT 'owner', quote_ident(pg_catalog.pg_get_userbyid(relowner)) || ', to whom this login cannot '
    'give a table in the schema' FROM t WHERE relowner <> (
    SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)
AND NOT (pg_catalog.pg_has_role(relowner, 'MEMBER')
    AND pg_catalog.has_schema_privilege(relowner, relnamespace, 'CREATE'))
ORDER BY 1, 2
"""

# The rest of a definition after the names is the same for an index of another table. Indexes of
# constraints go with these.
INDEXES_SQL = """
SELECT substr(d.text, length(format('CREATE %sINDEX %I ON %I.%I', CASE WHEN i.indisunique
        THEN 'UNIQUE ' ELSE '' END, c.relname, n.nspname, t.relname)) + 1), c.relname::text,
    i.indisunique
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
CROSS JOIN LATERAL (SELECT pg_catalog.pg_get_indexdef(i.indexrelid) AS text) d
WHERE i.indrelid = {table}::regclass AND i.indisvalid
AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = i.indexrelid
    AND k.conrelid = i.indrelid)
ORDER BY c.relname
"""

CARRIED_SQL = """
SELECT 'privileges' FROM pg_catalog.pg_class c WHERE c.oid = {table}::regclass
AND (c.relacl IS NOT NULL OR EXISTS (SELECT FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attacl IS NOT NULL))
UNION ALL
SELECT 'comment' FROM pg_catalog.pg_description d
WHERE d.classoid = 'pg_catalog.pg_class'::regclass AND (d.objoid = {table}::regclass
    OR d.objoid IN (SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = {table}::regclass))
"""

OWNER_SQL = """
SELECT format('ALTER TABLE %s OWNER TO %I', {shadow}, pg_catalog.pg_get_userbyid(t.relowner))
FROM pg_catalog.pg_class t, pg_catalog.pg_class s
WHERE t.oid = {table}::regclass AND s.oid = {shadow}::regclass AND t.relowner <> s.relowner
"""

# Default privileges may have given the shadow others than the target has. Asked once the shadow
# has its owner, by whom all are granted.
GIVEN_SQL = """
WITH t AS (SELECT * FROM pg_catalog.pg_class WHERE oid = {table}::regclass),
s AS (SELECT * FROM pg_catalog.pg_class WHERE oid = {shadow}::regclass),
grants AS (
    SELECT 2 AS step, '' AS attname, g.* FROM t, s,
        pg_catalog.aclexplode(coalesce(t.relacl, pg_catalog.acldefault('r', t.relowner))) g
    WHERE t.relacl IS NOT NULL OR s.relacl IS NOT NULL
    UNION ALL
    SELECT 3, quote_ident(a.attname), g.* FROM t
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND NOT a.attisdropped
    CROSS JOIN pg_catalog.aclexplode(a.attacl) g
)
SELECT statement FROM (
    SELECT DISTINCT 1 AS step, format('REVOKE ALL ON TABLE %s FROM %s', {shadow},
        CASE WHEN g.grantee = 0 THEN 'PUBLIC'
            ELSE quote_ident(pg_catalog.pg_get_userbyid(g.grantee)) END) AS statement
    FROM t, s, pg_catalog.aclexplode(coalesce(s.relacl,
        pg_catalog.acldefault('r', s.relowner))) g
    WHERE t.relacl IS NOT NULL OR s.relacl IS NOT NULL
    UNION ALL
    SELECT DISTINCT step, format('GRANT %s%s ON TABLE %s TO %s%s', privilege_type,
        CASE WHEN attname <> '' THEN ' (' || attname || ')' ELSE '' END, {shadow},
        CASE WHEN grantee = 0 THEN 'PUBLIC'
            ELSE quote_ident(pg_catalog.pg_get_userbyid(grantee)) END,
        CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
    FROM grants
    UNION ALL
    SELECT 4, format('COMMENT ON TABLE %s IS %L', {shadow}, d.text) FROM t
    CROSS JOIN LATERAL (SELECT pg_catalog.obj_description(t.oid, 'pg_class') AS text) d
    WHERE d.text IS NOT NULL
) statements ORDER BY step, statement
"""


def lost(endpoint: Endpoint, plan: CopyPlan) -> list[Hazard]:
    """What the target has and a new table would not."""
    identity = ", ".join(map(DIALECT.literal, sorted(plan.row_identity)))
    sql = about(LOST_SQL, plan.target, identity=f"ARRAY[{identity}]::text[]")
    return not_carried_over(endpoint.query(sql))


def carried(endpoint: Endpoint, plan: CopyPlan) -> bool:
    """Whether others have given to a table of ours what `carry_over` and `ensure_indexes` keep."""
    indexes = len(STATEMENTS.create_table(plan, plan.target)) - 1
    return bool(
        endpoint.query(about(CARRIED_SQL, plan.target))
        or len(endpoint.query(about(INDEXES_SQL, plan.target))) > indexes
    )


def ensure_indexes(session: PostgresSession, target: TableRef, shadow: TableRef) -> None:
    """Give a shadow the indexes of the target that it lacks, under other names.

    Raises:
        StatementFailed: an index is of a column that a new table has not, or has with another type.
    """
    present = [definition for definition, *_ in session.query(about(INDEXES_SQL, shadow))]
    for definition, name, unique in session.query(about(INDEXES_SQL, target)):
        if definition in present:
            present.remove(definition)
            continue
        kind = "UNIQUE INDEX" if unique else "INDEX"
        with concerning(f"index {DIALECT.quote(name)}"):
            session.execute(f"CREATE {kind} ON {qualified(shadow)}{definition}")


def carry_over(session: PostgresSession, target: TableRef, shadow: TableRef) -> None:
    """Give a shadow the owner, privileges and comment of the target that it is to replace.

    Args:
        session: in the transaction that replaces the target.
        target: the target.
        shadow: the shadow.
    """
    literal = target.system.dialect.literal(qualified(shadow))
    for sql in (OWNER_SQL, GIVEN_SQL):
        for (statement,) in session.query(about(sql, target, shadow=literal)):
            session.execute(statement)
