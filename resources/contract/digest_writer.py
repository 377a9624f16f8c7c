"""How a system writes the row digest in its SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from tableferry.resources.contract.fields import Field, Valued
from tableferry.resources.types.column import Column

Algorithm = Literal["md5", "sha256", "record"]


class DigestWriter(Protocol):
    """The canonical form of a row, and its digest, in a system's SQL: see `digest.definition`.

    A module of these functions is one.
    """

    @property
    def VARIANTS(self) -> Sequence[str]:
        """The ways in which it can be written, the preferred first; what a server has is found by
        trying."""

    @property
    def CONSTANTS(self) -> Mapping[str, tuple[str, str]]:
        """By name of `digest.probe.VALUES`: the declared type and the literal of what it has."""

    def whole(self, field: Field, column: Column, x: str) -> str | None:
        """A 64-bit integer that stands for the value and sorts like it; None if there is none."""

    def text(self, field: Field, column: Column, x: str) -> str:
        """The value's canonical form; of text, the text alone."""

    def framed(
        self, field: Field, column: Column, x: str, algorithm: Algorithm, variant: str
    ) -> str:
        """The canonical form as it stands in a row; NULL for NULL."""

    def sent_exactly(self, field: Field, column: Column) -> bool:
        """Whether the driver's record batches hold the very values, in the kind that is compared;
        asked where the client computes digests."""

    def row(self, values: Sequence[Valued], algorithm: Algorithm, variant: str) -> str:
        """The text of a row: the framed values, and `NULL` for those that are NULL."""

    def digest(self, row_text: str, algorithm: Algorithm, variant: str) -> str:
        """The digest of a row's text, a 64-bit integer."""

    def exact_sum(self, field: Field, x: str) -> str:
        """The sum of integers or decimals, as text."""
