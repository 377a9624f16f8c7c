"""Which sample or bucket a row belongs to, as SQL that all systems compute alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from checks.atoms import Side, atoms
from checks.fields import key_field
from resources.dialects import quote
from resources.plan import CopyPlan
from resources.tables import Column, System

WEIGHT_PRIME = 99_991
"""Rows weigh by their key modulo this, so that values exchanged between two rows show. Five digits,
so that the weighted sums cannot overflow decimal(38,0) nor a 64-bit product."""

_PRIME = 2**31 - 1
_FACTOR = 48_271
"""Park and Miller's multiplier for that prime. The square after it breaks up keys in equal steps,
which a multiplication alone leaves in equal steps; all of it fits 64 bits."""


def key_number(plan: CopyPlan, side: Side) -> str:
    """SQL of a 64-bit integer that stands for the row's key; NULL for a NULL key."""
    field = key_field(plan)
    systems = (plan.source.system, plan.target.system)
    found = atoms(field, side, systems)
    return found["second_half"] if field.kind == "uuid" else next(iter(found.values()))


def weight(plan: CopyPlan, side: Side) -> str:
    """SQL of the row's weight, between -99990 and 99990; 0 for a NULL key."""
    return f"COALESCE(({key_number(plan, side)}) % {WEIGHT_PRIME}, 0)"


def key_hash(plan: CopyPlan, side: Side) -> str:
    """SQL of a number from 0 to 2**31 - 2 that scatters neighbouring keys; NULL for a NULL key."""
    system = _system(plan, side)
    absolute = "ABS" if system == "sqlserver" else "abs"
    spread = f"({absolute}(({key_number(plan, side)}) % {_PRIME} * {_FACTOR}) % {_PRIME})"
    return f"({spread} * {spread} % {_PRIME})"


def in_sample(plan: CopyPlan, side: Side, one_in: int) -> str:
    """The condition that picks about one row in `one_in` all over the range, and all NULL keys."""
    name = quote(_system(plan, side), _key(plan, side).name)
    return f"({key_hash(plan, side)} % {one_in} = 0 OR {name} IS NULL)"


def in_buckets(plan: CopyPlan, side: Side, count: int, wanted: Sequence[int]) -> str:
    """The condition that picks the rows of some of `count` buckets; a NULL key is in bucket 0."""
    numbers = ", ".join(str(number) for number in wanted)
    return f"{bucket(plan, side, count)} IN ({numbers})"


def bucket(plan: CopyPlan, side: Side, count: int) -> str:
    """SQL of the row's bucket number, from 0 to `count - 1`."""
    return f"COALESCE({key_hash(plan, side)} % {count}, 0)"


def _system(plan: CopyPlan, side: Side) -> System:
    return plan.source.system if side == "source" else plan.target.system


def _key(plan: CopyPlan, side: Literal["source", "target"]) -> Column:
    return plan.key.source if side == "source" else plan.key.target
