"""SQL Server's error numbers, and how PostgreSQL's errors become them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# After these the batch ends and the transaction is rolled back, whatever XACT_ABORT says.
BATCH_ABORTING = {241, 242, 244, 245, 248, 295, 1205, 3960, 3930, 3998, 8114, 8169}
# After these only the rest of the batch is skipped: the scope could not be compiled.
SCOPE_ABORTING = {102, 105, 137, 195, 207, 208, 209, 2812, 4104, 8120, 40510}


class SqlError(Exception):
    """An error as SQL Server reports it."""

    def __init__(
        self,
        number: int,
        severity: int,
        message: str,
        state: int = 1,
        line: int = 1,
    ) -> None:
        super().__init__(message)
        self.number, self.severity, self.message = number, severity, message
        self.state, self.line = state, line

    def __str__(self) -> str:
        return f"Msg {self.number}, Level {self.severity}, State {self.state}: {self.message}"


def syntax_error(near: str) -> SqlError:
    """Error 102."""
    return SqlError(102, 15, f"Incorrect syntax near '{near}'.")


def unsupported(what: str) -> SqlError:
    """For T-SQL that the stand-in does not have."""
    return SqlError(40510, 16, f"{what} is not supported by this stand-in for SQL Server.")


@dataclass(frozen=True)
class PgFailure:
    """The fields of a PostgreSQL error that we use."""

    sqlstate: str
    message: str
    detail: str = ""
    schema: str = ""
    table: str = ""
    column: str = ""
    constraint: str = ""


@dataclass
class ErrorContext:
    """What is known about the statement that failed, to name things in T-SQL's words."""

    statement: str = "SELECT"
    describe: Callable[[PgFailure], Mapping[str, str]] = field(default=lambda failure: {})


_KIND = {
    "integer": "int",
    "bigint": "bigint",
    "smallint": "smallint",
    "numeric": "numeric",
    "double precision": "float",
    "real": "real",
    "uuid": "uniqueidentifier",
    "date": "date",
    "timestamp": "datetime",
    "time": "time",
    "interval": "int",
}


def from_postgres(failure: PgFailure, context: ErrorContext) -> SqlError:
    """The SQL Server error that stands for a PostgreSQL error.

    Our own functions raise SQLSTATE `TSxxx` with the whole error as `number|severity|message`.
    """
    state, message = failure.sqlstate, failure.message
    if state.startswith("TS"):
        number, severity, text = message.split("|", 2)
        return SqlError(int(number), int(severity), text)
    maker = _MAKERS.get(state)
    if maker is not None:
        return maker(failure, context)
    if state.startswith("08") or state in ("57P01", "57P02", "57P03"):
        return SqlError(
            596,
            21,
            f"Cannot continue the execution because the session is in the kill state: {message}",
        )
    return SqlError(50000, 16, f"{message} ({state})")


def _duplicate(failure: PgFailure, context: ErrorContext) -> SqlError:
    names = context.describe(failure)
    values = re.search(r"=\((.*)\) (?:already exists|is duplicated)", failure.detail, re.S)
    key = f" The duplicate key value is ({values[1]})." if values else ""
    table, index = names.get("table", failure.table), names.get("index", failure.constraint)
    if context.statement in ("CREATE", "ALTER"):
        return SqlError(
            1505,
            16,
            "The CREATE UNIQUE INDEX statement terminated because a duplicate key was found "
            "for the "
            f"object name '{table}' and the index name '{index}'.{key}",
        )
    kind = names.get("kind", "unique index")
    if kind == "unique index":
        return SqlError(
            2601,
            14,
            f"Cannot insert duplicate key row in object '{table}' with unique index "
            f"'{index}'.{key}",
        )
    return SqlError(
        2627,
        14,
        f"Violation of {kind} constraint '{index}'. Cannot insert duplicate key in object "
        f"'{table}'.{key}",
    )


def _not_null(failure: PgFailure, context: ErrorContext) -> SqlError:
    names = context.describe(failure)
    return SqlError(
        515,
        16,
        f"Cannot insert the value NULL into column '{names.get('column', failure.column)}', table "
        f"'{names.get('full_table', failure.table)}'; column does not allow nulls. "
        f"{context.statement} fails.",
        state=2,
    )


