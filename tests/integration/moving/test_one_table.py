"""One table under several names: its hops would replace each other's rows, and all be green."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.running import moving
from tableferry.pipelines.command.session import open_session
from tableferry.pipelines.definitions import build
from tests.integration.conftest import QUIET, Ferry
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, name text NOT NULL)",
    "INSERT INTO {t} SELECT i, 'first' FROM generate_series(1, 20) i",
)
SCHEMAS = {"postgres": "", "sqlserver": "dbo", "clickhouse": "warehouse"}


@pytest.fixture(autouse=True)
def postgres_schema(monkeypatch: pytest.MonkeyPatch, copies: str) -> None:
    monkeypatch.setitem(SCHEMAS, "postgres", copies)


def second_transfer(one: Ferry, hop: str) -> None:
    """Declare another transfer beside the first, of a source with other rows."""
    one.source(
        "CREATE TABLE {t}_other (LIKE {t} INCLUDING ALL)",
        "INSERT INTO {t}_other SELECT id + 100, 'second' FROM {t}",
    )
    lines = [
        f"transfer: {one.table}_other",
        f"source: postgres://public.{one.table}_other",
        f"hops: ['{hop}']",
        "key: id",
    ]
    (one.folder / "other.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    one.session = open_session()


def otherwise_named(one: Ferry, system: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Another connection to a system's server, by another host name."""
    url = {
        "postgres": one.stack.postgres_url,
        "sqlserver": one.stack.sqlserver_url,
        "clickhouse": one.stack.clickhouse_url,
    }[system]
    local = "localhost" if "127.0.0.1" in url else "127.0.0.1"
    here = "127.0.0.1" if local == "localhost" else "localhost"
    monkeypatch.setenv("TABLEFERRY_CONNECTION_ALIAS", url.replace(here, local))
    return "alias"


@pytest.fixture
def declared(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], tuple[Ferry, str]]:
    """Makes a transfer, and says by which other name its target can be reached."""

    def make(system: str) -> tuple[Ferry, str]:
        if system in ("files", "link"):
            one = ferry(f"['files://{tmp_path}/out/']", *TABLE)
            if system == "link":
                (tmp_path / "linked").symlink_to(tmp_path / "out")
                return one, f"files://{tmp_path}/linked/"
            monkeypatch.chdir(tmp_path)
            return one, "files://out/"
        if system == "case":
            one = ferry("['sqlserver://dbo.{t}']", *TABLE)
            return one, f"sqlserver://DBO.{one.table.upper()}"
        one = ferry(f"['{system}://{SCHEMAS[system]}.{{t}}']", *TABLE)
        alias = otherwise_named(one, system, monkeypatch)
        return one, f"{alias}://{SCHEMAS[system]}.{one.table}"

    return make


NAMES = [*SCHEMAS, "case", "files", "link"]


@pytest.mark.parametrize("system", NAMES)
def test_two_transfers_into_one_table_are_refused_by_every_command(
    declared: Callable[[str], tuple[Ferry, str]], system: str
) -> None:
    one, other = declared(system)
    second_transfer(one, other)
    both = (one.table, f"{one.table}_other")
    for name in both:
        for word in ("validate", "plan", "run", "adopt"):
            refused = command(word, name)
            assert refused.exit_code != 0, (word, refused.output)
            assert "are the same table" in refused.output, (word, refused.output)
            assert all(each in refused.output for each in both)
    refused = command("run", "--all")
    assert refused.exit_code != 0 and refused.output.count("are the same table") >= 2
    assert command("status").exit_code != 0


def names(one: Ferry, system: str, hop: str) -> set[str]:
    """The names that a target shows, whoever has put them there."""
    if system in ("files", "link"):
        folder = hop.removeprefix("files://")
        return set(pq.read_table(folder, columns=["name"])["name"].to_pylist())
    where = f"{SCHEMAS['sqlserver' if system == 'case' else system]}.{one.table}"
    server = one.session.servers.endpoints["sqlserver" if system == "case" else system]
    return {str(name) for (name,) in server.query(f"SELECT name FROM {where}")}


def launched(one: Ferry, name: str) -> Any:
    """A run of a transfer that Dagster starts, which knows of no other transfer."""
    targets = [asset_key(hop.to) for hop in one.session.transfer(name).hops]
    job = build().resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        instance=one.session.instance,
        asset_selection=targets,
        run_config=QUIET,
        raise_on_error=False,
    )


