"""The markers of a ClickHouse target, which has no transactions.

A run that publishes a range writes its marker first, with a version that no event log has, checks
that it is the newest, replaces the partition, checks again, and writes the version. A crash in
between leaves a marker that no event log agrees with, and of two runs that publish one range at the
same time at most one finds its own. `tests/model` goes through all orders of these steps.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tableferry.resources.clickhouse.dialect import literal
from tableferry.resources.clickhouse.server import ClickHouseServer, among
from tableferry.resources.connecting.retry import retrying
from tableferry.resources.contract.markers import (
    ANNOUNCED,
    Marker,
    Publication,
    Published,
    markers_of,
    now,
    other_rows,
    replaced_newer,
    require_written_as,
)
from tableferry.resources.contract.table_sql import qualified
from tableferry.resources.contract.target import TargetMoved
from tableferry.resources.contract.target_names import shadow_of
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.keys.range import parse_range
from tableferry.resources.tables import TableRef

STEP = 1 << 20
"""Distance of marker numbers, whose lower part is random and even: no two markers of a range share
one, and the next number is left for the version of one that was announced."""

MOST_REPLACED = 10_000
"""Outdated rows before they are removed."""

NO_UUID = "00000000-0000-0000-0000-000000000000"
"""The UUID of tables in databases whose engine is not Atomic."""

CLAIM = ""
"""In the place of a range's name: the row whose token is the name by which runs write to a
table."""

_SMALL = {"async_insert": 0, "max_threads": 1}
"""Settings of statements that read and write a few rows."""

_COLUMNS = "`key`, version, owner, home, published, token"


class ClickHouseMarkers:
    """The table beside a target; the newest row of a range is its marker."""

    def __init__(self, resource: ClickHouseServer, target: TableRef) -> None:
        self._resource, self._target = resource, target
        self._name = qualified(markers_of(target))

    def create(self) -> None:
        """Create the table if it is missing; remove outdated rows once there are many.

        The rows to remove are listed by one read. A condition on what is newest would also hold for
        a row that another run has written since it was read.
        """
        texts = ("`table`", *_COLUMNS.split(", "))
        self._resource.execute(
            f"CREATE TABLE IF NOT EXISTS {self._name} (target String, `range` String, "
            f"number UInt64, {', '.join(f'{name} String' for name in texts)}) "
            "ENGINE = MergeTree ORDER BY (target, `range`)"
        )
        ((replaced,),) = self._resource.query(
            f"SELECT count() - uniqExact(target, `range`) FROM {self._name}"
        )
        if replaced > MOST_REPLACED:
            outdated = (
                "SELECT target, `range`, "
                "arrayJoin(arrayPopBack(arraySort(groupUniqArray(number)))) "
                f"FROM {self._name} GROUP BY target, `range`"
            )
            self._resource.execute(
                f"ALTER TABLE {self._name} DELETE WHERE (target, `range`, number) IN ({outdated})",
                {"allow_nondeterministic_mutations": 1, "mutations_sync": 2},
            )

    def claim(self, table: str) -> None:
        """Claim a table for the target's name.

        Of two that claim it at the same time the later one has it. The other is told before it
        publishes anything; see `RangeMarker.require_standing`.

        Raises:
            InputError: runs write to it by another name.
            StatementFailed: the server does not show a claim that it has taken.
        """
        for attempt in retrying():
            with attempt:
                name = self.newest("token", table, CLAIM)
                if not name:
                    self._insert_claim(table)
                    name = self.newest("token", table, CLAIM)
                if not name:
                    raise StatementFailed(
                        "clickhouse",
                        f"{self._target}: {markers_of(self._target)} lacks the row that was just "
                        "inserted, which says by which name runs write to the table",
                        transient=True,
                    )
        require_written_as(self._target, name)

    def _insert_claim(self, table: str) -> None:
        self._resource.execute(
            f"INSERT INTO {self._name} (target, `range`, number, `table`, token) "
            f"SELECT {literal(table)}, {literal(CLAIM)}, "
            f"{_next_number()}, {literal(self._target.name)}, {literal(str(self._target))} "
            f"FROM {self._name} WHERE {_of(table, CLAIM)} HAVING argMax(token, number) = ''",
            _SMALL,
        )

    def putting(
        self, table: str, publication: Publication, token: str, *, announced: bool = False
    ) -> str:
        """The statement that writes a range's marker, unless the present one is not the one that
        `publication` knows; `announced` if its rows follow."""
        where = ""
        if publication.known is not None:
            before = publication.known.token(table, publication.key_range)
            where = f" WHERE last = {literal(before)} OR by = {literal(publication.owner)}"
        version = f"{ANNOUNCED}{publication.version}" if announced else publication.version
        written = self._writing(table, publication, _next_number("newest"), version, token)
        return (
            f"{written} FROM (SELECT max(number) AS newest, argMax(token, number) AS last, "
            f"argMax(owner, number) AS by FROM {self._name} "
            f"WHERE {_of(table, publication.key_range.name)}){where}"
        )

    def confirming(self, table: str, publication: Publication, token: str, number: int) -> str:
        """The statement that gives the marker that was announced with this number its version, and
        a token that tells it from that one. It is behind all that were written since."""
        version = publication.version
        return self._writing(table, publication, f"{number} + 1", version, f"{token}.")

    def _writing(
        self, table: str, publication: Publication, number: str, version: str, token: str
    ) -> str:
        owner, home = publication.owner, publication.home
        values = (publication.key, version, owner, home, now(), token)
        return (
            f"INSERT INTO {self._name} (target, `range`, number, `table`, {_COLUMNS}) "
            f"SELECT {literal(table)}, {literal(publication.key_range.name)}, {number}, "
            f"{', '.join(map(literal, (self._target.name, *values)))}"
        )

    def take_back(self, table: str, ranges: Iterable[str]) -> None:
        """Record that the contents of ranges are unknown."""
        for name in ranges:
            self._resource.execute(
                f"INSERT INTO {self._name} (target, `range`, number, `table`, token) "
                f"SELECT {literal(table)}, {literal(name)}, "
                f"{_next_number()}, {literal(self._target.name)}, {literal(secrets.token_hex(6))} "
                f"FROM {self._name} WHERE {_of(table, name)}",
                _SMALL,
            )

    def newest(self, column: str, table: str, range_name: str) -> str:
        """Return a column of a range's marker; empty if there is no marker."""
        ((value,),) = self._resource.query(f"SELECT {self.selecting(column, table, range_name)}")
        return str(value)

    def selecting(self, column: str, table: str, range_name: str) -> str:
        """A scalar subquery for a column of a range's marker."""
        return f"(SELECT argMax({column}, number) FROM {self._name} WHERE {_of(table, range_name)})"

    def standing(self, table: str, range_name: str, home: str) -> str:
        """A scalar subquery for the names, tokens and numbers of the claim, of a range, and of
        those that other homes have published last."""
        return (
            "(SELECT groupArray((`range`, last.3, newest)) FROM (SELECT `range`, "
            "argMax((version, home, token), number) AS last, max(number) AS newest "
            f"FROM {self._name} "
            f"WHERE target = {literal(table)} GROUP BY `range` HAVING "
            f"`range` IN ({literal(CLAIM)}, {literal(range_name)}) "
            f"OR last.1 != '' AND last.2 != {literal(home)}))"
        )

    def require(self, table: str, gathered: Mapping[str, str]) -> None:
        """Raise `TargetMoved` unless the ranges of a shadow have these data versions."""
        markers = (marker for _, marker in _newest(self._resource, self._target, [table]))
        if moved := other_rows(shadow_of(self._target), gathered, markers):
            raise TargetMoved(moved)

    def require_unmoved(self, table: str, known: Published) -> None:
        """Raise `TargetMoved` if a range of a table was published since its markers were read."""
        before = known.markers.get(table, {})
        for _, marker in _newest(self._resource, self._target, [table]):
            name = marker.range
            if marker.version and (name not in before or before[name].token != marker.token):
                raise TargetMoved(replaced_newer(self._target, marker))

    def remove(self, table: str) -> bool:
        """Remove the markers of a table; return whether there were any."""
        return self._remove(f"target = {literal(table)}")

    def remove_others(self, kept: Sequence[str]) -> None:
        """Remove the markers of other tables that had the target's name."""
        others = f"target NOT IN ({', '.join(map(literal, kept))})"
        self._remove(f"`table` = {literal(self._target.name)} AND {others}")

    def _remove(self, condition: str) -> bool:
        ((rows,),) = self._resource.query(f"SELECT count() FROM {self._name} WHERE {condition}")
        if rows:
            self._resource.execute(
                f"ALTER TABLE {self._name} DELETE WHERE {condition}", {"mutations_sync": 2}
            )
        return bool(rows)


