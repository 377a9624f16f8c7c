"""Fields of PostgreSQL as text for the table that bcp fills in SQL Server, guards included."""

from __future__ import annotations

from tableferry.resources.contract.delimited import END, END_BYTE
from tableferry.resources.contract.refusals import Where
from tableferry.resources.postgres.copy_text import condition_of, guarded
from tableferry.resources.postgres.dialect import DIALECT
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column
from tableferry.resources.types.conversion import Conversion
from tableferry.resources.types.decimals import Scaled, ToDecimal
from tableferry.resources.types.declared import read
from tableferry.resources.types.kinds import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Text,
    Time,
    Timestamp,
    Uuid,
)
from tableferry.resources.types.steps import (
    Cast,
    Finite,
    Length,
    OverflowPolicy,
    Step,
    Units,
    Whole,
    Within,
)


def bcp_expression(
    column: Column, conversion: Conversion, source: TableRef, key: str, policy: OverflowPolicy
) -> str | None:
    """The text expression of a field, NULL where the value is; None if there is no exact one.

    Args:
        column: of PostgreSQL.
        conversion: into a SQL Server type.
        source: the table, as messages name it.
        key: expression of a row's key.
        policy: opt-ins change values and count what they changed, which a query that streams
            cannot tell; so those columns travel as record batches.
    """
    if policy in ("null", "clamp"):
        return None
    name = DIALECT.quote(column.name)
    where = Where(str(source), column.name, key, name)
    value, text = _forms(conversion, name, read(column.type).name == "character")
    if text is None:
        return None
    for step in reversed(conversion.steps):
        if isinstance(step, (Cast, Scaled)):
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
    """What the guards look at, and the text that travels."""
    kind, room = conversion.source.kind, conversion.slot.kind
    if conversion.as_text or isinstance(kind, Text):
        template = conversion.source.as_text if conversion.as_text else None
        value = (template or conversion.source.arrow).replace("{}", name)
        if padded and not conversion.as_text:
            # any cast to text would cut char's padding
            return (
                f"concat({value})",
                f"CASE WHEN {name} IS NOT NULL THEN concat({value}, '{END}') END",
            )
        return f"({value})::text", f"(({value})::text || '{END}')"
    value = (conversion.source.text or "{}").replace("{}", name)
    if isinstance(kind, Time):
        value = name  # its own text would not compare as a time
    text: str | None = f"({value})::text"
    match kind, room:
        case Boolean(), _:
            text = f"({value})::integer::text"
        case Decimal(), Integer():
            text = f"trunc({value})::text"
        case Float(), Float():
            text = f"({value})::float8::text"  # the shortest text of a real is not its value
        case Binary(), Binary():
            text = f"(encode({value}, 'hex') || '{END_BYTE}')"
        case Timestamp(zone=zone), Timestamp():
            iso = f"replace(({value})::text, ' ', 'T')"
            text = f"({iso} || ':00')" if zone == "utc" else iso
        case ((Integer() | Decimal() | Date() | Time() | Uuid()), _):
            pass
        case _:
            text = None
    return value, text


def _condition(step: Step, conversion: Conversion, value: str) -> str | None:
    """When a value breaks a step's guard; empty if none can, None if SQL cannot tell."""
    kind, room = conversion.source.kind, conversion.slot.kind
    if isinstance(kind, Decimal) and isinstance(room, Integer):
        # several steps that each look at a part of it
        return (
            f"{value} = 'NaN' OR {value} NOT BETWEEN {room.low} AND {room.high} OR {value} % 1 <> 0"
        )
    if isinstance(step, (Within, ToDecimal)):
        return condition_of(step, kind, value) or ""
    return unfit(step, value)


def unfit(step: Step, value: str) -> str | None:
    """When a value breaks a guard that is not about numbers; None if SQL cannot tell."""
    if isinstance(step, Whole):
        return f"extract(microseconds FROM {value})::bigint % {step.unit} <> 0"
    if isinstance(step, Finite):
        return f"{value} IN ('NaN', 'Infinity', '-Infinity')"
    if isinstance(step, Length):
        differs = "<>" if step.fixed else ">"
        return f"octet_length({value}) {differs} {step.length}"
    if isinstance(step, Units):
        # no character has more UTF-16 units than UTF-8 bytes
        beyond = f"regexp_replace({value}, '[\\U00000001-\\U0000ffff]', '', 'g')"
        return (
            f"octet_length({value}) > {step.units} "
            f"AND char_length({value}) + char_length({beyond}) > {step.units}"
        )
    return None
