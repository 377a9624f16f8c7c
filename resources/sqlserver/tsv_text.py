"""T-SQL that writes fields as ClickHouse's TabSeparated text, and refuses values that do not fit.

It uses only what SQL Server 2019 and Babelfish print alike: no FORMAT, and no CONVERT style but the
one that prints a float with 17 digits.
"""

from __future__ import annotations

import datetime as dt
import json

from tableferry.resources.contract.refusals import MARK, Where
from tableferry.resources.sqlserver.dialect import DIALECT, literal
from tableferry.resources.tables import TableRef
from tableferry.resources.types import kinds, steps
from tableferry.resources.types.decimals import Scaled
from tableferry.resources.types.export import Conversion
from tableferry.resources.types.timestamp_text import ParseTimestamp, TextWithin, UtcOffset
from tableferry.resources.types.type_map import Column

EMPTY = "~tableferry empty~"
"""Placeholder for an empty text in the SQL of a plan; each export replaces it with a random one.

bcp writes an empty text as a zero byte, like a text of one NUL character."""

NULL = r"\N"
INEXACT = "is not what the server reads out of its own text; the wire format arrow carries it"
ESCAPES = (
    # by its number: Babelfish reads two backslashes in a replacement as one
    ("N'\\'", "N'\\x5C'"),
    ("NCHAR(9)", "N'\\t'"),
    ("NCHAR(10)", "N'\\n'"),
    ("NCHAR(13)", "N'\\r'"),
)
"""Characters that TabSeparated escapes; the backslash first.
https://clickhouse.com/docs/interfaces/formats/TabSeparated"""


def tab_separated(column: Column, conversion: Conversion, source: TableRef, key: str) -> str | None:
    """The T-SQL expression of a field, never NULL; None if there is no exact one.

    There is none for bytes, whose hexadecimal style Babelfish ignores. Messages name the table
    `source` and the row's key, by its expression `key`.
    """
    name = DIALECT.quote(column.name)
    text = _text(conversion, name)
    if text is None:
        return None
    if isinstance(conversion.source.kind, kinds.Float):
        # a server may print or read floats otherwise than documented
        where = Where(str(source), column.name, key, name)
        text = _guarded(text, f"CAST({text} AS float) <> {name}", where, INEXACT)
    # ISNULL would cut the mark to the length of a bit's text
    expression = f"CASE WHEN {name} IS NULL THEN N'{NULL}' ELSE {text} END"
    for step in reversed(conversion.steps):
        if isinstance(step, (steps.Cast, Scaled, steps.TimeText, ParseTimestamp, steps.Unreplaced)):
            continue
        condition = _condition(step, conversion, name)
        if condition is None:
            return None
        where = Where(str(source), column.name, key, name)
        expression = _guarded(expression, condition, where, step.reason)
    return expression


def _text(conversion: Conversion, name: str) -> str | None:
    kind, held = conversion.source.kind, conversion.slot.kind
    if conversion.as_text or isinstance(kind, (kinds.Text, kinds.Time)):
        value = (conversion.source.as_text or "{}").replace("{}", name)
        return _escaped(value) if isinstance(kind, kinds.Text) else value
    match kind, held:
        case kinds.Boolean(), kinds.Boolean() | kinds.Integer():
            return f"CAST({name} AS nvarchar(1))"
        case (
            (kinds.Integer(), kinds.Integer() | kinds.Decimal())
            | (kinds.Decimal(), kinds.Decimal())
            | (kinds.Date(), kinds.Date())
            | (kinds.Uuid(), kinds.Uuid())
        ):
            return (conversion.source.as_text or "").replace("{}", name) or None
        case kinds.Float(), kinds.Float():
            # style 3 is documented as lossless; Babelfish has it for float only, which also holds
            # every real, and pads its result
            return f"LTRIM(RTRIM(CONVERT(varchar(40), CAST({name} AS float), 3)))"
        case kinds.Timestamp(), kinds.Timestamp():
            return (conversion.source.text or "").replace("{}", name) or None
    return None


def _escaped(value: str) -> str:
    """A text with escapes, or the placeholder if it is empty."""
    # a binary collation equates and ignores no characters; max prevents truncation
    text = f"CAST({value} AS nvarchar(max)) COLLATE Latin1_General_BIN2"
    for character, escape in ESCAPES:
        text = f"REPLACE({text}, {character}, {escape})"
    return f"CASE WHEN DATALENGTH({value}) = 0 THEN N'{EMPTY}' ELSE {text} END"


def _condition(step: steps.Step, conversion: Conversion, name: str) -> str | None:
    kind = conversion.source.kind
    if isinstance(step, UtcOffset):
        return f"DATEPART(tz, {name}) <> 0"
    if isinstance(step, TextWithin):
        return _outside(
            name, *(dt.datetime.fromisoformat(end[:26]) for end in (step.low, step.high))
        )
    if isinstance(step, steps.Within):
        if isinstance(kind, kinds.Integer):
            return f"{name} < {step.low} OR {name} > {step.high}"
        if isinstance(kind, kinds.Date):
            low, high = (
                (kinds.EPOCH + dt.timedelta(days=end)).isoformat() for end in (step.low, step.high)
            )
            return f"{name} < CAST('{low}' AS date) OR {name} > CAST('{high}' AS date)"
        if isinstance(kind, kinds.Timestamp):
            epoch = dt.datetime(1970, 1, 1)
            return _outside(
                name, *(epoch + dt.timedelta(microseconds=end) for end in (step.low, step.high))
            )
    return None


def _outside(name: str, low: dt.datetime, high: dt.datetime) -> str:
    """The condition that a moment is before `low` or after the microsecond `high`.

    The literals have six decimals: Babelfish rounds a seventh, possibly into the next second.
    """
    moment = f"CAST({name} AS datetime2(7))"
    before = f"{moment} < CAST('{low.isoformat('T', 'microseconds')}' AS datetime2(7))"
    if high > dt.datetime.max - dt.timedelta(microseconds=1):
        return before
    end = (high + dt.timedelta(microseconds=1)).isoformat("T", "microseconds")
    return f"{before} OR {moment} >= CAST('{end}' AS datetime2(7))"


def _guarded(expression: str, condition: str, where: Where, reason: str) -> str:
    """An expression that makes the query fail where a condition holds; as `querytext.guarded`."""
    table, column = (json.dumps(text, ensure_ascii=False) for text in (where.table, where.column))
    before = literal(f"{MARK}[{table}, {column}, ")
    after = literal(f", {json.dumps(reason, ensure_ascii=False)}]")
    message = f"{before} + {_json(where.key)} + N', ' + {_json(where.value)} + {after}"
    failing = f"CAST(CAST({message} AS int) AS nvarchar(max))"
    return f"CASE WHEN {condition} THEN {failing} ELSE {expression} END"


def _json(value: str) -> str:
    text = f"CAST({value} AS nvarchar(200))"
    for character in ("\\", '"'):
        text = f"REPLACE({text}, {literal(character)}, {literal(chr(92) + character)})"
    return f"N'\"' + ISNULL({text}, N'') + N'\"'"
