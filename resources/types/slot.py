"""The values that a target column holds."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tableferry.resources.types.kinds import Kind


@dataclass(frozen=True)
class Slot:
    """The values that a target type holds, and the Arrow type in which the sink takes them."""

    kind: Kind
    arrow: pa.DataType
    takes_bytes: bool = False
    """Whether a text type also takes any bytes."""
    nullable: bool = True
    """Whether columns of the type can be NULL."""
