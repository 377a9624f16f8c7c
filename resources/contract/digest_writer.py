"""The row digest in a system's SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from tableferry.resources.contract.fields import Field, Valued
from tableferry.resources.types.column import Column

Algorithm = Literal["md5", "sha256", "record"]


class DigestWriter(Protocol):
    """Writes a row's canonical form and digest, see `digest.definition`, usually as a module."""

    @property
    def VARIANTS(self) -> Sequence[str]:
        """The ways to write it, preferred first; a server gets the first that works there."""

    @property
    def CONSTANTS(self) -> Mapping[str, tuple[str, str]]:
        """The type and literal of the `digest.probe.VALUES` that the system has, by name."""

    def whole(self, field: Field, column: Column, x: str) -> str | None:
        """Write a 64-bit integer that identifies the value and sorts like it; None if none does."""

    def text(self, field: Field, column: Column, x: str) -> str:
        """Write the value's canonical form; of a text, the text itself."""

    def framed(
        self, field: Field, column: Column, x: str, algorithm: Algorithm, variant: str
    ) -> str:
        """Write the canonical form as a part of a row; NULL for NULL."""

    def sent_exactly(self, field: Field, column: Column) -> bool:
        """Whether the driver's record batches hold the exact values, in the kind that is compared.

        It matters where the client computes digests.
        """

    def row(self, values: Sequence[Valued], algorithm: Algorithm, variant: str) -> str:
        """Write the text of a row: the framed values, and `NULL` for those that are NULL."""

    def digest(self, row_text: str, algorithm: Algorithm, variant: str) -> str:
        """Write the digest of a row's text, a 64-bit integer."""

    def exact_sum(self, field: Field, x: str) -> str:
        """Write the sum of integers or decimals as text."""
