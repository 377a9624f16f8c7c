"""Which servers the bench measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tableferry.resources.errors import ConnectionFailed, InputError
from tableferry_bench.servers import VARIABLES, servers


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(f"{variable}_FILE", raising=False)


def secret(folder: Path, url: str) -> str:
    file = folder / "url"
    file.write_text(url + "\n")
    file.chmod(0o600)
    return str(file)


def test_a_file_names_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    url = secret(tmp_path, "postgresql://ferry@127.0.0.1:1/nowhere")
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL_FILE", url)
    monkeypatch.setenv("TABLEFERRY_CLICKHOUSE_URL", "http://127.0.0.1:1/default")
    with pytest.raises(ConnectionFailed, match="postgres"), servers(tmp_path):
        pass


def test_a_variable_and_a_file_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", "postgresql://ferry@127.0.0.1:1/nowhere")
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL_FILE", "/nowhere")
    with pytest.raises(InputError, match="both set"), servers(tmp_path):
        pass
