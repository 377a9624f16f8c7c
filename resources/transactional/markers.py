"""The markers of a target, written by the transaction that publishes the rows."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.markers import (
    Marker,
    Publication,
    Published,
    markers_of,
    now,
    other_rows,
    range_key,
    replaced_newer,
    require_written_as,
)
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target import TargetMoved
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.transactional.preparing import create_beside, not_allowed
from tableferry.resources.transactional.statements import RIGHTS, Statements, TargetSession

HEAD = "head"
"""Replaces a range's key in the row that counts a table's publications. Each publication updates
that row first, and so waits for the end of another. In the place of a range's name it has the name
by which runs write to the table, and of a shadow in that of a version what it was made like."""

TURN_SECONDS = 30
"""How long a publication waits for its turn; others hold theirs for their last statements only."""


class MarkerTable:
    """The table of markers beside a target.

    Args:
        sql: the system's statements.
        target: the target.
        written: the table that ranges are published in: the target (the default), or its shadow.
    """

    def __init__(self, sql: Statements, target: TableRef, written: TableRef | None = None) -> None:
        self._sql, self._target, self._written = sql, target, written or target
        self._table = markers_of(target)
        self._name = qualified(self._table)

    def create(self, session: TargetSession) -> None:
        """Create the table unless it exists."""
        short, long = self._sql.indexed_text, self._sql.any_text
        texts = ("target_name", "range_name", "key_name", "version", "owner", "home", "published")
        columns = [
            f"target_id {short} NOT NULL",
            f"range_hash {short} NOT NULL",
            "number bigint NOT NULL",
            *(f"{name} {long} NOT NULL" for name in texts),
            "PRIMARY KEY (target_id, range_hash)",
        ]
        create_beside(self._sql, session, self._target, self._table, columns)

    def require_writable(self, session: TargetSession) -> None:
        """Refuse a table of another login, on which this one lacks a right.

        Raises:
            InputError: names the login and the grant.
        """
        for why, _ in LackingIn(self._sql)(session, [self._target]).values():
            raise InputError(f"{self._target}: {why}")

    def begin(self, session: TargetSession) -> str:
        """Insert the row that counts publications before several runs need it at once, and claim
        the table for the target's name.

        Returns:
            The identity of the table that is written to.

        Raises:
            InputError: runs write to it by another name.
        """
        identity = self.identity(session)
        # a restored database has given the number of another table to this one
        session.execute(
            f"DELETE FROM {self._name} WHERE target_id = {self._sql.text(identity)} "
            f"AND NOT ({_is_named(self._sql, self._target)})"
        )
        head, name = self._is_head(identity), self._sql.text(str(self._target))
        written_as = self._written_as(session, identity)
        if written_as is None:
            # another run may be faster
            with contextlib.suppress(StatementFailed):
                session.execute(self._insert(identity, "1"))
        if not written_as:
            session.execute(
                f"UPDATE {self._name} SET range_name = {name} WHERE {head} AND range_name = "
                f"{self._sql.text('')}"
            )
            written_as = self._written_as(session, identity)
        require_written_as(self._target, written_as or "")
        return identity

    def begin_shadow(self, session: TargetSession, shape: str, former: str) -> None:
        """Insert that row for a new shadow, in the transaction that makes it, and remove those of
        the former one: a run that has prepared that one must not publish in this one."""
        identity = self.identity(session)
        both = f"{self._sql.text(identity)}, {self._sql.text(former)}"
        session.execute(f"DELETE FROM {self._name} WHERE target_id IN ({both})")
        session.execute(self._insert(identity, "1", written_as=str(self._target), shape=shape))

    def shape(self, session: TargetSession) -> str | None:
        """What the shadow was made like; None if that is not known, or there is no shadow."""
        for identity in self._identities(session):
            rows = session.query(self._select(self._is_head(identity)))
            return next((marker.version for *_, marker in map(_row, rows)), None)
        return None

    def identity(self, session: TargetSession) -> str:
        """The identity of the table that is written to."""
        return next(self._identities(session), None) or _of_view(self._written)

    def require_unmoved(self, session: TargetSession, identity: str, known: Published) -> None:
        """Require that nothing has been published in a table since its markers were read.

        Raises:
            TargetMoved: something has.
        """
        newer = f"number > {known.newest.get(identity, 0)} AND NOT ({self._is_head(identity)})"
        rows = session.query(self._select(f"{self._is_of(identity)} AND {newer}"))
        for *_, marker in map(_row, rows):
            raise TargetMoved(replaced_newer(self._target, marker))

    def _written_as(self, session: TargetSession, identity: str) -> str | None:
        """The name by which runs write to the table; None without the row that counts."""
        rows = session.query(self._select(self._is_head(identity)))
        return next((marker.range for *_, marker in map(_row, rows)), None)

    def put(
        self,
        session: TargetSession,
        identity: str,
        publication: Publication,
        displaced: Collection[str] = (),
    ) -> None:
        """Write a range's marker, as the last but one step of the transaction that publishes it.

        Args:
            session: in that transaction.
            identity: the table's when it was prepared; whoever replaces the table removes its
                markers.
            publication: the range.
            displaced: other ranges of the transfer that lose rows to it, whose markers go.

        Raises:
            TargetMoved: rows of one of these ranges have been published since it was planned.
        """
        number = self._next_number(session, identity, publication, displaced)
        names = [publication.key_range.name, *publication.overlapped(identity), *displaced]
        session.execute(self._delete(identity, names))
        session.execute(self._insert(identity, str(number), publication))

    def remove(self, session: TargetSession, ranges: Sequence[str]) -> None:
        """Remove the markers of some ranges."""
        if session.query(self._sql.table_exists(self._table)):
            for identity in self._identities(session):
                session.execute(self._delete(identity, ranges))

    def remove_all(self, session: TargetSession) -> bool:
        """Remove the markers of all ranges, and the claim to the table; return whether there were
        any."""
        if not session.query(self._sql.table_exists(self._table)):
            return False
        removed = 0
        for identity in self._identities(session):
            head, nobody = self._is_head(identity), self._sql.text("")
            of_table = self._is_of(identity)
            removed += session.execute(
                f"DELETE FROM {self._name} WHERE {of_table} AND NOT ({head})"
            )
            session.execute(f"UPDATE {self._name} SET range_name = {nobody} WHERE {head}")
        return removed > 0

    def remove_others(self, session: TargetSession, names: Sequence[str]) -> None:
        """Remove the markers of former tables of the target's name.

        Args:
            session: in a transaction or not.
            names: the tables whose markers stay.
        """
        rows = session.query(self._sql.object_ids(self._target.schema, names))
        kept = ", ".join(self._sql.text(str(number)) for _, number in rows)
        session.execute(
            f"DELETE FROM {self._name} WHERE target_name = {self._sql.text(self._target.name)}"
            + (f" AND target_id NOT IN ({kept})" if kept else "")
        )

    def require(self, session: TargetSession, gathered: Mapping[str, str]) -> None:
        """Require these data versions of the ranges, and let no other run publish one before the
        transaction ends.

        Raises:
            TargetMoved: a range has another.
        """
        for identity in self._identities(session):
            self._take_turn(session, identity)
            rows = session.query(self._select(self._is_of(identity)))
            markers = (marker for *_, marker in map(_row, rows))
            if moved := other_rows(self._written, gathered, markers):
                raise TargetMoved(moved)

    def _identities(self, session: TargetSession) -> Iterator[str]:
        """The identity of the table that is written to, if there is one."""
        rows = session.query(self._sql.object_ids(self._written.schema, [self._written.name]))
        return (str(number) for _, number in rows)

    def _next_number(
        self,
        session: TargetSession,
        identity: str,
        publication: Publication,
        displaced: Collection[str],
    ) -> int:
        """The number of this publication, unless rows that it writes have been published since."""
        self._take_turn(session, identity)
        key_range, wanted = publication.key_range, f"range_hash = {self._sql.text(HEAD)}"
        if publication.known is not None:
            newer = f"number > {publication.known.newest.get(identity, 0)}"
            others = f"owner <> {self._sql.text(publication.owner)}"
            wanted = f"({wanted} OR ({newer} AND {others}))"
        # one condition on the table, so that a seek meets no rows that others have locked
        where = f"{self._is_of(identity)} AND {wanted}"
        number = 0
        for _, key, at, marker in map(_row, session.query(self._select(where))):
            if key == HEAD:
                number = at
            elif marker.range in {key_range.name, *displaced} or marker.overlaps(
                publication.plan, key_range
            ):
                raise self._moved(key_range, f"range {marker.range} by {marker}")
        if not number:
            raise self._moved(key_range, "into a new table")
        return number

    def _take_turn(self, session: TargetSession, identity: str) -> None:
        """Wait for another publication's end, but not for a process that was stopped."""
        limit, lift = self._sql.limit_waiting(TURN_SECONDS)
        for statement in (limit, self._step(identity), lift):
            session.execute(statement)

    def _moved(self, key_range: KeyRange, how: str) -> TargetMoved:
        return TargetMoved(
            f"{self._written} range {key_range.name}: somebody else has published it since it was "
            f"planned ({how}); rolled back"
        )

    def _step(self, identity: str) -> str:
        return f"UPDATE {self._name} SET number = number + 1 WHERE {self._is_head(identity)}"

    def _is_of(self, identity: str) -> str:
        return _is_of(self._sql, self._target, [identity])

    def _is_head(self, identity: str) -> str:
        return f"{self._is_of(identity)} AND range_hash = {self._sql.text(HEAD)}"

    def _select(self, condition: str) -> str:
        return _select(self._table, condition)

    def _delete(self, identity: str, ranges: Sequence[str]) -> str:
        keys = ", ".join(self._sql.text(range_key(name)) for name in ranges)
        return f"DELETE FROM {self._name} WHERE {self._is_of(identity)} AND range_hash IN ({keys})"

    def _insert(
        self,
        identity: str,
        number: str,
        new: Publication | None = None,
        *,
        written_as: str = "",
        shape: str = "",
    ) -> str:
        texts, key = (written_as, "", shape, "", "", ""), HEAD
        if new is not None:
            name, key = new.key_range.name, range_key(new.key_range.name)
            texts = (name, new.key, new.version, new.owner, new.home, now())
        text = self._sql.text
        values = ", ".join(map(text, (self._target.name, *texts)))
        return (
            f"INSERT INTO {self._name} (target_id, range_hash, number, target_name, range_name, "
            "key_name, version, owner, home, published) VALUES "
            f"({text(identity)}, {text(key)}, {number}, {values})"
        )


