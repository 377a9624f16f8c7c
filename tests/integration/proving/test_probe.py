"""The probe: constants through a server's expressions, and what is said of wrong results."""

from __future__ import annotations

import pytest

from tableferry.resources.clickhouse.resource import ClickHouseResource
from tableferry.resources.connecting.probe import Constant, probed, wrong_answers
from tableferry.resources.connecting.resource import ServerResource
from tableferry.resources.errors import ConnectionFailed
from tableferry.resources.postgres.resource import PostgresResource
from tableferry.resources.sqlserver.resource import SqlServerResource
from tests.servers import Servers

INTEGER = {"postgres": "bigint", "sqlserver": "bigint", "clickhouse": "Nullable(Int64)"}
DIVISION = {"postgres": "1 / {}", "sqlserver": "1 / {}", "clickhouse": "intDiv(1, {})"}


@pytest.fixture(params=["postgres", "sqlserver", "clickhouse"])
def server(request: pytest.FixtureRequest, stack: Servers) -> ServerResource:
    if request.param == "postgres":
        return PostgresResource(url=stack.postgres_url)
    if request.param == "sqlserver":
        return SqlServerResource(url=stack.sqlserver_url)
    return ClickHouseResource(url=stack.clickhouse_url)


def constant(
    server: ServerResource, expression: str, value: object, expected: str | None, what: str = "it"
) -> Constant:
    typed = f"CAST({value} AS {INTEGER[server.system_name]})"
    return Constant(what, expression, expected, (("x", typed),))


def test_right_results_are_believed(server: ServerResource) -> None:
    # ClickHouse computes both branches, and documents it
    division = "2" if server.system_name == "clickhouse" else "1 / x"
    constants = [
        *(constant(server, "x + 1", value, str(value + 1)) for value in (-5, 0, 2**62)),
        constant(server, "x + 1", "NULL", None),
        constant(server, f"CASE WHEN x = 0 THEN 7 ELSE {division} END", 0, "7"),
        Constant("no values", "1 + 1", "2"),
        Constant("a name", '"a""b" + 1', "2", (('a"b', "1"),))
        if server.system_name != "clickhouse"
        else Constant("a name", "`a\\`b` + 1", "2", (("a`b", "1"),)),
    ]
    assert wrong_answers(server, constants) == ()  # type: ignore[arg-type]


def test_a_wrong_result_is_named(server: ServerResource) -> None:
    constants = [
        constant(server, "x + 1", 1, "2"),
        constant(server, "x + 1", 2, "4", "the number two"),
        constant(server, "x + 1", "NULL", "1", "nothing"),
    ]
    found = wrong_answers(server, constants)  # type: ignore[arg-type]
    assert [str(one) for one in found] == [
        "the number two: should be '4', but '3' arrived",
        "nothing: should be '1', but NULL arrived",
    ]


def test_an_expression_that_fails_is_named_and_the_others_are_not(server: ServerResource) -> None:
    constants = [
        constant(server, "x + 1", 1, "2"),
        constant(server, DIVISION[server.system_name].format("x"), 0, "1", "a division"),
        Constant("no such function", "no_such_function(1)", "1"),
    ]
    found = wrong_answers(server, constants)  # type: ignore[arg-type]
    assert [one.what for one in found] == ["a division", "no such function"]
    assert server.system_name in found[0].actual


def test_a_single_expression_that_fails_is_not_asked_for_again(
    server: ServerResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Babelfish needs a second to read a digest."""
    asked: list[str] = []
    query = type(server).query  # type: ignore[attr-defined]
    monkeypatch.setattr(
        type(server), "query", lambda self, sql, **more: asked.append(sql) or query(self, sql)
    )
    constants = [constant(server, "no_such_function(x)", value, "1") for value in (1, 2)]
    found = wrong_answers(server, constants)  # type: ignore[arg-type]
    assert [server.system_name in one.actual for one in found] == [True, True]
    assert len(asked) == 1


def test_a_server_is_asked_once(server: ServerResource, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    query = type(server).query  # type: ignore[attr-defined]
    monkeypatch.setattr(
        type(server), "query", lambda self, sql, **more: asked.append(sql) or query(self, sql)
    )
    constants = [constant(server, "x * 3", 5, "15")]
    for _ in range(3):
        assert probed(server, "threes", constants) == ()
    assert len(asked) == 1
    assert probed(server, "threes", [constant(server, "x * 3", 5, "16")])
    assert len(asked) == 2


def test_a_server_that_is_away_is_no_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_PATIENCE_SECONDS", "0")
    away = PostgresResource(url="postgresql://nobody:none@127.0.0.1:1/none")
    for _ in range(2):
        with pytest.raises(ConnectionFailed):
            probed(away, "anything", [Constant("one", "1", "1")])
