"""Each combination of extras that the README and the guide name, in an environment of its own.

All that a user of its routes types works there, chains included, or says beforehand which extra
it needs.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.guide import Block, blocks
from tests.integration.support import venvs
from tests.integration.support.guide_shell import environment
from tests.integration.support.looking import with_options
from tests.integration.support.project_shell import ProjectShell
from tests.servers import Servers, own

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 2_000


@dataclass(frozen=True)
class Combination:
    """Extras, and a chain that they allow."""

    extras: str
    hops: Sequence[str]
    """Where a table goes, `{name}` being a name that only this test uses."""
    source: str = "postgres://{name}.orders"
    more: str = ""
    """Further lines of the transfer."""

    def __str__(self) -> str:
        return self.extras or "base"


POSTGRES_CHAIN = ("postgres://{name}.once", "postgres://{name}.twice")
COMBINATIONS = [
    Combination("", POSTGRES_CHAIN),
    Combination("clickhouse", (*POSTGRES_CHAIN[:1], "clickhouse://warehouse.{name}")),
    Combination("sqlserver", ("sqlserver://dbo.{name}", *POSTGRES_CHAIN[:1])),
    Combination(
        "clickhouse,sqlserver,webserver",
        ("sqlserver://dbo.{name}", "clickhouse://warehouse.{name}", *POSTGRES_CHAIN[:1]),
    ),
    Combination("files", (*POSTGRES_CHAIN[:1], "files://{name}/copied/")),
    Combination(
        "clickhouse,files",
        ("clickhouse://warehouse.{name}", *POSTGRES_CHAIN[:1]),
        "files://{name}/*.parquet",
    ),
    Combination("digest,sqlserver", ("sqlserver://dbo.{name}", *POSTGRES_CHAIN[:1])),
    Combination(
        "expectations",
        POSTGRES_CHAIN,
        more="expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: id}}]\n",
    ),
    Combination("postgres-storage,kubernetes", POSTGRES_CHAIN),
]


@dataclass
class User(ProjectShell):
    """Somebody who types into a shell with an environment of their own."""

    name: str = ""

    def ferry(self, command: str) -> tuple[int, str]:
        """The exit code of a command, and what it prints on both streams."""
        code, printed = self.type(f"ferry {command}")
        assert "Traceback" not in printed, self.printed[-1]
        return code, printed

    def well(self, command: str) -> str:
        """What a command prints that ends with 0."""
        code, printed = self.ferry(command)
        assert code == 0, self.printed[-1]
        return printed

    def declare(self, declared: Combination) -> None:
        """Write the transfer `t`."""
        hops = ", ".join(f'"{hop}"' for hop in declared.hops).format(name=self.name)
        key = "" if declared.source.startswith("files:") else "key: id\n"
        (self.folder / "transfers" / "t.yaml").write_text(
            f"transfer: t\nsource: {declared.source.format(name=self.name)}\nhops: [{hops}]\n"
            f"{key}{declared.more}"
        )


def user_of(venv: Path, folder: Path, name: str, **variables: str) -> User:
    """A user with an environment, a folder, and a name for what is made on servers."""
    (folder / "transfers").mkdir(parents=True)
    given = environment(
        **variables,
        HOME=str(folder),
        TABLEFERRY_TRANSFERS=str(folder / "transfers"),
        DAGSTER_HOME=str(folder / "dagster"),
    )
    user = User(folder, given | {"PATH": os.pathsep.join([str(venv / "bin"), given["PATH"]])})
    user.name = name
    return user


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, in a folder of its own."""
    return venvs.build_wheel(tmp_path_factory.mktemp("wheel"))


Installs = Callable[[str], User]


