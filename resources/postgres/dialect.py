"""PostgreSQL's SQL."""

from __future__ import annotations

import datetime as dt
import uuid

from resources.keys.range import Bound
from resources.system import Dialect
from resources.tables import Column


class PostgresDialect(Dialect):
    """See `Dialect`."""

    barrier = " OFFSET 0"
    """Else both levels are merged, as many groups as rows are expected, and all rows sorted."""

    longest_name = 63
    """Bytes; what is longer would be cut without an error."""

    def bound(self, bound: Bound, column: Column) -> str:
        """A constant to compare a key with, of the key's own type."""
        if isinstance(bound, uuid.UUID):
            return f"uuid '{bound}'"
        if isinstance(bound, dt.datetime) and column.type.startswith(ZONED):
            return f"timestamptz '{bound.isoformat(sep=' ', timespec='microseconds')}+00'"
        return super().bound(bound, column)

    def exact_sum(self, number: str) -> str:
        """The sum of bigints is a numeric."""
        return f"sum({number})::text"


ZONED = ("timestamp with time zone", "timestamptz")
