"""Features of a SQL Server table that may change published rows, or others because of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.hazards import Effect, Hazard
from tableferry.resources.contract.looking_ahead import answer
from tableferry.resources.contract.target_options import TargetOptions, Written
from tableferry.resources.errors import StatementFailed
from tableferry.resources.sqlserver.catalog import Row, about, by_table
from tableferry.resources.sqlserver.dialect import DIALECT
from tableferry.resources.sqlserver.policies import NO_DEFINITIONS, grant_definitions
from tableferry.resources.tables import TableRef

TABLE = (
    "sys.tables AS t INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id "
    "AND s.name = {schema} AND t.name IN ({names})"
)

TRIGGERS = (
    "SELECT {number} AS number, CAST('trigger' AS varchar(20)) AS kind, "
    "CAST(g.name AS nvarchar(128)) AS name, "
    "CAST('' AS nvarchar(128)) AS place_schema, CAST('' AS nvarchar(128)) AS place, "
    "CAST(g.is_instead_of_trigger AS int) AS on_delete, CAST(0 AS int) AS on_update "
    f"FROM {TABLE} INNER JOIN sys.triggers AS g ON g.parent_id = t.object_id "
    "WHERE g.is_disabled = 0"
)

FOREIGN_KEYS = (
    "SELECT {number}, CAST('foreign key' AS varchar(20)), CAST(k.name AS nvarchar(128)), "
    "CAST(cs.name AS nvarchar(128)), CAST(c.name AS nvarchar(128)), "
    "CAST(k.delete_referential_action AS int), CAST(k.update_referential_action AS int) "
    f"FROM {TABLE} INNER JOIN sys.foreign_keys AS k ON k.referenced_object_id = t.object_id "
    "INNER JOIN sys.tables AS c ON c.object_id = k.parent_object_id "
    "INNER JOIN sys.schemas AS cs ON cs.schema_id = c.schema_id "
    "WHERE k.is_disabled = 0"
)


def _of_table(kind: str, name: str, condition: str) -> str:
    """A query for a feature that a table has as a whole."""
    return (
        f"SELECT {{number}}, CAST('{kind}' AS varchar(20)), CAST({name} AS nvarchar(128)), "
        "CAST('' AS nvarchar(128)), CAST('' AS nvarchar(128)), CAST(0 AS int), CAST(0 AS int) "
        f"FROM {TABLE} WHERE {condition}"
    )


UNSEEN_KEYS = _of_table(
    "unseen keys",
    "USER_NAME()",
    f"OBJECTPROPERTY(t.object_id, 'TableHasForeignRef') = 1 AND {NO_DEFINITIONS}",
)
"""A login sees the foreign keys of tables on which it has a right; that a table is referred to, it
sees always. https://learn.microsoft.com/sql/t-sql/functions/objectproperty-transact-sql"""

PARTS = {
    "triggers": TRIGGERS,
    "foreign keys": FOREIGN_KEYS,
    "foreign keys of other tables": UNSEEN_KEYS,
    "system versioning": _of_table("versions", "t.name", "t.temporal_type = 2"),
    "memory optimization": _of_table("in memory", "t.name", "t.is_memory_optimized = 1"),
}
"""The queries, by subject."""

UNKNOWN = "unknown"
"""The kind of a feature of which the server does not tell whether a table has it."""

ACTIONS = ("NO ACTION", "CASCADE", "SET NULL", "SET DEFAULT")
"""As sys.foreign_keys numbers them."""


