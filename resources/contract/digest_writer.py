"""The row digest, and what `on_overflow` changes, in a system's SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from tableferry.resources.contract.fields import Field, Valued
from tableferry.resources.types.decimals import DecimalCast
from tableferry.resources.types.kinds import Decimal, Kind
from tableferry.resources.types.steps import Step
from tableferry.resources.types.type_map import Column

Algorithm = Literal["md5", "sha256", "record"]


class DigestWriter(Protocol):
    """Writes a row's canonical form and digest, see `digest.definition`, usually as a module."""

    @property
    def VARIANTS(self) -> Sequence[str]:
        """The ways to write it, preferred first; a server gets the first that works there."""

    @property
    def CONSTANTS(self) -> Mapping[str, tuple[str, str]]:
        """The type and literal of the `digest.probe.VALUES` that the system has, by name."""

    def whole(self, field: Field, column: Column, x: str) -> str | None:
        """Write a 64-bit integer that identifies the value and sorts like it; None if none does."""

    def text(self, field: Field, column: Column, x: str) -> str:
        """Write the value's canonical form; of a text, the text itself."""

    def framed(
        self, field: Field, column: Column, x: str, algorithm: Algorithm, variant: str
    ) -> str:
        """Write the canonical form as a part of a row; NULL for NULL."""

    def sent_exactly(self, field: Field, column: Column) -> bool:
        """Whether the driver's record batches hold the exact values, in the kind that is compared.

        It matters where the client computes digests.
        """

    def row(self, values: Sequence[Valued], algorithm: Algorithm, variant: str) -> str:
        """Write the text of a row: the framed values, and `NULL` for those that are NULL."""

    def digest(self, row_text: str, algorithm: Algorithm, variant: str) -> str:
        """Write the digest of a row's text, a 64-bit integer."""

    def exact_sum(self, field: Field, x: str) -> str:
        """Write the sum of integers or decimals as text."""


NEVER = ""
"""The condition that is never true."""

ITEM = "ferry__e"
"""An element in the SQL of a list."""


class OverflowSql:
    """Writes conditions and values in a source's SQL, for a system without lists."""

    digest: DigestWriter
    """The digest writer of the same system."""

    def number(self, field: Field, x: str) -> str:
        """Write the 64-bit number of a date, time or timestamp, beyond all limits if infinite."""
        number = self.digest.whole(field, field.source, x)
        assert number is not None, f"{field.source.type} has no number"
        return number

    def plain(self, field: Field, x: str) -> tuple[str, str]:
        """Write any other value as it is exported, and name its declared type."""
        return x, field.source.type

    def text(self, x: str) -> str:
        """Write a value that is exported as its text as a text."""
        return x

    def unfit(self, step: Step, kind: Kind, field: Field, x: str, variant: str) -> str | None:
        """Write the condition that a value breaks a step's guard.

        Args:
            step: a step that does not check limits of integers, which all systems write alike.
            kind: the kind of the values.
            field: the source's column.
            x: the result of `plain`, `number` or the previous step.
            variant: the digest writer's variant.

        Returns:
            An empty text if no value breaks it; None if SQL cannot tell.
        """
        if isinstance(step, DecimalCast) and isinstance(kind, Decimal):
            whole, scale = step.type.precision - step.type.scale, step.type.scale
            conditions = []
            if (kind.precision or 0) - (kind.scale or 0) > whole:
                conditions.append(f"ABS({x}) >= {self.power_of_ten(whole)}")
            if (kind.scale or 0) > scale:
                conditions.append(self.finer_than(x, scale))
            return " OR ".join(conditions)
        return None

    def power_of_ten(self, exponent: int) -> str:
        """Write a decimal constant."""
        return f"1{'0' * exponent}"

    def finer_than(self, x: str, scale: int) -> str:
        """Write the condition that a decimal has more than `scale` digits after the point."""
        raise NotImplementedError

    def nearest(self, step: Step, x: str, variant: str) -> str | None:
        """Write what `clamp` makes of a value that breaks a step's guard; None if it is refused."""
        return None

    def each(self, x: str, item: str) -> str:
        """Replace each element of a list by an expression of `overflow.ITEM`."""
        raise NotImplementedError

    def any(self, x: str, condition: str) -> str:
        """Write the condition that an element of a list meets a condition on `overflow.ITEM`."""
        raise NotImplementedError