@dataclass(frozen=True)
class RangeMarker:
    """The marker of a range that an attempt holds."""

    resource: ClickHouseServer
    table: TableRef
    """The table that is written to: the target, or with `swap` its shadow."""
    identity: str
    """The identity of that table."""
    publication: Publication
    own_token: str
    """The attempt's token."""
    atomic: bool
    """Whether rows of ranges that are cut otherwise would stay beside these."""

    def put(self, *, announced: bool = False) -> None:
        """Write it, unless the present marker differs from the one that the attempt knows;
        `announced` before its rows are there."""
        statement = self._all.putting(
            self.identity, self.publication, self.own_token, announced=announced
        )
        self.resource.execute(statement, _SMALL)

    def confirm(self, number: int) -> None:
        """Say that the rows of the marker that was announced with this number are there; it stands
        unless another run has written a marker since."""
        statement = self._all.confirming(self.identity, self.publication, self.own_token, number)
        self.resource.execute(statement, _SMALL)

    @property
    def token(self) -> str:
        """A scalar subquery for the token of the present marker."""
        return self._all.selecting("token", self.identity, self.publication.key_range.name)

    @property
    def standing(self) -> str:
        """See `ClickHouseMarkers.standing`."""
        name, home = self.publication.key_range.name, self.publication.home
        return self._all.standing(self.identity, name, home)

    def is_announced(self) -> bool:
        """Whether the range's last publication was announced, and never confirmed."""
        name = self.publication.key_range.name
        return self._all.newest("version", self.identity, name).startswith(ANNOUNCED)

    def require(self, token: str) -> None:
        """Raise `TargetMoved` if the marker is not this attempt's."""
        if token != self.own_token:
            raise self._moved("it, too, since it was planned")

    def require_standing(self, standing: Iterable[tuple[str, str, int]]) -> int:
        """Return the number of this attempt's marker.

        Raises:
            TargetMoved: the table was recreated, the marker is not this attempt's, or another home
                has published ranges that are cut otherwise: their rows must neither be duplicated
                nor removed.
        """
        rows, key_range = list(standing), self.publication.key_range
        tokens = {name: token for name, token, _ in rows}
        if CLAIM not in tokens:
            raise self._unclaimed()
        require_written_as(self.publication.plan.target, tokens.pop(CLAIM))
        self.require(tokens.pop(key_range.name, ""))
        known = self.publication.known
        for name in tokens.keys() - known.transfer_ranges if known and self.atomic else ():
            other = parse_range(name, key_range.kind, key_range.digits)
            if other is None or other.overlaps(key_range):
                self._all.take_back(self.identity, [key_range.name])
                raise self._moved(f"range {name}, which shares rows with it")
        return next(number for name, _, number in rows if name == key_range.name)

    def require_alone(self) -> None:
        """See `require_standing`; asks the server."""
        ((standing,),) = self.resource.query(f"SELECT {self.standing}")
        self.require_standing(standing)

    def _unclaimed(self) -> TargetMoved:
        """Tell a table that was recreated from one whose markers were removed, and claim that one.

        Markers of a target go only once there is another table in its place, those of a shadow
        before.
        """
        target = self.publication.plan.target
        if (
            self.table == target
            and published(self.resource, [target])[target].table == self.identity
        ):
            self._all.claim(self.identity)
            return TargetMoved(f"{target}: its markers were removed while a run wrote to it")
        return self._moved("into a new table, or has removed its markers")

    def _moved(self, what: str) -> TargetMoved:
        name = self.publication.key_range.name
        return TargetMoved(f"{self.table} range {name}: somebody else has published {what}")

    @property
    def _all(self) -> ClickHouseMarkers:
        return ClickHouseMarkers(self.resource, self.publication.plan.target)


