"""Objects of Google's and Azure's stores as a source, against emulators where these are installed.

pip install 'tableferry[gcs,azure]' gcp-storage-emulator; npm install -g azurite
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Ferry
from tests.integration.moving.test_move_files import TO_CLICKHOUSE, held, invoke, reopened
from tests.integration.moving.test_move_objects import packed

pytestmark = pytest.mark.integration

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which its documentation prints."""

Put = Callable[[str, bytes], None]


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """A container `lake` of Azurite's, as the connection `lake`."""
    pytest.importorskip("adlfs", reason="tableferry[azure] is not installed")
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not installed: npm install -g azurite")
    from azure.storage.blob import BlobServiceClient

    command = [program, "--blobHost", "127.0.0.1", "--blobPort", "0", "--skipApiVersionCheck"]
    with subprocess.Popen(
        [*command, "--disableTelemetry", "--location", tmp_path],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = (re.search(r"listens on (\S+)", line) for line in process.stdout)
            url = next(one[1] for one in found if one)
            settings = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            settings += f"BlobEndpoint={url}/{ACCOUNT};"
            monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", settings)
            client = BlobServiceClient.from_connection_string(settings)
            container = client.create_container("lake")
            monkeypatch.setenv("TABLEFERRY_CONNECTION_LAKE", "az://lake/in")
            yield lambda name, data: container.upload_blob(name, data, overwrite=True) and None
        finally:
            process.terminate()


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """A bucket `lake` of an emulator's, as the connection `lake`."""
    if importlib.util.find_spec("gcsfs") is None:
        pytest.skip("tableferry[gcs] is not installed")
    emulator = pytest.importorskip("gcp_storage_emulator.server")
    # which asks by gRPC, and an emulator has none
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    server = emulator.create_server("127.0.0.1", 0, in_memory=True, default_bucket="lake")
    server.start()
    try:
        url = f"http://127.0.0.1:{server._api._httpd.server_port}"
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        bucket = storage.Client(project="test", credentials=AnonymousCredentials()).bucket("lake")
        monkeypatch.setenv(
            "TABLEFERRY_CONNECTION_LAKE", f"gs://lake/in?token=anon&endpoint_url={url}"
        )
        yield lambda name, data: bucket.blob(name).upload_from_string(data)
    finally:
        server.stop()


@pytest.mark.parametrize("store", ["azure", "google"])
def test_objects_move_are_skipped_and_followed(
    ferry: Callable[..., Ferry], request: pytest.FixtureRequest, store: str
) -> None:
    put: Put = request.getfixturevalue(store)

    def rows(first: int, count: int, **options: Any) -> bytes:
        ids = range(first, first + count)
        return packed({"id": list(ids), "name": [f"größe {one}" for one in ids]}, **options)

    put("in/orders/a.parquet", rows(0, 100))
    put("in/orders/day=1/big.parquet", rows(1000, 400, row_group_size=100))
    put("in/orders/torn.parquet", rows(2000, 10)[:-9])
    one = ferry(TO_CLICKHOUSE, source="postgres://public.x")
    lines = [f"transfer: {one.table}", "source: lake://orders/**/*.parquet"]
    lines += [f"hops: {TO_CLICKHOUSE.format(t=one.table)}", "ranges: {rows: 250}"]
    (one.folder / "t.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    stretches = [f"day=1/big.parquet#{n}" for n in ("0000000001..0000000201", "0000000201..")]
    view = reopened(one).run()
    assert "torn.parquet cannot be read" in "".join(view.errors)
    assert one.moved(view) == ["a.parquet", *stretches]
    assert held(one, "id, name")[-1] == (1399, "größe 1399")
    put("in/orders/torn.parquet", rows(2000, 10))
    put("in/orders/day=1/big.parquet", rows(1000, 50))
    view = one.run()
    assert view.good, view.errors
    assert one.moved(view) == ["day=1/big.parquet", "torn.parquet"]
    assert held(one, "count(), uniqExact(id)") == [(160, 160)]
    assert not one.run().run_ids and invoke("check", one.table, "--level", "full_hash")[0] == 0
