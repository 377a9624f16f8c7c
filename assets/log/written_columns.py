"""Which columns a hop's target had when its ranges were written, and which table a run created."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tableferry.assets.log import ledger, ranges, records
from tableferry.assets.log.queries import Asset, Log, key_of, select_events


@dataclass(frozen=True)
class WrittenColumn:
    """A column that a range was written with."""

    name: str
    type: str
    description: str | None
    nullable: bool
    source: str
    """Its name in the hop's source."""
    computed: bool
    """Whether an expression of the transfer made its values."""
    kept: bool
    """Whether the target only has it from earlier runs: the range was written without it."""
    key: str
    """The value of its tag `KEY`, if the ranges are cut by it; else empty."""


@dataclass(frozen=True)
class WrittenColumns:
    """The columns of a target when a range was written."""

    schema: str
    """The hash of its columns in the range's data version."""
    columns: Sequence[WrittenColumn]

    @property
    def filled(self) -> list[WrittenColumn]:
        """The columns that the range was written with."""
        return [column for column in self.columns if not column.kept]


def committed_schema(log: Log, asset: Asset) -> Sequence[WrittenColumn] | None:
    """Return the columns that the newest committed range of a hop was written with."""
    written = next(written_columns(log, asset), None)
    return written.filled if written else None


def written_columns(log: Log, asset: Asset, most: int = 1) -> Iterator[WrittenColumns]:
    """Yield the columns of a hop's target as its newest committed ranges recorded them.

    Args:
        log: the event log.
        asset: the hop's asset.
        most: the maximum number of records to read; those of most ranges have no columns.
    """
    for _, text in ledger.newest_first(log, asset, most, saying=records.COLUMN_SCHEMA):
        event = json.loads(text)["dagster_event"]["event_specific_data"]["materialization"]
        data = {entry["label"]: entry["entry_data"] for entry in event["metadata_entries"]}
        if "schema" not in data.get(records.COLUMN_SCHEMA, {}):
            continue
        lineage = (
            data.get(records.COLUMN_LINEAGE, {}).get("column_lineage", {}).get("deps_by_column", {})
        )
        version = (event.get("tags") or {}).get(records.DATA_VERSION, "")
        columns = []
        for column in data[records.COLUMN_SCHEMA]["schema"]["columns"]:
            name, tags = column["name"], column.get("tags") or {}
            columns.append(
                WrittenColumn(
                    name,
                    column["type"],
                    column["description"],
                    column["constraints"]["nullable"],
                    source=next((dep["column_name"] for dep in lineage.get(name, ())), name),
                    computed=records.COMPUTED in tags,
                    kept=records.KEPT in tags,
                    key=tags.get(records.KEY, ""),
                )
            )
        yield WrittenColumns(records.DataVersion.parse(version).schema, columns)


def created_table(log: Log, asset: Asset) -> str | None:
    """Return the identity of the table that a run created last as a hop's target, if any has."""
    rows = select_events(
        log,
        "SELECT e.event FROM event_logs e WHERE e.asset_key = :asset"
        " AND e.dagster_event_type = :type AND e.partition IS NULL AND e.event LIKE :text"
        f"{ranges.since_wiped(log, [key_of(asset)])} ORDER BY e.id DESC LIMIT 1",
        asset=key_of(asset),
        type=ranges.OBSERVATION,
        text=f"%{records.CREATED}%",
    )
    if not rows:
        return None
    data = json.loads(rows[0][0])["dagster_event"]["event_specific_data"]
    return str(data["asset_observation"]["tags"][records.CREATED])
