"""What a system's SQL has to say for `resources.digest.overflow` to compare changed values."""

from __future__ import annotations

from tableferry.resources import registry
from tableferry.resources.digest.fields import Field
from tableferry.resources.types.decimals import DecimalCast
from tableferry.resources.types.kinds import Decimal, Kind
from tableferry.resources.types.steps import Step


class OverflowSql:
    """Conditions and values in a source's SQL. What stands here serves a system without lists."""

    system: str
    """Its name."""

    def number(self, field: Field, x: str) -> str:
        """The 64-bit number that stands for a date, time or timestamp; for what has none, one that
        lies beyond all limits on its side."""
        found = registry.system(self.system).digest.whole(field, field.source, x)
        assert found is not None, f"{field.source.type} has no number"
        return found

    def plain(self, field: Field, x: str) -> tuple[str, str]:
        """Any other value as it is exported, and its declared type."""
        return x, field.source.type

    def unfit(self, step: Step, kind: Kind, field: Field, x: str, variant: str) -> str | None:
        """The condition that a value breaks a step's guard.

        Args:
            step: one that is not about limits of integers, which are the same on every system.
            kind: of the values.
            field: the column as its source has it.
            x: what `plain` or `number` gave, or a step before made of it.
            variant: of the digest writer.

        Returns:
            An empty text if no value does; None if SQL cannot tell.
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
        """A decimal constant."""
        return f"1{'0' * exponent}"

    def finer_than(self, x: str, scale: int) -> str:
        """The condition that a decimal has more digits behind the point than that."""
        raise NotImplementedError

    def nearest(self, step: Step, x: str, variant: str) -> str | None:
        """What `clamp` makes of a value that breaks a step's guard; None if it is refused."""
        return None

    def each(self, x: str, item: str) -> str:
        """A list with an expression of `overflow.ITEM` in the place of each element."""
        raise NotImplementedError

    def any(self, x: str, condition: str) -> str:
        """The condition that an element of a list meets a condition on `overflow.ITEM`."""
        raise NotImplementedError
