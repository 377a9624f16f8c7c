"""A folder with one transfer, whose servers are down."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipelines.command_line import SECRET, TRANSFER


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken, but where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_port: int) -> Path:
    folder = tmp_path / "transfers"
    folder.mkdir()
    (folder / "orders.yaml").write_text(TRANSFER.format(hop="clickhouse://warehouse.orders"))
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(folder))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    at = f"u:{SECRET}@127.0.0.1:{closed_port}"
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", f"postgresql://{at}/db")
    monkeypatch.setenv("TABLEFERRY_CLICKHOUSE_URL", f"http://{at}/db")
    monkeypatch.setenv("TABLEFERRY_SQLSERVER_URL", f"mssql://{at}/db?encrypt=no")
    return folder
