"""What one node has been told or sent reaches the other, if there is one."""

from __future__ import annotations

import itertools
import json
import re
import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from pathlib import Path
from typing import Self

from tableferry_local import clickhouse
from tableferry_local.cluster.node import Answer, Node, NodeError
from tableferry_local.cluster.statements import (
    CLUSTER,
    REPLICATED,
    WORD,
    Statement,
    literal,
    quoted,
)
from tableferry_local.process import free_port

DDL_SECONDS = 180.0
"""How long DDL waits for the other node, by default."""

COPYING = {
    "deduplicate_insert": "disable",
    "insert_allow_materialized_columns": "1",
    "optimize_on_insert": "0",
}
"""Settings by which rows arrive as they were sent."""

MOST_PARTS = 10
"""How many parts of a partition stay as they are: whatever alters rows writes each of them anew."""

PARTS = ("PARTITION", "FROM")
"""Words of an ALTER that takes parts of another table, of which the node may have others."""


class Cluster:
    """The nodes, which run within its block.

    Args:
        folder: for their files.
        delay: seconds until a node has what the other was told or sent; may be changed.
        database_engine: `Atomic`, or `Replicated` if the stack's database stands for such a one.
        replicas: 2, or 1 as if the second node were stopped and taken out of the definition.
    """

    def __init__(
        self,
        folder: Path,
        *,
        delay: float = 0.0,
        database_engine: str = "Atomic",
        replicas: int = 2,
    ) -> None:
        self.password = secrets.token_hex(8)
        self.delay, self._database_engine = delay, database_engine
        ports = [free_port() for _ in range(replicas)]
        self.nodes = [Node(folder / f"node{i}", ports, i, self.password) for i in range(replicas)]
        self._ordering = threading.Lock()
        self._writing: dict[str, threading.RLock] = defaultdict(threading.RLock)
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
                if self._database_engine != "Atomic":
                    node.ask(
                        f"ALTER DATABASE {clickhouse.DATABASE} "
                        f"MODIFY COMMENT {literal(self._database_engine)}"
                    )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.close()

    def handle(
        self, node: Node, body: bytes, settings: Mapping[str, str], headers: Mapping[str, str]
    ) -> Answer:
        """Do with a statement that a node was sent what a cluster does."""
        statement = Statement.read(body)
        other = next((each for each in self.nodes if each is not node), None)
        try:
            defines = statement.kind in ("create", "ddl") and self._database_engine != "Atomic"
            if statement.on_cluster or defines:
                return self._defined(node, other, statement, settings, headers)
            replicated = ""
            if statement.kind in ("insert", "alter", "definition"):
                replicated = self._replicated(node, statement.table, settings)
            if replicated and statement.kind == "definition":
                statement = _definition(statement, settings)
            elif replicated:
                return self._written(node, other, replicated, statement, settings, headers)
            if statement.setting("select_sequential_consistency", settings) == "1":
                node.rows.wait()
        except NodeError as error:
            return error.answer
        return node.send(statement.body, settings, headers)

    def _defined(
        self,
        node: Node,
        other: Node | None,
        statement: Statement,
        settings: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> Answer:
        """Run DDL on both nodes, which get all of it in one order.

        That of a Replicated database gets to the other node only if it succeeds here.
        """
        if statement.kind == "create":
            statement = statement.with_uuid()
        body = statement.body
        with self._ordering:
            here = node.definitions.add(0, lambda: node.run(body, settings, headers))
            if not statement.on_cluster:
                here.result()
            there = other and other.definitions.add(
                self.delay, lambda: other.run(body, settings, headers)
            )
        if there:
            self._wait(there, statement, settings)
        answer = here.result()
        assert isinstance(answer, Answer)
        return answer

    def _wait(
        self, there: Future[object], statement: Statement, settings: Mapping[str, str]
    ) -> None:
        seconds = statement.setting("distributed_ddl_task_timeout", settings) or DDL_SECONDS
        try:
            there.result(float(seconds))
        except NotInTime:
            raise NodeError(
                500,
                "Code: 159. DB::Exception: Distributed DDL task is not finished on 1 of 2 hosts "
                f"in {seconds} seconds. (TIMEOUT_EXCEEDED)",
            ) from None

    def _written(
        self,
        node: Node,
        other: Node | None,
        identity: str,
        statement: Statement,
        settings: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> Answer:
        """Write to a replicated table, and have the other node do it later."""
        quorum = statement.setting("insert_quorum", settings)
        wanted = statement.kind == "insert" and quorum not in ("", "0", "1")
        if wanted and not (other and other.running):
            raise NodeError(
                500,
                "Code: 285. DB::Exception: Number of alive replicas (1) is less than requested "
                "quorum (2/2). (TOO_FEW_LIVE_REPLICAS)",
            )
        with self._writing[identity]:
            before = set(_parts(node, identity))
            answer = node.run(statement.body, settings, headers)
            after = _parts(node, identity)
            new = [part for part in after if part not in before]
            there = other and other.rows.add(
                self.delay, self._repetition(node, other, identity, statement, new, settings)
            )
            _merge(node, identity, after)
        syncs = ("alter_sync", "mutations_sync", "lightweight_deletes_sync")
        synced = statement.kind == "alter" and any(
            statement.setting(name, settings) == "2" for name in syncs
        )
        if there and (wanted or synced):
            there.result()
        return answer

    def _repetition(
        self,
        node: Node,
        other: Node,
        identity: str,
        statement: Statement,
        new: list[tuple[str, str]],
        settings: Mapping[str, str],
    ) -> Callable[[], object]:
        """What the other node does: take the rows of new parts, or run the statement itself."""
        head = statement.text[:2000]
        takes_parts = all(word in head for word in PARTS)
        if statement.kind == "insert" or takes_parts:
            replaces = takes_parts and " REPLACE PARTITION " in head
            partitions = {partition for partition, _ in new}
            copies = [(one, *_copied(node, identity, one, new)) for one in sorted(partitions)]

            def act() -> None:
                with self._writing[identity]:
                    for partition, columns, rows in copies:
                        self._put(other, identity, partition, columns, rows, replaces=replaces)
                    _merge(other, identity, _parts(other, identity))

        else:
            own = {name: value for name, value in settings.items() if name != "query_id"}

            def act() -> None:
                with self._writing[identity]:
                    if table := _name(other, identity):
                        other.run(statement.of(table).body, own)

        return act

    def _put(
        self,
        node: Node,
        identity: str,
        partition: str,
        columns: str,
        rows: bytes,
        *,
        replaces: bool,
    ) -> None:
        """Add rows to a table, or replace those of a partition at once."""
        if not (table := _name(node, identity)):
            return
        if not replaces:
            node.run(f"INSERT INTO {table} ({columns}) FORMAT Native\n".encode() + rows, COPYING)
            return
        taken = f"{CLUSTER}.`fetched{next(self._numbers)}`"
        node.ask(f"CREATE TABLE {taken} AS {table}")
        node.run(f"INSERT INTO {taken} ({columns}) FORMAT Native\n".encode() + rows, COPYING)
        node.ask(f"ALTER TABLE {table} REPLACE PARTITION ID {literal(partition)} FROM {taken}")
        node.ask(f"DROP TABLE {taken} SYNC")

    def _replicated(self, node: Node, table: str, settings: Mapping[str, str]) -> str:
        """The UUID of a table if it stands for a replicated one; else empty."""
        database, name = _split(table, settings)
        found = node.ask(
            "SELECT uuid FROM system.tables "
            f"WHERE database = {literal(database)} AND name = {literal(name)} "
            f"AND position(engine_full, {literal(REPLICATED)}) > 0"
        )
        return found.decode().strip()


def _definition(statement: Statement, settings: Mapping[str, str]) -> Statement:
    database, name = _split(statement.table, settings)
    return Statement.read(
        "SELECT formatQuery(create_table_query) AS statement FROM system.tables "
        f"WHERE database = {literal(database)} AND name = {literal(name)}".encode("latin-1")
        + (b" FORMAT Native" if statement.text.rstrip().endswith("FORMAT Native") else b"")
    )


def _split(table: str, settings: Mapping[str, str]) -> tuple[str, str]:
    """The database and the name of a table, as it is written in a statement."""
    *database, name = (
        re.sub(r"\\(.)", r"\1", word[1:-1]) if word[0] in '`"' else word
        for word in WORD.findall(table)
    )
    return (database or [settings.get("database", clickhouse.DATABASE)])[0], name


def _parts(node: Node, identity: str) -> list[tuple[str, str]]:
    """The partitions and the first block numbers of a table's parts."""
    sql = (
        "SELECT partition_id, min_block_number FROM system.parts WHERE active AND "
        "(database, table) IN (SELECT database, name FROM system.tables "
        f"WHERE uuid = {literal(identity)})"
    )
    return [(partition, number) for partition, number in _rows(node, sql)]


def _merge(node: Node, identity: str, parts: list[tuple[str, str]]) -> None:
    """Merge the parts of partitions with many, which the node does not do by itself."""
    for partition, count in Counter(partition for partition, _ in parts).items():
        if count > MOST_PARTS:
            node.ask(
                f"OPTIMIZE TABLE {_name(node, identity)} PARTITION ID {literal(partition)} FINAL"
            )


def _copied(
    node: Node, identity: str, partition: str, new: list[tuple[str, str]]
) -> tuple[str, bytes]:
    """The columns of a table, and the rows of its new parts of a partition."""
    names = _rows(
        node,
        "SELECT name FROM system.columns WHERE (database, table) IN "
        f"(SELECT database, name FROM system.tables WHERE uuid = {literal(identity)}) "
        "AND default_kind NOT IN ('ALIAS', 'EPHEMERAL')",
    )
    columns = ", ".join(quoted(name) for (name,) in names)
    numbers = ", ".join(number for one, number in new if one == partition)
    rows = node.ask(
        f"SELECT {columns} FROM {_name(node, identity)} "
        f"WHERE _partition_id = {literal(partition)} "
        f"AND toUInt64(splitByChar('_', _part)[2]) IN ({numbers}) FORMAT Native"
    )
    return columns, rows


def _name(node: Node, identity: str) -> str:
    """The present name of a table, quoted; empty if the node has no such table."""
    sql = f"SELECT database, name FROM system.tables WHERE uuid = {literal(identity)}"
    return "".join(".".join(map(quoted, row)) for row in _rows(node, sql))


def _rows(node: Node, sql: str) -> list[list[str]]:
    """Texts that a node answers with."""
    answer = node.ask(f"{sql} FORMAT JSONCompactStrings")
    rows: list[list[str]] = json.loads(answer.decode("latin-1"))["data"]
    return rows
