"""The set-up service of docker-compose.yml: what it makes is enough for Tableferry, and no more."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import clickhouse_connect
import psycopg
import pytest
from click.testing import CliRunner, Result
from clickhouse_connect.driver.exceptions import DatabaseError

from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.session import Session, open_session
from tableferry.resources.contract.markers import MARKERS
from tableferry.resources.sqlserver.resource import SqlServerResource
from tableferry_local.stack import Stack
from tests.integration.support.containers import ROOT, SERVICES, new_secrets, settings, warehouse

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROWS = {"airlines": 16, "airports": 1458, "planes": 3322, "weather": 26115, "flights": 336_776}


@dataclass(frozen=True)
class Prepared:
    """Servers on which the service has run, twice."""

    setup: dict[str, str]
    """Its environment."""
    product: dict[str, str]
    """The code server's environment."""
    printed: str


@pytest.fixture(scope="module")
def prepared(local_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    folder = tmp_path_factory.mktemp("compose")
    folder.chmod(0o711)
    secrets = new_secrets(folder)
    database = f"compose_{uuid.uuid4().hex[:8]}"
    postgres, sqlserver = urlsplit(local_stack.postgres_url), urlsplit(local_stack.sqlserver_url)
    with (
        psycopg.connect(local_stack.postgres_url, autocommit=True) as admin,
        warehouse(folder, secrets["clickhouse-ferry-password"]) as clickhouse,
    ):
        admin.execute(f"CREATE DATABASE {database}")  # as the image does for POSTGRES_DB
        places = {
            "postgres:5432/demo": f"{postgres.hostname}:{postgres.port}/{database}",
            "sqlserver:1433/tableferry": f"{sqlserver.hostname}:{sqlserver.port}/{database}",
            "clickhouse:8123": f"127.0.0.1:{clickhouse.port}",
        }
        product = settings("code-server", secrets, places)
        # the stand-in has no login but its own
        product["TABLEFERRY_SQLSERVER_URL"] = sqlserver._replace(path=f"/{database}").geturl()
        setup = settings("setup", secrets, places) | {
            "ADMIN_POSTGRES_URL": postgres._replace(path=f"/{database}").geturl(),
            "ADMIN_SQLSERVER_URL": sqlserver._replace(path="/master").geturl(),
            "ADMIN_CLICKHOUSE_URL": clickhouse.admin_url,
        }
        printed = run_setup(setup, folder)
        assert run_setup(setup, folder) == printed, "to repeat it changes nothing"
        yield Prepared(setup, product, printed)
        admin.execute(f"DROP DATABASE {database} WITH (FORCE)")
        admin.execute("DROP ROLE ferry")
    with SqlServerResource(url=setup["ADMIN_SQLSERVER_URL"]).connection() as connection:
        connection.execute(f"DROP DATABASE {database}")


def run_setup(environment: dict[str, str], folder: Path) -> str:
    """Run the service's program, with its URLs in files; returns what it prints."""
    program = SERVICES["setup"]["command"].replace(
        "python /opt/demo", f"{sys.executable} {ROOT}/docker"
    )
    given = {}
    for name, value in environment.items():
        file = folder / name
        file.write_text(value)
        file.chmod(0o600)
        given[f"{name}_FILE"] = str(file)
    done = subprocess.run(program.split(), env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.fixture
def session(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    """The shipped transfers on these servers."""
    for name, value in prepared.product.items():
        if name.startswith("TABLEFERRY_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(ROOT / "pipelines" / "transfers"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    session = open_session()
    yield session
    session.instance.dispose()


def test_what_it_prints_says_where_things_are_and_no_password(prepared: Prepared) -> None:
    assert f"{sum(ROWS.values()):,} rows" in prepared.printed
    for url in [*prepared.setup.values(), *prepared.product.values()]:
        password = urlsplit(url).password
        assert not password or password not in prepared.printed


def test_a_missing_setting_is_named(prepared: Prepared) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docker/setup/run.py"],
        env=prepared.setup | {"ADMIN_SQLSERVER_URL": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "setup: ADMIN_SQLSERVER_URL is not set\n"


def test_the_demo_moves_with_these_users(session: Session) -> None:
    servers = session.servers
    assert set(session.transfers) == {*ROWS, "flights_direct"}
    # the large table by its short way only
    for name in session.transfers.keys() - {"flights"}:
        view = runner.run(session, name)
        assert view.good, view.errors
        transfer = session.transfers[name]
        for table in transfer.tables:
            found = servers.endpoints[table.system_name].query(
                f"SELECT count(*) FROM {table.schema}.{table.name}"
            )
            assert found == [(ROWS[transfer.source.name],)], table
    assert servers.endpoints["postgres"].query("SELECT current_user") == [("ferry",)]
    assert servers.endpoints["clickhouse"].query("SELECT currentUser()") == [("ferry",)]


def test_the_doctor_finds_that_nothing_is_missing(session: Session) -> None:
    found = {one["name"]: one for one in json.loads(doctor().stdout)["servers"]}
    for name, tables in (("postgres", 5), ("clickhouse", 6)):
        (privileges,) = [one for one in found[name]["findings"] if one["subject"] == "privileges"]
        assert privileges["state"] == "ok", privileges
        assert privileges["says"] == f"ferry has what the transfers of {tables} tables need"
    disk = next(one for one in found["clickhouse"]["findings"] if one["subject"] == "disk")
    assert disk["state"] == "note", "ferry may not look at system.disks"


def test_the_doctor_says_what_clickhouse_lacks(
    session: Session, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clickhouse_connect.get_client(dsn=prepared.setup["ADMIN_CLICKHOUSE_URL"]) as admin:
        admin.command("CREATE DATABASE IF NOT EXISTS other")
    for number, database in enumerate(("other", "nowhere")):
        (tmp_path / f"{database}.yaml").write_text(
            f"transfer: t{number}\nsource: postgres://public.planes\nkey: id\n"
            f"hops: [clickhouse://{database}.planes]\n"
        )
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path))
    done = doctor()
    assert done.exit_code == 1
    assert "servers have problems: clickhouse" in done.stderr
    server = next(one for one in json.loads(done.stdout)["servers"] if one["name"] == "clickhouse")
    do = {one["subject"]: one["do"] for one in server["findings"] if one["state"] == "problem"}
    assert do["database"][-1] == "CREATE DATABASE `nowhere`;"
    assert "GRANT ALTER DELETE ON `other`.* TO `ferry`;" in do["privileges"]
    assert not any("system.parts" in one for one in do["privileges"]), "it has that"


def doctor() -> Result:
    return CliRunner().invoke(main, ["doctor", "--json"])


WAYS = {
    "append": "hops: [{{to: clickhouse://warehouse.{t}, wire: text}}]\nwrite: append",
    "upsert": "hops: [clickhouse://warehouse.{t}]\nwrite: upsert",
    "swap": "hops: [sqlserver://dbo.{t}, clickhouse://warehouse.{t}]\nwrite: swap",
    "own_partitions": ("hops: [{{to: clickhouse://warehouse.{t}, partition_by: id % 3}}]"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_writing_needs_no_more(
    session: Session, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"ways_{way}"
    (tmp_path / "t.yaml").write_text(
        f"transfer: {table}\nsource: postgres://public.airports\nkey: id\nranges: {{count: 2}}\n"
        f"reconcile: full_hash\n{WAYS[way].format(t=table)}\n"
    )
    monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(tmp_path))
    again = open_session()
    for force in (False, True):
        view = runner.run(again, table, force=force)
        assert view.good, view.errors
    runner.clean(again, [table])
    found = again.servers.endpoints["clickhouse"].query(f"SELECT count(*) FROM warehouse.{table}")
    assert found == [(ROWS["airports"],)]
    names = again.servers.endpoints["clickhouse"].query("SELECT name FROM system.tables")
    assert not [name for (name,) in names if "__ferry" in name and name != MARKERS]
    again.instance.dispose()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM airlines",
        "CREATE TABLE mine (id int)",
        "DROP TABLE airlines",
        "CREATE ROLE another",
        "CREATE DATABASE another",
    ],
)
def test_the_source_is_only_read(prepared: Prepared, statement: str) -> None:
    with psycopg.connect(prepared.product["TABLEFERRY_POSTGRES_URL"], autocommit=True) as ferry:
        ferry.execute("SET default_transaction_read_only = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ferry.execute(statement)  # type: ignore[arg-type]


def test_a_password_that_was_rotated_stays(prepared: Prepared, tmp_path: Path) -> None:
    old = prepared.product["TABLEFERRY_POSTGRES_URL"]
    rotated = urlsplit(old)._replace(netloc=f"ferry:new@{old.rpartition('@')[2].split('/')[0]}")
    with psycopg.connect(prepared.setup["ADMIN_POSTGRES_URL"], autocommit=True) as admin:
        admin.execute("ALTER ROLE ferry PASSWORD 'new'")
        try:
            run_setup(prepared.setup, tmp_path)
            psycopg.connect(rotated.geturl()).close()
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(old)
        finally:
            admin.execute(f"ALTER ROLE ferry PASSWORD '{urlsplit(old).password}'".encode())


def test_tables_that_come_later_are_read_too(prepared: Prepared) -> None:
    with psycopg.connect(prepared.setup["ADMIN_POSTGRES_URL"], autocommit=True) as admin:
        admin.execute("CREATE TABLE later AS SELECT 1 AS id")
        with psycopg.connect(prepared.product["TABLEFERRY_POSTGRES_URL"]) as ferry:
            assert ferry.execute("SELECT id FROM later").fetchall() == [(1,)]
        admin.execute("DROP TABLE later")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE DATABASE another",
        "DROP DATABASE warehouse",
        "CREATE TABLE other.t (a UInt8) ENGINE = MergeTree ORDER BY a",
        "SELECT * FROM other.secret",
        "SELECT * FROM system.users",
        "SELECT * FROM url('http://127.0.0.1:1/', 'TSV', 'a String')",
        "CREATE TABLE warehouse.t (a UInt8) ENGINE = File(TSV)",
        "CREATE USER another",
        "SYSTEM SHUTDOWN",
    ],
)
def test_the_loader_is_kept_to_its_database(prepared: Prepared, statement: str) -> None:
    with clickhouse_connect.get_client(dsn=prepared.setup["ADMIN_CLICKHOUSE_URL"]) as admin:
        admin.command("CREATE DATABASE IF NOT EXISTS other")
        admin.command(
            "CREATE TABLE IF NOT EXISTS other.secret (a UInt8) ENGINE = MergeTree ORDER BY a"
        )
    with (
        clickhouse_connect.get_client(dsn=prepared.product["TABLEFERRY_CLICKHOUSE_URL"]) as ferry,
        pytest.raises(DatabaseError, match="ACCESS_DENIED"),
    ):
        ferry.command(statement)
