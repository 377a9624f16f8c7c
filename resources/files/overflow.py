"""Conditions and values for `on_overflow` in DuckDB's SQL, see `OverflowSql`."""

from __future__ import annotations

from tableferry.resources.contract.digest_writer import ITEM, OverflowSql
from tableferry.resources.contract.fields import Field
from tableferry.resources.contract.table_sql import alias_prefix
from tableferry.resources.files import digest
from tableferry.resources.files.types import FROM_TEXT, TEXT, value
from tableferry.resources.types import steps
from tableferry.resources.types.kinds import Kind

GREATEST = 2**63 - 1


class FilesOverflow(OverflowSql):
    """See `OverflowSql`."""

    digest = digest

    def number(self, field: Field, x: str) -> str:
        """Put infinite dates and timestamps beyond all limits; see `OverflowSql`."""
        number, typed = super().number(field, x), value(field.source.type, x)
        if field.source.type.startswith("TIME") and "STAMP" not in field.source.type:
            return number
        return (
            f"(CASE WHEN isinf({typed}) THEN CASE WHEN {typed} > DATE '2000-01-01' "
            f"THEN {GREATEST} ELSE {-GREATEST} END ELSE {number} END)"
        )

    def plain(self, field: Field, x: str) -> tuple[str, str]:
        """Read texts as their type; see `OverflowSql`."""
        type_ = field.source.type
        return value(type_, x), type_ if type_ == TEXT else type_.removesuffix(FROM_TEXT)

    def unfit(self, step: steps.Step, kind: Kind, field: Field, x: str, variant: str) -> str | None:
        """See `OverflowSql`."""
        match step:
            case steps.Finite():
                return f"NOT isfinite({x})"
            case steps.WithoutNul():
                return f"contains({x}, chr(0))"
            case steps.Unreplaced():
                return f"contains({x}, chr(65533))"
            case steps.Characters(characters):
                return f"length({x}) > {characters}"
            case steps.Units(units):
                return f"{_units(x)} > {units}"
            case steps.Length(length, fixed):
                return f"octet_length({x}) {'<>' if fixed else '>'} {length}"
        return super().unfit(step, kind, field, x, variant)

    def finer_than(self, x: str, scale: int) -> str:
        """See `OverflowSql`."""
        return f"{x} <> trunc({x}, {scale})"

    def nearest(self, step: steps.Step, x: str, variant: str) -> str | None:
        """Cut texts between characters; see `OverflowSql`."""
        match step:
            case steps.Characters(characters):
                return f"left({x}, {characters})"
            case steps.Units(units):
                count = f"{alias_prefix(x)}n"
                fits = f"lambda {count}: {_units(f'left({x}, {count})')} <= {units}"
                return f"left({x}, list_max(list_filter(range(0, {units + 1}), {fits})))"
            case steps.Length(length, fixed=False):
                return f"unhex(hex({x})[:{2 * length}])"
        return None

    def each(self, x: str, item: str) -> str:
        """See `OverflowSql`."""
        return f"list_transform({x}, lambda {ITEM}: {item})"

    def any(self, x: str, condition: str) -> str:
        """See `OverflowSql`."""
        return f"len(list_filter({x}, lambda {ITEM}: {condition})) > 0"


def _units(x: str) -> str:
    return f"length({x}) + length(regexp_replace({x}, '[^\\x{{10000}}-\\x{{10FFFF}}]', '', 'g'))"
