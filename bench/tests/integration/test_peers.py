"""What dlt moves without ClickHouse's native protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tableferry.resources.contract.table_sql import qualified
from tableferry_bench.contenders.peers import NATIVE_PORT, Dlt
from tableferry_bench.meter import require_good, run
from tableferry_bench.servers import Servers
from tableferry_bench.workloads import ensure

ROWS = 60_000
"""More than dlt reads at once, which is 50,000."""
SMALL_FILES = {"DATA_WRITER__FILE_MAX_ITEMS": "50000"}
FIGURES = (
    "SELECT count(*), sum(id), sum(product), count(discount), sum(price), "
    "sum(CAST(paid AS integer)), max(ratio), max(note), min(code), max(city), max(day), "
    "max(created), max(changed){utc}, CAST(max(CAST(ref AS {text})) AS {text}) FROM {table}"
)


def test_dlt_posts_every_file_into_the_table_of_all_peers(
    databases: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NATIVE_PORT, raising=False)
    dlt = Dlt()
    if reason := dlt.missing(databases):
        pytest.skip(reason)
    assert dlt.options == {"by": "HTTP"}
    table = ensure(databases, f"wide:{ROWS}")
    source, target = databases.table("postgres", table.name), dlt.target(databases, table)
    [command] = dlt.commands(databases, table)
    declared = databases.clickhouse.columns(target)
    done = run(replace(command, environment={**command.environment, **SMALL_FILES}))
    require_good(done, "dlt", databases.secrets)
    assert dlt.outcome(databases, table, [done]).rows == ROWS
    assert databases.clickhouse.columns(target) == declared
    of_source = FIGURES.format(text="text", utc=" AT TIME ZONE 'UTC'", table=qualified(source))
    of_target = FIGURES.format(text="String", utc="", table=qualified(target))
    assert databases.postgres.query(of_source) == databases.clickhouse.query(of_target)
    # counts the INSERTs, whatever has been merged since
    inserts = databases.clickhouse.query(
        "SELECT max(max_block_number) FROM system.parts "
        f"WHERE database = '{target.schema}' AND table = '{target.name}'"
    )
    assert inserts == [(2,)]
    dlt.clean_up(databases, table)
    assert databases.clickhouse.query("SHOW TABLES") == []
