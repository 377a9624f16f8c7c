"""The levels `count` and `checksum`: one aggregate query per side, grouped by range or bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.fingerprint import Figures
from tableferry.resources.digest.expressions import DigestSql, RowDigest
from tableferry.resources.digest.fields import fields, identity_fields, relaxed_fields
from tableferry.resources.digest.measure import Grouped, measure
from tableferry.resources.digest.probe import shared
from tableferry.resources.tables import TableRef
from tableferry.resources.types.column import Column


@dataclass(frozen=True)
class Digests:
    """SQL of the digests of a hop's rows, which are the same numbers on both sides."""

    row: Mapping[Side, RowDigest]
    """The digest of all columns that are compared."""
    identity: Mapping[Side, str]
    """The digest of the primary key, or of the key column if there is none."""
    shown: Mapping[Side, tuple[str, ...]]
    """Per column, what `resources.digest.values.shown` makes readable."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """By column, the source's condition that `on_overflow` changes a value."""

    @classmethod
    def of(
        cls, plan: CopyPlan, source: Endpoint, target: Endpoint, *, streamed: bool = False
    ) -> Digests:
        """Find out how both servers compute them; with `streamed`, as the client can, too.

        Raises:
            DigestRefused: they have no hash in common, or one of them computes another one.
        """
        columns, identity = fields(plan), identity_fields(plan)
        source_sql, target_sql = shared(source, target, streamed=streamed)
        dialects: dict[Side, DigestSql] = {"source": source_sql, "target": target_sql}
        return cls(
            {side: RowDigest(sql, columns, side) for side, sql in dialects.items()},
            {side: sql.digest(identity, side) for side, sql in dialects.items()},
            {
                side: tuple(sql.shown(field, side) for field in columns)
                for side, sql in dialects.items()
            },
            {
                column.name: column.relaxed[source_sql.variant].changed or "1 = 0"
                for column in relaxed_fields(plan)
            },
        )


def both_sides(
    plan: CopyPlan,
    source: Endpoint,
    target: Endpoint,
    grouped: Mapping[Side, Grouped],
    *,
    digests: Digests | None = None,
    figures: Sequence[Field] = (),
    changed: Mapping[str, str] | None = None,
    snapshot: str | None = None,
) -> tuple[dict[int, Figures], dict[int, Figures]]:
    """Ask both sides at the same time for the figures of every group, see `measure`.

    Returns:
        Group number -> figures, for the source and for the target. Empty groups are missing.
    """
    row = digests.row if digests else {}
    measured = partial(measure, figures=figures)
    with ThreadPoolExecutor(1) as pool:
        target_figures = pool.submit(
            measured, target, plan.target, "target", grouped["target"], digest=row.get("target")
        )
        source_figures = measured(
            source,
            plan.source,
            "source",
            grouped["source"],
            digest=row.get("source"),
            changed=changed,
            snapshot=snapshot,
        )
        return source_figures, target_figures.result()


def table_and_key(plan: CopyPlan, side: Side) -> tuple[TableRef, Column]:
    """The table on one side of a hop, and its key column."""
    if side == "source":
        return plan.source, plan.key.source
    return plan.target, plan.key.target


def in_sample(plan: CopyPlan, side: Side, identity: str, one_in: int) -> str:
    """The condition that picks all NULL keys and about one row in `one_in`, all over the range, by
    the digest of the row's identity."""
    table, key = table_and_key(plan, side)
    return f"(abs({identity} % {one_in}) = 0 OR {table.system.quote(key.name)} IS NULL)"
