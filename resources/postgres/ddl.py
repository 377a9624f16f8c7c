"""The statements of the PostgreSQL target, as text."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.target import row_identity
from tableferry.resources.errors import StatementFailed
from tableferry.resources.postgres.dialect import has_own_order
from tableferry.resources.postgres.errors import broke
from tableferry.resources.postgres.types import read
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.statements import Session, Statements, aliases
from tableferry.resources.types.column import Column
from tableferry.resources.types.kinds import Text

TRY_SECONDS = 0.1
"""Between two looks at a lock that somebody else holds."""


MOST_SUBTRANSACTIONS = 10_000_000
"""Of one transaction; a row whose number is further on was made before the numbers began anew."""

INDEX_BYTES = 2700
"""About as many an entry of a B-tree may have."""


class PostgresStatements(Statements):
    """See `Statements`."""

    system_name = "postgres"
    overriding = " OVERRIDING SYSTEM VALUE"
    settle = ("SET CONSTRAINTS ALL IMMEDIATE",)
    """Deferred triggers run, and those of what they do run at once."""

    def create_schema(self, table: TableRef) -> str:
        """Not IF NOT EXISTS, which asks for the right to create one also where it is there."""
        schema = self.names([table.schema])
        return (
            f"DO $ferry$ BEGIN IF to_regnamespace({self.text(schema)}) IS NULL THEN "
            f"CREATE SCHEMA {schema}; END IF; "
            # another run was faster
            "EXCEPTION WHEN duplicate_schema OR unique_violation THEN NULL; END $ferry$"
        )

    def create_table(self, plan: CopyPlan, table: TableRef) -> list[str]:
        """The source's primary key becomes the table's, unless it may be NULL.

        A key that is a text has an index in the order that its ranges are cut by, beside that of
        the table's own order, unless some values may be too long for it.
        """
        lines = self.definitions(plan)
        identity = row_identity(plan)
        nullable = {column.name for column in plan.target_columns if column.nullable}
        primary_key = () if nullable.intersection(identity) else identity
        if primary_key:
            lines.append(f"PRIMARY KEY ({self.names(primary_key)})")
        statements = [f"CREATE TABLE {qualified(table)} ({', '.join(lines)})"]
        key = plan.key.target
        name = self.names([key.name])
        if self.text_key(plan):
            if self.orders(plan):
                ordered = self.system.dialect.in_key_order(name, key, "text")
                statements.append(f"CREATE INDEX ON {qualified(table)} (({ordered}))")
        elif primary_key[:1] != (key.name,):
            statements.append(f"CREATE INDEX ON {qualified(table)} ({name})")
        return statements

    def orders(self, plan: CopyPlan) -> bool:
        """Whether a key that is a text gets an index in the order of its bytes: the values of a
        primary key fit into one."""
        return plan.key.target.name in row_identity(plan) or indexable(plan.key.target)

    def create_staging(self, plan: CopyPlan, staging: TableRef) -> list[str]:
        """Unlogged: a crash of the server empties it, and the range is loaded again then."""
        lines = ", ".join(self.definitions(plan, staging=True))
        return [
            f"CREATE UNLOGGED TABLE {qualified(staging)} ({lines}) "
            "WITH (autovacuum_enabled = false)"
        ]

    def key_order(self, column: Column) -> str:
        """That of bytes."""
        return "" if has_own_order(column) else '"C"'

    def same_row(self, plan: CopyPlan) -> str:
        """A staged key that is a text has another collation than the table's may have, and none of
        two that columns have is preferred. An index of ours has this one."""
        same, key = super().same_row(plan), plan.key.target
        if not self.text_key(plan) or has_own_order(key):
            return same
        equal = self.equal(plan, key)
        return same.replace(equal, f'{equal} COLLATE "C"')

    def equal(self, plan: CopyPlan, column: Column) -> str:
        """By the operator of the type's own schema, which no session looks into by itself."""
        schema, _, _ = column.type.rpartition(".")
        if not (schema and has_own_order(column)):
            return super().equal(plan, column)
        name, (staged, own) = self.names([column.name]), aliases(plan)
        return f"{own}.{name} OPERATOR({schema}.=) {staged}.{name}"

    def look_by_index(self, table: TableRef) -> Sequence[str]:
        """Of a table without statistics the planner takes a third to be in a range that is open at
        one end, and reads all of it for that.

        A scan that cannot be avoided has a cost that would have the query compiled.
        """
        return (
            "SELECT pg_catalog.set_config(name, 'off', true) "
            "FROM pg_catalog.pg_class, (VALUES ('enable_seqscan'), ('jit')) AS s(name) "
            f"WHERE oid = {self.text(qualified(table))}::regclass AND reltuples < 0",
        )

    def create_shadow(self, plan: CopyPlan, shadow: TableRef) -> list[str]:
        """With the target's indexes, defaults, checks and comments."""
        like = f"LIKE {qualified(plan.target)} INCLUDING ALL EXCLUDING IDENTITY"
        return [f"CREATE TABLE {qualified(shadow)} ({like})"]

    def object_id(self, table: TableRef) -> str:
        """The oid."""
        return (
            "SELECT c.oid::bigint FROM pg_catalog.pg_class c "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {self.text(table.schema)} AND c.relname = {self.text(table.name)}"
        )

    def waiting(self, seconds: int) -> tuple[str, str]:
        """Until the transaction ends."""
        limits = (f"'{seconds}s'", "'0'")
        before, after = (
            f"SELECT pg_catalog.set_config('lock_timeout', {one}, true)" for one in limits
        )
        return before, after

    def object_ids(self, schema: str, names: Sequence[str]) -> str:
        """The oids."""
        return (
            "SELECT c.relname, c.oid::bigint FROM pg_catalog.pg_class c "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {self.text(schema)} "
            f"AND c.relname IN ({', '.join(map(self.text, names))})"
        )

    def rename(self, table: TableRef, name: str) -> str:
        """ALTER TABLE ... RENAME."""
        return f"ALTER TABLE {qualified(table)} RENAME TO {self.names([name])}"

    def take(self, session: Session, lock: str, seconds: float) -> bool:
        """An advisory lock."""
        until = time.monotonic() + seconds
        while not session.query(f"SELECT pg_catalog.pg_try_advisory_lock({_number(lock)})")[0][0]:
            if time.monotonic() >= until:
                return False
            time.sleep(TRY_SECONDS)
        return True

    def release(self, lock: str) -> str:
        """See `take`."""
        return f"SELECT pg_catalog.pg_advisory_unlock({_number(lock)})"

    def mark(self, session: Session, staging: TableRef) -> str:
        """The transaction's own number, of which the server knows what became of it."""
        return str(session.query("SELECT pg_catalog.pg_current_xact_id()::text")[0][0])

    def committed(self, session: Session, staging: TableRef, mark: str, rows: int) -> bool:
        """Asked of the server; after a crash of it, too."""
        status = f"SELECT pg_catalog.pg_xact_status({self.text(mark)}::xid8)"
        return bool(session.query(status)[0][0] == "committed")

    def broke(self, error: StatementFailed) -> bool:
        """By SQLSTATE, which what libpq itself says has not."""
        return broke(error)

    def touched(self, table: TableRef) -> str:
        """As its statistics count them."""
        counted = ", ".join(
            f"sum(pg_catalog.pg_stat_get_xact_tuples_{what}(oid))::bigint"
            for what in ("inserted", "updated", "deleted")
        )
        return (
            f"WITH RECURSIVE tables AS (SELECT {self.text(qualified(table))}::regclass::oid AS oid "
            "UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i "
            f"JOIN tables t ON i.inhparent = t.oid) SELECT {counted} FROM tables"
        )

    def made_elsewhere(self, table: TableRef, condition: str) -> str:
        """The rows that are seen of transactions in progress are one's own. Subtransactions have
        numbers that follow that of their transaction, as those of others have that began later.
        The status of a number that is not given yet cannot be asked for."""
        own = "mod(pg_catalog.pg_current_xact_id()::text::numeric, 4294967296)"
        epoch = f"pg_catalog.pg_current_xact_id()::text::numeric - {own}"
        made = "xmin::text::numeric"
        unknown = "pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::numeric"
        return (
            f"SELECT count(*) FROM {qualified(table)} WHERE ({condition}) IS NOT TRUE "
            f"AND {made} BETWEEN {own} AND {own} + {MOST_SUBTRANSACTIONS} "
            f"AND CASE WHEN {epoch} + {made} >= {unknown} THEN true "
            f"ELSE pg_catalog.pg_xact_status(({epoch} + {made})::text::xid8) = 'in progress' END"
        )

    def missing_types(self, types: Sequence[str]) -> str:
        """A query with those of some types that are not there."""
        listed = ", ".join(f"({self.text(type_)})" for type_ in types)
        return (
            f"SELECT t FROM (VALUES {listed}) wanted(t) "
            "WHERE pg_catalog.to_regtype(t) IS NULL ORDER BY t"
        )

    def lost_by_swap(self, table: TableRef) -> str:
        """A query with what a table has that its shadow could not have, in words."""
        oid = f"{self.text(qualified(table))}::regclass"
        return (
            "SELECT 'its partitions' FROM pg_catalog.pg_class "
            f"WHERE oid = {oid} AND relkind = 'p' UNION ALL "
            "SELECT 'its row-level security' FROM pg_catalog.pg_class "
            f"WHERE oid = {oid} AND (relrowsecurity OR EXISTS "
            f"(SELECT FROM pg_catalog.pg_policy WHERE polrelid = {oid})) UNION ALL "
            "SELECT format('the sequence of column %L', attname) FROM pg_catalog.pg_attribute "
            f"WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped AND "
            f"pg_catalog.pg_get_serial_sequence({self.text(qualified(table))}, attname) IS NOT NULL"
        )

    def grants(self, shadow: TableRef, target: TableRef) -> str:
        """A query with the statements that give the shadow the target's privileges."""
        return (
            f"SELECT format('GRANT %s ON %s TO %s', g.privilege_type, "
            f"{self.text(qualified(shadow))}, CASE WHEN g.grantee = 0 THEN 'PUBLIC' "
            "ELSE quote_ident(pg_catalog.pg_get_userbyid(g.grantee)) END || "
            "CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END) "
            "FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) g "
            f"WHERE c.oid = {self.text(qualified(target))}::regclass AND g.grantee <> c.relowner"
        )


def indexable(key: Column) -> bool:
    """Whether an index takes every value that a column of texts may have."""
    kind = read(key.type).kind
    characters = kind.characters or kind.units if isinstance(kind, Text) else None
    return characters is not None and 4 * characters <= INDEX_BYTES


STATEMENTS = PostgresStatements()


def _number(lock: str) -> int:
    """A lock's name as the number that advisory locks have; those are of one database."""
    return int.from_bytes(hashlib.blake2b(lock.encode(), digest_size=8).digest(), signed=True)
