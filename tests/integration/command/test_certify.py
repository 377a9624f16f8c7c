"""`ferry certify`: a whole path is certified; what is missing, cut or broken is told by name."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import Result

from tableferry.pipelines.certifying.site import Site
from tests.chance import chance
from tests.integration.conftest import table_name
from tests.integration.support import looking
from tests.integration.support.certifying import (
    DIRECT,
    Document,
    alone,
    break_product,
    certified,
    results,
    seen,
    set_servers,
    try_only,
)
from tests.integration.support.proxy import CutsAnswers
from tests.servers import Servers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

Certify = Callable[..., tuple[Result, Document]]


@pytest.fixture
def certify(stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Certify]:
    """Runs the command on the servers of the environment, see `certified`."""
    set_servers(stack, monkeypatch)
    with alone():
        yield lambda *options: certified(tmp_path / "out", *options)


def made_by_certifying(stack: Servers) -> list[looking.Row]:
    """The schemas and databases that certifications have made and not dropped, on all servers."""
    return [
        *looking.ask_postgres(
            stack.postgres_url, "SELECT nspname FROM pg_namespace WHERE nspname ~ 'ferry_certify'"
        ),
        *looking.ask_sqlserver(
            stack.sqlserver_url, "SELECT name FROM sys.schemas WHERE name LIKE 'ferry_certify%'"
        ),
        *looking.ask_clickhouse(
            stack.clickhouse_url, "SELECT name FROM system.databases WHERE name ~ 'ferry_certify'"
        ),
    ]


@pytest.mark.slow
def test_the_whole_path_is_certified_and_nothing_is_left(
    certify: Certify, stack: Servers, tmp_path: Path
) -> None:
    before = made_by_certifying(stack)
    result, document = certify("--rows", "200")
    assert result.exit_code == 0, result.output
    assert document["passed"] and document["rows"] == 200
    assert [server["system"] for server in document["servers"]] == [
        *("postgres", "sqlserver", "clickhouse")
    ]
    not_passed = {name for name, what in results(document).items() if what != "passed"}
    assert not_passed == {"restarted server"}, document
    assert len(document["types"]) > 40
    assert {phase["phase"] for phase in document["phases"]} >= {"export", "load", "finalise"}
    text = (tmp_path / "out" / "certificate.md").read_text(encoding="utf-8")
    page = (tmp_path / "out" / "certificate.html").read_text(encoding="utf-8")
    for name in results(document):
        assert name in text and name in page
    for secret in (*stack.environment().values(), "127.0.0.1"):
        assert secret not in text + page + json.dumps(document)
    assert made_by_certifying(stack) == before
    older = str(tmp_path / "out" / "certificate.json")
    result, newer = certified(tmp_path / "newer", *DIRECT, "--with-hosts", "--compare", older)
    assert result.exit_code == 0, result.output
    assert newer["compared_with"] == document["created_at"]
    change = "route: postgres -> sqlserver -> clickhouse became postgres -> clickhouse"
    assert change in newer["differences"]
    assert f"since {document['created_at']}: {change}" in result.stdout
    assert all(server["address"] for server in newer["servers"])


@pytest.mark.slow
@pytest.mark.parametrize("route", ["sqlserver:postgres", "clickhouse:sqlserver"])
def test_each_system_is_certified_as_a_source_and_as_a_target(
    certify: Certify, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    changes = ("changed row", "deleted row", "inserted row")
    names = ("types", *changes, f"damaged row in {route.partition(':')[2]}", "refused value")
    try_only(monkeypatch, *names)
    result, document = certify("--route", route, "--rows", "200")
    assert result.exit_code == 0, result.output
    not_passed = {name for name, what in results(document).items() if what != "passed"}
    assert not_passed <= {"refused value"}, document


@pytest.mark.slow
def test_one_that_is_interrupted_leaves_nothing(
    certify: Certify, stack: Servers, tmp_path: Path
) -> None:
    """Nor does the command leave anything that it was waiting for, in the midst of a load."""
    before = made_by_certifying(stack)
    options = ("certify", "--rows", "200", "--output", str(tmp_path / "out"))
    command = [sys.executable, "-m", "tableferry.pipelines.cli", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "passed: full run" in process.stderr.readline()
        while len(psutil.Process(process.pid).children()) == 0:
            time.sleep(0.05)
        time.sleep(chance("when it is interrupted").uniform(0, 3))
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert process.returncode == 1 and "is left" not in said, said
    assert not [*(tmp_path / "out").iterdir()], "no certificate of half of it"
    assert made_by_certifying(stack) == before


@pytest.fixture
def schema(stack: Servers) -> Iterator[str]:
    """A schema of the source and a database of ClickHouse, with a table of somebody's in each."""
    name = table_name()
    looking.ask_postgres(
        stack.postgres_url,
        f"CREATE SCHEMA {name}",
        f"CREATE TABLE {name}.theirs AS SELECT 1 AS id",
    )
    looking.run(stack, "clickhouse", f"CREATE DATABASE {name}")
    looking.run(
        stack,
        "clickhouse",
        f"CREATE TABLE {name}.theirs ENGINE = MergeTree ORDER BY id AS SELECT 1 AS id",
    )
    yield name
    looking.ask_postgres(stack.postgres_url, f"DROP SCHEMA {name} CASCADE")
    looking.run(stack, "clickhouse", f"DROP DATABASE {name} SYNC")


