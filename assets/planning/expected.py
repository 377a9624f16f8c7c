"""How long transfers are expected to take: as their last runs took, or by the sizes of tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import median

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.planning.servers import Servers
from tableferry.resources.contract.catalog import TableSize
from tableferry.resources.contract.source import source_of
from tableferry.resources.errors import TableferryError
from tableferry.resources.tables import TableRef

SECONDS_PER_HOP = 0.3
"""What a table takes that is empty."""
ROWS_PER_SECOND = 150_000
BYTES_PER_SECOND = 20_000_000
"""About what one process moves and proves; the greater of the two estimates is taken."""


def expected_seconds(
    transfers: Collection[Transfer],
    past: Mapping[str, float | None],
    sizes: Mapping[TableRef, TableSize],
) -> dict[str, float]:
    """Return how long each transfer is expected to take, by its name.

    That is as long as its last run took, or as the size of its source suggests, whichever is
    longer. A transfer of which neither is known is expected to take as long as the median of the
    others, so that it begins neither first nor last.

    Args:
        transfers: the transfers.
        past: the seconds of their last runs; None where a run has not ended.
        sizes: the sizes of their sources, as far as they are known and matter.
    """
    seconds: dict[str, float] = {}
    for transfer in transfers:
        taken, size = past.get(transfer.transfer), sizes.get(transfer.source)
        estimates = [] if taken is None else [taken]
        if size is not None:
            estimates.append(seconds_of(size, len(transfer.hops)))
        if estimates:
            seconds[transfer.transfer] = max(estimates)
    usual = median(seconds.values()) if seconds else 1.0
    return {item.transfer: seconds.get(item.transfer, usual) for item in transfers}


def seconds_of(size: TableSize, hops: int) -> float:
    """Estimate how long the first load of a table takes."""
    moving = max(size.rows / ROWS_PER_SECOND, (size.bytes or 0) / BYTES_PER_SECOND)
    return hops * (SECONDS_PER_HOP + moving)


def sizes_of(tables: Collection[TableRef], servers: Servers) -> dict[TableRef, TableSize]:
    """Return the sizes of tables in the catalogs of their servers, as far as these know them."""
    by_connection: dict[str, list[TableRef]] = {}
    for table in dict.fromkeys(tables):
        by_connection.setdefault(table.connection, []).append(table)
    sizes: dict[TableRef, TableSize] = {}
    for group in by_connection.values():
        try:
            sizes |= source_of(group[0].system).sizes(servers.endpoint(group[0]), group)
        except TableferryError:
            # the transfers themselves will say what is wrong with their server
            continue
    return sizes
