"""Guards inside the export query: expressions that fail with a message we can read back."""

from __future__ import annotations

import datetime as dt

from tableferry.resources.contract.dialects import quote
from tableferry.resources.contract.refusals import MARK, SHOWN, Where
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.conversion import Conversion
from tableferry.resources.types.decimals import ToDecimal
from tableferry.resources.types.kinds import (
    EPOCH,
    MICROSECONDS_PER_DAY,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Kind,
    Text,
    Time,
    Timestamp,
    Uuid,
)
from tableferry.resources.types.steps import OverflowPolicy, Within


def guarded(expression: str, condition: str, where: Where, reason: str, type_: str) -> str:
    """A PostgreSQL expression that fails where a condition holds, else yields what it should.

    The failure is a cast of the message to a type that it is not: there is no function for raising
    an error that would not have to be installed. The message depends on the row, so that it is
    evaluated for no other.

    Args:
        expression: what to yield.
        condition: when to fail.
        where: what the message names.
        reason: why the value is refused.
        type_: the expression's type; for one that casts from text, `integer` is cast to before.
    """
    table, column, why = (DIALECT.literal(text) for text in (where.table, where.column, reason))
    message = (
        f"('{MARK}' || json_build_array({table}, {column}, ({where.key})::text, "
        f"left(({where.value})::text, {SHOWN}), {why})::text)"
    )
    failing = message + (f"::{type_}" if type_.endswith("[]") else f"::integer::text::{type_}")
    return f"CASE WHEN {condition} THEN {failing} ELSE {expression} END"


def text_expression(
    column: Column, conversion: Conversion, source: TableRef, key: str, policy: OverflowPolicy
) -> str | None:
    """The expression for tab-separated rows, its guard included; None if there is no exact one.

    Opt-ins change values and count what they changed, which a query that streams cannot tell; so
    those columns travel as record batches.
    """
    if policy in ("null", "clamp"):
        return None
    name = quote(source.system, column.name)
    if conversion.as_text or isinstance(conversion.source.kind, Text):
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
    if conversion.source.kind == Float(32) and conversion.slot.kind == Float(64):
        # the shortest text of a real is not that of its value as a double
        expression = f"{expression}::float8"
    conditions = []
    reason = ""
    for step in conversion.steps:
        condition = condition_of(step, conversion.source.kind, expression)
        if condition:
            conditions.append(condition)
            reason = step.reason
    if not conditions:
        return expression
    type_ = _sql_type(conversion.source.kind)
    where = Where(str(source), column.name, key, name)
    return guarded(expression, " OR ".join(conditions), where, reason, type_)


def _same_family(kind: Kind, room: Kind) -> bool:
    families = (Boolean, Integer, Decimal, Float, Date, Timestamp, Uuid)
    return any(isinstance(kind, family) and isinstance(room, family) for family in families) or (
        isinstance(kind, Time) and isinstance(room, Text)
    )


def condition_of(step: object, kind: Kind, name: str) -> str | None:
    """When a value breaks a step's guard, in PostgreSQL's SQL; None if none can."""
    if isinstance(step, ToDecimal) and isinstance(kind, Decimal):
        if step.only_nan:
            # NaN is stored as its header alone, as 0 is; looking at the size spares unpacking the
            # others, which would cost more than all the other guards (tableferry_bench.guards)
            return f"pg_column_size({name}) < 7 AND {name} = 'NaN'" if kind.nan else None
        # NaN is greater than every number, so that it is found too
        too_large = f"abs({name}) >= 1e{step.precision - step.scale}"
        return f"{too_large} OR scale(trim_scale({name})) > {step.scale}"
    if isinstance(step, Within):
        low, high = (_literal(limit, kind) for limit in (step.low, step.high))
        return f"{name} < {low} OR {name} > {high}"
    return None


def _literal(limit: int, kind: Kind) -> str:
    if isinstance(kind, Date):
        return f"date '{(EPOCH + dt.timedelta(days=limit)).isoformat()}'"
    if isinstance(kind, Timestamp):
        days, rest = divmod(limit, MICROSECONDS_PER_DAY)
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(days=days, microseconds=rest)
        text = moment.isoformat(sep=" ", timespec="microseconds")
        return f"timestamptz '{text}+00'" if kind.zone == "utc" else f"timestamp '{text}'"
    if isinstance(kind, Time):
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=limit)
        return f"time '{moment.time().isoformat(timespec='microseconds')}'"
    return str(limit)


def _sql_type(kind: Kind) -> str:
    if isinstance(kind, Date):
        return "date"
    if isinstance(kind, Timestamp):
        return "timestamptz" if kind.zone == "utc" else "timestamp"
    return "numeric"
