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
    found: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NATIVE_PORT, raising=False)
    dlt = Dlt()
    if reason := dlt.missing(found):
        pytest.skip(reason)
    assert dlt.options == {"by": "HTTP"}
    table = ensure(found, f"wide:{ROWS}")
    source, target = found.table("postgres", table.name), dlt.target(found, table)
    [command] = dlt.commands(found, table)
    declared = found.clickhouse.columns(target)
    done = run(replace(command, environment={**command.environment, **SMALL_FILES}))
    require_good(done, "dlt", found.secrets)
    assert dlt.outcome(found, table, [done]).rows == ROWS
    assert found.clickhouse.columns(target) == declared
    of_source = FIGURES.format(text="text", utc=" AT TIME ZONE 'UTC'", table=qualified(source))
    of_target = FIGURES.format(text="String", utc="", table=qualified(target))
    assert found.postgres.query(of_source) == found.clickhouse.query(of_target)
    # counts the INSERTs, whatever has been merged since
    inserts = found.clickhouse.query(
        "SELECT max(max_block_number) FROM system.parts "
        f"WHERE database = '{target.schema}' AND table = '{target.name}'"
    )
    assert inserts == [(2,)]
    dlt.clean_up(found, table)
    assert found.clickhouse.query("SHOW TABLES") == []
