"""Digests the rows of COPY text as they were sent, in C.

It is built where there is a C compiler, and comes with wheels. Without it, servers and polars
compute the same figures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.fields import Form
from tableferry.resources.contract.source import source_of
from tableferry.resources.digest.definition import CONVERTED
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.errors import ReceiptMismatch

REMEDY = (
    "Install a wheel of Tableferry, or a C compiler and Python's headers, and install it again."
)

Digest = Callable[[bytes, bytes, bytes], tuple[int, int, bytes]]


@dataclass(frozen=True)
class Layout:
    """How the fields of a row are written."""

    forms: tuple[Form, ...]
    scales: tuple[int, ...]
    """Digits behind the point, of a decimal or a second."""


@cache
def extension() -> Digest | None:
    """Return the function of the C extension; None where it was not built."""
    try:
        digest: Digest = import_module(f"{__name__}.copy_text").digest
    except ImportError:
        return None
    return digest if sys.byteorder == "little" else None


def layout(plan: CopyPlan, digest: RowDigest) -> Layout | None:
    """Return how the text rows of a hop are written; None if their bytes do not have all of what
    its source's server would digest, or if there is no extension.

    Args:
        plan: the hop.
        digest: the digest of its source's rows.
    """
    names = [column.target.name for column in plan.columns]
    by_extension = digest.dialect.algorithm == "md5" and digest.dialect.variant != CONVERTED
    if not by_extension or plan.text_format != "tab_separated" or extension() is None:
        return None
    if [field.name for field in digest.fields] != names:
        return None
    source, forms = source_of(plan.source.system), list[Form]()
    for field, column in zip(digest.fields, plan.columns, strict=True):
        form = source.sent_form(field, column.text_sql)
        if form is None or not 0 <= field.scale < 256:
            return None
        forms.append(form)
    return Layout(tuple(forms), tuple(field.scale for field in digest.fields))


class SentRows:
    """Counts rows as they pass, and sums up their digests.

    Args:
        layout: how the fields are written.
    """

    def __init__(self, layout: Layout) -> None:
        digest = extension()
        assert digest is not None, "the caller asks for the extension first"
        self._digest = digest
        self._forms, self._scales = "".join(layout.forms).encode(), bytes(layout.scales)
        self._cut = b""
        self.rows = self.total = 0

    def add(self, chunk: bytes) -> None:
        """Digest the rows of a chunk; the last one may end in the next chunk.

        The interpreter is free meanwhile.

        Raises:
            ReceiptMismatch: a row is not written as its columns' types are.
        """
        data = self._cut + chunk if self._cut else chunk
        try:
            read, rows, total = self._digest(data, self._forms, self._scales)
        except ValueError as error:
            raise ReceiptMismatch(
                f"the rows that arrived are not the table's: after {self.rows} rows of the stream, "
                f"{error}; nothing was committed"
            ) from None
        self._cut = data[read:]
        self.rows += rows
        self.total += int.from_bytes(total, "little", signed=True)

    def end(self) -> None:
        """Require that no row is left.

        Raises:
            ReceiptMismatch: the stream ended within a row.
        """
        if self._cut:
            raise ReceiptMismatch(
                f"the stream ended within a row, after {self.rows} rows; nothing was committed"
            )
