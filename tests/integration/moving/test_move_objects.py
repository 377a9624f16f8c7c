"""Files in an object store as a source: what holds of folders, and what only a network does."""

from __future__ import annotations

import gzip
import io
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tenacity
from backports import zstd
from moto.server import ThreadedMotoServer

from tableferry.pipelines.definitions import build
from tableferry.resources.connecting.names import table_of
from tableferry.resources.connecting.retry import retrying
from tableferry.resources.contract.table_sql import predicate, qualified
from tableferry.resources.errors import ConnectionFailed, InputError, StatementFailed
from tableferry.resources.files.object_store import store_at
from tableferry.resources.files.resource import FilesResource
from tableferry.resources.files.source import KEY, FilesSource
from tableferry.resources.registry import system
from tableferry.resources.tables import TableRef
from tests.chance import chance
from tests.integration.conftest import Ferry, table_name
from tests.integration.moving.test_move_files import TO_CLICKHOUSE, held, invoke, reopened
from tests.integration.support.proxy import Counts, CutsAnswers

pytestmark = pytest.mark.integration

SECRET = "s3cr3t-of-the-lake"
Maker = Callable[..., Ferry]


@dataclass
class Lake:
    """A bucket of its own on an S3 server."""

    endpoint: str
    bucket: str
    client: Any = field(repr=False)

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=key)

    def parquet(self, key: str, columns: dict[str, Any], **options: Any) -> None:
        self.put(key, packed(columns, **options))


