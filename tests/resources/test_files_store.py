"""Files lie below the root that a URL names, or the working directory; nothing leads out of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tableferry.resources.errors import InputError
from tableferry.resources.files.resource import FilesResource
from tableferry.resources.files.target import folder_problem
from tableferry.resources.tables import TableRef


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a link out of it and one within, and a file beside it."""
    (tmp_path / "root" / "in").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for place in ("root/in", "outside"):
        (tmp_path / place / "a.csv").write_text("a\n1\n")
    root = tmp_path / "root"
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "one").mkdir()
    (root / "one" / "a.csv").symlink_to(tmp_path / "outside" / "a.csv")
    (root / "within").symlink_to(root / "in")
    monkeypatch.chdir(root)
    return root


def names(resource: FilesResource, reference: str) -> list[str]:
    return [file.name for file in resource.files(TableRef.parse(f"files://{reference}"))]


@pytest.mark.parametrize("named", [True, False])
def test_nothing_leads_out_of_the_root(root: Path, named: bool) -> None:
    resource = FilesResource(url=root.as_uri() if named else None)
    assert names(resource, "in/*.csv") == names(resource, "within/*.csv") == ["a.csv"]
    assert names(resource, "i?/**/*.csv") == ["in/a.csv"]
    for reference in ("../outside/*.csv", "in/../../outside/*.csv", "in/../*.csv"):
        with pytest.raises(InputError, match=rf"should be below {root}, without '\.\.'"):
            names(resource, reference)
    for reference in ("out/*.csv", "one/*.csv", "o*/*.csv", "**/*.csv"):
        with pytest.raises(InputError, match=rf"is a link out of {root}, to {root.parent}/outside"):
            names(resource, reference)


def test_an_absolute_folder_is_a_root_where_no_url_names_one(root: Path) -> None:
    outside = root.parent / "outside"
    assert names(FilesResource(), f"{outside}/*.csv") == ["a.csv"]
    assert names(FilesResource(), f"{root}/out/*.csv") == ["a.csv"]
    assert names(FilesResource(url=root.as_uri()), f"{root}/in/*.csv") == ["a.csv"]
    with pytest.raises(InputError, match="should be below"):
        names(FilesResource(url=root.as_uri()), f"{outside}/*.csv")
    with pytest.raises(InputError, match="is a link out of"):
        names(FilesResource(), f"{root}/one/*.csv")


def test_folders_to_write_to_are_below_it_too() -> None:
    table = TableRef.parse("files://../exports/*.parquet")
    assert folder_problem(table) == "should be below its root, without '..'"
    assert folder_problem(TableRef.parse("files://exports/*.parquet")) is None


@pytest.mark.parametrize(
    ("log", "format"),
    [
        ("_delta_log/00000000000000000000.json", "Delta"),
        ("metadata/v1.metadata.json", "Iceberg"),
        (".hoodie/hoodie.properties", "Hudi"),
    ],
)
@pytest.mark.parametrize("pattern", ["orders/*.csv", "orders/**/*.csv", "*/d=1/*.csv", "**/*.csv"])
def test_files_of_a_table_format_are_no_rows(
    root: Path, log: str, format: str, pattern: str
) -> None:
    (root / "out").unlink()
    (root / "one/a.csv").unlink()
    (root / "orders/d=1").mkdir(parents=True)
    for name in ("orders/a.csv", "orders/d=1/a.csv"):
        (root / name).write_text("a\n1\n")
    assert names(FilesResource(), pattern)
    (root / "orders" / log).parent.mkdir()
    (root / "orders" / log).touch()
    said = f"files://{pattern}: {root}/orders is a table of {format}, whose files may hold"
    with pytest.raises(InputError, match=re.escape(said)):
        names(FilesResource(), pattern)
    assert names(FilesResource(), "in/*.csv") == ["a.csv"]


@pytest.mark.parametrize("name", ["readme.json", "a.metadata.json", "v1.metadata.json.bak"])
def test_a_folder_metadata_alone_is_no_table_format(root: Path, name: str) -> None:
    (root / "in/metadata").mkdir()
    (root / "in/metadata" / name).touch()
    assert names(FilesResource(), "in/*.csv") == ["a.csv"]


@pytest.mark.parametrize("name", ["00000-1f-2e.metadata.json", "v12.gz.metadata.json"])
def test_a_table_of_iceberg_is_known_by_its_metadata(root: Path, name: str) -> None:
    (root / "in/metadata").mkdir()
    (root / "in/metadata" / name).touch()
    with pytest.raises(InputError, match="is a table of Iceberg"):
        names(FilesResource(), "in/*.csv")


@pytest.mark.parametrize("named", [True, False])
def test_what_lies_above_the_root_is_not_looked_at(root: Path, named: bool) -> None:
    (root.parent / "_delta_log").mkdir()
    (root.parent / "_delta_log" / "00000000000000000000.json").touch()
    resource = FilesResource(url=root.as_uri() if named else None)
    assert names(resource, "in/*.csv") == ["a.csv"]
    with pytest.raises(InputError, match=f"{root.parent} is a table of Delta"):
        names(FilesResource(), f"{root.parent}/outside/*.csv")


@pytest.mark.parametrize(
    "folder", ["_temporary/0/task_1", "__magic_job-7/task_1", "d=1/_temporary"]
)
def test_files_that_no_job_has_committed_are_refused(root: Path, folder: str) -> None:
    (root / "in" / folder).mkdir(parents=True)
    (root / "in" / folder / "part-1.csv").write_text("a\n1\n")
    said = (
        f"{root}/in/{folder}/part-1.csv: the job that writes it (Spark, Hadoop) has not committed"
    )
    with pytest.raises(InputError, match=re.escape(said)):
        names(FilesResource(), "in/**/*.csv")
    assert names(FilesResource(), "in/*.csv") == ["a.csv"]
