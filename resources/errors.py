"""The errors that a user sees: one clear line each, never a secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class TableferryError(Exception):
    """Base of all errors whose message is meant for the user, complete in one line."""

    exit_code = 1


class InputError(TableferryError):
    """The declaration or the command is wrong, and trying again does not help (exit code 2)."""

    exit_code = 2


class ConnectionFailed(TableferryError):
    """A server cannot be reached or refuses the login. The message names system, host and port."""

    exit_code = 2

    def __init__(
        self, message: str, *, transient: bool = False, address: str | None = None
    ) -> None:
        self.transient = transient
        """Whether it may work later: the server is down or starting, not refusing us."""
        self.address = address
        """Which server it is, if it is one."""
        super().__init__(message)


class SnapshotLost(TableferryError):
    """The exported snapshot ended because the connection that held it died; take a new one."""

    transient = True


class SourceMoved(TableferryError):
    """The source changed while it was read, so that what was read is not one state of it."""

    transient = True


class PlacesLost(TableferryError):
    """Rows that are read by where they are stored are not, or no longer, where they were."""

    transient = False


class RowsHidden(InputError):
    """Row-level security would hide rows of a table. The message names the remedies."""


class TableMissing(InputError):
    """The named table does not exist."""


class ColumnsRefused(InputError):
    """Columns cannot be moved as they are declared.

    The message names each with its reason; `problems` has the reasons by column name.
    """

    def __init__(self, tables: str, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        super().__init__(f"{tables}: " + "; ".join(self.problems.values()))


class TypeRefused(ColumnsRefused):
    """At least one of the columns has a type that cannot be moved exactly.

    The message names the alternatives.
    """


class NamesClash(ColumnsRefused):
    """Columns get names that the target does not tell apart.

    `renames` has a free name for each that would have to give way, by its name in the source.
    """

    def __init__(self, tables: str, problems: Mapping[str, str], renames: Mapping[str, str]):
        self.renames = dict(renames)
        super().__init__(tables, problems)


class SchemaDrift(TableferryError):
    """The source or the target changed since the plan. The message shows the difference."""


class ValueRefused(TableferryError):
    """A value that the target cannot hold exactly.

    The message names table, column, key and value; the caller adds transfer and key range.
    """

    def __init__(self, table: str, column: str, key: object, value: object, reason: str) -> None:
        self.table, self.column, self.key, self.value, self.reason = (
            table,
            column,
            key,
            value,
            reason,
        )
        super().__init__(f"{table}: column {column!r}, key {key!r}: value {value!r} {reason}")


class RangeBusy(TableferryError):
    """Another live run is loading the same key range."""

    transient = False


class ReceiptMismatch(TableferryError):
    """The rows counted on the way do not agree; nothing was committed."""


class StatementFailed(TableferryError):
    """A server refused a statement, or the connection broke while it ran.

    The message names system and, where the server gave one, its error code.
    """

    def __init__(
        self, system: str, reason: str, *, code: int | str | None = None, transient: bool = False
    ) -> None:
        self.system, self.code, self.transient = system, code, transient
        """`code` is the server's own: an error number, or SQLSTATE on PostgreSQL; None where the
        connection broke. `transient` says that trying again may help."""
        super().__init__(f"{system}: {reason}" if code is None else f"{system} ({code}): {reason}")


@contextmanager
def concerning(what: str) -> Iterator[None]:
    """Name what a statement was for, where the server says only what it could not do."""
    try:
        yield
    except StatementFailed as error:
        if not str(error).startswith(what):
            error.args = (f"{what}: {error}",)
        raise


def causes(error: BaseException, *, suppressed: bool = False) -> Iterator[BaseException]:
    """An error and what it came from, eight at most.

    Args:
        error: the last one.
        suppressed: include what a `raise ... from None` hides.
    """
    current: BaseException | None = error
    for _ in range(8):
        if current is None:
            return
        yield current
        hidden = current.__suppress_context__ and not suppressed
        current = current.__cause__ or (None if hidden else current.__context__)


def describe(error: BaseException) -> str:
    """One line about any error: ours as they are, a library's with its kind.

    Only the first line of a foreign message is kept; drivers put queries and hints below it.
    """
    text = next(iter(str(error).strip().splitlines()), "")
    if isinstance(error, TableferryError):
        return str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
