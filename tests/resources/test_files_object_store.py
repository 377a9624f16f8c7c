"""What can be said of an object store before anybody asks it, and what its errors mean."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from botocore.exceptions import (
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.resources import extras
from tableferry.resources.connecting.names import system_of
from tableferry.resources.errors import InputError
from tableferry.resources.files import object_store
from tableferry.resources.files.object_store import ObjectStore, store_at
from tableferry.resources.files.resource import FilesResource
from tableferry.resources.files.store import Folder

DECLARED = """transfer: readings
source: lake://readings/*.parquet
hops: ["clickhouse://warehouse.readings"]
"""


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda module: module == "duckdb")


def test_urls_name_buckets_and_folders() -> None:
    found = store_at("s3://company-lake/raw%20data/2026/?endpoint_url=http://minio:9000&anon=true")
    assert isinstance(found, ObjectStore)
    assert (found.bucket, found.prefix) == ("company-lake", "raw data/2026")
    assert found.url == "s3://company-lake/raw data/2026"
    assert "minio" not in repr(found)
    assert store_at("s3://company-lake").url == "s3://company-lake"
    assert store_at("file:///srv/in") == Folder(Path("/srv/in"))
    assert store_at(None) == Folder(Path.cwd())
    settings = FilesResource(url="s3://company-lake/raw").settings()
    assert str(settings) == "files at s3://company-lake" and settings.database == "raw"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://key:secret@lake/raw", "credentials are those of the environment, as s3fs takes"),
        ("s3:///raw", "should look like file:///folder, s3://bucket/prefix"),
        ("ftp://host/raw", "should look like file:///folder, s3://bucket/prefix"),
        ("s3://[", "should look like file:///folder, s3://bucket/prefix"),
        ("s3://lake/raw?secret=secret", "has no option secret; there are endpoint_url, profile"),
    ],
)
def test_urls_that_name_none_are_refused_without_showing_them(url: str, said: str) -> None:
    with pytest.raises(InputError) as found:
        store_at(url)
    assert said in str(found.value) and "key:" not in str(found.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://lake/raw", "s3:// needs the package s3fs: pip install 'tableferry[s3]'"),
        ("gs://lake/raw", "gs:// needs the package gcsfs: pip install 'tableferry[gcs]'"),
        ("az://lake/raw", "az:// needs the package adlfs: pip install 'tableferry[azure]'"),
    ],
)
@pytest.mark.usefixtures("not_installed")
def test_a_package_that_is_missing_is_named_with_file_and_line(
    url: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_LAKE", url)
    assert system_of("lake").name == "files"
    (tmp_path / "t.yaml").write_text(DECLARED, encoding="utf-8")
    problems = [str(one) for one in load_transfers(tmp_path).invalid]
    assert len(problems) == 1
    assert "t.yaml:2" in problems[0] and said in problems[0]


def test_an_address_that_is_none_is_refused_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_LAKE", "s3://lake/raw?region=x")
    (tmp_path / "t.yaml").write_text(DECLARED, encoding="utf-8")
    (problem,) = (str(one) for one in load_transfers(tmp_path).invalid)
    assert "t.yaml:2" in problem and "a URL of s3:// has no option region" in problem


def test_a_store_as_target_is_refused_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLEFERRY_CONNECTION_LAKE", "s3://lake/raw")
    (tmp_path / "t.yaml").write_text(
        "transfer: out\nsource: postgres://public.x\nkey: id\nhops: ['lake://out/']\n"
    )
    (problem,) = (str(one) for one in load_transfers(tmp_path).invalid)
    assert (
        "t.yaml:4" in problem and "is in an object store, which is read, never written" in problem
    )
    with pytest.raises(InputError, match="s3://lake/raw is an object store"):
        _ = FilesResource(url="s3://lake/raw").root


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (EndpointConnectionError(endpoint_url="http://minio:9000/lake?key=secret"), True),
        (ReadTimeoutError(endpoint_url="http://minio:9000/lake?key=secret"), True),
        (ConnectionResetError("reset"), True),
        (TimeoutError(), True),
        (OSError(errno.EBUSY, "Please reduce your request rate."), True),
        (OSError(errno.EREMOTEIO, "We encountered an internal error."), True),
        (PermissionError("Access Denied"), False),
        (FileNotFoundError("lake/raw/a.csv"), False),
        (OSError(errno.EINVAL, "The authorization header is malformed"), False),
        (NoCredentialsError(), False),
    ],
)
def test_what_passes_by_itself_is_tried_again(error: Exception, transient: bool) -> None:
    found = object_store._failed("s3://lake/raw/a.csv", error)
    assert found.transient is transient
    assert str(found).startswith("files: s3://lake/raw/a.csv: ")
    assert "secret" not in str(found) and "lake?" not in str(found)
