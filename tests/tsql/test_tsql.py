"""Microsoft's parser, and what is looked for besides it."""

from __future__ import annotations

import pytest

from tests.tsql.__main__ import SCRIPT, judge, written

pytestmark = pytest.mark.slow


def nested(depth: int) -> str:
    """CASE within CASE."""
    return f"BEGIN TRANSACTION; SELECT {'CASE WHEN 1 = 1 THEN ' * depth}1{' END' * depth}; COMMIT"


WRONG = [
    ("SELECT 1; SELEC 1 FROM t", True, "SELEC"),
    (
        "CREATE SCHEMA mine AUTHORIZATION ferry;\nGRANT INSERT TO ferry",
        False,
        "GRANT",
    ),
    ('DELETE FROM "dbo"."t"', False, "dbo"),
    (nested(11), True, "11 deep"),
    ("SELECT CAST(N'1.5E-7' AS decimal(9, 8))", True, "exponent"),
    ("SELECT CAST(1E3 AS bigint)", True, "exponent"),
]
RIGHT = [
    ('DELETE FROM "dbo"."t"', True),
    (f'{SCRIPT}; DELETE FROM "dbo"."t" WHERE a = N\'\uffff\'', False),
    (f"IF 1 = 1 BEGIN {nested(10)} END", True),
    ("SELECT CAST(1.5E-7 AS float), CAST(0.1 AS decimal(9, 8))", True),
]


def test_what_sql_server_refuses_is_found() -> None:
    found = judge([(str(at), text, quoted) for at, (text, quoted, _) in enumerate(WRONG)])
    assert len(found) == len(WRONG), found
    for said, (*_, why) in zip(found, WRONG, strict=True):
        assert why in said.splitlines()[0]
    assert judge([("right", *script) for script in RIGHT]) == []


def test_what_the_guide_and_the_setup_tell_others_to_run_is_right() -> None:
    scripts = [*written()]
    assert len(scripts) == 4
    assert judge(scripts) == []
