"""Errors of PostgreSQL's drivers, as messages."""

from __future__ import annotations

import psycopg
import pytest

from tableferry.resources.connecting.address import parse_url
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import RowsHidden, SnapshotLost, StatementFailed
from tableferry.resources.postgres.errors import broke, connection_failed, statement_failed
from tableferry.resources.postgres.system import SYSTEM

SECRET = "s3cret"


@pytest.fixture
def settings() -> ConnectionSettings:
    return parse_url(SYSTEM, f"postgresql://ann:{SECRET}@db:5432/shop")


@pytest.mark.parametrize(
    ("text", "message", "transient"),
    [
        (
            'connection to server at "::1", port 1 failed: Connection refused\n\tIs the server '
            'running?\nconnection to server at "127.0.0.1", port 1 failed: Connection refused\n',
            "Connection refused",
            True,
        ),
        ('connection failed: FATAL:  database "x" does not exist', 'database "x" does', False),
        (f'connection failed: FATAL:  password authentication failed {SECRET}"', "***", False),
        ("timeout expired", "timeout expired", True),
        ("failed to resolve host 'x': [Errno -2] Name or service not known", "not known", False),
        (
            "failed to resolve host 'x': [Errno -3] Temporary failure in name resolution",
            "Temporary failure",
            True,
        ),
        (
            'could not translate host name "x" to address: Temporary failure in name resolution',
            "Temporary failure",
            True,
        ),
    ],
)
def test_a_failed_connection_is_told_in_one_line(
    settings: ConnectionSettings, text: str, message: str, transient: bool
) -> None:
    error = connection_failed(settings, psycopg.OperationalError(text))
    assert message in str(error) and "\n" not in str(error) and SECRET not in str(error)
    assert str(error).count(message) == 1
    assert error.transient is transient


def test_a_failed_statement_is_told_without_hints_and_queries(
    settings: ConnectionSettings,
) -> None:
    text = 'ERROR:  column "x" does not exist\nLINE 1: SELECT x\nHINT:  Perhaps y.'
    error = statement_failed(settings, OSError(f"[libpq] {text}"))
    assert isinstance(error, StatementFailed)
    assert 'column "x" does not exist' in str(error)
    assert "LINE" not in str(error) and "HINT" not in str(error)
    assert broke(error), "an error without an SQLSTATE is libpq's own"
    detailed = "ERROR: a\nDETAIL: b\nSQLSTATE: 23505"
    error = statement_failed(settings, OSError(detailed))
    assert isinstance(error, StatementFailed) and "a b" in str(error)
    assert error.code == "23505" and not broke(error)


def test_what_has_a_type_of_its_own(settings: ConnectionSettings) -> None:
    lost = psycopg.errors.UndefinedObject('snapshot "1-2-3" does not exist')
    assert isinstance(statement_failed(settings, lost, "1-2-3"), SnapshotLost)
    assert isinstance(statement_failed(settings, lost), StatementFailed)
    policy = 'query would be affected by row-level security policy for table "a""b"'
    hidden = statement_failed(settings, psycopg.errors.InsufficientPrivilege(policy))
    assert isinstance(hidden, RowsHidden) and 'table "a""b"' in str(hidden)
    assert 'ALTER ROLE "ann" BYPASSRLS' in str(hidden)
