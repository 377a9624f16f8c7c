"""CREATE and DROP SECURITY POLICY: the catalog shows policies, and nothing heeds them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from tableferry_local.sqlserver.catalog.tables import object_name
from tableferry_local.sqlserver.errors import syntax_error
from tableferry_local.sqlserver.tsql.execution.run import Run
from tableferry_local.sqlserver.tsql.syntax.clauses import matching, name_at, words
from tableferry_local.sqlserver.tsql.syntax.parsing import word

_KEY = "database = lower($1) AND lower(schema) = lower($2) AND lower(policy) = lower($3)"


def create_policy(run: Run, tokens: Sequence[Token]) -> None:
    """CREATE SECURITY POLICY name ADD {FILTER | BLOCK} PREDICATE function(columns) ON table, ...

    Raises:
        SqlError: 102, or the table is not there.
    """
    state = run.state
    parts, at = name_at(tokens, 3)
    enabled = "OFF" not in words(tokens[at:], len(tokens))
    found = []
    while words(tokens[at:], 1) == ["ADD"]:
        blocks = word(tokens[at + 1]) == "BLOCK"
        at += 2 if word(tokens[at + 1]) in ("FILTER", "BLOCK") else 1
        if word(tokens[at]) != "PREDICATE":
            raise syntax_error(tokens[at].text)
        function, at = name_at(tokens, at + 1)
        at = matching(tokens, at) + 1
        if words(tokens[at:], 1) != ["ON"]:
            raise syntax_error(function[-1])
        table, at = name_at(tokens, at + 1)
        relation = state.catalog.get(object_name(table, state.database), ".".join(table))
        found.append((".".join(function), blocks, relation.oid))
        at += words(tokens[at:], 1) == [","]
    for definition, blocks, oid in found:
        state.link.rows(
            "INSERT INTO sys._predicate (database, schema, policy, definition, blocks, relation, "
            "enabled) VALUES (lower($1), $2, $3, $4, $5, $6, $7)",
            [*_named(run, parts), definition, str(blocks), str(oid), str(enabled)],
        )


def drop_policy(run: Run, tokens: Sequence[Token]) -> None:
    """DROP SECURITY POLICY name."""
    parts, _ = name_at(tokens, 0)
    run.state.link.rows(f"DELETE FROM sys._predicate WHERE {_KEY}", _named(run, parts))


def _named(run: Run, parts: Sequence[str]) -> list[str | None]:
    name = object_name(list(parts), run.state.database)
    return [run.state.database, name.schema, name.name]
