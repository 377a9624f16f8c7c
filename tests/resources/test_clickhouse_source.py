"""What ClickHouse's source asks before it reads with FINAL."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tableferry.resources.clickhouse.source import ClickHouseSource
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.errors import InputError, StatementFailed
from tableferry.resources.tables import TableRef

TABLE = TableRef("clickhouse", "warehouse", "orders")


class OlderRelease:
    """A server that leaves partitions out before FINAL."""

    def __init__(self, partition_key: str, error: StatementFailed | None = None) -> None:
        self.partition_key, self.error = partition_key, error

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        if "FINAL LIMIT 0" not in sql:
            return [(self.partition_key, "id, `the place`")]
        if self.error is not None:
            raise self.error
        return []


def unversioned(server: OlderRelease, read_by: str) -> str | None:
    return ClickHouseSource().unversioned(cast(Endpoint, server), TABLE, read_by)


@pytest.mark.parametrize(
    ("partition_key", "read_by"),
    [
        ("toYYYYMM(day)", "id "),
        ("", "day "),
        ("id % 16", "id "),
        ("`the place`", "`the place` = 3"),
        ("toYYYYMM(day)", "id holiday > 3"),
    ],
)
def test_partitions_that_no_condition_chooses_are_harmless(
    partition_key: str, read_by: str
) -> None:
    assert unversioned(OlderRelease(partition_key), read_by) is None


@pytest.mark.parametrize("read_by", ["day ", "id day >= '2026-01-01'", "id toDate(day) = today()"])
def test_an_older_release_is_not_read_by_what_chooses_a_partition(read_by: str) -> None:
    with pytest.raises(InputError, match=r"its partitions are chosen by 'day'.*an older one"):
        unversioned(OlderRelease("toYYYYMM(day)"), read_by)


def test_only_the_engines_refusal_means_that_there_are_no_versions() -> None:
    refused = StatementFailed("clickhouse", "Storage MergeTree doesn't support FINAL", code=181)
    assert "no versions of rows" in str(unversioned(OlderRelease("", refused), "id"))
    denied = StatementFailed("clickhouse", "Not enough privileges", code=497)
    with pytest.raises(StatementFailed, match="privileges"):
        unversioned(OlderRelease("", denied), "id")
