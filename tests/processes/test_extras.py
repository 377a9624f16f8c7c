"""What an optional package's absence says, and to whom."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from tableferry.assets.declaring.transfer_files import load_transfers
from tableferry.assets.log.storage import open_instance
from tableferry.assets.planning.servers import Servers, require_servers
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.doctor import examine_machine
from tableferry.resources import extras
from tableferry.resources.clickhouse.server import ClickHouseServer
from tableferry.resources.contract.catalog import Finding
from tableferry.resources.digest import native
from tableferry.resources.errors import InputError
from tableferry.resources.files.server import FilesServer
from tableferry.resources.sqlserver.server import SqlServerServer

ROOT = Path(__file__).resolve().parents[2]
LACKING = "sys.modules.update(dict.fromkeys({modules!r}))"
"""Makes each of the modules one that cannot be imported."""
OPTIONAL = [module for modules in extras.MODULES.values() for module in modules]


CLIENT_DIGESTS = SqlServerServer(url="mssql://sa:s3cret@127.0.0.1:1/shop?digest_by=client")


@pytest.fixture
def base_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda module: False)


def test_every_module_is_brought_by_its_extra() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, modules in extras.MODULES.items():
        brought = " ".join(declared["optional-dependencies"][extra])
        for module in modules:
            if not module.startswith("compression."):
                assert module.replace("_", "-").replace(".", "-") in brought, (extra, module)


@pytest.mark.usefixtures("base_install")
@pytest.mark.parametrize(
    ("server", "says"),
    [
        (
            SqlServerServer(url="mssql://sa:s3cret@127.0.0.1:1/shop"),
            "SQL Server needs the package mssql-python: pip install 'tableferry[sqlserver]'",
        ),
        (
            ClickHouseServer(url="http://a:s3cret@127.0.0.1:1/warehouse"),
            "ClickHouse needs the package clickhouse-connect: pip install 'tableferry[clickhouse]'",
        ),
        (
            FilesServer(),
            "a folder of files needs the package duckdb: pip install 'tableferry[files]'",
        ),
    ],
)
def test_a_server_whose_driver_is_missing_names_the_extra(server: object, says: str) -> None:
    from tableferry.resources.sqlserver import connection

    connection.load_driver.cache_clear()
    with pytest.raises(InputError) as found:
        server.ping()  # type: ignore[attr-defined]
    assert str(found.value) == says


@pytest.mark.usefixtures("base_install")
def test_a_transfer_that_lacks_extras_is_refused_by_name_before_any_server_is_asked(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.yaml").write_text(
        "transfer: t\nsource: postgres://public.t\n"
        "hops: [sqlserver://dbo.t, clickhouse://warehouse.t]\nkey: id\n"
    )
    transfer = load_transfers(tmp_path).transfers["t"]
    with pytest.raises(InputError) as found:
        require_servers(transfer, Servers({"sqlserver": CLIENT_DIGESTS}))
    *_, driver, client, digest = str(found.value).splitlines()
    assert driver == (
        "transfer t: sqlserver://dbo.t needs the package mssql-python: "
        "pip install 'tableferry[sqlserver]'"
    )
    assert "clickhouse://warehouse.t needs" in client and "tableferry[clickhouse]" in client
    assert "digest_by=client of sqlserver" in digest and "'tableferry[digest]'" in digest


@pytest.mark.usefixtures("base_install")
def test_the_user_interface_names_its_extra(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "transfer: t\nsource: postgres://public.t\nhops: [clickhouse://warehouse.t]\nkey: id\n"
    )
    done = CliRunner().invoke(main, ["dev"], env={"TABLEFERRY_TRANSFERS": str(tmp_path)})
    assert done.exit_code == 2
    assert "ferry dev needs the package dagster-webserver: " in done.output
    assert "pip install 'tableferry[webserver]'" in done.output


@pytest.mark.usefixtures("base_install")
def test_a_storage_that_dagster_has_not_names_its_extra(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(
        "storage: {postgres: {postgres_url: 'postgresql://127.0.0.1/dagster'}}\n"
    )
    with pytest.raises(InputError, match=r"dagster-postgres: pip .*\[postgres-storage\]"):
        open_instance(tmp_path)


def test_all_modules_are_imported_without_the_optional_packages() -> None:
    """What a PostgreSQL user imports, and all that merely knows of the other systems."""
    names = [
        "tableferry." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for room in ("resources", "checks", "assets", "sensors", "pipelines")
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.stem not in ("__init__", "__main__")
    ]
    need_extras = {
        "tableferry.assets.log.postgres_storage",
        "tableferry.resources.digest.client",
        "tableferry.resources.wires.text_rows",
    }
    code = f"""
import sys
from importlib import import_module
{LACKING.format(modules=OPTIONAL)}
for name in {sorted({*names} - need_extras)!r}:
    import_module(name)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"TABLEFERRY_TRANSFERS": str(ROOT / "pipelines/transfers"), "DAGSTER_HOME": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_doctor_says_what_is_lost_without_the_extension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told() -> list[Finding]:
        findings = examine_machine(Servers({}), InputError("there is no folder"))
        return [finding for finding in findings if finding.subject == "digest"]

    monkeypatch.setattr(native, "extension", lambda: None)
    (finding,) = told()
    assert finding.state == "note" and "PostgreSQL reads rows twice" in finding.says
    assert finding.do == (native.REMEDY,)
    monkeypatch.setattr(native, "extension", lambda: hash)
    assert told() == []
