"""ClickHouse's SQL about values that a target cannot hold."""

from __future__ import annotations

from tableferry.resources.clickhouse import digest
from tableferry.resources.contract.digest_writer import OverflowSql
from tableferry.resources.contract.fields import Field
from tableferry.resources.types import steps
from tableferry.resources.types.kinds import Kind

BEYOND_BMP = r"[\\x{10000}-\\x{10FFFF}]"
"""Characters that take two UTF-16 units."""


class ClickHouseOverflow(OverflowSql):
    """See `OverflowSql`."""

    digest = digest

    def unfit(self, step: steps.Step, kind: Kind, field: Field, x: str, variant: str) -> str | None:
        """See `OverflowSql`."""
        match step:
            case steps.Finite():
                return f"NOT isFinite({x})"
            case steps.Utf8():
                return f"NOT isValidUTF8({x})"
            case steps.WithoutNul():
                return f"position({x}, char(0)) > 0"
            case steps.Unreplaced():
                return f"position({x}, '\\xEF\\xBF\\xBD') > 0"
            case steps.Characters(characters):
                return f"lengthUTF8({x}) > {characters}"
            case steps.Units(units):
                return f"lengthUTF8({x}) + countMatches({x}, '{BEYOND_BMP}') > {units}"
            case steps.Length(length, fixed):
                return f"length({x}) {'!=' if fixed else '>'} {length}"
        return super().unfit(step, kind, field, x, variant)

    def power_of_ten(self, exponent: int) -> str:
        """A typed constant, because an untyped number has fewer digits."""
        return f"toDecimal256('{super().power_of_ten(exponent)}', 0)"

    def finer_than(self, x: str, scale: int) -> str:
        """See `OverflowSql`."""
        return f"{x} != truncate({x}, {scale})"

    def nearest(self, step: steps.Step, x: str, variant: str) -> str | None:
        """Texts are cut at the end of a character."""
        match step:
            case steps.Characters(characters):
                return f"substringUTF8({x}, 1, {characters})"
            case steps.Units(most):
                split = f"extractAll(assumeNotNull({x}), '(?s).')"
                weights = "arrayCumSum(ferry__c -> if(length(ferry__c) > 3, 2, 1), ferry__cs)"
                return (
                    "arrayStringConcat(arrayFlatten(arrayMap(ferry__cs -> arrayFilter("
                    f"(ferry__c, ferry__u) -> ferry__u <= {most}, ferry__cs, {weights}), "
                    f"[{split}])))"
                )
            case steps.Length(length, fixed=False):
                return f"substring({x}, 1, {length})"
        return None