@pytest.fixture
def install(stack: Servers, wheel: Path, tmp_path: Path) -> Iterator[Installs]:
    """Makes the environment of some extras, and a table of orders in PostgreSQL."""
    users: list[User] = []

    def make(extras: str) -> User:
        venv = tmp_path / "venv"
        venvs.make(venv, wheel, *([f"tableferry[{extras}]"] if extras else []))
        name = own(f"extras_{re.sub('[^a-z]', '_', extras) or 'base'}")
        reached = {
            variable: url
            for variable, url in stack.environment().items()
            if variable.split("_")[1].lower() in ("postgres", *extras.split(","))
        }
        if "digest" in extras:
            variable = "TABLEFERRY_SQLSERVER_URL"
            reached[variable] = with_options(reached[variable], digest_by="client")
        users.append(user_of(venv, tmp_path / "user", name, **reached))
        with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
            connection.execute(
                f"CREATE TABLE {name}.orders (id int PRIMARY KEY, customer text NOT NULL, "
                "amount numeric(12,2), placed timestamptz NOT NULL, note varchar(20))"
            )
            connection.execute(
                f"INSERT INTO {name}.orders SELECT n, 'customer ' || n %% 97, n / 4.0, "
                "timestamptz '2026-01-01 00:00:00+00' + n * interval '1 minute', "
                "nullif(repeat('x', n %% 5), '') FROM generate_series(1, %s) n",
                [ROWS],
            )
        return users[-1]

    yield make
    for user in users:
        print(*user.printed, sep="\n")
        user.close()
        _drop(stack, user.name)


def _drop(stack: Servers, name: str) -> None:
    from tableferry.resources.clickhouse.resource import ClickHouseResource
    from tableferry.resources.postgres.resource import PostgresResource
    from tableferry.resources.sqlserver.resource import SqlServerResource

    PostgresResource(url=stack.postgres_url).execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    SqlServerResource(url=stack.sqlserver_url).execute(f"DROP TABLE IF EXISTS dbo.{name}")
    ClickHouseResource(url=stack.clickhouse_url).execute(
        f"DROP TABLE IF EXISTS warehouse.{name} SYNC"
    )


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_what_its_routes_allow_works(
    install: Installs, stack: Servers, combination: Combination
) -> None:
    user = install(combination.extras)
    source, *hops = (
        part.format(name=user.name) for part in (combination.source, *combination.hops)
    )
    if source.startswith("files:"):
        _write_parquet(user, stack)
    elif not combination.more:
        targets = " ".join(f"--to {hop}" for hop in hops)
        tables = f"--tables {user.name}.orders"
        user.well(f"init --from postgres {tables} {targets} --chain --output {user.folder}/written")
        written = user.folder / "written/orders.yaml"
        shutil.move(written, user.folder / "transfers")
        user.well("validate orders")
        (user.folder / "transfers/orders.yaml").unlink()
    user.declare(combination)
    for command in ("doctor", "validate", "run t", "check t --level full_hash", "status t"):
        user.well(command)
    (key_range, *_) = re.findall(r"^\S+ +(\S+) +[\d,]+ +skip", user.well("plan t"), re.MULTILINE)
    user.well(f"diff t --range {key_range}")
    for form in ("md", "html", "json"):
        user.well(f"report t --format {form} --output {user.folder}/report.{form}")
    user.well(f"report --all --format html --output {user.folder}/all.html")
    user.well(f"compare {source} {hops[0]}")
    damaged = _damage(user, stack)
    code, said = user.ferry("check t")
    assert code == 1 and "FAILED" in said, said
    if damaged in hops and not source.startswith("files:"):
        code, said = user.ferry("repair t")
        if "expectations" in combination.extras:
            assert code == 1 and "expectations may be about all rows of a range" in said, said
        else:
            assert code == 0, said
    user.well("run t")
    user.well("check t")


