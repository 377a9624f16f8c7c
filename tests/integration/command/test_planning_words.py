"""What a plan says of tables that it may not read, and of those that others inherit from."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tests.integration.conftest import Ferry
from tests.servers import own

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]


def test_who_may_not_read_a_schema_is_told_which_table_of_which_transfer(
    ferry: Make, copies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ferry("['clickhouse://warehouse.{t}']", "CREATE TABLE {t} (id integer PRIMARY KEY)")
    role = own("nobody")
    one.source(
        f"CREATE SCHEMA {copies}",
        f"CREATE TABLE {copies}.{{t}} (id integer PRIMARY KEY)",
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'",
    )
    url = urlsplit(one.stack.postgres_url)
    login = f"{role}:secret@{url.hostname}:{url.port}"
    monkeypatch.setenv("TABLEFERRY_POSTGRES_URL", url._replace(netloc=login).geturl())
    table = f"postgres://{copies}.{one.table}"
    one.declare("['clickhouse://warehouse.{t}']", source=table)
    try:
        for command in (["plan", one.table], ["run", "--all"]):
            refused = CliRunner().invoke(main, command)
            assert refused.exit_code in (1, 2)
            begins = f'ferry: {one.table}: {table}: "{role}" may not read it (SELECT)'
            assert begins in refused.stderr, refused.output
            for grant in (f'SELECT ON "{copies}"."{one.table}"', f'USAGE ON SCHEMA "{copies}"'):
                assert f'GRANT {grant} TO "{role}"' in refused.stderr
    finally:
        one.source(f"DROP ROLE {role}")


def test_a_parent_is_moved_with_its_children_and_without_a_primary_key(
    ferry: Make, copies: str
) -> None:
    one = ferry(
        f"['postgres://{copies}.{{t}}']",
        "CREATE TABLE {t} (id integer PRIMARY KEY, name text)",
        "CREATE TABLE {t}_child (more text) INHERITS ({t})",
        "INSERT INTO {t} VALUES (1, 'parent'), (2, 'parent')",
        "INSERT INTO {t}_child VALUES (2, 'child', 'x'), (3, 'child', 'y')",
    )
    try:
        (note,) = one.plan().notes
        assert f"{one.table}_child" in note and "the target gets none" in note
        view = one.run()
        assert view.good, view.errors
        copied = one.rows(f"SELECT id, name FROM {copies}.{{t}} ORDER BY 1, 2")
        assert copied == [(1, "parent"), (2, "child"), (2, "parent"), (3, "child")]
    finally:
        one.source("DROP TABLE {t}_child")