def packed(columns: dict[str, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, **options)
    return stream.getvalue()


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URL of an S3 server, moto's."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def lake(s3: str, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A bucket, as the connection `lake`: three Parquet files of 100 rows each in `in/orders`."""
    import boto3

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-the-lake")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # s3fs tries again by itself, and so do we
    found = Lake(s3, table_name().replace("_", "-").lower(), boto3.client("s3"))
    found.client.create_bucket(Bucket=found.bucket)
    monkeypatch.setenv("TABLEFERRY_CONNECTION_LAKE", f"s3://{found.bucket}/in")
    for number, name in enumerate(("a", "b", "c")):
        ids = range(number * 100, number * 100 + 100)
        names = [f"größe {one}" if one % 7 else None for one in ids]
        found.parquet(f"in/orders/{name}.parquet", {"id": list(ids), "name": names})
    return found


def declared(ferry: Maker, files: str = "lake://orders/*.parquet", **settings: Any) -> Ferry:
    """A transfer out of objects."""
    one = ferry(TO_CLICKHOUSE, source="postgres://public.x")
    lines = [f"transfer: {one.table}", f"source: {files}"]
    lines += [f"hops: {TO_CLICKHOUSE.format(t=one.table)}"]
    lines += [f"{key}: {value}" for key, value in settings.items()]
    (one.folder / "t.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return reopened(one)


def new_files(one: Ferry) -> list[str]:
    """The ranges that a tick of the sensor asks for."""
    repository = build().get_repository_def()
    with dg.build_sensor_context(
        one.session.instance,
        repository_def=repository,
        resources=repository.get_top_level_resources(),
    ) as context:
        sensor = repository.get_sensor_def("new_ranges")
        requests = sensor.evaluate_tick(context).run_requests or []
    return [str(request.tags["dagster/asset_partition_range_start"]) for request in requests]


def test_objects_move_are_skipped_and_followed(ferry: Maker, lake: Lake) -> None:
    whole = packed({"id": list(range(100, 200)), "name": ["x"] * 100})
    lake.put("in/orders/b.parquet", whole[: len(whole) // 2])
    one = declared(ferry, on_missing="delete")
    torn = one.run()
    assert not torn.good
    assert f"s3://{lake.bucket}/in/orders/b.parquet cannot be read" in "".join(torn.errors)
    assert one.moved(torn) == ["a.parquet", "c.parquet"]
    # whole again; another is gone, and the sensor sees a new one
    lake.put("in/orders/b.parquet", whole)
    lake.delete("in/orders/c.parquet")
    lake.parquet("in/orders/sub/d.parquet", {"id": [1], "name": ["not below: no **"]})
    view = one.run()
    assert view.good and one.moved(view) == ["b.parquet"]
    assert [note for note in view.notes if "c.parquet no longer exists; its rows go" in note]
    lake.parquet("in/orders/we ird[1]*ü#%20.parquet", {"id": [1000], "name": ["new"]})
    assert new_files(one) == ["we ird[1]*ü#%2520.parquet"]
    # a changed object replaces its own rows
    lake.parquet("in/orders/b.parquet", {"name": ["x", "y"], "id": pa.array([7, 8], pa.int16())})
    changed = one.run()
    assert changed.good, changed.errors
    assert one.moved(changed) == ["b.parquet", "we ird[1]*ü#%2520.parquet"]
    assert held(one, "count(), uniqExact(_file)") == [(103, 3)]
    rows = held(one, "_row, id, name, _file")
    assert [row for row in rows if row[3] == "b.parquet"] == [
        (1, 7, "x", "b.parquet"),
        (2, 8, "y", "b.parquet"),
    ]
    again = one.run()
    assert again.good and not again.run_ids
    target = one.session.servers.endpoint(TableRef("clickhouse", "warehouse", one.table))
    target.execute(
        f"ALTER TABLE warehouse.{one.table} UPDATE name = 'damaged' "
        "WHERE _file = 'b.parquet' AND id = 8 SETTINGS mutations_sync = 2"
    )
    code, output = invoke("check", one.table, "--level", "full_hash")
    assert code == 1 and "b.parquet: full_hash FAILED: 1 row differs: name" in output
    log = "".join(
        str(entry.to_json())
        for run in (*torn.run_ids, *changed.run_ids)
        for entry in one.session.instance.all_logs(run)
    )
    assert SECRET not in log + output and "key-of-the-lake" not in log + output


def test_texts_packed_or_not(ferry: Maker, lake: Lake) -> None:
    lake.put("in/texts/1.csv", b'id,amount,note\n1,1.5,"a ""b"",\nc"\n2,,""\n')
    lake.put("in/texts/2.csv.gz", gzip.compress("note;id\nä😀;3\n".encode()))
    lake.put("in/texts/3.csv.zst", zstd.compress(b"id,amount\n4,-3.125\n"))
    lake.put("in/texts/4.csv.gz", gzip.compress(b"id\n5\n")[:-6])
    one = declared(ferry, "lake://texts/*.csv*")
    view = one.run()
    problems = "\n".join(view.errors)
    assert "4.csv.gz cannot be read" in problems and "1.csv" not in problems
    assert held(one, "id, amount, note, _file") == [
        (1, Decimal("1.500"), 'a "b",\nc', "1.csv"),
        (2, None, "", "1.csv"),
        (3, None, "ä😀", "2.csv.gz"),
        (4, Decimal("-3.125"), None, "3.csv.zst"),
    ]


def test_objects_of_ndjson(lake: Lake) -> None:
    lake.put("in/day=1/x.ndjson", b'{"id": 1, "note": "a"}\n{"note": "", "id": 2}\n')
    lake.put("in/day=2/x.ndjson.gz", gzip.compress('{"id": 3, "note": "ä"}\n'.encode()))
    lake.put("in/day=2/.hidden.ndjson", b"no JSON")
    table = table_of("lake://**/*.ndjson*")
    with FilesResource(url=f"s3://{lake.bucket}/in").read_arrow(
        f"SELECT id, note, _file, _row FROM {qualified(table)} ORDER BY 1"
    ) as reader:
        found = [tuple(row.values()) for row in reader.read_all().to_pylist()]
    assert found == [
        ("1", "a", "day=1/x.ndjson", 1),
        ("2", "", "day=1/x.ndjson", 2),
        ("3", "ä", "day=2/x.ndjson.gz", 1),
    ]


def test_a_connection_that_is_cut_is_tried_again_and_publishes_nothing(
    ferry: Maker, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = chance("cut")
    texts = [numbers.randbytes(2000).hex() for _ in range(100)]
    lake.parquet("in/orders/b.parquet", {"id": list(range(100)), "name": texts})
    # of the rows, not of the footer, which planning reads; s3fs itself gives up after 5
    with CutsAnswers(lake.endpoint, b"ange: bytes=4-", times=7) as proxy:
        url = f"s3://{lake.bucket}/in?endpoint_url={proxy.url}"
        monkeypatch.setenv("TABLEFERRY_CONNECTION_LAKE", url)
        one = declared(ferry, "lake://orders/b.parquet")
        view = one.run()
        assert view.good, view.errors
        assert proxy.cut == 7
        assert [row[1] for row in held(one, "id, name")] == texts
        # one that stays cut: what was published stays
        once = retrying().copy(stop=tenacity.stop_after_attempt(1))
        monkeypatch.setattr("tableferry.assets.running.workers.retrying", lambda: once)
        lake.parquet("in/orders/b.parquet", {"id": list(range(100)), "name": texts[::-1]})
        proxy.left = float("inf")
        view = one.run()
        assert not view.good and not one.moved(view)
        assert f"s3://{lake.bucket}/in/orders/b.parquet: " in "".join(view.errors)
        assert [row[1] for row in held(one, "id, name")] == texts
        proxy.left = 0
        again = one.run()
        assert again.good and one.moved(again) == ["b.parquet"]
    assert [row[1] for row in held(one, "id, name")] == texts[::-1]


def test_a_store_that_cannot_be_asked_is_no_empty_folder(lake: Lake) -> None:
    """Else the rows of all that is in it would be those of files that are gone."""
    lake.parquet("in/orders/sub/d.parquet", {"id": [1], "name": ["below"]})
    with CutsAnswers(lake.endpoint, b"sub") as proxy:
        store = store_at(f"s3://{lake.bucket}/in?endpoint_url={proxy.url}")
        with pytest.raises(ConnectionFailed, match=f"cannot reach s3://{lake.bucket}/in") as found:
            list(store.listed(table_of("lake://orders/**/*.parquet")))
        assert proxy.cut and found.value.transient
        assert len(list(store.listed(table_of("lake://orders/*.parquet")))) == 3


@pytest.mark.parametrize("log", ["_delta_log/0.json", "metadata/v1.metadata.json", ".hoodie/x"])
@pytest.mark.parametrize("above", ["in", "in/orders"])
def test_objects_of_a_table_format_are_no_rows(lake: Lake, above: str, log: str) -> None:
    store = store_at(f"s3://{lake.bucket}/in")
    lake.client.put_object(Bucket=lake.bucket, Key=f"{above}/{log}", Body=b"{}")
    for pattern in ("orders/*.parquet", "**/*.parquet"):
        with pytest.raises(InputError, match=f"s3://{lake.bucket}/{above} is a table of "):
            list(store.listed(table_of(f"lake://{pattern}")))
    lake.parquet("other/a.parquet", {"id": [1]})
    assert len(list(store_at(f"s3://{lake.bucket}").listed(table_of("lake://other/*")))) == 1


def test_an_object_that_changes_while_it_is_read(lake: Lake) -> None:
    """Its parts are never of two versions."""
    path = f"s3://{lake.bucket}/in/orders/a.parquet"
    stream = store_at(f"s3://{lake.bucket}/in").open(path, scattered=True)
    assert stream.read(4) == b"PAR1"
    lake.parquet("in/orders/a.parquet", {"id": [1]})
    with pytest.raises(StatementFailed, match=r"a\.parquet: ") as found:
        stream.read(4)
    assert found.value.transient


def test_a_plan_lists_the_store_as_often_for_many_objects_as_for_few(
    ferry: Maker, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Counts(lake.endpoint, b"list-type=2") as proxy:
        url = f"s3://{lake.bucket}/in?endpoint_url={proxy.url}"
        monkeypatch.setenv("TABLEFERRY_CONNECTION_LAKE", url)
        one = declared(ferry)
        assert invoke("plan", one.table)[0] == 0  # what lies above is looked at once
        listed = []
        for more in ((), range(6)):
            for number in more:
                lake.parquet(f"in/orders/{number}.parquet", {"id": [number], "name": ["more"]})
            for command in ("plan", "run"):
                before = proxy.requests
                assert invoke(command, one.table)[0] == 0
                listed.append(proxy.requests - before)
    assert 0 < listed[0] == listed[2]
    assert listed[3] < listed[1] + 3  # the target is there by now, and looked at
    assert held(one, "count(), uniqExact(_file)") == [(306, 9)]


def test_a_stretch_of_an_object_is_read_by_itself(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = chance("stretch")
    texts = [numbers.randbytes(500).hex() for _ in range(1000)]
    lake.parquet("in/big.parquet", {"id": range(1000), "name": texts}, row_group_size=100)
    table = table_of("lake://*.parquet")
    with Counts(lake.endpoint, b"GET ") as proxy:
        resource = FilesResource(url=f"s3://{lake.bucket}/in?endpoint_url={proxy.url}")
        ranges = FilesSource().own_ranges(resource, table, rows=250)
        assert [one.rows for one in ranges] == [(n, n + 200) for n in range(1, 801, 200)] + [
            (801, None)
        ]
        before = proxy.answered
        condition = predicate(KEY, ranges[1], system("files"))
        sql = f"SELECT count(*), min(id), max(name) FROM {qualified(table)} WHERE {condition}"
        assert resource.query(sql) == [(200, 200, max(texts[200:400]))]
        assert 200_000 < proxy.answered - before < 500_000


def test_the_guides_example(ferry: Maker, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
    example = next(
        block.partition("```")[0] for block in guide.split("```yaml\n") if "raw://" in block[:90]
    )
    setting = next(line for line in guide.splitlines() if "CONNECTION_RAW=s3://" in line)
    name, _, url = setting.removeprefix("$ export ").partition("=")
    monkeypatch.setenv(name, url.replace("company-lake", lake.bucket))
    one = ferry(TO_CLICKHOUSE, source="postgres://public.x")
    key = url.partition("company-lake/")[2]
    lake.parquet(f"{key}/{one.table}/2026/one.parquet", {"id": [1, 2]})
    (one.folder / "t.yaml").write_text(example.replace("readings", one.table), encoding="utf-8")
    assert reopened(one).run().good
    assert held(one, "id, _file") == [(1, "2026/one.parquet"), (2, "2026/one.parquet")]
