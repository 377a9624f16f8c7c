"""Differences that a user calls none: what is made of a column's values before they are compared.

Both servers do it in their own SQL, before the digest. Nothing is tolerated that is not declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.system import System
from tableferry.resources.digest.fields import declared
from tableferry.resources.digest.overflow import integer_type
from tableferry.resources.errors import InputError
from tableferry.resources.types import kinds

MICROSECONDS = {
    "milliseconds": 10**3,
    "seconds": 10**6,
    "minutes": 60 * 10**6,
    "hours": 3600 * 10**6,
    "days": 86_400 * 10**6,
}
"""The units to which moments are cut, in microseconds."""

_FORMS = (
    f"round: digits, truncate: {' or '.join(MICROSECONDS)}, trim: true, case: ignore, null: '', "
    "json: canonical, ignore: true"
)
_MOST_DIGITS = 18


@dataclass(frozen=True)
class Tolerance:
    """What of a column's values is not compared."""

    round: int | None = None
    """Numbers are rounded to so many digits after the point."""
    truncate: str | None = None
    """Moments are cut to a unit of `MICROSECONDS`."""
    trim: bool = False
    """Texts lose leading and trailing blanks."""
    case: bool = False
    """Texts are compared in lower case."""
    null: bool = False
    """The empty text counts as NULL."""
    json: bool = False
    """JSON is compared by what it means."""
    ignore: bool = False
    """The column is not compared at all."""

    @classmethod
    def read(cls, declared: Mapping[str, Any]) -> Self:
        """Read a declaration such as `{round: 2}` or `{trim: true, case: ignore}`.

        Raises:
            InputError: a key or value means nothing; the message says what there is.
        """
        values: dict[str, Any] = {}
        for key, value in declared.items():
            text = str(value).strip().lower()
            match key:
                case "round" if text.isdecimal() and int(text) <= _MOST_DIGITS:
                    values[key] = int(text)
                case "truncate" if text in MICROSECONDS:
                    values[key] = text
                case "trim" | "ignore" if text in ("true", "false"):
                    values[key] = text == "true"
                case "case" if text == "ignore":
                    values[key] = True
                case "null" if text in ("", "''", '""'):
                    values[key] = True
                case "json" if text == "canonical":
                    values[key] = True
                case _:
                    raise InputError(f"{key}: {value!r} is no tolerance; there are {_FORMS}")
        return cls(**values)

    def __str__(self) -> str:
        written = {"case": "ignore", "null": "''", "json": "canonical"}
        declared = [(part.name, getattr(self, part.name)) for part in fields(self)]
        return ", ".join(
            f"{name}: {written.get(name, str(value).lower())}"
            for name, value in declared
            if value is not None and value is not False
        )

    def applied(self, field: Field, source: System, target: System) -> Field:
        """Return what is compared of a column under this tolerance.

        Raises:
            InputError: it does not go with the column's values.
        """
        self._require_kind(field)
        if self.round is not None:
            if any(_bare(field, side, each) for side, each in _sides(source, target)):
                field = replace(field, scale=max(field.scale, self.round))
            field = _on_both(field, source, target, self._rounded)
        if self.truncate is not None:
            field = _on_both(field, source, target, self._truncated)
        if self.trim or self.case or self.null or self.json:
            field = _on_both(field, source, target, self._as_text)
        return field

    def _require_kind(self, field: Field) -> None:
        texts = "trim" if self.trim else "case" if self.case else "null" if self.null else ""
        texts = texts or ("json" if self.json else "")
        problems = {
            "round": self.round is not None and field.kind not in ("decimal", "float"),
            "truncate": self.truncate is not None and field.kind not in ("time", "timestamp"),
            texts: bool(texts) and field.kind != "text",
        }
        for name, unfit in problems.items():
            if unfit:
                raise InputError(
                    f"{name} does not go with it, which is compared as {field.kind} "
                    f"({field.source.type}, {field.target.type})"
                )

    def _rounded(self, field: Field, side: Side, system: System, value: str) -> tuple[str, str]:
        dialect, types = system.dialect, system.types
        wanted = kinds.Float(64) if field.kind == "float" else kinds.Decimal(38, field.scale)
        type_ = str(types.default(wanted))
        column = replace(field.column(side), type=type_, nullable=True)
        # a cast would round the digits of a decimal that says itself how many it has
        number = value if _bare(field, side, system) else dialect.cast(value, column)
        rounded = dialect.rounded(number, self.round or 0)
        return dialect.cast(rounded, column), type_

    def _truncated(self, field: Field, side: Side, system: System, value: str) -> tuple[str, str]:
        number = system.digest.whole(field, field.column(side), value)
        unit = MICROSECONDS[str(self.truncate)] * (10 if field.scale > 6 else 1)
        # the remainder of a moment before 1970 is negative
        remainder = f"((({number}) % {unit}) + {unit}) % {unit}"
        return f"({number}) - {remainder}", integer_type(system)

    def _as_text(self, field: Field, side: Side, system: System, value: str) -> tuple[str, str]:
        dialect = system.dialect
        value = dialect.text(value)
        if self.json:
            canonical = dialect.canonical_json(value)
            if canonical is None:
                raise InputError(f"{system.title} has no canonical form of JSON")
            value = canonical
        value = dialect.trimmed(value) if self.trim else value
        value = dialect.lower(value) if self.case else value
        value = dialect.empty_as_null(value) if self.null else value
        return value, system.types.text


def _sides(source: System, target: System) -> Sequence[tuple[Side, System]]:
    return (("source", source), ("target", target))


def _bare(field: Field, side: Side, system: System) -> bool:
    """Whether a side has decimals without a declared number of digits."""
    type_ = declared(system.types, field.column(side).type)
    return type_.kind == "decimal" and type_.precision is None


def _on_both(field: Field, source: System, target: System, change: Any) -> Field:
    """Change what is compared on both sides.

    `change` gets the field, the side, its system and the SQL of the value, and returns the SQL of
    the new value and its declared type.
    """
    changed = {
        side: change(field, side, system, field.value(side, system.dialect))
        for side, system in _sides(source, target)
    }
    (source_sql, source_type), (target_sql, target_type) = changed["source"], changed["target"]
    return replace(
        field,
        source=replace(field.source, type=source_type, own_type=None),
        target=replace(field.target, type=target_type, own_type=None),
        rendered=source_sql,
        target_rendered=target_sql,
    )
