"""Expressions for COPY's and bcp's text formats, with guards that fail by a readable message."""

from __future__ import annotations

import datetime as dt

from tableferry.resources.contract.delimited import END, END_BYTE
from tableferry.resources.contract.fields import Field, Form
from tableferry.resources.contract.fields import Kind as Compared
from tableferry.resources.contract.refusals import MARK, Where
from tableferry.resources.digest.fields import declared
from tableferry.resources.errors import SHOWN
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.postgres.types import TYPES
from tableferry.resources.tables import TableRef
from tableferry.resources.types import decimals, kinds, steps
from tableferry.resources.types.export import Conversion
from tableferry.resources.types.type_map import Column, read


def guarded(expression: str, condition: str, where: Where, reason: str, type_: str) -> str:
    """Make an expression fail if a condition holds; see `Source.guarded`.

    It fails by casting the message to a type: no built-in function raises an error. The message
    depends on the row, so it is evaluated for no other.

    Args:
        expression: the value.
        condition: when to fail.
        where: what the message names.
        reason: why the value is refused.
        type_: the expression's type; a scalar's message is cast to integer first, which fails.
    """
    table, column, why = map(DIALECT.literal, (where.table, where.column, reason))
    message = (
        f"('{MARK}' || json_build_array({table}, {column}, ({where.key})::text, "
        f"left(({where.value})::text, {SHOWN}), {why})::text)"
    )
    failing = message + (f"::{type_}" if type_.endswith("[]") else f"::integer::text::{type_}")
    return f"CASE WHEN {condition} THEN {failing} ELSE {expression} END"


def text_expression(
    column: Column, conversion: Conversion, source: TableRef, key: str
) -> str | None:
    """The guarded expression for tab-separated rows; None if there is no exact one."""
    name = source.system.quote(column.name)
    if conversion.as_text or isinstance(conversion.source.kind, kinds.Text):
        if conversion.source.refuse_text is not None and conversion.as_text:
            return None
        if conversion.guarded:
            return None
        template = conversion.source.as_text if conversion.as_text else conversion.source.text
        return template and template.replace("{}", name)
    template = conversion.source.text
    if template is None or not _same_family(conversion.source.kind, conversion.slot.kind):
        return None
    expression = template.replace("{}", name)
    if conversion.source.kind == kinds.Float(32) and conversion.slot.kind == kinds.Float(64):
        # a real's shortest text is not that of the same double
        expression = f"{expression}::float8"
    conditions, reason = [], ""
    for step in conversion.steps:
        if isinstance(step, steps.Unguarded):
            continue
        condition = _refused(step, conversion.source.kind, expression)
        if condition is None:
            return None
        if condition:
            conditions.append(condition)
            reason = step.reason
    if not conditions:
        return expression
    type_ = _sql_type(conversion.source.kind)
    where = Where(str(source), column.name, key, name)
    return guarded(expression, " OR ".join(conditions), where, reason, type_)


FORMS: dict[Compared, Form] = {
    "integer": "i",
    "boolean": "b",
    "decimal": "d",
    "date": "D",
    "time": "t",
    "uuid": "u",
}
"""The forms in which values of a kind are sent as they are compared, but for texts, floats and
timestamps."""


def sent_form(field: Field, sent: str | None) -> Form | None:
    """The form in which COPY sends the value that is compared; None if it may be another.

    Args:
        field: the column.
        sent: its `text_expression`, which fails where it would not send the value; None if there is
            none, as of values that an `on_overflow` may change.
    """
    if sent is None:
        return None
    if field.kind == "text":
        name = DIALECT.quote(field.source.name)
        alike = (field.rendered,) if field.rendered is not None else (name, f"{name}::text")
        return None if sent not in alike else "p" if field.padded else "s"
    type_ = declared(TYPES, field.source.type)
    if field.rendered is not None or type_.kind != field.kind:
        return None
    if field.kind == "float":
        return "r" if type_.single else "f"
    if field.kind == "timestamp":
        return "Z" if type_.zoned else "T"
    return FORMS.get(field.kind)


def _same_family(kind: kinds.Kind, slot: kinds.Kind) -> bool:
    families = (
        kinds.Boolean,
        kinds.Integer,
        kinds.Decimal,
        kinds.Float,
        kinds.Date,
        kinds.Timestamp,
        kinds.Uuid,
    )
    return any(isinstance(kind, family) and isinstance(slot, family) for family in families) or (
        isinstance(kind, kinds.Time) and isinstance(slot, kinds.Text)
    )


def condition_of(step: object, kind: kinds.Kind, name: str) -> str | None:
    """The condition of values that a step refuses; None if it refuses none."""
    if isinstance(step, decimals.ToDecimal) and isinstance(kind, kinds.Decimal):
        if step.only_nan:
            # NaN and 0 are stored as a header alone; testing the size first avoids unpacking all
            # others, which would cost more than all other guards (tableferry_bench.guards)
            return f"pg_column_size({name}) < 7 AND {name} = 'NaN'" if kind.nan else None
        # NaN is greater than every number
        too_large = f"abs({name}) >= 1e{step.precision - step.scale}"
        return f"{too_large} OR scale(trim_scale({name})) > {step.scale}"
    if isinstance(step, steps.Within):
        low, high = (_limit(limit, kind) for limit in (step.low, step.high))
        return f"{name} < {low} OR {name} > {high}"
    return None