def tables(stack: Servers, schema: str) -> list[str]:
    """The tables of the schema and of the database."""
    source = looking.ask_postgres(
        stack.postgres_url, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"
    )
    target = looking.ask_clickhouse(
        stack.clickhouse_url, f"SELECT name FROM system.tables WHERE database = '{schema}'"
    )
    return sorted(str(name) for (name,) in (*source, *target))


@pytest.mark.slow
def test_a_login_that_may_only_read_is_certified_as_far_as_possible(
    certify: Certify, stack: Servers, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else makes the tables, by the statements that the command prints."""
    result, _ = certify(*DIRECT, "--schema", f"postgres={schema}", "--dry-run")
    assert result.exit_code == 0, result.output
    assert tables(stack, schema) == ["theirs", "theirs"], "a dry run sends nothing that writes"
    of_source = result.stdout.split("-- postgres: before the first run\n")[1].split("\n-- ")[0]
    looking.ask_postgres(stack.postgres_url, *of_source.split(";\n"))
    role = f"{schema}_reader"
    looking.ask_postgres(
        stack.postgres_url,
        f"CREATE ROLE {role} LOGIN PASSWORD 'reads'",
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
    )
    try:
        monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", login(stack.postgres_url, role, "reads"))
        result, document = certify(*DIRECT, "--schema", f"postgres={schema}")
    finally:
        looking.ask_postgres(stack.postgres_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    assert result.exit_code == 0, result.output
    impossible = {name for name, what in results(document).items() if what != "passed"}
    assert impossible == {
        *("changed row", "deleted row", "inserted row", "refused value", "restarted server")
    }, document
    assert "read only" in seen(document, "changed row")
    assert "read only" in document["notes"][0]
    assert "reads" not in [*document["failed_statements"][0].values()]
    assert tables(stack, schema) == ["certify_rows", "certify_types", "theirs", "theirs"]


@pytest.mark.slow
def test_a_dry_run_prints_every_statement_that_would_write(
    certify: Certify, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for those of `ferry run`, which `ferry run --dry-run` prints."""
    given = [f"--schema={name}={schema}" for name in ("postgres", "clickhouse")]
    printed = certify(*DIRECT, *given, "--dry-run")[0].stdout
    sent: list[str] = []
    execute = Site.execute

    def recorded(site: Site, sql: str) -> None:
        sent.append(sql)
        execute(site, sql)

    monkeypatch.setattr(Site, "execute", recorded)
    changes = ("changed row", "deleted row", "inserted row", "damaged row in clickhouse")
    try_only(monkeypatch, "types", *changes, "refused value", "two runs at once")
    result, _ = certify(*DIRECT, *given)
    assert result.exit_code == 0, result.output

    def general(sql: str) -> str:
        return re.sub(r"version = \d+", "version = N", sql)

    assert len(sent) > 20
    for sql in sent:
        assert general(sql) in general(printed)


@pytest.mark.slow
def test_logins_of_least_privilege_are_enough(
    certify: Certify, stack: Servers, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may work in one schema, and knows nothing of the other's."""
    connections = {"postgres": schema, "copies": f"{schema}_copies"}
    variables = {"postgres": "TABLEFERRY_POSTGRES_URL", "copies": "TABLEFERRY_CONNECTION_COPIES"}
    secret = "Least-1-privilege"
    looking.ask_postgres(stack.postgres_url, f"CREATE SCHEMA {connections['copies']}")
    try:
        for name, theirs in connections.items():
            looking.ask_postgres(
                stack.postgres_url,
                f"CREATE ROLE {theirs}_least LOGIN PASSWORD '{secret}'",
                f"GRANT USAGE, CREATE ON SCHEMA {theirs} TO {theirs}_least",
            )
            url = login(stack.postgres_url, f"{theirs}_least", secret)
            monkeypatch.setenv(variables[name], url)
        options = ("--route", "postgres:copies", "--rows", "200")
        refused, _ = certify(*options)
        given = [f"--schema={name}={theirs}" for name, theirs in connections.items()]
        result, document = certify(*options, *given)
        left = tables(stack, schema) + tables(stack, connections["copies"])
    finally:
        for theirs in connections.values():
            looking.ask_postgres(
                stack.postgres_url, f"DROP OWNED BY {theirs}_least", f"DROP ROLE {theirs}_least"
            )
        looking.ask_postgres(stack.postgres_url, f"DROP SCHEMA {connections['copies']} CASCADE")
    assert refused.exit_code == 2
    for name in connections:
        assert f"{name}: no schema can be made" in refused.stderr
        assert f"--schema {name}=NAME" in refused.stderr
    assert result.exit_code == 0, result.output
    not_passed = {name for name, what in results(document).items() if what != "passed"}
    assert not_passed <= {"restarted server", "refused value"}, document
    assert "not needed: nothing" in seen(document, "least privilege")
    assert secret not in json.dumps(document)
    assert left == ["theirs", "theirs", "__ferry_ranges"] or left == ["theirs", "theirs"]


@pytest.mark.slow
def test_a_way_that_cuts_connections_is_no_obstacle(
    certify: Certify, stack: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CutsAnswers(stack.clickhouse_url, b"REPLACE PARTITION", 3) as proxy:
        monkeypatch.setenv("TABLEFERRY_CLICKHOUSE_URL", proxy.url)
        result, document = certify(*DIRECT)
    assert proxy.cut == 3
    assert result.exit_code == 0, result.output
    assert document["passed"]


FAULTS = {
    "damaged row in clickhouse": """
from tableferry.checks.verdict import Verdict

judge = Verdict.__init__

def blind(self, *given, **named):
    judge(self, *given, **named)
    object.__setattr__(self, "passed", True)

Verdict.__init__ = blind
""",
    "changed row": """
from tableferry.resources.clickhouse.server import ClickHouseServer

execute = ClickHouseServer.execute

def adding(self, sql, *given, **named):
    return execute(self, sql.replace("REPLACE PARTITION", "ATTACH PARTITION"), *given, **named)

ClickHouseServer.execute = adding
""",
    "killed after the export into clickhouse": """
from tableferry.resources import crash_points

crash_points.reached = lambda point: None
""",
}
"""What breaks the product, by a scenario that has to find it."""


@pytest.mark.parametrize("scenario", FAULTS)
def test_a_broken_product_is_found_and_the_scenario_named(
    certify: Certify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    """The commands that are run are broken as they start."""
    break_product(tmp_path / "fault", monkeypatch, FAULTS[scenario])
    try_only(monkeypatch, scenario)
    result, document = certify(*DIRECT)
    assert result.exit_code == 1
    assert results(document)[scenario] == "failed"
    assert f"ferry: {scenario}: expected: " in result.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--route", "postgres"], "a route has two connections or more"),
        (["--route", "postgres:files"], "files cannot be certified"),
        (["--source", "postgresql://x@y/z"], "give --source with --target"),
        (["--schema", "elsewhere=x"], "--schema elsewhere: it should be CONNECTION=NAME"),
        (["--compare", __file__], "it is no certificate"),
        (["--output", f"{__file__}/folder"], "Not a directory"),
    ],
)
def test_what_cannot_be_certified_is_refused_in_a_line(
    certify: Certify, options: list[str], why: str
) -> None:
    result, document = certify(*options)
    assert result.exit_code == 2 and not document
    assert why in result.stderr and "passed: " not in result.stderr, "before anything is tried"


def login(url: str, user: str, password: str) -> str:
    """The URL for another login."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{user}:{password}@{rest.rpartition('@')[2]}"
