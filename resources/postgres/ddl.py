"""The SQL of the PostgreSQL target."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

from tableferry.resources.connecting.waiting import lock_milliseconds
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.errors import StatementFailed
from tableferry.resources.postgres.dialect import has_own_order
from tableferry.resources.postgres.errors import broke
from tableferry.resources.postgres.types import read
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.statements import RIGHTS, Statements, TargetSession, aliases
from tableferry.resources.types.kinds import Text
from tableferry.resources.types.type_map import Column

TRY_SECONDS = 0.1
"""Between two attempts on a lock that another session holds."""

MOST_SUBTRANSACTIONS = 10_000_000
"""Most subtransactions of one transaction; rows with later ids are from before a wraparound."""

UNIQUE_VIOLATION = "23505"

INDEX_BYTES = 2700
"""About the most bytes of a B-tree entry."""


_COLUMNS = (
    "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
    "JOIN pg_catalog.pg_type t ON t.oid = a.atttypid"
)

_ABOUT_TABLE = (
    "SELECT {} FROM pg_catalog.pg_class c "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = {} AND c.relname = {} AND c.relkind IN ('r', 'v', 'f', 'p')"
)

SHAPE_SQL = """
SELECT concat_ws(E'\\n',
    (SELECT string_agg(concat_ws(' ', a.attnum, quote_ident(a.attname), a.attnotnull,
            pg_catalog.format_type(a.atttypid, a.atttypmod), a.attcollation, a.attgenerated,
            a.attstorage, a.attcompression, pg_catalog.pg_get_expr(d.adbin, d.adrelid),
            pg_catalog.col_description(a.attrelid, a.attnum)), E'\\n' ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d
        ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT string_agg(concat_ws(' ', pg_catalog.pg_get_indexdef(i.indexrelid), i.indisvalid,
            pg_catalog.obj_description(i.indexrelid, 'pg_class')), E'\\n' ORDER BY i.indexrelid)
        FROM pg_catalog.pg_index i WHERE i.indrelid = t.oid),
    (SELECT string_agg(concat_ws(' ', quote_ident(k.conname),
            pg_catalog.pg_get_constraintdef(k.oid),
            pg_catalog.obj_description(k.oid, 'pg_constraint')), E'\\n' ORDER BY k.oid)
        FROM pg_catalog.pg_constraint k WHERE k.conrelid = t.oid AND k.contype NOT IN ('f', 't')),
    (SELECT string_agg(pg_catalog.pg_get_statisticsobjdef(s.oid), E'\\n' ORDER BY s.oid)
        FROM pg_catalog.pg_statistic_ext s WHERE s.stxrelid = t.oid))
FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
WHERE n.nspname = {schema} AND t.relname = {name}
"""


class PostgresStatements(Statements):
    """See `Statements`."""

    system_name = "postgres"
    overriding = " OVERRIDING SYSTEM VALUE"
    run_deferred = ("SET CONSTRAINTS ALL IMMEDIATE",)
    """Triggers that these fire run at once, too."""

    def create_schema(self, table: TableRef) -> str:
        """Create it without IF NOT EXISTS, which needs CREATE on the database in any case."""
        schema = self.names([table.schema])
        return (
            f"DO $ferry$ BEGIN IF to_regnamespace({self.text(schema)}) IS NULL THEN "
            f"CREATE SCHEMA {schema}; END IF; "
            # if another run is faster
            "EXCEPTION WHEN duplicate_schema OR unique_violation THEN NULL; END $ferry$"
        )

    def create_table(self, plan: CopyPlan, table: TableRef) -> list[str]:
        """See `Statements.create_table`. A text key gets an index in the order of its ranges,
        besides the primary key's, unless its values may be too long for one."""
        lines, primary_key, key = self.definitions(plan), plan.row_identity, plan.key.target
        if any(column.nullable and column.name in primary_key for column in plan.target_columns):
            primary_key = ()
        if primary_key:
            lines.append(f"PRIMARY KEY ({self.names(primary_key)})")
        statements = [f"CREATE TABLE {qualified(table)} ({', '.join(lines)})"]
        name = self.names([key.name])
        if self.text_key(plan):
            if self.orders(plan):
                ordered = self.system.dialect.in_key_order(name, key, "text")
                statements.append(f"CREATE INDEX ON {qualified(table)} (({ordered}))")
        elif primary_key[:1] != (key.name,):
            statements.append(f"CREATE INDEX ON {qualified(table)} ({name})")
        return statements

    def orders(self, plan: CopyPlan) -> bool:
        """Whether a text key's values fit an index; those of a primary key do."""
        kind, name = read(plan.key.target.type).kind, plan.key.target.name
        characters = kind.characters or kind.units if isinstance(kind, Text) else None
        short = characters is not None and 4 * characters <= INDEX_BYTES
        return short or name in plan.row_identity

    def create_staging(self, plan: CopyPlan, staging: TableRef) -> list[str]:
        """See `Statements.create_staging`. A server crash empties it, and the range is reloaded."""
        lines = ", ".join(self.definitions(plan, staging=True))
        return [
            f"CREATE UNLOGGED TABLE {qualified(staging)} ({lines}) "
            "WITH (autovacuum_enabled = false)"
        ]

    def key_order(self, column: Column) -> str:
        """See `Statements.key_order`."""
        return "" if has_own_order(column) else '"C"'

    def same_row(self, plan: CopyPlan) -> str:
        """Compare a text key by an explicit collation, that of our index: PostgreSQL refuses to
        choose between those of the staged and the target column."""
        same, key = super().same_row(plan), plan.key.target
        if not self.text_key(plan) or has_own_order(key):
            return same
        equal = self.equal(plan, key)
        return same.replace(equal, f'{equal} COLLATE "C"')

    def equal(self, plan: CopyPlan, column: Column) -> str:
        """Qualify the operator of an extension's type, whose schema is not in the search path."""
        schema, _, _ = column.type.rpartition(".")
        if not (schema and has_own_order(column)):
            return super().equal(plan, column)
        name, (staged, target) = self.names([column.name]), aliases(plan)
        return f"{target}.{name} OPERATOR({schema}.=) {staged}.{name}"

    def create_shadow(self, plan: CopyPlan, shadow: TableRef) -> list[str]:
        """CREATE TABLE with the target's indexes, defaults, checks and comments."""
        like = f"LIKE {qualified(plan.target)} INCLUDING ALL EXCLUDING IDENTITY"
        return [f"CREATE TABLE {qualified(shadow)} ({like})"]

    def shape(self, table: TableRef) -> str:
        """See `Statements.shape`. No name in it depends on settings of the session."""
        return SHAPE_SQL.format(schema=self.text(table.schema), name=self.text(table.name))

    def object_ids(self, schema: str, names: Sequence[str]) -> str:
        """See `Statements.object_ids`. A rename keeps the oid."""
        return (
            "SELECT c.relname, c.oid::bigint FROM pg_catalog.pg_class c "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {self.text(schema)} "
            f"AND c.relname IN ({', '.join(map(self.text, names))})"
        )

    def table_exists(self, table: TableRef) -> str:
        """See `Statements.table_exists`. The standard's views hide what others own."""
        names = self.text(table.schema), self.text(table.name)
        return _ABOUT_TABLE.format("1", *names)

    def permissions(self, table: TableRef) -> str:
        """See `Statements.permissions`."""
        has = [f"pg_catalog.has_table_privilege(c.oid, '{right}')" for right in RIGHTS]
        names = self.text(table.schema), self.text(table.name)
        return _ABOUT_TABLE.format(f"current_user, {', '.join(has)}", *names)

    def may_alter(self, table: TableRef) -> str:
        """See `Statements.may_alter`. Members of the owner may."""
        grant = "format('GRANT %I TO %I', pg_catalog.pg_get_userbyid(c.relowner), current_user)"
        asked = f"current_user, pg_catalog.pg_has_role(c.relowner, 'USAGE'), {grant}"
        return _ABOUT_TABLE.format(asked, self.text(table.schema), self.text(table.name))

    def column_exists(self, table: TableRef, name: str) -> str:
        """See `Statements.column_exists`."""
        names = self.text(table.schema), self.text(table.name)
        return (
            _ABOUT_TABLE.format("1", *names) + " AND EXISTS (SELECT 1 FROM pg_catalog.pg_attribute "
            f"WHERE attrelid = c.oid AND attname = {self.text(name)} AND NOT attisdropped)"
        )

    def required_columns(self, table: TableRef) -> str:
        """See `Statements.required_columns`. A domain may have a default of its own."""
        names = self.text(table.schema), self.text(table.name)
        return _ABOUT_TABLE.replace("WHERE", _COLUMNS + " WHERE", 1).format("a.attname", *names) + (
            " AND (a.attnotnull OR t.typtype = 'd' AND t.typnotnull) AND NOT a.atthasdef "
            "AND a.attidentity = '' AND t.typdefault IS NULL"
        )

    def by_age(self, table: TableRef, prefix: str) -> str:
        """See `Statements.by_age`. No catalog has the time, but oids grow with it."""
        return (
            "SELECT c.relname FROM pg_catalog.pg_class c "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {self.text(table.schema)} AND c.relkind = 'r' "
            f"AND left(c.relname, {len(prefix)}) = {self.text(prefix)} ORDER BY c.oid"
        )

    def users(self, table: TableRef, column: str) -> str:
        """A query for the objects that let nobody alter the type of a column."""
        return (
            "SELECT DISTINCT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) "
            "FROM pg_catalog.pg_class c "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid "
            "JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_class'::regclass "
            "AND d.refobjid = c.oid AND d.refobjsubid = a.attnum "
            f"WHERE n.nspname = {self.text(table.schema)} AND c.relname = {self.text(table.name)} "
            f"AND a.attname = {self.text(column)} AND d.classid IN ("
            "'pg_catalog.pg_rewrite'::regclass, 'pg_catalog.pg_policy'::regclass, "
            "'pg_catalog.pg_trigger'::regclass) ORDER BY 1"
        )

    def lock_table(self, table: TableRef) -> str:
        """See `Statements.lock_table`."""
        return f"LOCK TABLE {qualified(table)} IN ACCESS EXCLUSIVE MODE"

    def limit_waiting(self, seconds: int) -> tuple[str, str]:
        """See `Statements.limit_waiting`. The setting ends with the transaction."""
        setting = "SELECT pg_catalog.set_config('lock_timeout', '{}', true)"
        return setting.format(f"{seconds}s"), setting.format(lock_milliseconds("0"))

    def rename(self, table: TableRef, name: str) -> str:
        """ALTER TABLE ... RENAME."""
        return f"ALTER TABLE {qualified(table)} RENAME TO {self.names([name])}"

    def take_lock(self, session: TargetSession, lock: str, seconds: float) -> bool:
        """See `Statements.take_lock`. It is an advisory lock."""
        until = time.monotonic() + seconds
        while not session.query(f"SELECT pg_catalog.pg_try_advisory_lock({_number(lock)})")[0][0]:
            if time.monotonic() >= until:
                return False
            time.sleep(TRY_SECONDS)
        return True

    def release_lock(self, lock: str) -> str:
        """See `take_lock`."""
        return f"SELECT pg_catalog.pg_advisory_unlock({_number(lock)})"

    def mark(self, session: TargetSession, staging: TableRef) -> str:
        """Return the transaction's id, whose outcome the server keeps."""
        return str(session.query("SELECT pg_catalog.pg_current_xact_id()::text")[0][0])

    def committed(self, session: TargetSession, staging: TableRef, mark: str, rows: int) -> bool:
        """See `Statements.committed`. The status survives a server crash."""
        status = f"SELECT pg_catalog.pg_xact_status({self.text(mark)}::xid8)"
        return bool(session.query(status)[0][0] == "committed")

    def broke(self, error: StatementFailed) -> bool:
        """See `Statements.broke`."""
        return broke(error)

    def breaks_key(self, error: StatementFailed) -> bool:
        """See `Statements.breaks_key`."""
        return error.code == UNIQUE_VIOLATION

    def referring(self, table: TableRef) -> str:
        """See `Statements.referring`. A key of a table and its clones of partitions are the same.

        Operator and collation are those of the server's own checks; see ri_triggers.c.
        """
        return (
            f"WITH RECURSIVE tables AS (SELECT {self.text(qualified(table))}::regclass::oid AS oid "
            "UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i "
            "JOIN tables t ON i.inhparent = t.oid) "
            "SELECT k.conname::text, n.nspname::text, c.relname::text, f.attname::text, "
            "r.attname::text, 'OPERATOR(' || quote_ident(m.nspname) || '.' || o.oprname || ')', "
            "coalesce(' COLLATE ' || quote_ident(q.nspname) || '.' || quote_ident(l.collname), '') "
            "FROM pg_catalog.pg_constraint k JOIN tables t ON t.oid = k.confrelid "
            "JOIN pg_catalog.pg_class c ON c.oid = k.conrelid "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL "
            "unnest(k.conkey, k.confkey, k.conpfeqop) WITH ORDINALITY AS p(own, other, op, at) "
            "JOIN pg_catalog.pg_attribute f ON f.attrelid = k.conrelid AND f.attnum = p.own "
            "JOIN pg_catalog.pg_attribute r ON r.attrelid = k.confrelid AND r.attnum = p.other "
            "JOIN pg_catalog.pg_operator o ON o.oid = p.op "
            "JOIN pg_catalog.pg_namespace m ON m.oid = o.oprnamespace "
            "LEFT JOIN pg_catalog.pg_collation l ON l.oid = r.attcollation "
            "LEFT JOIN pg_catalog.pg_namespace q ON q.oid = l.collnamespace "
            "WHERE k.contype = 'f' AND k.confdeltype IN ('c', 'n', 'd') AND NOT EXISTS ("
            "SELECT FROM pg_catalog.pg_constraint a JOIN tables b ON b.oid = a.confrelid "
            "WHERE a.oid = k.conparentid) ORDER BY k.oid, p.at"
        )

    def lock_referred(self, table: TableRef, condition: str) -> str:
        """See `Statements.lock_referred`. A row that refers to another locks it FOR KEY SHARE."""
        rows = f"SELECT 1 FROM {qualified(table)} WHERE {condition} FOR UPDATE"
        return f"SELECT count(*) FROM ({rows}) AS locked"

    def change_counts(self, table: TableRef) -> str:
        """See `Statements.change_counts`."""
        counted = ", ".join(
            f"sum(pg_catalog.pg_stat_get_xact_tuples_{change}(oid))::bigint"
            for change in ("inserted", "updated", "deleted")
        )
        return (
            f"WITH RECURSIVE tables AS (SELECT {self.text(qualified(table))}::regclass::oid AS oid "
            "UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i "
            f"JOIN tables t ON i.inhparent = t.oid) SELECT {counted} FROM tables"
        )

    def count_new_elsewhere(self, table: TableRef, condition: str) -> str:
        """See `Statements.count_new_elsewhere`.

        The only rows in progress that a transaction sees are its own. The ids of its
        subtransactions, and of later transactions, follow its own. An id that is not assigned yet
        has no status.
        """
        current = "mod(pg_catalog.pg_current_xact_id()::text::numeric, 4294967296)"
        epoch = f"pg_catalog.pg_current_xact_id()::text::numeric - {current}"
        writer = "xmin::text::numeric"
        unassigned = "pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::numeric"
        return (
            f"SELECT count(*) FROM {qualified(table)} WHERE ({condition}) IS NOT TRUE "
            f"AND {writer} BETWEEN {current} AND {current} + {MOST_SUBTRANSACTIONS} "
            f"AND CASE WHEN {epoch} + {writer} >= {unassigned} THEN true "
            f"ELSE pg_catalog.pg_xact_status(({epoch} + {writer})::text::xid8) = 'in progress' END"
        )


STATEMENTS = PostgresStatements()


def _number(lock: str) -> int:
    """The number of an advisory lock, which is local to the database."""
    return int.from_bytes(hashlib.blake2b(lock.encode(), digest_size=8).digest(), signed=True)
