"""Writes the row digest in the SQL of any system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.digest_writer import Algorithm
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.system import System
from tableferry.resources.digest.fields import key_field
from tableferry.resources.types.kinds import Integer


@dataclass(frozen=True)
class DigestSql:
    """How one server computes digests."""

    system: System
    algorithm: Algorithm
    variant: str
    """One of its digest writer's `VARIANTS`."""

    def digest(self, fields: Sequence[Field], side: Side) -> str:
        """Write the digest of a row of these columns, a 64-bit integer."""
        writer = self.system.digest
        values = [(field, field.column(side), self._value(field, side)) for field in fields]
        row = writer.row(values, self.algorithm, self.variant)
        return writer.digest(row, self.algorithm, self.variant)

    def framed(self, field: Field, side: Side, value: str) -> str:
        """Write a value's canonical form as it stands in a row."""
        writer, column = self.system.digest, field.column(side)
        return writer.framed(field, column, value, self.algorithm, self.variant)

    def shown(self, field: Field, side: Side) -> str:
        """Write the form of a value that `definition.shown` makes readable."""
        value = self._value(field, side)
        if field.kind == "bytes":
            return value
        if field.kind == "array":
            return self.framed(field, side, value)
        return self.system.digest.text(field, field.column(side), value)

    def _value(self, field: Field, side: Side) -> str:
        return field.value(side, self.system.dialect, self.variant)


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
    def id(self) -> str:
        """A short hash of its SQL: only sums of digests with equal ones can be compared."""
        return blake2b(self._sql.encode(), digest_size=8).hexdigest()

    @cached_property
    def sent(self) -> tuple[tuple[str, bool], ...]:
        """SQL per column for a client that computes the digest, and whether it is the value.

        It is the value if the driver delivers it exactly, otherwise its canonical form.
        """
        sent = []
        system, side, variant = self.dialect.system, self.side, self.dialect.variant
        for field in self.fields:
            value = field.value(side, system.dialect, variant)
            stored = field.rendering(side, variant) is None
            exact = stored and system.digest.sent_exactly(field, field.column(side))
            sent.append((value if exact else self.dialect.framed(field, side, value), exact))
        return tuple(sent)

    def selected(self, prefix: str) -> str:
        """The select list of `sent`, with names that begin with a prefix."""
        return ", ".join(f"{sql} AS {prefix}{at}" for at, (sql, _) in enumerate(self.sent))


def key_number(plan: CopyPlan, side: Side) -> str | None:
    """Write a 64-bit integer that sorts like the key of a hop; None if its kind has none."""
    field = key_field(plan)
    system = plan.source.system if side == "source" else plan.target.system
    return system.digest.whole(field, field.column(side), field.value(side, system.dialect))


def sorts_like_number(plan: CopyPlan, side: Side) -> bool:
    """Say whether the key of a hop is a column of integers without NULL, and compared as such.

    It then sorts like its number, which identifies a key.
    """
    field = key_field(plan)
    system = plan.source.system if side == "source" else plan.target.system
    column, type_ = field.column(side), system.types.read(field.column(side).type).kind
    return (
        field.kind == "integer"
        and field.rendering(side) is None
        and not column.nullable
        and isinstance(type_, Integer)
        and type_.high < 2**63
    )
