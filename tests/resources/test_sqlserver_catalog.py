"""What SQL Server's catalog says of columns that the stand-in cannot have.

The rows are as the documentation of sys.columns has them, as no such server is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tableferry.resources.columns.planner import incompatibility, plan_copy
from tableferry.resources.errors import TypeRefused
from tableferry.resources.registry import system
from tableferry.resources.sqlserver import anew
from tableferry.resources.sqlserver.catalog import COLUMNS, FLAGS, MASKED, PRIMARY_KEYS, columns_of
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

TABLE = TableRef.parse("sqlserver://dbo.people")
TARGET = TableRef.parse("clickhouse://warehouse.people")


def ask(flags: Sequence[Sequence[Any]], masked: Sequence[Sequence[Any]] = ()) -> Any:
    """Answer as a server with a table of four columns."""
    columns = [
        (0, "id", "int", None, 10, 0, None, "NO", None),
        (0, "ssn", "nvarchar", 11, None, None, None, "YES", "Latin1_General_BIN2"),
        (0, "salary", "decimal", None, 9, 2, None, "YES", None),
        (0, "valid_from", "datetime2", None, None, None, 6, "NO", None),
    ]
    answers = {COLUMNS: columns, FLAGS: flags, MASKED: masked}
    answers[PRIMARY_KEYS] = [(0, "id", 1)]

    def answer(sql: str) -> Sequence[Sequence[Any]]:
        parts = {query.partition("{number}")[2][:60]: rows for query, rows in answers.items()}
        (of,) = [rows for part, rows in parts.items() if part in sql]
        return of

    return answer


def columns(*given: Any) -> dict[str, Column]:
    return {column.name: column for column in columns_of(ask(*given), [TABLE])[TABLE]}


ENCRYPTED = [(0, "ssn", False, 0, 1, False)]
HIDDEN = [(0, "salary", False, 0, 0, True)]
PERIOD = [(0, "valid_from", False, 1, 0, False)]


@pytest.mark.parametrize(
    ("given", "name", "why"),
    [
        ((ENCRYPTED,), "ssn", "Always Encrypted"),
        ((HIDDEN, [(0, "salary")]), "salary", "GRANT UNMASK"),
    ],
)
def test_columns_that_arrive_otherwise_are_refused_by_name(given: Any, name: str, why: str) -> None:
    there = columns(*given)
    with pytest.raises(TypeRefused, match=why) as refused:
        plan_copy(TABLE, list(there.values()), TARGET, key="id")
    assert list(refused.value.problems) == [name]
    plan_copy(TABLE, list(there.values()), TARGET, key="id", exclude=[name])
    as_text = columns([])[name]
    assert incompatibility(system("sqlserver"), as_text, there[name]), "as a target, too"


def test_a_mask_that_the_login_may_lift_is_no_obstacle() -> None:
    assert columns(HIDDEN)["salary"] == columns([])["salary"]


def test_a_period_of_a_temporal_table_is_the_servers_to_fill() -> None:
    there = columns(PERIOD)
    assert there["valid_from"].generated and not there["id"].generated
    wanted = columns([])["valid_from"]
    assert incompatibility(system("sqlserver"), wanted, there["valid_from"])
    plan_copy(TABLE, list(there.values()), TARGET, key="id")


def test_a_lost_primary_key_is_not_mended_by_a_right_to_see_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def query(sql: str) -> list[tuple[str, ...]]:
        if sql == anew.UNSEEN:
            return [("loader",)]
        return [("pk_people", "ssn")] if "x.is_primary_key = 1" in sql else []

    monkeypatch.setattr(anew, "is_babelfish", lambda endpoint: False)
    plan = plan_copy(TARGET, [Column("id", "Int64", False, primary_key=1)], TABLE, key="id")
    server: Any = SimpleNamespace(query=query)
    remedies = {hazard.kind: hazard.remedy for hazard in anew.lost(server, plan)}
    assert remedies["permissions and"].startswith("GRANT VIEW DEFINITION")
    assert remedies["primary key"].startswith("Drop it, run, and add it again")
