"""The markers of a ClickHouse target, which has no transactions.

Who publishes a range writes its marker first, then looks whether it stands, replaces the partition,
and looks again. A crash between leaves a marker that no event log agrees with, and two who publish
one range at once do not both find theirs.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tableferry.resources.clickhouse.dialect import DIALECT
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.contract.dialects import qualified
from tableferry.resources.contract.markers import (
    Marker,
    Publication,
    Published,
    beside,
    now,
    parsed,
)
from tableferry.resources.contract.target import TargetMoved, TargetOptions, shadow_of
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.tables import TableRef

STEP = 1 << 20
"""Of numbers: below it they are random, so that no two markers of a range have the same."""

MOST_REPLACED = 10_000
"""Rows that are markers no more, before they are removed."""

NO_UUID = "00000000-0000-0000-0000-000000000000"
"""Of tables in a database that is not an Atomic one."""

_COLUMNS = "`key`, version, owner, home, published, token"


class MarkerTable:
    """The table beside a target; the newest row of a range is its marker.

    Args:
        resource: the server.
        target: the target.
    """

    def __init__(self, resource: ClickHouseServer, target: TableRef) -> None:
        self._resource, self._target = resource, target
        self._name = qualified(beside(target))

    def creation(self) -> str:
        """CREATE TABLE."""
        texts = ("`table`", *_COLUMNS.split(", "))
        return (
            f"CREATE TABLE IF NOT EXISTS {self._name} (target String, `range` String, "
            f"number UInt64, {', '.join(f'{name} String' for name in texts)}) "
            "ENGINE = MergeTree ORDER BY (target, `range`)"
        )

    def create(self) -> None:
        """Make the table if it is missing; remove what newer markers have replaced, once it is
        much."""
        self._resource.execute(self.creation())
        ((replaced,),) = self._resource.query(
            f"SELECT count() - uniqExact(target, `range`) FROM {self._name}"
        )
        if replaced > MOST_REPLACED:
            newest = f"SELECT target, `range`, max(number) FROM {self._name} GROUP BY 1, 2"
            self._resource.execute(
                f"ALTER TABLE {self._name} DELETE "
                f"WHERE (target, `range`, number) NOT IN ({newest})",
                {"allow_nondeterministic_mutations": 1, "mutations_sync": 2},
            )

    def read(self, options: TargetOptions) -> Published:
        """What the markers say, by two queries.

        Raises:
            InputError: they must not be read.
        """
        shadow = [shadow_of(self._target)] if options.mode.whole_table else []
        tables = {one.name: one for one in (self._target, *shadow, beside(self._target))}
        found = self._resource.query(
            "SELECT name, toString(uuid), position(partition_key, '_range') = 1 "
            f"FROM system.tables WHERE database = {_text(self._target.schema)} "
            f"AND name IN ({', '.join(map(_text, tables))})"
        )
        ids = {name: table_identity(tables[name], uuid) for name, uuid, _ in found}
        cuts_matter = any(cut for name, _, cut in found if name == self._target.name)
        markers = ids.pop(beside(self._target).name, None)
        table = ids.get(self._target.name)
        if markers is None or not ids:
            return Published(table, cuts_matter=cuts_matter)
        read: dict[str, dict[str, Marker]] = {}
        for where, name, values in self._newest(ids.values()):
            read.setdefault(where, {})[name] = _marker(name, values)
        return Published(table, read, cuts_matter=cuts_matter)

    def put(self, table: str, what: Publication, token: str) -> None:
        """Write a range's marker, unless another one than `what` goes by is there.

        Args:
            table: identity of the table that the rows are in.
            what: the range.
            token: of the marker.
        """
        self._resource.execute(self.putting(table, what, token), {"async_insert": 0})

    def putting(self, table: str, what: Publication, token: str) -> str:
        """The statement of `put`."""
        where = ""
        if what.known is not None:
            before = what.known.token(table, what.key_range)
            where = f" WHERE last = {_text(before)} OR by = {_text(what.owner)}"
        values = (what.key, what.version, what.owner, what.home, now(), token)
        return (
            f"INSERT INTO {self._name} (target, `range`, number, `table`, {_COLUMNS}) "
            f"SELECT {_text(table)}, {_text(what.key_range.name)}, "
            f"(intDiv(newest, {STEP}) + 1) * {STEP} + {secrets.randbelow(STEP)}, "
            f"{_text(self._target.name)}, {', '.join(map(_text, values))} "
            "FROM (SELECT max(number) AS newest, argMax(token, number) AS last, "
            f"argMax(owner, number) AS by FROM {self._name} "
            f"WHERE {_of(table, what.key_range.name)}){where}"
        )

    def take_back(self, table: str, ranges: Iterable[str]) -> None:
        """Say of ranges that nothing is known of what they hold."""
        for name in ranges:
            self._resource.execute(
                f"INSERT INTO {self._name} (target, `range`, number, `table`, token) "
                f"SELECT {_text(table)}, {_text(name)}, "
                f"(intDiv(max(number), {STEP}) + 1) * {STEP} + {secrets.randbelow(STEP)}, "
                f"{_text(self._target.name)}, {_text(secrets.token_hex(6))} "
                f"FROM {self._name} WHERE {_of(table, name)}",
                {"async_insert": 0},
            )

    def last_token(self, table: str, range_name: str) -> str:
        """A scalar subquery: the token of a range's marker."""
        return f"(SELECT argMax(token, number) FROM {self._name} WHERE {_of(table, range_name)})"

    def standing(self, table: str, range_name: str, home: str) -> str:
        """A scalar subquery: name and token of a range and of those that other homes have published
        last."""
        return (
            "(SELECT groupArray((`range`, last.3)) FROM (SELECT `range`, "
            f"argMax((version, home, token), number) AS last FROM {self._name} "
            f"WHERE target = {_text(table)} GROUP BY `range` HAVING "
            f"`range` = {_text(range_name)} OR last.1 != '' AND last.2 != {_text(home)}))"
        )

    def require(self, table: str, gathered: Mapping[str, str]) -> None:
        """Raise `TargetMoved` unless the ranges have these data versions."""
        found = {name: _marker(name, values) for _, name, values in self._newest([table])}
        for name, version in gathered.items():
            marker = found.get(name)
            if marker is None or marker.version != version:
                by = f": {marker}" if marker else ""
                raise TargetMoved(
                    f"{self._target} range {name}: another run has put other rows into its "
                    f"shadow{by}"
                )

    def remove(self, table: str) -> None:
        """Remove the markers of a table."""
        self._remove(f"target = {_text(table)}")

    def remove_others(self, kept: Sequence[str]) -> None:
        """Remove what is left of other tables that had the target's name."""
        others = f"target NOT IN ({', '.join(map(_text, kept))})"
        self._remove(f"`table` = {_text(self._target.name)} AND {others}")

    def _remove(self, condition: str) -> None:
        ((left,),) = self._resource.query(f"SELECT count() FROM {self._name} WHERE {condition}")
        if left:
            self._resource.execute(
                f"ALTER TABLE {self._name} DELETE WHERE {condition}", {"mutations_sync": 2}
            )

    def _newest(self, tables: Iterable[str]) -> Iterator[tuple[str, str, Sequence[str]]]:
        """The identity of a table, the name of a range, and what its marker says."""
        wanted = ", ".join(map(_text, tables))
        try:
            yield from self._resource.query(
                f"SELECT target, `range`, argMax(({_COLUMNS}), number) FROM {self._name} "
                f"WHERE target IN ({wanted}) GROUP BY target, `range`"
            )
        except StatementFailed as error:
            if error.transient:
                raise
            raise InputError(
                f"{self._target}: {beside(self._target)}, which says what runs have published, "
                f"cannot be read: {error}"
            ) from None


