"""The markers of a target that publishes by a transaction: written in that very transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.markers import (
    Marker,
    Publication,
    Published,
    beside,
    now,
    range_key,
)
from tableferry.resources.contract.target import TargetMoved, TargetOptions, shadow_of
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.statements import Session, Statements

HEAD = "head"
"""Stands for a range's key in the row that counts a table's publications. Whoever publishes changes
it first, and so waits for the end of who does so at the time."""

TURN_SECONDS = 30
"""How long a transaction waits for its turn: others have theirs for the last statements only."""

Ask = Callable[[str], list[tuple[Any, ...]]]


class MarkerTable:
    """The table beside a target.

    Args:
        sql: the system's statements.
        target: the target.
        written: the table that ranges are published in: the target, or its shadow.
    """

    def __init__(self, sql: Statements, target: TableRef, written: TableRef | None = None) -> None:
        self._sql, self._target, self._written = sql, target, written or target
        self._table = beside(target)
        self._name = qualified(self._table)

    def creation(self) -> str:
        """CREATE TABLE."""
        short, long = self._sql.indexed_text, self._sql.any_text
        texts = ("target_name", "range_name", "key_name", "version", "owner", "home", "published")
        columns = [
            f"target_id {short} NOT NULL",
            f"range_hash {short} NOT NULL",
            "number bigint NOT NULL",
            *(f"{name} {long} NOT NULL" for name in texts),
            "PRIMARY KEY (target_id, range_hash)",
        ]
        return f"CREATE TABLE {self._name} ({', '.join(columns)})"

    def create(self, session: Session) -> None:
        """Make the table if it is missing; another run may be faster."""
        there = self._sql.table_exists(self._table)
        if session.query(there):
            return
        try:
            session.execute(self.creation())
        except StatementFailed:
            if not session.query(there):
                raise

    def begin(self, session: Session) -> str:
        """Have the table ready for the first publications, which may come at once.

        Returns:
            The identity of the table that is written to.
        """
        found = session.query(self._sql.object_id(self._written))
        identity = str(found[0][0]) if found else _named(self._written)
        head = self._is_head(f"target_id = {self._sql.text(identity)}")
        if not session.query(self._select(head)):
            # another run may be faster
            with contextlib.suppress(StatementFailed):
                session.execute(self._insert(identity, "1"))
        return identity

    def read(self, ask: Ask, options: TargetOptions) -> Published:
        """What the markers say, by two queries.

        Raises:
            InputError: they must not be read.
        """
        folded = self._sql.system.dialect.folded
        shadow = [shadow_of(self._target)] if options.mode.whole_table else []
        names = [one.name for one in (self._target, *shadow, self._table)]
        found = ask(self._sql.object_ids(self._target.schema, names))
        ids = {folded(str(name)): str(number) for name, number in found}
        markers = ids.pop(folded(self._table.name), None)
        table = ids.setdefault(folded(self._target.name), _named(self._target))
        if markers is None:
            return Published(table)
        wanted = ", ".join(map(self._sql.text, ids.values()))
        try:
            rows = ask(self._select(f"target_id IN ({wanted})"))
        except StatementFailed as error:
            if error.transient:
                raise
            raise InputError(
                f"{self._target}: {self._table}, which says what runs have published, cannot be "
                f"read: {error}; GRANT SELECT, INSERT, UPDATE, DELETE ON {self._name} to the login"
            ) from None
        read: dict[str, dict[str, Marker]] = {}
        newest: dict[str, int] = {}
        for identity, key, number, marker in map(_row, rows):
            if key == HEAD:
                newest[identity] = number
            else:
                read.setdefault(identity, {})[marker.range] = marker
        return Published(table, read, newest)

    def put(self, session: Session, identity: str, what: Publication) -> None:
        """Write a range's marker, as the last but one step of the transaction that publishes it.

        Args:
            session: in that transaction.
            identity: of the table, as it was prepared. Whoever makes another in its place removes
                the markers of this one.
            what: the range.

        Raises:
            TargetMoved: somebody else has published rows of the range since `what` was planned.
        """
        number = self._count_up(session, identity, what)
        names = [what.key_range.name, *what.overlapped(identity)]
        session.execute(self._delete(identity, names))
        session.execute(self._insert(identity, str(number), what))

    def remove(self, session: Session, ranges: Sequence[str] | None = None) -> None:
        """Remove the markers of some ranges, or of all, if there are any."""
        if not session.query(self._sql.table_exists(self._table)):
            return
        for (identity,) in session.query(self._sql.object_id(self._written)):
            own = f"target_id = {self._sql.text(str(identity))}"
            rest = f"DELETE FROM {self._name} WHERE {own} AND NOT ({self._is_head(own)})"
            session.execute(rest if ranges is None else self._delete(str(identity), ranges))

    def remove_others(self, session: Session, names: Sequence[str]) -> None:
        """Remove what is left of tables that had the target's name.

        Args:
            session: anywhere.
            names: of the tables whose markers stay.
        """
        found = session.query(self._sql.object_ids(self._target.schema, names))
        kept = ", ".join(self._sql.text(str(number)) for _, number in found)
        session.execute(
            f"DELETE FROM {self._name} WHERE target_name = {self._sql.text(self._target.name)}"
            + (f" AND target_id NOT IN ({kept})" if kept else "")
        )

    def require(self, session: Session, gathered: Mapping[str, str]) -> None:
        """Raise `TargetMoved` unless the ranges have these data versions; nobody else gets to
        publish one until the transaction ends."""
        for (identity,) in session.query(self._sql.object_id(self._written)):
            own = f"target_id = {self._sql.text(str(identity))}"
            self._take_turn(session, own)
            found = {one.range: one for *_, one in map(_row, session.query(self._select(own)))}
            for name, version in gathered.items():
                marker = found.get(name)
                if marker is None or marker.version != version:
                    by = f": {marker}" if marker else ""
                    raise TargetMoved(
                        f"{self._written} range {name}: another run has put other rows there{by}"
                    )

    def preview(self, what: Publication) -> Iterator[str]:
        """The statements of `put`, to be shown."""
        identity = "<object id of the table>"
        yield self._step(f"target_id = {self._sql.text(identity)}")
        yield "-- unless somebody else has published rows of the range meanwhile"
        yield self._delete(identity, [what.key_range.name])
        yield self._insert(identity, "<number>", what)

    def _count_up(self, session: Session, identity: str, what: Publication) -> int:
        """The number of this publication; that nobody else has published since is made sure."""
        own = f"target_id = {self._sql.text(identity)}"
        self._take_turn(session, own)
        where, known = self._is_head(own), what.known
        if known is not None:
            newer = f"number > {known.newest.get(identity, 0)}"
            where += f" OR ({own} AND {newer} AND owner <> {self._sql.text(what.owner)})"
        number = 0
        for _, key, at, marker in map(_row, session.query(self._select(where))):
            if key == HEAD:
                number = at
            elif marker.range == what.key_range.name or marker.overlaps(what.plan, what.key_range):
                raise self._moved(what.key_range, f"range {marker.range} by {marker}")
        if not number:
            raise self._moved(what.key_range, "into a new table")
        return number

    def _take_turn(self, session: Session, own: str) -> None:
        """Wait for the end of whoever publishes in the table, but not for one that was stopped."""
        before, after = self._sql.waiting(TURN_SECONDS)
        for statement in (before, self._step(own), after):
            session.execute(statement)

    def _moved(self, key_range: KeyRange, how: str) -> TargetMoved:
        return TargetMoved(
            f"{self._written} range {key_range.name}: somebody else has published it since it was "
            f"planned ({how}); rolled back"
        )

    def _step(self, own: str) -> str:
        return f"UPDATE {self._name} SET number = number + 1 WHERE {self._is_head(own)}"

    def _is_head(self, own: str) -> str:
        return f"{own} AND range_hash = {self._sql.text(HEAD)}"

    def _select(self, condition: str) -> str:
        return (
            "SELECT target_id, range_hash, number, range_name, key_name, version, owner, home, "
            f"published FROM {self._name} WHERE {condition}"
        )

    def _delete(self, identity: str, ranges: Sequence[str]) -> str:
        own = f"target_id = {self._sql.text(identity)}"
        keys = ", ".join(self._sql.text(range_key(name)) for name in ranges)
        return f"DELETE FROM {self._name} WHERE {own} AND range_hash IN ({keys})"

    def _insert(self, identity: str, number: str, what: Publication | None = None) -> str:
        texts, key = ("", "", "", "", "", ""), HEAD
        if what is not None:
            name, key = what.key_range.name, range_key(what.key_range.name)
            texts = (name, what.key, what.version, what.owner, what.home, now())
        text = self._sql.text
        values = ", ".join(map(text, (self._target.name, *texts)))
        return (
            f"INSERT INTO {self._name} (target_id, range_hash, number, target_name, range_name, "
            "key_name, version, owner, home, published) VALUES "
            f"({text(identity)}, {text(key)}, {number}, {values})"
        )


def _named(table: TableRef) -> str:
    """The identity of what is there, but is no table of the catalog: a view."""
    return f"named {range_key(table.name)}"


def _row(row: tuple[Any, ...]) -> tuple[str, str, int, Marker]:
    identity, key, number, name, column, version, owner, home, at = row
    marker = Marker(str(name), str(version), str(column), str(owner), str(home), str(at))
    return str(identity), str(key), int(number), marker
