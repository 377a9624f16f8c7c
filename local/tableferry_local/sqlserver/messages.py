"""PRINT, RAISERROR and THROW."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tableferry_local.sqlserver.batch import Statement
from tableferry_local.sqlserver.clauses import matching, split
from tableferry_local.sqlserver.errors import SqlError, syntax_error
from tableferry_local.sqlserver.evaluation import evaluate_text
from tableferry_local.sqlserver.parsing import parse_expression, word

if TYPE_CHECKING:
    from tableferry_local.sqlserver.interpreter import Interpreter


def run_print(run: Interpreter, statement: Statement) -> None:
    """PRINT expression."""
    text = evaluate_text(run.state, parse_expression(statement.tokens[1:]))
    run.sink.info(0, (text if text is not None else "")[:8000])
    run.sink.done(None, "PRINT")


def run_raiserror(run: Interpreter, statement: Statement) -> None:
    """RAISERROR(message, severity, state, arguments...) [WITH NOWAIT].

    Raises:
        SqlError: the error itself, from severity 11 on.
    """
    tokens = statement.tokens
    if len(tokens) < 2 or word(tokens[1]) != "(":
        raise syntax_error("RAISERROR")
    parts = split(tokens[2 : matching(tokens, 1)])
    values = [evaluate_text(run.state, parse_expression(part)) for part in parts]
    message, number = values[0] or "", 50000
    if message.isdigit():
        number, message = (
            int(message),
            f"Error {message}, severity {values[1]}, state {values[2]} was raised.",
        )
    severity, state = int(values[1] or 0), int(values[2] or 1)
    text = _formatted(message, values[3:])
    if severity > 10:
        raise SqlError(number, severity, text, abs(state) % 256)
    run.sink.info(number, text, severity)
    run.sink.done(None, "RAISERROR")


def _formatted(message: str, values: list[str | None]) -> str:
    rest = iter(values)

    def fill(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        value = next(rest, None)
        return "(null)" if value is None else value

    return re.sub(r"%%|%[-+ #0]*\d*(?:\.\d+)?(?:l|I64)?[sdiuxXo]", fill, message)


def run_throw(run: Interpreter, statement: Statement) -> None:
    """THROW [number, message, state].

    Raises:
        SqlError: the error thrown; 10704 outside of a CATCH block without arguments.
    """
    tokens = statement.tokens[1:]
    if not tokens:
        caught = run.state.frame.caught
        if caught is None:
            raise SqlError(
                10704,
                15,
                "To rethrow an error, a THROW statement must be used inside a CATCH block.",
            )
        raise Thrown(
            caught.number,
            caught.severity,
            caught.message,
            caught.state,
            caught.line,
            caught.procedure,
        )
    number, message, state = (
        evaluate_text(run.state, parse_expression(part)) for part in split(tokens)
    )
    raise Thrown(int(number or 50000), 16, message or "", int(state or 1))


class Thrown(SqlError):
    """Raised by THROW: it ends the batch, unlike RAISERROR."""