def _write_parquet(user: User, stack: Servers) -> None:
    """The table of orders as a file, by pyarrow, which every environment has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with psycopg.connect(stack.postgres_url) as connection:
        rows = connection.execute(f"SELECT id, customer FROM {user.name}.orders").fetchall()
    ids, customers = zip(*rows, strict=True)
    (user.folder / user.name).mkdir()
    table = pa.table({"id": pa.array(ids, pa.int32()), "customer": customers})
    pq.write_table(table, user.folder / user.name / "orders.parquet")


def _damage(user: User, stack: Servers) -> str:
    """Change a value of the copy that is in PostgreSQL; every chain has one."""
    copy = f"{user.name}.once"
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"UPDATE {copy} SET customer = 'damaged' WHERE id = 7")
    return f"postgres://{copy}"


@pytest.mark.parametrize(
    ("declared", "extra"),
    [
        (Combination("", ("clickhouse://warehouse.{name}",)), "clickhouse"),
        (Combination("", ("sqlserver://dbo.{name}",)), "sqlserver"),
        (Combination("", ("files://{name}/",)), "files"),
        (Combination("", POSTGRES_CHAIN, "s3://{name}/*.parquet"), "s3"),
        (
            Combination(
                "",
                POSTGRES_CHAIN,
                more="expectations: [{type: expect_table_row_count_to_be_between, "
                "kwargs: {min_value: 1}}]\n",
            ),
            "expectations",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_is_missing_is_named_before_anything_moves(
    base: User, declared: Combination, extra: str
) -> None:
    base.declare(declared)
    for command, expected in (("validate", 2), ("doctor", 1), ("plan t", 2), ("run t", 2)):
        code, said = base.ferry(command)
        assert code == expected, base.printed[-1]
        assert f"pip install 'tableferry[{extra}]'" in said, base.printed[-1]


@pytest.fixture(scope="module")
def base(stack: Servers, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user whose environment has no extra."""
    folder, name = tmp_path_factory.mktemp("base"), own("extras_missing")
    venvs.make(folder / "venv", wheel)
    reached = stack.environment() | {"TABLEFERRY_CONNECTION_S3": f"s3://{name}"}
    user = user_of(folder / "venv", folder / "user", name, **reached)
    yield user
    print(*user.printed, sep="\n")
    user.close()


def test_the_first_chapter_can_be_typed(install: Installs, stack: Servers) -> None:
    page = blocks("first-table.md")
    user = install(_extras(page))
    try:
        for block in page:
            if problem := user.do(block):
                pytest.fail(problem)
        assert (user.folder / user.named("orders.html")).exists()
    finally:
        _drop(stack, user.named("shop"))
        _drop(stack, user.named("orders"))


def test_your_own_servers_in_ten_lines_can_be_typed(install: Installs, stack: Servers) -> None:
    """With addresses of this machine in the place of the README's."""
    page = [block for block in blocks("../README.md") if "pip install" in block.text]
    user = install(_extras(page))
    table, database = user.named("orders"), own("readme")
    with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
    postgres = urlsplit(stack.postgres_url)._replace(path=f"/{database}").geturl()
    given = {**stack.environment(), "TABLEFERRY_POSTGRES_URL": postgres}
    try:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, note text)")
            connection.execute(f"INSERT INTO {table} SELECT n, n FROM generate_series(1, 100) n")
        (block,) = page
        for command, _ in block.commands:
            if command.startswith("ferry dev"):
                _serves(user)
            elif url := re.match(r"export (TABLEFERRY_\w+_URL)=", command):
                user.environment[url[1]] = given[url[1]]
            elif not command.startswith("pip install"):
                code, printed = user.type(user.named(command))
                assert code == 0, f"{command}\n{printed}"
        assert "committed" in printed
    finally:
        with psycopg.connect(stack.postgres_url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)")
        _drop(stack, table)


def _extras(page: Sequence[Block]) -> str:
    """The extras that a page has its reader install."""
    found = (re.search(r"pip install 'tableferry\[([\w,]+)\]'", block.text) for block in page)
    named = next(filter(None, found))
    return named[1]


def _serves(user: User) -> None:
    """Start `ferry dev`, and wait until it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    output = user.folder / "dev.log"
    with output.open("w") as log:
        served = subprocess.Popen(
            ["ferry", "dev", "--port", str(port)],
            cwd=user.folder,
            env=user.environment,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 240
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info") as answer:
                    assert answer.status == 200
                return
            except OSError:
                assert served.poll() is None and time.monotonic() < deadline, output.read_text()
                time.sleep(0.5)
    finally:
        served.send_signal(signal.SIGINT)
        served.wait(60)
