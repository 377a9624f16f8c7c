"""One question about many tables, asked ahead of the decision about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tableferry.resources.contract.looking_ahead import LookAhead, answer, groups
from tableferry.resources.errors import StatementFailed
from tableferry.resources.tables import TableRef

TABLES = [TableRef("postgres", schema, name) for schema in ("a", "b") for name in ("t", "u", "v")]


class Server:
    """A server whose catalog has a word about each table."""

    def __init__(self, tables: Sequence[TableRef] | None = None) -> None:
        self.words = {table: f"about {table}" for table in TABLES}
        self.asked: list[list[TableRef]] = []
        self.refuses_many = False
        self.ahead = None if tables is None else LookAhead(tables)


def words(server: Server, tables: Sequence[TableRef]) -> Mapping[TableRef, str]:
    server.asked.append(list(tables))
    if server.refuses_many and len(tables) > 1:
        raise StatementFailed("postgres", "too many")
    return {table: server.words[table] for table in tables if table in server.words}


def changed(server: Server) -> set[TableRef]:
    assert server.ahead is not None
    return server.ahead.changed(server)


def test_without_a_look_ahead_each_table_is_asked_about_alone() -> None:
    server = Server()
    assert [answer(server, words, table) for table in TABLES] == [*server.words.values()]
    assert server.asked == [[table] for table in TABLES]


def test_a_question_is_asked_once_per_schema_whichever_thread_needs_it() -> None:
    server = Server(TABLES)
    with ThreadPoolExecutor(4) as threads:
        answers = [*threads.map(lambda table: answer(server, words, table), TABLES * 5)]
    assert answers == [*server.words.values()] * 5
    assert server.asked == [TABLES[:3], TABLES[3:]]


def test_other_tables_are_asked_about_alone() -> None:
    server = Server(TABLES[:2])
    assert answer(server, words, TABLES[5]) == server.words[TABLES[5]]
    assert server.asked == [TABLES[5:]]


def test_the_catalog_may_know_nothing_of_a_table() -> None:
    server = Server(TABLES)
    del server.words[TABLES[1]]
    assert answer(server, words, TABLES[1]) is None
    assert answer(server, words, TABLES[2]) == server.words[TABLES[2]]
    assert len(server.asked) == 2


def test_a_question_that_is_refused_about_many_is_asked_about_each() -> None:
    server = Server(TABLES)
    server.refuses_many = True
    assert [answer(server, words, table) for table in TABLES] == [*server.words.values()]
    assert server.asked == [TABLES[:3], *([table] for table in TABLES)]
    assert changed(server) == set(), "each table was asked about at its turn"


def test_what_changed_meanwhile_is_told_by_table() -> None:
    server = Server(TABLES)
    answer(server, words, TABLES[0])
    assert changed(server) == set()
    server.words[TABLES[3]] = "another"
    del server.words[TABLES[4]]
    assert changed(server) == {TABLES[3], TABLES[4]}
    server.refuses_many = True
    assert changed(server) == set(TABLES), "nobody knows"


def test_names_that_a_server_may_take_for_one_are_asked_about_apart() -> None:
    named = [("a", "t"), ("a", "T"), ("b", "T"), ("a", "u"), ("a", "t")]

    def grouped(system: str) -> list[list[str]]:
        tables = [TableRef(system, schema, name) for schema, name in named]
        return [[f"{table.schema}.{table.name}" for table in group] for group in groups(tables)]

    assert grouped("postgres") == [["a.T", "a.t", "a.u"], ["b.T"]]
    assert grouped("sqlserver") == [["a.T", "a.u"], ["a.t"], ["b.T"]]