def _conversion(failure: PgFailure, context: ErrorContext) -> SqlError:
    found = re.search(r'invalid input syntax for type ([a-z ]+?): "(.*)"', failure.message, re.S)
    if not found:
        return SqlError(8114, 16, f"Error converting data type: {failure.message}", state=5)
    kind = _KIND.get(found[1].removesuffix(" without time zone"), found[1])
    if kind in ("numeric", "float", "real", "bigint"):
        return SqlError(8114, 16, f"Error converting data type varchar to {kind}.", state=5)
    if kind == "uniqueidentifier":
        return SqlError(
            8169,
            16,
            "Conversion failed when converting from a character string to uniqueidentifier.",
            state=2,
        )
    if kind in ("date", "datetime", "time"):
        return _bad_date(failure, context)
    return SqlError(
        245,
        16,
        f"Conversion failed when converting the varchar value '{found[2]}' to data type {kind}.",
    )


def _bad_date(failure: PgFailure, context: ErrorContext) -> SqlError:
    return SqlError(
        241, 16, "Conversion failed when converting date and/or time from character string."
    )


def _overflow(failure: PgFailure, context: ErrorContext) -> SqlError:
    found = re.search(r'value "(.*)" is out of range for type (\w+)', failure.message)
    if found and found[2] in ("integer", "smallint"):
        return SqlError(
            248 if found[2] == "integer" else 244,
            16,
            f"The conversion of the varchar value '{found[1]}' overflowed an {_KIND[found[2]]} "
            "column.",
        )
    found = re.search(r"(smallint|integer|bigint) out of range", failure.message)
    kind = _KIND[found[1]] if found else "numeric" if "numeric" in failure.message else "float"
    return SqlError(
        8115, 16, f"Arithmetic overflow error converting expression to data type {kind}.", state=2
    )


def _check(failure: PgFailure, context: ErrorContext) -> SqlError:
    """Only types have CHECK constraints, where PostgreSQL's type is wider."""
    names = context.describe(failure)
    if failure.constraint.startswith("ts_len_"):
        return SqlError(
            2628,
            16,
            f"String or binary data would be truncated in table "
            f"'{names.get('full_table', failure.table)}', column '{names.get('column', '?')}'. "
            f"Truncated value: '{names.get('value', '')}'.",
        )
    return SqlError(
        220 if names.get("type") == "tinyint" else 8115,
        16,
        f"Arithmetic overflow error for data type {names.get('type', 'int')}, value = "
        f"{names.get('value', '')}.",
        state=2,
    )


def _fixed(number: int, severity: int, message: str, state: int = 1) -> Callable[..., SqlError]:
    return lambda failure, context: SqlError(number, severity, message, state)


_DEADLOCK = (
    "Transaction was deadlocked on lock resources with another process and has been chosen as the "
    "deadlock victim. Rerun the transaction."
)
_MAKERS: dict[str, Callable[[PgFailure, ErrorContext], SqlError]] = {
    "23505": _duplicate,
    "23502": _not_null,
    "23514": _check,
    "22P02": _conversion,
    "22007": _bad_date,
    "22008": _fixed(
        242,
        16,
        "The conversion of a varchar data type to a datetime data type resulted in an "
        "out-of-range value.",
        3,
    ),
    "22003": _overflow,
    "22012": _fixed(8134, 16, "Divide by zero error encountered."),
    "40P01": _fixed(1205, 13, _DEADLOCK, 51),
    "40001": _fixed(
        3960,
        16,
        "Snapshot isolation transaction aborted due to update conflict. Retry the transaction or "
        "change the isolation level for the update/delete statement.",
    ),
    "55P03": _fixed(1222, 16, "Lock request time out period exceeded.", 51),
    "21000": _fixed(
        512,
        16,
        "Subquery returned more than 1 value. This is not permitted when the subquery follows "
        "=, !=, "
        "<, <= , >, >= or when the subquery is used as an expression.",
    ),
    "42P07": lambda failure, context: SqlError(
        2714,
        16,
        "There is already an object named "
        f"'{context.describe(failure).get('table', failure.table)}' in the database.",
        6,
    ),
    "57014": _fixed(3621, 0, "The statement has been terminated."),
    "42803": lambda failure, context: SqlError(8120, 16, failure.message),
    "22011": _fixed(537, 16, "Invalid length parameter passed to the LEFT or SUBSTRING function."),
}
