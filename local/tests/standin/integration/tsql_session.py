"""The stand-in's engine without its wire: batches in, plain Python values out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg.pq as pq
from psycopg._py_transformer import Transformer

from tableferry_local.sqlserver.errors import SqlError
from tableferry_local.sqlserver.tsql.execution.engine import Engine
from tableferry_local.sqlserver.types.sqltype import ResultColumn


@dataclass
class Outcome:
    """What a batch yielded; also the sink that collects it."""

    results: list[list[tuple[Any, ...]]] = field(default_factory=list)
    metadata: list[list[ResultColumn]] = field(default_factory=list)
    errors: list[SqlError] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    counts: list[int | None] = field(default_factory=list)
    database_now: str = ""

    def columns(self, cols: list[ResultColumn]) -> None:
        self.metadata.append(cols)
        self.results.append([])

    def rows(self, chunk: pq.abc.PGresult) -> None:
        transformer = Transformer()
        transformer.set_pgresult(chunk)
        self.results[-1] += transformer.load_rows(0, chunk.ntuples, tuple)

    def done(self, rowcount: int | None, command: str) -> None:
        self.counts.append(rowcount)

    def info(self, number: int, message: str, severity: int = 0) -> None:
        self.messages.append(message)

    def error(self, error: SqlError) -> None:
        self.errors.append(error)

    def database(self, new: str, old: str) -> None:
        self.database_now = new

    @property
    def numbers(self) -> list[int]:
        """The errors' numbers."""
        return [error.number for error in self.errors]

    @property
    def last(self) -> list[tuple[Any, ...]]:
        """The last result's rows."""
        return self.results[-1]


class Session:
    """One engine."""

    def __init__(self, postgres_url: str) -> None:
        self.url = postgres_url
        self.engine = Engine(postgres_url, login="sa")

    def run(self, batch: str) -> Outcome:
        """Run a batch and collect everything."""
        outcome = Outcome()
        self.engine.execute(batch, outcome)
        return outcome

    def rows(self, batch: str) -> list[tuple[Any, ...]]:
        """The last result's rows; the batch must not fail."""
        outcome = self.run(batch)
        assert not outcome.errors, outcome.errors
        return outcome.last

    def one(self, expression: str) -> tuple[Any, ResultColumn]:
        """A scalar expression's value and description."""
        outcome = self.run(f"SELECT {expression} AS x")
        assert not outcome.errors, outcome.errors
        return outcome.last[0][0], outcome.metadata[0][0]
