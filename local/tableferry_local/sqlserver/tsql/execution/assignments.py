"""DECLARE and SET: variables and session options."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token

from tableferry_local.sqlserver.catalog.tables import object_name
from tableferry_local.sqlserver.errors import ErrorContext, SqlError, syntax_error, unsupported
from tableferry_local.sqlserver.tsql.execution.evaluation import evaluate
from tableferry_local.sqlserver.tsql.execution.run import Run
from tableferry_local.sqlserver.tsql.execution.state import State, Variable
from tableferry_local.sqlserver.tsql.syntax.batch import Statement
from tableferry_local.sqlserver.tsql.syntax.clauses import name_at, split, words
from tableferry_local.sqlserver.tsql.syntax.parsing import parse_expression, type_text, word
from tableferry_local.sqlserver.types.typerules import parse_type


def declare(state: State, statement: Statement) -> None:
    """DECLARE @a int = 1, @b nvarchar(10)."""
    for part in split(statement.tokens[1:]):
        names, at = name_at(part, 0)
        name = names[-1].lower()
        if not name.startswith("@"):
            raise syntax_error(name)
        if name in state.frame.variables and statement.kind == "DECLARE":
            raise SqlError(
                134,
                15,
                f"The variable name '{name}' has already been declared. Variable names must be "
                "unique within a query batch or stored procedure.",
            )
        if words(part[at : at + 1]) == ["AS"]:
            at += 1
        if words(part[at : at + 1]) == ["TABLE"]:
            raise unsupported("a table variable")
        text, used = type_text(part[at:])
        kind = parse_type(text)
        at += used
        value = None
        if at < len(part):
            if word(part[at]) != "=":
                raise syntax_error(part[at].text)
            _, value = evaluate(state, parse_expression(part[at + 1 :]), kind)
        state.frame.variables[name] = Variable(kind, value)


def run_set(run: Run, statement: Statement) -> None:
    """SET @a = expression, or SET option value."""
    tokens = statement.tokens[1:]
    if not tokens:
        raise syntax_error("SET")
    if word(tokens[0]) == "@":
        _set_variable(run, tokens)
    else:
        _set_options(run, tokens)
    run.sink.done(None, "SET")


def _set_variable(run: Run, tokens: list[Token]) -> None:
    names, at = name_at(tokens, 0)
    variable = run.state.variable(names[-1])
    if words(tokens[at : at + 1]) != ["="]:
        raise syntax_error(tokens[at].text if at < len(tokens) else names[-1])
    node = parse_expression(tokens[at + 1 :])
    _, variable.value = evaluate(run.state, node, variable.type)


def _set_options(run: Run, tokens: list[Token]) -> None:
    state = run.state
    first = words(tokens, 8)
    if first[0] == "TRANSACTION":
        state.isolation = " ".join(first[3:])
        if state.isolation not in (
            "READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SNAPSHOT", "SERIALIZABLE",
        ):  # fmt: skip
            raise syntax_error(first[-1])
        return
    if first[0] == "IDENTITY_INSERT":
        _identity_insert(run, tokens)
        return
    if first[0] == "LOCK_TIMEOUT":
        _, value = evaluate(state, parse_expression(tokens[1:]))
        state.lock_timeout = int(value or -1)
        # PostgreSQL's 0 waits for ever, T-SQL's 0 does not wait at all
        limit = 0 if state.lock_timeout < 0 else max(1, state.lock_timeout)
        state.link.run(f"SET lock_timeout = {limit}")
        return
    if first[0] == "ROWCOUNT":
        _, value = evaluate(state, parse_expression(tokens[1:]))
        state.row_limit = int(value or 0)
        return
    if first[0] in ("TEXTSIZE", "DATEFIRST", "LANGUAGE"):
        return
    on = first[-1] == "ON"
    if first[-1] not in ("ON", "OFF"):
        raise syntax_error(tokens[-1].text)
    for name in " ".join(first[:-1]).replace(" ", "").split(","):
        _option(run, name, on)


def _option(run: Run, name: str, on: bool) -> None:
    state = run.state
    if name == "NOCOUNT":
        state.nocount = on
    elif name == "XACT_ABORT":
        state.xact_abort = on
    elif name == "IMPLICIT_TRANSACTIONS" and on:
        raise unsupported("SET IMPLICIT_TRANSACTIONS ON")
    elif name == "FMTONLY":
        state.fmtonly = on
    elif name not in _HARMLESS:
        raise SqlError(195, 15, f"'{name}' is not a recognized SET option.")


_HARMLESS = {
    "ANSI_NULLS", "ANSI_PADDING", "ANSI_WARNINGS", "ANSI_NULL_DFLT_ON", "ARITHABORT",
    "CONCAT_NULL_YIELDS_NULL", "CURSOR_CLOSE_ON_COMMIT", "IMPLICIT_TRANSACTIONS",
    "NUMERIC_ROUNDABORT", "QUOTED_IDENTIFIER",
}  # fmt: skip


def _identity_insert(run: Run, tokens: list[Token]) -> None:
    state = run.state
    parts, at = name_at(tokens, 1)
    table = state.catalog.get(object_name(parts, state.database), ".".join(parts))
    identity = next((column for column in table.columns if column.identity), None)
    if identity is None:
        raise SqlError(
            8106,
            16,
            f"Table '{'.'.join(parts)}' does not have the identity property. Cannot perform "
            "SET operation.",
        )
    if words(tokens[at:]) == ["ON"]:
        if state.identity_insert not in (None, table.sql):
            raise SqlError(
                8107,
                16,
                "IDENTITY_INSERT is already ON for another table. Cannot perform SET "
                f"operation for table '{'.'.join(parts)}'.",
            )
        state.identity_insert = table.sql
        return
    state.identity_insert = None
    with state.statement(ErrorContext("SET")):
        # the next generated value follows the highest one given
        state.link.run(
            "SELECT setval(s.name, greatest(m.top, "
            f"COALESCE(sys.sequence_value({table.oid}::oid, {identity.attnum}), m.top))) "
            f"FROM (SELECT max({identity.sql})::bigint FROM {table.sql}) AS m(top), "
            f"(SELECT pg_get_serial_sequence({table.oid}::oid::regclass::text, attname) FROM "
            "pg_attribute "
            f"WHERE attrelid = {table.oid}::oid AND attnum = {identity.attnum}) AS s(name), "
            # values before the seed leave it where it is, and PostgreSQL's sequence refuses them
            "pg_sequence AS q WHERE q.seqrelid = s.name::regclass AND m.top BETWEEN q.seqmin "
            "AND q.seqmax"
        )
