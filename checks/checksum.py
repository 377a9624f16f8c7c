"""The levels `count` and `checksum`: one aggregate query per side, grouped by range or bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.dialects import quote
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fields import Field, Side
from tableferry.resources.contract.fingerprint import Figures
from tableferry.resources.digest.expressions import DigestSql, RowDigest
from tableferry.resources.digest.fields import fields, identity_fields, relaxed_fields
from tableferry.resources.digest.measure import Grouped, measure
from tableferry.resources.digest.probe import shared


@dataclass(frozen=True)
class Digests:
    """The digests of a hop's rows, which are the same numbers on both sides."""

    row: Mapping[Side, RowDigest]
    """Of all columns that are compared."""
    identity: Mapping[Side, str]
    """SQL of that of the primary key, or of the key if there is none."""
    shown: Mapping[Side, tuple[str, ...]]
    """SQL per column of what `resources.digest.values.shown` makes readable."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """By column, the source's condition that `on_overflow` makes another value of one."""

    @classmethod
    def of(
        cls, plan: CopyPlan, source: Endpoint, target: Endpoint, *, streamed: bool = False
    ) -> Digests:
        """How both servers compute them; with `streamed`, in a way that the client can, too.

        Raises:
            DigestRefused: they have no hash in common, or one of them computes another one.
        """
        columns, identity = fields(plan), identity_fields(plan)
        own, other = shared(source, target, streamed=streamed)
        return cls(
            {
                "source": RowDigest(own, columns, "source"),
                "target": RowDigest(other, columns, "target"),
            },
            {"source": own.digest(identity, "source"), "target": other.digest(identity, "target")},
            {
                "source": tuple(own.shown(field, "source") for field in columns),
                "target": tuple(other.shown(field, "target") for field in columns),
            },
            changed_values(plan, own),
        )


def changed_values(plan: CopyPlan, own: DigestSql) -> dict[str, str]:
    """By column, the source's condition that `on_overflow` makes another value of one."""
    found = {}
    for one in relaxed_fields(plan):
        found[one.name] = one.relaxed[own.variant].changed or "1 = 0"
    return found


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
    """The figures of every group on both sides, asked at the same time.

    Args:
        plan: the hop.
        source: where `plan.source` is.
        target: where `plan.target` is.
        grouped: the rows and groups of each side.
        digests: what to sum up; None counts rows only.
        figures: columns to sum up too.
        changed: conditions of which to count the source's rows that meet them, by column.
        snapshot: of the source.

    Returns:
        Group number -> figures, for the source and for the target. Empty groups are missing.
    """
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(
            measure,
            target,
            plan.target,
            "target",
            grouped["target"],
            digest=digests.row["target"] if digests else None,
            figures=figures,
        )
        own = measure(
            source,
            plan.source,
            "source",
            grouped["source"],
            digest=digests.row["source"] if digests else None,
            figures=figures,
            changed=changed,
            snapshot=snapshot,
        )
        return own, other.result()


def disagreeing(source: Figures, target: Figures) -> tuple[str, ...]:
    """Which figures are not the same on both sides: `rows`, `digest`, or columns."""
    return tuple(name for name in source if source[name] != target.get(name))


def in_sample(plan: CopyPlan, side: Side, identity: str, one_in: int) -> str:
    """The condition that picks about one row in `one_in` all over the range, and all NULL keys.

    Args:
        plan: the hop.
        side: whose SQL.
        identity: SQL of the digest of the rows' identity.
        one_in: how many rows there are to one that is picked.
    """
    return f"(abs({identity} % {one_in}) = 0 OR {_key(plan, side)} IS NULL)"


def bucket(digests: Digests, side: Side, count: int) -> str:
    """SQL of the number of the bucket that a row is in, from 0 to `count - 1`."""
    return f"abs({digests.identity[side]} % {count})"


def _key(plan: CopyPlan, side: Side) -> str:
    column, table = (
        (plan.key.source, plan.source) if side == "source" else (plan.key.target, plan.target)
    )
    return quote(table.system, column.name)
