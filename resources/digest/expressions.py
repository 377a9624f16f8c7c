"""The row digest as SQL of any system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tableferry.resources.digest.definition import Algorithm
from tableferry.resources.digest.fields import Field, Side
from tableferry.resources.registry import system as _system


@dataclass(frozen=True)
class DigestSql:
    """How one server computes digests."""

    system: str
    algorithm: Algorithm
    variant: str
    """How they are written for it: one of its writer's `VARIANTS`."""

    def digest(self, fields: Sequence[Field], side: Side) -> str:
        """SQL of the digest of a row of these columns, a 64-bit integer."""
        own = _system(self.system).digest
        values = [(field, field.column(side), self._value(field, side)) for field in fields]
        row = own.row(values, self.algorithm, self.variant)
        return own.digest(row, self.algorithm, self.variant)

    def framed(self, field: Field, side: Side, value: str) -> str:
        """SQL of a value's canonical form as it stands in a row."""
        own, column = _system(self.system).digest, field.column(side)
        return own.framed(field, column, value, self.algorithm, self.variant)

    def shown(self, field: Field, side: Side) -> str:
        """SQL of what a person is shown of a value: see `values.shown`."""
        value = self._value(field, side)
        if field.kind == "bytes":
            return value
        if field.kind == "array":
            return self.framed(field, side, value)
        return _system(self.system).digest.text(field, field.column(side), value)

    def _value(self, field: Field, side: Side) -> str:
        return field.value(side, self.system, self.variant)


@dataclass(frozen=True)
class RowDigest:
    """The digest of a row of some columns on one side of a hop; its SQL is its `str`."""

    dialect: DigestSql
    fields: tuple[Field, ...]
    side: Side

    def __str__(self) -> str:
        return self._sql

    @cached_property
    def _sql(self) -> str:
        return self.dialect.digest(self.fields, self.side)

    @cached_property
    def sent(self) -> tuple[tuple[str, bool], ...]:
        """Per column the SQL of what is sent to a client that computes the digest instead.

        That is the value where the driver has it exactly (then True), else its canonical form.
        """
        found = []
        system = self.dialect.system
        for field in self.fields:
            column = field.column(self.side)
            value = field.value(self.side, system, self.dialect.variant)
            own = field.rendering(self.side) is None
            own = own and (self.side == "target" or field.overflow is None)
            exact = own and _system(system).digest.sent_exactly(field, column)
            found.append((value if exact else self.dialect.framed(field, self.side, value), exact))
        return tuple(found)

    def selected(self, prefix: str) -> str:
        """`sent`, for a SELECT whose own names begin so."""
        return ", ".join(f"{sql} AS {prefix}{at}" for at, (sql, _) in enumerate(self.sent))


def key_number(field: Field, side: Side, system: str) -> str | None:
    """SQL of a 64-bit integer that sorts like the column; None if its kind has none."""
    return _system(system).digest.whole(field, field.column(side), field.value(side, system))
