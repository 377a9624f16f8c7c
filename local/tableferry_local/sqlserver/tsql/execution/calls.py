"""EXEC: dynamic batches, our own procedures, and the system's."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from tableferry_local.sqlserver.catalog.tables import Table
from tableferry_local.sqlserver.errors import SqlError, unsupported
from tableferry_local.sqlserver.tsql.execution.arguments import Argument, Definition, definitions_of
from tableferry_local.sqlserver.tsql.execution.evaluation import TEXT, evaluate
from tableferry_local.sqlserver.tsql.execution.run import Run, run_text
from tableferry_local.sqlserver.tsql.execution.state import Variable
from tableferry_local.sqlserver.tsql.execution.sysprocs import SYSTEM_PROCEDURES
from tableferry_local.sqlserver.tsql.syntax.clauses import Tokens, matching, name_at, split, words
from tableferry_local.sqlserver.tsql.syntax.dmlparsing import Insert
from tableferry_local.sqlserver.tsql.syntax.parsing import parse_expression, tokenize, word
from tableferry_local.sqlserver.types.sqltype import SqlType


def run_execute(
    run: Run, tokens: Sequence[Token], into: tuple[Table, Insert] | None = None
) -> None:
    """Run EXEC ... or a bare procedure call.

    Args:
        into: the target of INSERT ... EXEC.

    Raises:
        SqlError: 2812, there is no such procedure; and whatever it raises.
    """
    if into is not None:
        raise unsupported("INSERT ... EXEC")
    at = 1 if word(tokens[0]) in ("EXEC", "EXECUTE") else 0
    if words(tokens[at:], 1) == ["("]:
        end = matching(tokens, at)
        _, text = evaluate(run.state, parse_expression(tokens[at + 1 : end]), TEXT)
        run_text(run, text or "", {})
        return
    status_variable = None
    if words(tokens[at:], 1) == ["@"]:
        names, after = name_at(tokens, at)
        if words(tokens[after : after + 1]) == ["="]:
            status_variable, at = names[-1], after + 1
        else:
            value = run.state.variable(names[-1]).value
            tokens = [*tokenize(value or ""), *tokens[after:]]
            at = 0
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
    if words(tokens) == ["DEFAULT"]:
        return Argument(name, TEXT, None, None, True)
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
        return Argument(name, SqlType("nvarchar", 128), tokens[0].text, None)
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
    by_name = {argument.name.lower(): argument for argument in arguments if argument.name}
    positional = [argument for argument in arguments if not argument.name]
    statement = by_name.pop("@stmt", None) or by_name.pop("@statement", None) or positional.pop(0)
    declared = by_name.pop("@params", None) or (positional.pop(0) if positional else None)
    definitions = definitions_of(tokenize(declared.value or "")) if declared is not None else []
    return _with_parameters(run, statement.value or "", definitions, by_name, positional)


def _with_parameters(
    run: Run,
    text: str,
    definitions: list[Definition],
    by_name: dict[str, Argument],
    positional: list[Argument],
) -> int:
    variables: dict[str, Variable] = {}
    outputs: list[tuple[str, str]] = []
    for name, kind, default, output in definitions:
        argument = by_name.pop(name, None) or (positional.pop(0) if positional else None)
        if argument is None or argument.default:
            if default is None:
                raise SqlError(
                    8178,
                    16,
                    f"The parameterized query expects the parameter '{name}', which was not "
                    "supplied.",
                )
            value = evaluate(run.state, parse_expression(default), kind)[1]
        else:
            value = argument.converted(run, kind)
        variables[name] = Variable(kind, value)
        if output and argument is not None and argument.variable:
            outputs.append((name, argument.variable))
    if by_name or positional:
        raise SqlError(8144, 16, "Procedure or function has too many arguments specified.")
    run_text(run, text, variables)
    for name, target in outputs:
        variable = run.state.variable(target)
        made = variables[name]
        variable.value = Argument("", made.type, made.value, None).converted(run, variable.type)
    return 0
