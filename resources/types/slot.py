"""What a target column holds, and how it is handed to the sink."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from resources.types.kinds import Kind


@dataclass(frozen=True)
class Slot:
    """The values that a target type holds, and the Arrow type in which the sink takes them.

    `padded`: the server fills shorter text up with blanks.
    """

    kind: Kind
    arrow: pa.DataType
    padded: bool = False