@dataclass(frozen=True)
class LackingIn:
    """Asks which rights the login lacks on the markers of a schema: says so, and whether it may
    read them; nothing if it has all rights, or there are no markers."""

    sql: Statements

    def __call__(
        self, resource: TargetSession | Endpoint, tables: Sequence[TableRef]
    ) -> dict[TableRef, tuple[str, bool]]:
        markers = markers_of(tables[0])
        for login, *has in resource.query(self.sql.permissions(markers)):
            if any(right is not None and not right for right in has):
                says = not_allowed(markers, self.sql.system.quote(str(login)))
                return dict.fromkeys(tables, (says, bool(has[RIGHTS.index("SELECT")])))
        return {}


@dataclass(frozen=True)
class PublishedIn:
    """Asks for the markers of tables of one schema and of their shadows, by two queries."""

    sql: Statements

    def __call__(self, resource: Endpoint, tables: Sequence[TableRef]) -> dict[TableRef, Published]:
        folded, beside = self.sql.system.dialect.folded, markers_of(tables[0])
        shadows = {table: shadow_of(table) for table in tables}
        names = [*(table.name for table in (*tables, *shadows.values())), beside.name]
        rows = resource.query(self.sql.object_ids(tables[0].schema, names))
        stored = {folded(str(name)): str(number) for name, number in rows}
        ids: dict[TableRef, list[str]] = {}
        for table in tables:
            shadow = stored.get(folded(shadows[table].name))
            own = stored.get(folded(table.name), _of_view(table))
            ids[table] = [own, *([shadow] if shadow else [])]
        markers: dict[str, dict[str, Marker]] = {}
        newest: dict[str, int] = {}
        written_as: dict[str, str] = {}
        if folded(beside.name) in stored:
            for identity, key, number, marker in self._read(resource, ids):
                if key == HEAD:
                    newest[identity] = number
                    written_as[identity] = marker.range
                else:
                    markers.setdefault(identity, {})[marker.range] = marker
        return {
            table: Published(
                of_table[0],
                {identity: markers[identity] for identity in of_table if identity in markers},
                {identity: newest[identity] for identity in of_table if identity in newest},
                written_as=written_as.get(of_table[0], ""),
            )
            for table, of_table in ids.items()
        }

    def _read(
        self, resource: Endpoint, ids: Mapping[TableRef, Sequence[str]]
    ) -> Iterator[tuple[str, str, int, Marker]]:
        target = next(iter(ids))
        beside = markers_of(target)
        every = " OR ".join(_is_of(self.sql, table, of_table) for table, of_table in ids.items())
        try:
            rows = resource.query(_select(beside, every))
        except StatementFailed as error:
            if error.transient:
                raise
            raise InputError(
                f"{target}: {beside}, which says what runs have published, cannot be read: "
                f"{error}; GRANT {', '.join(RIGHTS)} ON {qualified(beside)} to the login"
            ) from None
        return map(_row, rows)


def _is_of(sql: Statements, target: TableRef, identities: Sequence[str]) -> str:
    """The condition on markers of a target or its shadow. Where a database was restored, numbers of
    tables may be those of others of before."""
    wanted = ", ".join(map(sql.text, identities))
    return f"(target_id IN ({wanted}) AND {_is_named(sql, target)})"


def _is_named(sql: Statements, target: TableRef) -> str:
    """The condition that markers are of a name, which SQL Server writes in any case."""
    return f"LOWER(target_name) = LOWER({sql.text(target.name)})"


def _select(table: TableRef, condition: str) -> str:
    return (
        "SELECT target_id, range_hash, number, range_name, key_name, version, owner, home, "
        f"published FROM {qualified(table)} WHERE {condition}"
    )


def _of_view(table: TableRef) -> str:
    """The identity of a view, which is not among the catalog's tables."""
    return f"named {range_key(table.name)}"


def _row(row: tuple[Any, ...]) -> tuple[str, str, int, Marker]:
    identity, key, number, name, column, version, owner, home, at = row
    marker = Marker(str(name), str(version), str(column), str(owner), str(home), str(at))
    return str(identity), str(key), int(number), marker
