"""Whether a table shows the rows that were staged for it, as their server itself compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.hazards import Hazard, ShownDiffers, having, with_remedies
from tableferry.resources.contract.table_sql import alias_prefix, qualified
from tableferry.resources.digest.expressions import DigestSql, RowDigest
from tableferry.resources.digest.fields import all_fields
from tableferry.resources.digest.probe import shared
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Runs a query in the session that sees the rows."""


class Summed(NamedTuple):
    """Rows, and the exact sum of their digests."""

    rows: int
    digests: int

    def plus(self, other: Summed) -> Summed:
        """Those of both."""
        return Summed(self.rows + other.rows, self.digests + other.digests)


@dataclass(frozen=True)
class SameRows:
    """The columns of a staging table and of the table that its rows go to, digested alike."""

    staging: TableRef
    table: TableRef
    dialect: DigestSql
    fields: tuple[Field, ...]

    @classmethod
    def of(
        cls,
        endpoint: Endpoint,
        plan: CopyPlan,
        staging: TableRef,
        table: TableRef,
        columns: Sequence[Column],
    ) -> SameRows:
        """How a server compares them.

        Args:
            endpoint: the server that has both.
            plan: the hop whose columns are staged.
            staging: the staging table.
            table: what its rows go to.
            columns: of that table, as they were found.

        Raises:
            DigestRefused: the server does not compute row digests as they are defined.
        """
        actual = {column.name: column for column in columns}
        within = replace(
            plan,
            source=staging,
            target=table,
            columns=tuple(
                replace(column, source=column.target, target=actual[column.target.name])
                for column in plan.columns
            ),
        )
        own, _ = shared(endpoint, endpoint)
        return cls(staging, table, own, all_fields(within))

    def staged(self, ask: Ask) -> Summed:
        """Those that were staged."""
        return self._summed(ask, "source", qualified(self.staging), self.fields)

    def shown(self, ask: Ask, condition: str) -> Summed:
        """Those of the table that meet a condition."""
        return self.of_rows(ask, self._where(condition))

    def of_rows(self, ask: Ask, rows: str) -> Summed:
        """Those of the table that stand, in SQL, behind FROM."""
        return self._summed(ask, "target", rows, self.fields)

    def differing(self, ask: Ask, condition: str) -> list[str]:
        """The columns whose values in the table are not those that were staged."""
        staged, shown = qualified(self.staging), self._where(condition)
        return [
            field.name
            for field in self.fields
            if self._summed(ask, "source", staged, (field,))
            != self._summed(ask, "target", shown, (field,))
        ]

    def _where(self, condition: str) -> str:
        return f"{qualified(self.table)} WHERE {condition}"

    def _summed(self, ask: Ask, side: Side, rows: str, fields: tuple[Field, ...]) -> Summed:
        dialect = self.table.system.dialect
        digest = str(RowDigest(self.dialect, fields, side))
        own = alias_prefix(digest, rows)
        ((count, total),) = ask(
            f"SELECT {dialect.count} AS {own}c, {dialect.exact_sum(f'{own}d')} AS {own}s "
            f"FROM (SELECT {digest} AS {own}d FROM {rows}) {own}rows"
        )
        return Summed(int(count), int(total or 0))


def differs(
    expected: Summed,
    shown: Summed,
    columns: Sequence[str],
    hazards: Sequence[Hazard],
    outcome: str,
) -> ShownDiffers:
    """The error of a range that readers would see otherwise than it was audited.

    Args:
        expected: its rows as they were audited.
        shown: its rows in the table.
        columns: those that differ, where that is known.
        hazards: what of the table may have done it.
        outcome: what became of the rows.
    """
    rows = (
        f"{expected.rows} rows were audited, but readers would see {shown.rows}"
        if shown.rows != expected.rows
        else f"readers would see the {shown.rows} rows otherwise than they were audited"
    )
    where = f", in column {', '.join(map(repr, columns))}" if columns else ""
    causes = with_remedies(having(hazards, "changes", "refused", "destroys"))
    why = causes or "nothing that does so was found on it: another writer may have"
    return ShownDiffers(f"{rows}{where}; {outcome}. {why}")
