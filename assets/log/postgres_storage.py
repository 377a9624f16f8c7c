"""Dagster's PostgreSQL storage, with the events of a range stored at once.

Commands use it where a home's dagster.yaml names Dagster's own, whose tables it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

from dagster._core.storage.config import PostgresStorageConfig
from dagster._serdes import ConfigurableClassData
from dagster_postgres import DagsterPostgresStorage, PostgresEventLogStorage
from dagster_postgres.utils import (
    create_pg_connection,
    get_token_provider_from_config,
    pg_url_from_config,
)
from sqlalchemy.engine import Connection

from tableferry.assets.log.grouping import GroupedEvents


class PostgresEventLog(GroupedEvents, PostgresEventLogStorage):
    """Events, each group of them in one transaction and by one connection."""

    def __init__(self, postgres_url: str, **options: Any) -> None:
        """Find the tables of a database, or make them."""
        GroupedEvents.__init__(self)
        PostgresEventLogStorage.__init__(self, postgres_url, **options)

    @contextmanager
    def begin(self, file: str) -> Iterator[Connection]:
        """A transaction for a group; by itself, each statement commits, as Dagster has it."""
        with create_pg_connection(self._engine) as connection:
            if not self.is_storing:
                yield connection
                return
            in_transaction = connection.execution_options(isolation_level="READ COMMITTED")
            with in_transaction.begin():
                yield in_transaction

    def _connect(self) -> AbstractContextManager[Connection]:
        return self.in_transaction("")


class Storage(DagsterPostgresStorage):
    """All of an instance's storages."""

    def __init__(
        self,
        postgres_url: str,
        should_autocreate_tables: bool = True,
        inst_data: ConfigurableClassData | None = None,
        token_provider: Any = None,
    ) -> None:
        """Find the tables of a database, or make them."""
        super().__init__(postgres_url, should_autocreate_tables, inst_data, token_provider)
        self._event_log_storage = PostgresEventLog(
            postgres_url,
            should_autocreate_tables=should_autocreate_tables,
            token_provider=token_provider,
        )

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> Storage:
        """Find the tables of the database that dagster.yaml names, or make them."""
        settings = cast(PostgresStorageConfig, config_value)
        return cls(
            pg_url_from_config(settings),
            config_value.get("should_autocreate_tables", True),
            inst_data,
            get_token_provider_from_config(settings),
        )