def hazards(endpoint: Endpoint, plan: CopyPlan, options: TargetOptions) -> list[Hazard]:
    """See `Target.hazards`. Features without a catalog view on the server count as present."""
    hazards: list[Hazard] = []
    written = options.written_by(plan)
    features = answer(endpoint, _features, plan.target) or ()
    for kind, name, schema, table, on_delete, on_update in features:
        if kind == UNKNOWN:
            says = f"the server does not tell whether there are any: {table}"
            hazards.append(Hazard(name, f"of {plan.target}", "changes", says))
        elif kind == "in memory":
            says = (
                "is memory-optimised: the server lets no transaction of a run write (error 41368)"
            )
            hazards.append(Hazard("table", name, "refused", says, "Load into a table on disk"))
        elif options.mode.whole_table:
            own = (schema, table) == (plan.target.schema, plan.target.name)
            hazards += _of_swap(kind, f"{name} on {schema}.{table}" if table else name, own)
        elif kind == "trigger":
            when = "INSTEAD OF" if on_delete else "AFTER"
            says = f"{when}, may change rows as they are published"
            do = "Have it leave them as they are, DISABLE TRIGGER, or load into a table of its own"
            hazards.append(Hazard("trigger", name, "changes", says, do))
        elif kind == "unseen keys":
            if written.deletes or written.updates:
                hazards.append(_unseen_keys(name, "destroys" if written.deletes else "refused"))
        elif kind == "foreign key":
            actions = ACTIONS[int(on_delete)], ACTIONS[int(on_update)]
            hazards += _foreign_key(f"{name} on {schema}.{table}", *actions, written, options)
        else:
            says = (
                "is system-versioned: its history keeps each row that is replaced, changed or not"
            )
            hazards.append(Hazard("temporal table", name, "noted", says))
    return sorted(hazards, key=lambda hazard: (hazard.kind, hazard.name))


def _features(endpoint: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, list[Row]]:
    return _answers(endpoint, tables, PARTS)


def _answers(
    endpoint: Endpoint, tables: Sequence[TableRef], parts: Mapping[str, str]
) -> dict[TableRef, list[Row]]:
    """Ask all parts together or, if the server refuses that, each by itself.

    A part that the server refuses is an `UNKNOWN` feature of every table, with the reason.
    """
    try:
        rows = endpoint.query(about(" UNION ALL ".join(parts.values()), tables, "t.name"))
    except StatementFailed as error:
        if error.transient:
            raise
        if len(parts) == 1:
            return {table: [(UNKNOWN, *parts, "", str(error), 0, 0)] for table in tables}
        features: dict[TableRef, list[Row]] = {}
        for part, sql in parts.items():
            for table, of_table in _answers(endpoint, tables, {part: sql}).items():
                features.setdefault(table, []).extend(of_table)
        return features
    return by_table(tables, rows)


def _of_swap(kind: str, where: str, own: bool) -> Iterator[Hazard]:
    """What the table has that another one cannot take over."""
    do = "Declare another write mode"
    if kind == "trigger":
        yield Hazard(kind, where, "noted", "is not carried over to the new table by a swap")
    elif kind == "unseen keys":
        yield _unseen_keys(where, "refused")
    elif kind == "versions":
        says = "is system-versioned: the server does not drop it for a swap"
        yield Hazard("temporal table", where, "refused", says, do)
    elif not own:
        do += ", or drop the foreign key"
        yield Hazard(kind, where, "refused", "is of a table that a swap drops", do)


def _foreign_key(
    where: str, on_delete: str, on_update: str, written: Written, options: TargetOptions
) -> Iterator[Hazard]:
    if written.deletes and on_delete != "NO ACTION":  # which the server itself refuses
        says = f"ON DELETE {on_delete}, changes the rows that refer to those which are replaced"
        without = "deletes: keep" if options.removes else "write: upsert, which deletes nothing"
        remedy = f"Declare {without}, or drop the constraint"
        yield Hazard("foreign key", where, "destroys", says, remedy)
    if written.updates and on_update in ("SET NULL", "SET DEFAULT"):
        says = f"ON UPDATE {on_update}, changes rows that refer to what is updated"
        yield Hazard("foreign key", where, "refused", says, "Drop it, or have it CASCADE")


def _unseen_keys(login: str, effect: Effect) -> Hazard:
    says = f"refer to it, and {DIALECT.quote(login)} may not see all of them, nor what they do"
    return Hazard("foreign keys", "of other tables", effect, says, grant_definitions(login))
