"""What other movers leave in the tables that they fill, for `write: none`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MoverName = Literal["peerdb", "airbyte", "fivetran"]


@dataclass(frozen=True)
class Mover:
    """The columns by which a mover marks deleted rows, and says when it wrote a row."""

    title: str
    deleted: str
    """The column that marks a row which the source has no more, if the table has it."""
    synced: str
    """The column with the moment at which the mover wrote, or read, a row."""
    flag: bool = True
    """Whether `deleted` is a boolean or a number; otherwise it is NULL in rows that are there."""


MOVERS: Mapping[MoverName, Mover] = {
    # https://docs.peerdb.io/bestpractices/clickhouse_datamodeling
    "peerdb": Mover("PeerDB", "_peerdb_is_deleted", "_peerdb_synced_at"),
    # https://docs.airbyte.com/platform/understanding-airbyte/airbyte-metadata-fields
    # https://docs.airbyte.com/platform/understanding-airbyte/cdc
    "airbyte": Mover("Airbyte", "_ab_cdc_deleted_at", "_airbyte_extracted_at", flag=False),
    # https://fivetran.com/docs/core-concepts/system-columns-and-tables
    "fivetran": Mover("Fivetran", "_fivetran_deleted", "_fivetran_synced"),
}
"""The movers by name. All of them keep versions of a row in ClickHouse's replacing engines."""