def published(resource: ClickHouseServer, tables: Sequence[TableRef]) -> dict[TableRef, Published]:
    """Read the markers of tables of one database, and of their shadows, by two queries."""
    shadows = {table: shadow_of(table) for table in tables}
    more = [markers_of(tables[0]).name, *(shadow.name for shadow in shadows.values())]
    rows = resource.query(
        "SELECT name, toString(uuid), position(partition_key, '_range') = 1 "
        f"FROM system.tables WHERE {among(tables, *more)}"
    )
    stored = {name: (uuid, bool(cut)) for name, uuid, cut in rows}
    ids = {
        table: table_identity(table, stored[table.name][0])
        for table in (*tables, *shadows.values())
        if table.name in stored
    }
    read: dict[str, dict[str, Marker]] = {}
    if ids and markers_of(tables[0]).name in stored:
        for where, marker in _newest(resource, tables[0], ids.values()):
            read.setdefault(where, {})[marker.range] = marker
    written_as = {
        where: claim.token
        for where, by_range in read.items()
        if (claim := by_range.pop(CLAIM, None)) is not None
    }
    return {
        table: Published(
            ids.get(table),
            {
                where: read[where]
                for where in (ids.get(table), ids.get(shadows[table]))
                if where in read
            },
            cuts_matter=table in ids and stored[table.name][1],
            written_as=written_as.get(ids.get(table, ""), ""),
        )
        for table in tables
    }


def _newest(
    resource: ClickHouseServer, target: TableRef, tables: Iterable[str]
) -> Iterator[tuple[str, Marker]]:
    """Yield the marker of each range, with the table's identity.

    Args:
        resource: the server.
        target: a target in the database of the markers.
        tables: the identities of targets and shadows.
    """
    wanted = ", ".join(map(literal, tables))
    try:
        rows = resource.query(
            f"SELECT target, `range`, "
            "argMax((version, `key`, owner, home, published, token), number) "
            f"FROM {qualified(markers_of(target))} "
            f"WHERE target IN ({wanted}) GROUP BY target, `range`"
        )
    except StatementFailed as error:
        if error.transient:
            raise
        raise InputError(
            f"{target}: {markers_of(target)}, which says what runs have published, "
            f"cannot be read: {error}"
        ) from None
    return ((where, Marker(name, *values)) for where, name, values in rows)


def table_identity(table: TableRef, uuid: str) -> str:
    """The UUID of a table, which a later one of its name does not share; else its name."""
    return uuid if uuid != NO_UUID else table.name


def _next_number(newest: str = "max(number)") -> str:
    return f"(intDiv({newest}, {STEP}) + 1) * {STEP} + {secrets.randbelow(STEP // 2) * 2}"


def _of(table: str, range_name: str) -> str:
    return f"target = {literal(table)} AND `range` = {literal(range_name)}"