def _limit(limit: int, kind: kinds.Kind) -> str:
    if isinstance(kind, kinds.Date):
        day, era = _day(limit)
        return f"date '{day}{era}'"
    if isinstance(kind, kinds.Timestamp):
        days, rest = divmod(limit, kinds.MICROSECONDS_PER_DAY)
        day, era = _day(days)
        if kind.zone == "utc":
            return f"timestamptz '{day} {_clock(rest)}+00{era}'"
        return f"timestamp '{day} {_clock(rest)}{era}'"
    if isinstance(kind, kinds.Time):
        return f"time '{_clock(limit)}'"
    return str(limit)


def _day(days: int) -> tuple[str, str]:
    """Write a day since 1970-01-01 for any year that PostgreSQL has, with its era apart."""
    year, month_and_day = kinds.civil(days)
    return f"{year if year > 0 else 1 - year:04}-{month_and_day}", "" if year > 0 else " BC"


def _clock(microseconds: int) -> str:
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=microseconds)
    return moment.time().isoformat(timespec="microseconds")


def _sql_type(kind: kinds.Kind) -> str:
    if isinstance(kind, kinds.Date):
        return "date"
    if isinstance(kind, kinds.Timestamp):
        return "timestamptz" if kind.zone == "utc" else "timestamp"
    return "numeric"


def bcp_expression(
    column: Column, conversion: Conversion, source: TableRef, key: str
) -> str | None:
    """The guarded text of a field for bcp; None if there is no exact one. See `text_expression`."""
    name = DIALECT.quote(column.name)
    where = Where(str(source), column.name, key, name)
    value, text = _forms(conversion, name, read(column.type).name == "character")
    if text is None:
        return None
    for step in reversed(conversion.steps):
        if isinstance(step, (steps.Cast, decimals.Scaled)):
            continue
        condition = _condition(step, conversion, value)
        if condition is None:
            return None
        if condition:
            text = guarded(text, condition, where, step.reason, "text")
    refuse = conversion.source.refuse_text if conversion.as_text else conversion.source.refuse
    if refuse:
        text = guarded(
            text, refuse.replace("{}", name), where, conversion.source.refuse_reason, "text"
        )
    return text


def _forms(conversion: Conversion, name: str, padded: bool) -> tuple[str, str | None]:
    """The value that the guards test, and the text that travels."""
    kind, slot = conversion.source.kind, conversion.slot.kind
    if conversion.as_text or isinstance(kind, kinds.Text):
        template = conversion.source.as_text if conversion.as_text else None
        value = (template or conversion.source.arrow).replace("{}", name)
        if padded and not conversion.as_text:
            # a cast to text would strip char's padding
            return (
                f"concat({value})",
                f"CASE WHEN {name} IS NOT NULL THEN concat({value}, '{END}') END",
            )
        return f"({value})::text", f"(({value})::text || '{END}')"
    value = (conversion.source.text or "{}").replace("{}", name)
    if isinstance(kind, kinds.Time):
        value = name  # a time's text does not compare as a time
    text: str | None = f"({value})::text"
    match kind, slot:
        case kinds.Boolean(), _:
            text = f"({value})::integer::text"
        case kinds.Decimal(), kinds.Integer():
            text = f"trunc({value})::text"
        case kinds.Float(), kinds.Float():
            text = f"({value})::float8::text"  # a real's shortest text is not its value
        case kinds.Binary(), kinds.Binary():
            text = f"(encode({value}, 'hex') || '{END_BYTE}')"
        case kinds.Timestamp(zone=zone), kinds.Timestamp():
            iso = f"replace(({value})::text, ' ', 'T')"
            text = f"({iso} || ':00')" if zone == "utc" else iso
        case ((kinds.Integer() | kinds.Decimal() | kinds.Date() | kinds.Time() | kinds.Uuid()), _):
            pass
        case _:
            text = None
    return value, text


def _condition(step: steps.Step, conversion: Conversion, value: str) -> str | None:
    """The condition of values that a step refuses; empty if it refuses none, None if unknown."""
    kind, slot = conversion.source.kind, conversion.slot.kind
    if isinstance(kind, kinds.Decimal) and isinstance(slot, kinds.Integer):
        # several steps each test a part of it
        outside = f"{value} NOT BETWEEN {slot.low} AND {slot.high}"
        return f"{value} = 'NaN' OR {outside} OR {value} % 1 <> 0"
    return _refused(step, kind, value)


def _refused(step: steps.Step, kind: kinds.Kind, value: str) -> str | None:
    """Like `_condition`, but of this step alone."""
    if isinstance(step, (steps.Within, decimals.ToDecimal)):
        return condition_of(step, kind, value) or ""
    return unfit(step, value)


def unfit(step: steps.Step, value: str) -> str | None:
    """The condition of values that a step on no number refuses; None if SQL cannot tell."""
    if isinstance(step, steps.Whole):
        return f"extract(microseconds FROM {value})::bigint % {step.unit} <> 0"
    if isinstance(step, steps.Finite):
        return f"{value} IN ('NaN', 'Infinity', '-Infinity')"
    if isinstance(step, steps.Length):
        differs = "<>" if step.fixed else ">"
        return f"octet_length({value}) {differs} {step.length}"
    if isinstance(step, steps.Units):
        # no character has more UTF-16 units than UTF-8 bytes
        beyond = f"regexp_replace({value}, '[\\U00000001-\\U0000ffff]', '', 'g')"
        return (
            f"octet_length({value}) > {step.units} "
            f"AND char_length({value}) + char_length({beyond}) > {step.units}"
        )
    return None
