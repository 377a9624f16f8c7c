"""`on_overflow` in PostgreSQL's SQL."""

from __future__ import annotations

from tableferry.resources.contract.digest_writer import ITEM, NEVER, OverflowSql
from tableferry.resources.contract.fields import Field
from tableferry.resources.digest.fields import declared
from tableferry.resources.postgres import digest, text_formats
from tableferry.resources.postgres.digest import END
from tableferry.resources.postgres.types import TYPES
from tableferry.resources.types.decimals import ToDecimal
from tableferry.resources.types.kinds import Kind
from tableferry.resources.types.steps import Characters, Length, Step, Units, Unreplaced, WithoutNul

GREATEST = 2**63 - 1


class PostgresOverflow(OverflowSql):
    """See `OverflowSql`."""

    digest = digest

    def number(self, field: Field, x: str) -> str:
        """See `OverflowSql.number`. Infinities, and what 64 bits of microseconds do not reach, lie
        beyond all other values."""
        number, kind = super().number(field, x), declared(TYPES, field.source.type).kind
        if kind == "time":
            return number
        return (
            f"(CASE WHEN {x} = '-infinity' THEN {-GREATEST} "
            f"WHEN {x} >= '{END[str(kind)]}' THEN {GREATEST} ELSE {number} END)"
        )

    def plain(self, field: Field, x: str) -> tuple[str, str]:
        """See `OverflowSql.plain`. Casts would strip the padding of character(n)."""
        type_ = declared(TYPES, field.source.type)
        if type_.name == "money":
            return f"({x})::numeric", f"numeric({type_.precision},{type_.scale})"
        if type_.padded:
            if type_.precision is None:
                return f"bpcharout({x})::text", "text"
            return f"rpad(({x})::text, {type_.precision})", "text"
        if type_.kind is None:
            return self.text(x), "text"
        return x, field.source.type

    def text(self, x: str) -> str:
        """See `OverflowSql.text`."""
        return f"({x})::text"

    def unfit(self, step: Step, kind: Kind, field: Field, x: str, variant: str) -> str | None:
        """See `OverflowSql.unfit`. The guards of the text formats refuse the same values."""
        if isinstance(step, ToDecimal):
            return text_formats.condition_of(step, kind, x) or NEVER
        if isinstance(step, Unreplaced):
            return f"position('\\xefbfbd'::bytea IN convert_to({x}, 'UTF8')) > 0"
        if isinstance(step, Characters):
            return f"char_length({x}) > {step.characters}"
        return NEVER if isinstance(step, WithoutNul) else text_formats.unfit(step, x)

    def nearest(self, step: Step, x: str, variant: str) -> str | None:
        """See `OverflowSql.nearest`. Decimals are rounded half to even."""
        match step:
            case ToDecimal(precision, scale) if not step.only_nan:
                largest = f"{'9' * (precision - scale)}.{'9' * scale}".rstrip(".") or "0"
                tie = f"abs({x} - trunc({x}, {scale})) = 5e-{scale + 1}"
                rounded = (
                    f"CASE WHEN {tie} THEN round({x} * 0.5, {scale}) * 2 "
                    f"ELSE round({x}, {scale}) END"
                )
                return (
                    f"CASE WHEN {x} > {largest} THEN {largest} WHEN {x} < -{largest} "
                    f"THEN -{largest} ELSE {rounded} END"
                )
            case Characters(characters):
                return f"left({x}, {characters})"
            case Units(units):
                weight = "CASE WHEN octet_length(convert_to(c, 'UTF8')) > 3 THEN 2 ELSE 1 END"
                return (
                    "(SELECT coalesce(string_agg(c, '' ORDER BY i), '') FROM (SELECT c, i, "
                    f"sum({weight}) OVER (ORDER BY i) AS units "
                    f"FROM unnest(string_to_array({x}, NULL)) WITH ORDINALITY AS ferry__c(c, i)) "
                    f"AS ferry__u WHERE units <= {units})"
                )
            case Length(length, fixed=False):
                return f"substr({x}, 1, {length})"
        return None

    def each(self, x: str, item: str) -> str:
        """See `OverflowSql.each`. The export refuses arrays of several dimensions."""
        return (
            f"CASE WHEN cardinality({x}) > 0 THEN (SELECT array_agg({item} ORDER BY ferry__i) "
            f"FROM unnest({x}) WITH ORDINALITY AS ferry__u({ITEM}, ferry__i)) "
            f"WHEN {x} IS NOT NULL THEN '{{}}' END"
        )

    def any(self, x: str, condition: str) -> str:
        """See `OverflowSql`."""
        return f"EXISTS (SELECT FROM unnest({x}) AS ferry__u({ITEM}) WHERE {condition})"
