"""A half-open interval of a key column, and its readable partition key."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from typing import Literal

from resources.errors import InputError

KeyKind = Literal["integer", "date", "timestamp", "uuid"]
Bound = int | dt.date | dt.datetime | uuid.UUID

NULL_NAME = "null"
"""Partition key of the rows whose key is NULL; it sorts after every digit."""


@dataclass(frozen=True)
class KeyRange:
    """The rows with `lower <= key < upper`; a missing bound is open; `null` means `key IS NULL`.

    Timestamps are naive and mean UTC. `digits` is the width to which integers are padded, so that
    names sort as text in key order; it depends only on the column's type.
    """

    kind: KeyKind
    lower: Bound | None = None
    upper: Bound | None = None
    null: bool = False
    digits: int = 10

    @property
    def name(self) -> str:
        """The partition key, e.g. `0000000001..0000250001`, `..0000000001`, `2024-01-01..`."""
        if self.null:
            return NULL_NAME
        lower, upper = self._text(self.lower), self._text(self.upper)
        # '-' sorts before '.', so that the open lower end still comes before a negative bound
        return ("-" if not lower and upper.startswith("-") else "") + f"{lower}..{upper}"

    @classmethod
    def parse(cls, name: str, kind: KeyKind, digits: int = 10) -> KeyRange:
        """The inverse of `name`.

        Raises:
            InputError: the text is not the name of a range of this kind.
        """
        if name == NULL_NAME:
            return cls(kind, null=True, digits=digits)
        lower, dots, upper = name.partition("..")
        if lower == "-":
            lower = ""
        try:
            if not dots:
                raise ValueError("no '..'")
            return cls(
                kind, _bound(lower, kind, digits), _bound(upper, kind, digits), digits=digits
            )
        except ValueError as error:
            raise InputError(f"{name!r} is not a key range of {kind} keys: {error}") from None

    def contains(self, key: Bound | None) -> bool:
        """Whether a key falls into this range."""
        if key is None or self.null:
            return key is None and self.null
        return (self.lower is None or self.lower <= key) and (  # type: ignore[operator]
            self.upper is None or key < self.upper  # type: ignore[operator]
        )

    def _text(self, bound: Bound | None) -> str:
        if bound is None:
            return ""
        if isinstance(bound, int):
            if bound < 0:
                # ten's complement: -2 before -1 as text too
                return f"-{10**self.digits + bound:0{self.digits}d}"
            return f"{bound:0{self.digits}d}"
        if isinstance(bound, dt.date):
            return bound.isoformat()
        return str(bound)


def _bound(text: str, kind: KeyKind, digits: int) -> Bound | None:
    if not text:
        return None
    if kind == "integer":
        return int(text[1:]) - 10**digits if text.startswith("-") else int(text)
    if kind == "date":
        return dt.date.fromisoformat(text)
    if kind == "timestamp":
        return dt.datetime.fromisoformat(text)
    return uuid.UUID(text)
