"""DROP and TRUNCATE."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from tableferry_local.sqlserver.catalog.tables import (
    ObjectName,
    Table,
    object_name,
    pg_name,
    quoted,
)
from tableferry_local.sqlserver.errors import SqlError, unsupported
from tableferry_local.sqlserver.tsql.execution.policies import drop_policy
from tableferry_local.sqlserver.tsql.execution.run import Run
from tableferry_local.sqlserver.tsql.syntax.clauses import name_at, split, words
from tableferry_local.sqlserver.tsql.syntax.parsing import word
from tableferry_local.sqlserver.types.value import literal


def index_of(run: Run, table: Table, name: str) -> str | None:
    rows = run.state.link.rows(
        "SELECT i.oid::regclass::text FROM sys._index i JOIN pg_class c ON c.oid = i.oid "
        "WHERE i.relation = $1 AND lower(i.name) = $2",
        [str(table.oid), name.lower()],
    )
    return rows[0][0] if rows else None


def run_drop(run: Run, tokens: Sequence[Token]) -> None:
    state, what, at = run.state, word(tokens[1]), 2
    optional = words(tokens[2:], 2) == ["IF", "EXISTS"]
    at += 2 if optional else 0
    if what in ("TABLE", "VIEW"):
        names = []
        for part in split(tokens[at:]):
            parts, _ = name_at(part, 0)
            name = object_name(parts, state.database)
            table = state.catalog.find(name)
            if table is None and not optional:
                raise missing(what.lower(), ".".join(parts))
            if table is not None:
                if (table.kind == "V") != (what == "VIEW"):
                    raise SqlError(
                        3705, 16, f"Cannot use DROP {what} with '{'.'.join(parts)}' because it is "
                        f"a {'view' if table.kind == 'V' else 'table'}."
                    )  # fmt: skip
                names.append(name)
        drop_relations(run, names)
    elif words(tokens[1:], 2) == ["SECURITY", "POLICY"]:
        drop_policy(run, tokens[at + 1 :])
    elif what == "INDEX":
        _drop_index(run, tokens[at:], optional)
    elif what == "SCHEMA":
        _drop_schema(run, tokens[at].text, optional)
    elif what == "DATABASE":
        _drop_database(run, tokens[at].text, optional)
    elif what not in ("LOGIN", "USER"):
        raise unsupported(f"DROP {what}")


def missing(kind: str, name: str) -> SqlError:
    """Error 3701."""
    return SqlError(
        3701,
        11,
        f"Cannot drop the {kind} '{name}', because it does not exist or you do not have "
        "permission.",
        5,
    )


def _drop_index(run: Run, tokens: Sequence[Token], optional: bool) -> None:
    """DROP INDEX name ON table; one of a constraint goes only with that."""
    (*_, name), at = name_at(tokens, 0)
    parts, _ = name_at(tokens, at + 1)
    table = run.state.catalog.get(object_name(parts, run.state.database))
    index = index_of(run, table, name)
    if index is None:
        if optional:
            return
        raise missing("index", f"{'.'.join(parts)}.{name}")
    where = f"oid = {literal(index)}::regclass"
    if run.state.link.rows(f"SELECT FROM sys._index WHERE {where} AND kind <> 'IX'"):
        raise SqlError(
            3723,
            16,
            f"An explicit DROP INDEX is not allowed on index '{'.'.join(parts)}.{name}'. It is "
            "being used for a constraint.",
        )
    run.state.link.run(f"DELETE FROM sys._index WHERE {where}; DROP INDEX {index}")


def drop_relations(run: Run, names: list[ObjectName]) -> None:
    state = run.state
    for name in names:
        table = state.catalog.get(name)
        oid = f"{table.oid}::oid"
        if state.identity_insert == table.sql:
            state.identity_insert = None
        state.link.run(
            f"DELETE FROM sys._index WHERE relation = {oid};"
            f"DELETE FROM sys._column WHERE oid = {oid}; DELETE FROM sys._relation WHERE oid = "
            f"{oid};"
            f"DROP {'VIEW' if table.kind == 'V' else 'TABLE'} {table.sql}"
        )


def _drop_schema(run: Run, name: str, optional: bool) -> None:
    state = run.state
    pg_schema = pg_name(f"{state.database}.{name}")
    if not state.link.rows("SELECT FROM sys._schema WHERE pg_schema = $1", [pg_schema]):
        if optional:
            return
        raise SqlError(
            15151,
            16,
            f"Cannot drop the schema '{name}', because it does not exist or you do not have "
            "permission.",
        )
    if state.link.rows(
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1",
        [pg_schema],
    ):
        raise SqlError(
            3729, 16, f"Cannot drop schema '{name}' because it is being referenced by an object."
        )
    state.link.run(
        f"DELETE FROM sys._schema WHERE pg_schema = {literal(pg_schema)}; DROP SCHEMA "
        f"{quoted(pg_schema)}"
    )


def _drop_database(run: Run, name: str, optional: bool) -> None:
    state, key = run.state, name.lower()
    if not state.link.rows("SELECT FROM sys._database WHERE key = $1", [key]):
        if optional:
            return
        raise missing("database", name)
    if key == state.database.lower():
        raise SqlError(3702, 16, f'Cannot drop database "{name}" because it is currently in use.')
    schemas = [
        str(row[0])
        for row in state.link.rows("SELECT pg_schema FROM sys._schema WHERE database = $1", [key])
    ]
    for schema in schemas:
        state.link.run(
            "DELETE FROM sys._column k USING sys._relation r WHERE k.oid = r.oid AND "
            f"r.pg_schema = {literal(schema)};"
            "DELETE FROM sys._index i USING sys._relation r WHERE i.relation = r.oid AND "
            f"r.pg_schema = {literal(schema)};"
            f"DELETE FROM sys._relation WHERE pg_schema = {literal(schema)};"
            f"DELETE FROM sys._schema WHERE pg_schema = {literal(schema)};"
            f"DROP SCHEMA {quoted(schema)} CASCADE"
        )
    state.link.run(f"DELETE FROM sys._database WHERE key = {literal(key)}")


def run_truncate(run: Run, tokens: Sequence[Token]) -> None:
    parts, _ = name_at(tokens, 2)
    table = run.state.catalog.find(object_name(parts, run.state.database))
    if table is None:
        raise SqlError(
            4701,
            16,
            f'Cannot find the object "{".".join(parts)}" because it does not exist or you do not '
            "have permissions.",
        )
    run.state.link.run(f"TRUNCATE {table.sql} RESTART IDENTITY")