@dataclass(frozen=True)
class RangeMarker:
    """The marker of a range that an attempt holds."""

    resource: ClickHouseServer
    table: TableRef
    """What is written to: the target, or with `swap` its shadow."""
    identity: str
    """Of that table."""
    what: Publication
    own: str
    """The attempt's token."""
    atomic: bool
    """Whether rows of ranges that are cut otherwise would stay beside these."""

    def put(self) -> None:
        """Write it, unless another one than the attempt goes by is there."""
        self._all.put(self.identity, self.what, self.own)

    @property
    def token(self) -> str:
        """A scalar subquery: the token of the marker that there is."""
        return self._all.last_token(self.identity, self.what.key_range.name)

    @property
    def standing(self) -> str:
        """A scalar subquery: that, and what other homes have published; see `MarkerTable`."""
        return self._all.standing(self.identity, self.what.key_range.name, self.what.home)

    def require(self, token: str) -> None:
        """Raise `TargetMoved` if the marker is not this attempt's."""
        if token != self.own:
            raise self._moved("it, too, since it was planned")

    def require_standing(self, standing: Iterable[tuple[str, str]]) -> None:
        """Raise `TargetMoved` if the marker is not this attempt's, or if another home has published
        ranges that are cut otherwise: their rows must neither be doubled nor removed."""
        found, key_range = dict(standing), self.what.key_range
        self.require(found.pop(key_range.name, ""))
        known = self.what.known
        for name in found.keys() - known.own if known and self.atomic else ():
            other = parsed(name, key_range.kind, key_range.digits)
            if other is None or other.overlaps(key_range):
                self._all.take_back(self.identity, [key_range.name])
                raise self._moved(f"range {name}, which shares rows with it")

    def require_alone(self) -> None:
        """The same, asked now."""
        ((standing,),) = self.resource.query(f"SELECT {self.standing}")
        self.require_standing(standing)

    def _moved(self, what: str) -> TargetMoved:
        name = self.what.key_range.name
        return TargetMoved(f"{self.table} range {name}: somebody else has published {what}")

    @property
    def _all(self) -> MarkerTable:
        return MarkerTable(self.resource, self.what.plan.target)


def table_identity(table: TableRef, uuid: str) -> str:
    """What tells a table from another of its name; its name alone, where it has no UUID."""
    return uuid if uuid != NO_UUID else table.name


def _marker(name: str, values: Sequence[str]) -> Marker:
    key, version, owner, home, at, token = values
    return Marker(name, version, key, owner, home, at, token)


def _of(table: str, range_name: str) -> str:
    return f"target = {_text(table)} AND `range` = {_text(range_name)}"


def _text(value: str) -> str:
    return DIALECT.literal(value)