@pytest.mark.parametrize("system", NAMES)
def test_a_run_from_dagster_is_told_by_the_markers(
    declared: Callable[[str], tuple[Ferry, str]], system: str
) -> None:
    one, other = declared(system)
    second_transfer(one, other)
    assert launched(one, one.table).success
    hop = str(one.session.transfer(one.table).hops[0].to)
    before = names(one, system, hop.removesuffix("*.parquet"))
    refused = launched(one, f"{one.table}_other")
    assert not refused.success
    failure = next(event for event in refused.all_events if event.is_failure)
    assert "is written as" in str(failure.event_specific_data.error), failure
    assert names(one, system, hop.removesuffix("*.parquet")) == before == {"first"}
    assert launched(one, one.table).success
    assert command("status").exit_code != 0
    # the first is no more, and its table is given to the other
    (one.folder / "t.yaml").unlink()
    one.session = open_session()
    for word in ("validate", "run"):
        refused = command(word, f"{one.table}_other")
        assert refused.exit_code != 0 and hop in refused.output, refused.output
    assert command("clean", f"{one.table}_other", "--markers").exit_code == 0
    for file in Path(hop.removeprefix("files://")).parent.glob("*.parquet"):
        file.unlink()
    view = command("run", f"{one.table}_other", "--json")
    assert view.exit_code == 0, view.output
    assert "second" in names(one, system, hop.removesuffix("*.parquet"))


def test_two_hops_of_a_transfer_into_one_table_are_refused(ferry: Make) -> None:
    one = ferry("['sqlserver://dbo.{t}', 'sqlserver://dbo.{t}_']", *TABLE)
    for other in (one.table.upper(), one.table):
        one.declare(
            f"['sqlserver://dbo.{{t}}', 'clickhouse://warehouse.{{t}}', 'sqlserver://DBO.{other}']"
        )
        refused = command("run", one.table)
        assert refused.exit_code == 2 and "are the same table" in refused.output, refused.output


@pytest.mark.parametrize("system", SCHEMAS)
def test_markers_of_older_versions_are_taken_over_and_a_later_claim_is_seen(
    declared: Callable[[str], tuple[Ferry, str]], system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = declared(system)
    assert one.run().good
    server = one.session.servers.endpoints[system]
    beside = f"{SCHEMAS[system]}.__ferry_ranges"
    if system == "clickhouse":
        # those of other tests, which run meanwhile, stay
        claims = f"range = '' AND `table` LIKE '{one.table}%'"
        server.execute(f"ALTER TABLE {beside} DELETE WHERE {claims} SETTINGS mutations_sync = 2")
    else:
        server.execute(
            f"UPDATE {beside} SET range_name = '' WHERE range_hash = 'head'"
            f" AND target_name = '{one.table}'"
        )
    assert one.run(force=True).good
    claimed = f"{system}://{SCHEMAS[system]}.{one.table}"
    column = "token" if system == "clickhouse" else "range_name"
    assert claimed in {str(name) for (name,) in server.query(f"SELECT {column} FROM {beside}")}
    if system != "clickhouse":
        return

    def claims(point: str) -> None:
        if point == "before_export":
            server.execute(
                f"INSERT INTO {beside} (target, range, number, `table`, token) "
                "SELECT target, '', number + 1, `table`, 'late://claim.t' "
                f"FROM {beside} WHERE range = '' AND token = '{claimed}'"
            )

    one.source("UPDATE {t} SET name = 'changed'")
    monkeypatch.setattr(moving, "reached", claims)
    refused = one.run()
    assert not refused.good and "written as late://claim.t" in "".join(refused.errors)
    assert names(one, system, "") == {"first"}


@pytest.mark.parametrize("system", ["postgres", "sqlserver"])
def test_the_markers_of_a_table_of_before_a_restore_are_not_of_this_one(
    ferry: Callable[..., Ferry], copies: str, system: str
) -> None:
    """Tables of a restored database have other numbers, which may be those that others had."""
    schema = {"postgres": copies, "sqlserver": "dbo"}[system]
    hop = f"['{system}://{schema}.{{t}}']"
    rows = "INSERT INTO {t} VALUES (1, 'first')"
    one = ferry(hop, "CREATE TABLE {t} (id int PRIMARY KEY, name text)", rows)
    assert one.run().good
    server = one.session.servers.endpoints[system]
    server.execute(
        f"UPDATE {schema}.__ferry_ranges SET target_name = 'other', range_name = CASE range_hash "
        f"WHEN 'head' THEN '{system}://{schema}.other' ELSE range_name END "
        f"WHERE target_name = '{one.table}'"
    )
    one.source("UPDATE {t} SET name = 'second'")
    view = one.run()
    assert view.good, view.errors
    assert server.query(f"SELECT name FROM {schema}.{one.table}") == [("second",)]
    assert {each.state for each in one.plan().ranges} == {"skip"}
