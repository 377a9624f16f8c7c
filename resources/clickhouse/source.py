"""How rows leave ClickHouse: ArrowStream."""

from __future__ import annotations

from collections.abc import Sequence

from resources.dialects import qualified, quote
from resources.endpoint import Endpoint
from resources.keys.range import KeyKind
from resources.keys.statistics import BUCKETS
from resources.registry import system
from resources.system import Source
from resources.tables import Column, TableRef

SAMPLE_ROWS = 1_000_000
"""About as many keys of a larger table are sorted."""


class ClickHouseSource(Source):
    """See `Source`. Each query reads the parts that there are when it begins."""

    def quantiles(
        self, endpoint: Endpoint, table: TableRef, column: Column, kind: KeyKind, where: str
    ) -> tuple[int, Sequence[object]]:
        """By numbering the keys in their order, of a large table a sample by their hash."""
        sql, name = system("clickhouse").dialect, quote("clickhouse", column.name)
        key, source = sql.key_value(name, column, kind), qualified(table)
        rows, least, greatest = endpoint.query(
            f"SELECT count(), min({key}), max({key}) FROM {source} WHERE {where}"
        )[0]
        if not rows:
            return 0, ()
        if every := int(rows) // SAMPLE_ROWS:
            where = f"({where}) AND cityHash64({name}) % {every} = 0"
        found = endpoint.query(
            "SELECT k FROM (SELECT k, row_number() OVER (ORDER BY k) AS i, count() OVER () AS n "
            f"FROM (SELECT {key} AS k FROM {source} WHERE {where})) "
            f"WHERE intDiv(i * {BUCKETS}, n) > intDiv((i - 1) * {BUCKETS}, n) ORDER BY i"
        )
        return int(rows), [least, *(value for (value,) in found), greatest]
