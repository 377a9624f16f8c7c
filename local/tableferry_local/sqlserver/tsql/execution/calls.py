"""EXEC: dynamic batches, and the system's procedures."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.tsql.execution.arguments import Argument, definitions_of
from tableferry_local.sqlserver.tsql.execution.evaluation import TEXT, evaluate
from tableferry_local.sqlserver.tsql.execution.run import Run, run_text
from tableferry_local.sqlserver.tsql.execution.state import Variable
from tableferry_local.sqlserver.tsql.execution.sysprocs import SYSTEM_PROCEDURES
from tableferry_local.sqlserver.tsql.syntax.clauses import Tokens, matching, name_at, split, words
from tableferry_local.sqlserver.tsql.syntax.parsing import parse_expression, tokenize, word
from tableferry_local.sqlserver.types.sqltype import SqlType


def run_execute(run: Run, tokens: Sequence[Token]) -> None:
    """Run EXEC ... or a bare procedure call.

    Raises:
        SqlError: 2812, there is no such procedure; and whatever it raises.
    """
    at = 1 if word(tokens[0]) in ("EXEC", "EXECUTE") else 0
    if words(tokens[at:], 1) == ["("]:
        end = matching(tokens, at)
        _, text = evaluate(run.state, parse_expression(tokens[at + 1 : end]), TEXT)
        run_text(run, text or "")
        return
    status_variable = None
    if words(tokens[at:], 1) == ["@"]:
        names, at = name_at(tokens, at)
        status_variable, at = names[-1], at + 1
    parts, at = name_at(tokens, at)
    arguments = [_argument(run, part) for part in split(tokens[at:]) if part]
    status = call(run, parts, arguments)
    if status_variable is not None:
        run.state.variable(status_variable).value = str(status)


def _argument(run: Run, tokens: Tokens) -> Argument:
    name = ""
    if words(tokens, 1) == ["@"]:
        names, at = name_at(tokens, 0)
        if words(tokens[at : at + 1]) == ["="]:
            name, tokens = names[-1], tokens[at + 1 :]
    output = words(tokens[-1:]) in (["OUTPUT"], ["OUT"])
    if output:
        tokens = tokens[:-1]
    variable = None
    if words(tokens, 1) == ["@"] and len(tokens) == 2:
        variable = "@" + tokens[1].text
        known = run.state.variable(variable)
        return Argument(name, known.type, known.value, variable if output else None)
    if len(tokens) == 1 and tokens[0].token_type not in (
        TokenType.STRING, TokenType.NUMBER, TokenType.NATIONAL_STRING, TokenType.HEX_STRING,
        TokenType.NULL,
    ):  # fmt: skip
        # a bare word is a text
        return Argument(name, SqlType("nvarchar", 128), tokens[0].text)
    kind, value = evaluate(run.state, parse_expression(tokens))
    return Argument(name, kind, value, variable)


def call(run: Run, parts: list[str], arguments: list[Argument]) -> int:
    """Call a procedure.

    Returns:
        Its return status.

    Raises:
        SqlError: 2812, there is no such procedure.
    """
    state, name = run.state, parts[-1].lower()
    if name == "sp_executesql":
        return _executesql(run, arguments)
    system = SYSTEM_PROCEDURES.get(name)
    if system is not None:
        database = state.database
        if len(parts) > 2 and parts[-3]:
            state.set_database(parts[-3])
        try:
            return system(run, arguments)
        finally:
            state.database = database
    raise SqlError(2812, 16, f"Could not find stored procedure '{'.'.join(parts)}'.", 62)


def _executesql(run: Run, arguments: list[Argument]) -> int:
    """sp_executesql as the driver calls it: statement, parameters, and their values by name."""
    statement, declared, *given = arguments
    by_name = {argument.name.lower(): argument for argument in given}
    variables = {
        name: Variable(kind, by_name[name].converted(run, kind))
        for name, kind in definitions_of(tokenize(declared.value or ""))
    }
    run_text(run, statement.value or "", variables)
    for argument in given:
        if argument.variable:
            made, variable = variables[argument.name.lower()], run.state.variable(argument.variable)
            variable.value = Argument("", made.type, made.value).converted(run, variable.type)
    return 0
