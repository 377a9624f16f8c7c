"""One instance of DuckDB serves all queries of a process, and none sees another's files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableferry.resources.errors import StatementFailed
from tableferry.resources.files.database import opened
from tableferry.resources.files.object_store import store_at
from tableferry.resources.files.resource import FilesResource

NOWHERE = store_at(None)


@pytest.fixture
def server(tmp_path: Path) -> FilesResource:
    (tmp_path / "in").mkdir()
    for number in range(4):
        path = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"id": [number] * 1000}), path)
    return FilesResource(url=tmp_path.as_uri())


def numbers(server: FilesResource, number: int) -> list[tuple[int]]:
    found = server.query(f'SELECT DISTINCT id FROM "in"."{number}.parquet"')
    assert found == [(number,)]
    return found


def test_queries_side_by_side_see_their_own_files(server: FilesResource) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda turn: numbers(server, turn % 4), range(40))
        assert [row for ((row,),) in found] == [turn % 4 for turn in range(40)]


def test_nothing_of_a_query_is_left_behind(server: FilesResource) -> None:
    numbers(server, 1)
    with pytest.raises(StatementFailed):
        server.query('SELECT nothing FROM "in"."1.parquet"')
    with server.read_arrow('SELECT * FROM "in"."1.parquet"', batch_rows=10) as reader:
        reader.read_next_batch()
    with opened(NOWHERE, []) as database:
        found = database.execute("SELECT count(*) FROM duckdb_databases() WHERE NOT internal")
        assert found.fetchone() == (2,)  # the instance's own, and the one of this query


def test_times_are_of_utc() -> None:
    with opened(NOWHERE, []) as database:
        assert database.execute("SELECT current_setting('TimeZone')").fetchone() == ("UTC",)


def test_a_fork_in_the_middle_of_a_query_hurts_neither(server: FilesResource) -> None:
    with server.read_arrow('SELECT * FROM "in"."1.parquet"', batch_rows=10) as reader:
        reader.read_next_batch()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                numbers(server, 2)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert sum(batch.num_rows for batch in reader) == 990
    numbers(server, 3)
