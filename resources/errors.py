"""The errors that users see: one clear line each, without secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

MESSAGE_LENGTH = 2_000
"""Maximum characters of a server's message: PostgreSQL repeats a value of any length."""
SHOWN = 200
"""Maximum characters of a value in an error message."""


def shortened(text: str, most: int = SHOWN) -> str:
    """Leave out the middle of a long text, and say how long it is."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end]} ... {text[-end:]} ({len(text):,} characters)"


class TableferryError(Exception):
    """Base of all errors whose message is for the user, complete in one line."""

    exit_code = 1


class InputError(TableferryError):
    """The declaration or the command is wrong; trying again does not help (exit code 2)."""

    exit_code = 2


class ConnectionFailed(TableferryError):
    """A server cannot be reached or refuses the login. The message names system, host and port."""

    exit_code = 2

    def __init__(
        self, message: str, *, transient: bool = False, address: str | None = None
    ) -> None:
        self.transient = transient
        """Whether it may work later, because the server is down or starting."""
        self.address = address
        """The server's address, if a server failed."""
        self.outdated_password = False
        """Whether the password may have been outdated, and the next connection has another."""
        super().__init__(message)


class SnapshotLost(TableferryError):
    """The exported snapshot ended with the connection that held it; take a new one."""

    transient = True


class SourceMoved(TableferryError):
    """The source changed while it was read, so that the rows are not one state of it."""

    transient = True


class PlacesLost(TableferryError):
    """Rows that are read by their place in storage are not, or no longer, where they were."""

    transient = False


class SetLost(TableferryError):
    """A table cannot be read any more in the state in which all of its set are read."""

    transient = False


class RowsHidden(InputError):
    """Row-level security would hide rows of a table; the message names the remedies."""


class RowsReferredTo(InputError):
    """A row would be deleted that rows of other tables refer to, which would change with it."""


class CutDifferently(InputError):
    """Others have cut a target's keys into other ranges, so that readers would see rows twice."""


class KeyChanged(InputError):
    """The ranges of a transfer were divided by another key than it declares now, of this kind."""

    def __init__(self, message: str, kind: str) -> None:
        self.kind = kind
        super().__init__(message)


class NoBlocks(InputError):
    """A table has no blocks by which it could be cut.

    `kind` says what it is instead, e.g. `a view`.
    """

    def __init__(self, table: str, kind: str) -> None:
        self.kind = kind
        super().__init__(f"{table}: 'ranges: {{by: ctid}}' needs a table; this is {kind}")


class TableMissing(InputError):
    """The named table does not exist."""


class ColumnsRefused(InputError):
    """Columns cannot be moved as they are declared.

    The message names each with its reason; `problems` has the reasons by column name. `hop` is the
    1-based position of the hop whose source has the columns, where it is known.
    """

    hop: int | None = None

    def __init__(self, tables: str, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        super().__init__(f"{tables}: " + "; ".join(self.problems.values()))


class TypeRefused(ColumnsRefused):
    """Columns have types that cannot be moved exactly; the message names the alternatives."""


class NamesClash(ColumnsRefused):
    """Columns get names that the target cannot have, or that are the same to it.

    `renames` has an unused name for each that would have to change, by its name in the source;
    `reasons` says of each what is wrong with its name.
    """

    def __init__(
        self,
        tables: str,
        problems: Mapping[str, str],
        renames: Mapping[str, str],
        reasons: Mapping[str, str],
    ):
        self.renames, self.reasons = dict(renames), dict(reasons)
        super().__init__(tables, problems)


class SchemaDrift(TableferryError):
    """The source or the target changed since the plan; the message shows the difference."""


class ValueRefused(TableferryError):
    """The target cannot hold a value exactly.

    The message names table, column, key and value; the caller adds transfer and key range.
    """

    def __init__(self, table: str, column: str, key: object, value: object, reason: str) -> None:
        self.table, self.column, self.key = table, column, key
        self.value, self.reason = value, reason
        shown_key, shown_value = shortened(repr(key)), shortened(repr(value), 2 * SHOWN)
        super().__init__(
            f"{table}: column {column!r}, key {shown_key}: value {shown_value} "
            f"{shortened(reason, MESSAGE_LENGTH)}"
        )


class RangeBusy(TableferryError):
    """Another live run is loading the same key range."""

    transient = False


class SentDiffers(TableferryError):
    """A server computes another digest of rows than their bytes have, as it sent them."""


class ReceiptMismatch(TableferryError):
    """Row counts along the way differ; nothing was committed."""


class StatementFailed(TableferryError):
    """A server refused a statement, or the connection broke while it ran.

    The message names system and, where the server gave one, its error code.
    """

    def __init__(
        self, system: str, reason: str, *, code: int | str | None = None, transient: bool = False
    ) -> None:
        self.system, self.code, self.transient = system, code, transient
        """`code` is the server's: an error number, or SQLSTATE on PostgreSQL; None if the
        connection broke. `transient` means that trying again may help."""
        reason = shortened(reason, MESSAGE_LENGTH)
        super().__init__(f"{system}: {reason}" if code is None else f"{system} ({code}): {reason}")


@contextmanager
def concerning(subject: str) -> Iterator[None]:
    """Put the subject in front of a server's message, which does not name it."""
    try:
        yield
    except StatementFailed as error:
        if not str(error).startswith(subject):
            error.args = (f"{subject}: {error}",)
        raise


def causes(error: BaseException, *, suppressed: bool = False) -> Iterator[BaseException]:
    """Yield an error and its chain of causes, eight at most.

    With `suppressed`, causes that `raise ... from None` hides are included.
    """
    current: BaseException | None = error
    for _ in range(8):
        if current is None:
            return
        yield current
        hidden = current.__suppress_context__ and not suppressed
        current = current.__cause__ or (None if hidden else current.__context__)


def describe(error: BaseException) -> str:
    """Describe any error in one line.

    Other libraries' errors are named by their class, with the first line of the message only:
    drivers put queries and hints below it.
    """
    if isinstance(error, TableferryError):
        return str(error)
    text = shortened(next(iter(str(error).strip().splitlines()), ""), MESSAGE_LENGTH)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def informing(subject: str, look: Callable[[], T], notes: list[str]) -> T | None:
    """Return what only informs: if it cannot be found, a note says so, and nothing stops.

    Args:
        subject: what it is about, e.g. `what a run takes`.
        look: finds it.
        notes: receives the note.
    """
    try:
        return look()
    except Exception as error:
        logger.debug("%s is not known", subject, exc_info=True)
        notes.append(f"{subject} is not known: {describe(error)}")
        return None
