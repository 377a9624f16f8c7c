"""Artifact files: bounded, hashed, private, and gone with their process."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tableferry.resources import artifacts
from tableferry.resources.artifacts import (
    ArtifactWriter,
    DiskFull,
    artifact_folder,
    most_bytes,
    workspace,
)
from tableferry.resources.errors import InputError, ReceiptMismatch


def test_an_artifact_knows_its_rows_bytes_and_hash(tmp_path: Path) -> None:
    writer = ArtifactWriter(tmp_path / "a", 100)
    writer.write(b"one\n", 1)
    writer.write(b"two\nthree\n", 2)
    artifact = writer.finish()
    assert (artifact.rows, artifact.bytes) == (3, 14)
    assert artifact.sha256 == hashlib.sha256(b"one\ntwo\nthree\n").hexdigest()
    artifact.require_whole()


@pytest.mark.parametrize("content", [b"one", b"", b"onf\n", b"one\n\n"])
def test_a_changed_artifact_is_noticed(tmp_path: Path, content: bytes) -> None:
    writer = ArtifactWriter(tmp_path / "a", 100)
    writer.write(b"one\n", 1)
    artifact = writer.finish()
    artifact.path.write_bytes(content)
    with pytest.raises(ReceiptMismatch, match="should have 4 bytes with SHA-256"):
        artifact.require_whole()


def test_a_removed_artifact_is_noticed(tmp_path: Path) -> None:
    artifact = ArtifactWriter(tmp_path / "a", 100).finish()
    artifact.path.unlink()
    with pytest.raises(ReceiptMismatch, match="is gone"):
        artifact.require_whole()


def test_a_workspace_is_private_and_goes_away(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), workspace(tmp_path / "x") as own:
        (own / "file").write_text("x")
        assert own.stat().st_mode & 0o777 == 0o700
        raise ZeroDivisionError
    assert list((tmp_path / "x").iterdir()) == []


def test_the_living_keep_their_workspaces(tmp_path: Path) -> None:
    with workspace(tmp_path) as one, workspace(tmp_path) as other:
        assert one.is_dir() and other.is_dir()
        assert artifacts.remove_orphans(tmp_path) == []


def test_the_next_call_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, pathlib\n"
        "from tableferry.resources.artifacts import workspace\n"
        f"with workspace(pathlib.Path({str(tmp_path)!r})) as own:\n"
        "    (own / 'data').write_bytes(b'x' * 1000)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=os.getcwd())
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("*/data"))) == 1
    with workspace(tmp_path) as own:
        assert {path.name for path in tmp_path.iterdir()} == {own.name, f"{own.name}.lock"}


def test_a_folder_that_cannot_be_made_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="artifact folder"), workspace(tmp_path / "file" / "x"):
        pass


def test_a_full_disk_names_folder_needed_and_free_bytes(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match=rf"{tmp_path}: \d+ bytes are needed, \d+ are free"):
        ArtifactWriter(tmp_path / "a", 1 << 60)
    assert list(tmp_path.iterdir()) == []


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(artifacts.FOLDER, "/a")
    monkeypatch.setenv(artifacts.BYTES, "12")
    assert (artifact_folder(), most_bytes()) == (Path("/a"), 12)
    monkeypatch.setenv(artifacts.BYTES, "1 GB")
    with pytest.raises(InputError, match="TABLEFERRY_ARTIFACT_BYTES should be a number of bytes"):
        most_bytes()
