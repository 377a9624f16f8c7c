"""Decides how a column is compared with one of another table, whoever has filled the two."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from tableferry.resources.columns.conversions import NoConversion, conversion_between
from tableferry.resources.contract.copy_plan import ColumnPlan
from tableferry.resources.contract.fields import Field, Kind, Side
from tableferry.resources.contract.system import System
from tableferry.resources.digest.fields import (
    DigestedType,
    computed,
    declared,
    field_between,
    same_text,
)
from tableferry.resources.digest.overflow import integer_type
from tableferry.resources.types import kinds
from tableferry.resources.types.export import Refusal
from tableferry.resources.types.type_map import Column

_MICROSECONDS_PER_DAY = kinds.MICROSECONDS_PER_DAY
_LONGEST = 38
"""Digits of a decimal that every system has."""
_DOUBLE_DIGITS = 15


class NotComparableError(Exception):
    """No rule makes the values of two types comparable; the message says why."""


@dataclass(frozen=True)
class Comparable:
    """What is compared of two columns."""

    field: Field
    rule: str = ""
    """By which rule, if the types do not hold the same values."""
    unheld: Side | None = None
    """Where numbers that no double holds are NULL, so that they differ from any double."""

    @property
    def swapped(self) -> Comparable:
        """The same from the other side."""
        unheld: Side | None = None
        if self.unheld:
            unheld = "target" if self.unheld == "source" else "source"
        return Comparable(_swapped(self.field), self.rule, unheld)


def comparable(source: System, first: Column, target: System, second: Column) -> Comparable:
    """Decide how two columns are compared.

    What both types can say is compared exactly. Where one of them cannot hold the other's values, a
    rule makes them comparable.

    Raises:
        NotComparableError: there is no such rule.
    """
    left, right = declared(source.types, first.type), declared(target.types, second.type)
    if left.kind == right.kind is None:
        return _unread(source, first, target, second)
    if left.kind == right.kind:
        return _alike(source, first, target, second)
    if "text" in (left.kind, right.kind):
        return _with_text(source, first, target, second)
    if rule := _of_two_kinds(source, first, target, second):
        return rule
    if rule := _of_two_kinds(target, second, source, first):
        return rule.swapped
    raise NotComparableError(f"{first.type} and {second.type} have no values in common")


def _of_two_kinds(
    source: System, first: Column, target: System, second: Column
) -> Comparable | None:
    """Compare values of two kinds, the more special one first; None if there is no rule."""
    left, right = declared(source.types, first.type), declared(target.types, second.type)
    match left.kind, right.kind:
        case "boolean", "integer":
            return Comparable(_field(first, second, "integer"))
        case "integer", "decimal":
            typed = _of_type(source.types.decimal(_LONGEST, right.scale), first)
            rendered = source.dialect.cast(source.quote(first.name), typed)
            field = _field(typed, second, "decimal", scale=right.scale)
            return Comparable(replace(field, rendered=rendered))
        case (("integer" | "decimal"), "float"):
            typed = _of_type(str(source.types.default(kinds.Float(64))), first)
            text = source.dialect.text(source.quote(first.name))
            double = source.dialect.cast(text, typed)
            field = replace(_field(typed, second, "float"), rendered=double)
            rule = f"{first.type} is compared as the nearest double"
            if _fits_a_double(source, first):
                return Comparable(field, rule)
            exact = _of_type(_exact_type(source, first), first)
            back = source.dialect.exact_decimal(double, exact)
            same = source.dialect.cast(source.quote(first.name), exact)
            field = replace(field, rendered=f"CASE WHEN {back} = {same} THEN {double} END")
            return Comparable(field, f"{rule}; what no double holds differs", "source")
        case "date", "timestamp":
            return _midnights(source, first, second, right)
        case (("date" | "time" | "timestamp"), "integer"):
            unit = "days" if left.kind == "date" else "microseconds"
            field = _field(first, second, left.kind, scale=left.scale)
            return Comparable(field, f"whole numbers are compared as {unit} since 1970")
    return None


def _exact_type(system: System, number: Column) -> str:
    """A type of decimals that holds all values of an integer or decimal column."""
    type_ = declared(system.types, number.type)
    if type_.kind == "decimal" and (type_.precision is None or type_.precision > _LONGEST):
        return number.type
    return system.types.decimal(_LONGEST, type_.scale)


def _fits_a_double(system: System, column: Column) -> bool:
    """Whether doubles tell all numbers of a type apart: they have 15 digits."""
    match system.types.read(column.type).kind:
        case kinds.Integer(low, high):
            return max(-low, high) < 10**_DOUBLE_DIGITS
        case kinds.Decimal(int() as precision, int()):
            return precision <= _DOUBLE_DIGITS
    return False


def _alike(source: System, first: Column, target: System, second: Column) -> Comparable:
    """Compare values of one kind."""
    left, right = declared(source.types, first.type), declared(target.types, second.type)
    column = ColumnPlan(first, second, None, pa.null())
    field, rules = field_between(source, target, column), []
    if field.kind in ("text", "array"):
        # arrays of one system that are declared alike are compared as the server prints them
        if field.kind == "text" and left.kind == "text":
            field = replace(field, padded=left.padded or right.padded)
            if left.padded != right.padded:
                rules.append("trailing blanks do not count, as one side pads")
        if field.target_rendered is None:
            field = replace(field, target_rendered=computed(target, second))
        return Comparable(field, "; ".join(rules))
    if field.kind == "decimal":
        field = replace(field, rendered=_digits(source, first))
        return Comparable(
            replace(
                field,
                scale=max(left.scale, right.scale),
                target_rendered=_digits(target, second),
            )
        )
    zones = {left.zoned, right.zoned}
    as_utc = source.types.wall_clocks_as_utc or target.types.wall_clocks_as_utc
    if field.kind == "timestamp" and zones == {True, False} and not as_utc:
        rules.append("the time without a zone is taken as UTC")
    return Comparable(
        replace(
            field,
            scale=max(left.scale, right.scale),
            single=left.single and right.single,
            target_rendered=computed(target, second),
        ),
        "; ".join(rules),
    )


def _digits(system: System, number: Column) -> str | None:
    """Write a decimal that says itself how many digits it has, as 1.50, without its last zeros.

    None for other decimals.
    """
    type_, export = declared(system.types, number.type), system.types.export(number.type)
    if type_.precision is not None or isinstance(export, Refusal) or export.arrow is None:
        return computed(system, number)
    return export.arrow.replace("{}", system.quote(number.name))


def _unread(source: System, first: Column, target: System, second: Column) -> Comparable:
    """Compare types that only a text can represent."""
    column = ColumnPlan(first, second, None, pa.null())
    if source == target:
        same = (first.own_type or first.type) == (second.own_type or second.type)
        rule = "" if same else "both are compared as the server prints them"
        return Comparable(same_text(source, column), rule)
    field = field_between(source, target, column)
    mirrored = field_between(target, source, ColumnPlan(second, first, None, pa.null()))
    rendered = mirrored.rendered or target.dialect.text(target.quote(second.name))
    return Comparable(
        replace(field, kind="text", target_rendered=rendered),
        "both are compared as the texts that a transfer makes of them",
    )


def _with_text(source: System, first: Column, target: System, second: Column) -> Comparable:
    """Compare texts with values of another type."""
    left, right = declared(source.types, first.type), declared(target.types, second.type)
    if left.kind == "text":
        return _with_text(target, second, source, first).swapped
    if left.kind == "uuid":
        sides = ((source, first), (target, second))
        texts = [s.dialect.lower(s.dialect.text(s.quote(c.name))) for s, c in sides]
        first, second = (_of_type(s.types.text, c) for s, c in sides)
        field = replace(_field(first, second, "text"), rendered=texts[0], target_rendered=texts[1])
        return Comparable(field, "as text in lower case")
    try:
        type_ = target.types.plain(second.type)
        arrow = conversion_between(source, first.type, target, type_).arrow
    except NoConversion as error:
        if left.kind == "bytes":
            raise NotComparableError(f"{first.type} and {second.type}: {error}") from None
        arrow = pa.null()
    field = field_between(source, target, ColumnPlan(first, second, None, arrow))
    if field.kind == "bytes":
        return Comparable(field)
    field = replace(field, padded=right.padded)
    return Comparable(field, f"{first.type} is compared as the text that a transfer makes of it")


def _midnights(source: System, date: Column, moment: Column, moments: DigestedType) -> Comparable:
    """Compare dates with moments."""
    days = source.digest.whole(_field(date, date, "date"), date, source.quote(date.name))
    units = _MICROSECONDS_PER_DAY * (10 if moments.scale > 6 else 1)
    number = _of_type(integer_type(source), date)
    field = _field(number, moment, "timestamp", scale=moments.scale)
    rule = "a date is compared as its midnight"
    return Comparable(replace(field, rendered=f"({days}) * {units}"), rule)


def _field(first: Column, second: Column, kind: Kind, *, scale: int = 0) -> Field:
    return Field(second.name, kind, first, second, scale=scale)


def _of_type(type_: str, column: Column) -> Column:
    """A column that is compared as another type; nothing is known of NULL."""
    return replace(column, type=type_, own_type=None, nullable=True)


def _swapped(field: Field) -> Field:
    return replace(
        field,
        name=field.source.name,
        source=field.target,
        target=field.source,
        rendered=field.target_rendered,
        target_rendered=field.rendered,
        item=field.item and _swapped(field.item),
    )
