"""Dagster's PostgreSQL storage, extended to store the events of a range in one transaction.

It is on the same tables, so that either may take the place of the other at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from dagster_postgres import DagsterPostgresStorage, PostgresEventLogStorage
from dagster_postgres.utils import get_token_provider_from_config, pg_url_from_config
from sqlalchemy.engine import Connection

from tableferry.assets.log.dagster_internals import ConfigurableClassData
from tableferry.assets.log.grouping import GroupedEvents


class PostgresEventLog(GroupedEvents, PostgresEventLogStorage):
    """An event log that stores each group in one transaction of one connection."""

    def __init__(self, postgres_url: str, **options: Any) -> None:
        """Open the tables of a database, creating them if need be."""
        GroupedEvents.__init__(self)
        PostgresEventLogStorage.__init__(self, postgres_url, **options)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Begin a transaction; without one, each statement commits, as in Dagster."""
        with super()._connect() as connection:
            in_transaction = connection.execution_options(isolation_level="READ COMMITTED")
            with in_transaction.begin():
                yield in_transaction

    def _connect(self) -> AbstractContextManager[Connection]:
        return self.joined(super()._connect)


class Storage(DagsterPostgresStorage):
    """All storages of an instance."""

    def __init__(
        self,
        postgres_url: str,
        should_autocreate_tables: bool = True,
        inst_data: ConfigurableClassData | None = None,
        token_provider: Any = None,
    ) -> None:
        """Open the tables of a database, creating them if need be."""
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
        """Open the tables of the database that dagster.yaml names."""
        settings: Any = config_value
        return cls(
            pg_url_from_config(settings),
            config_value.get("should_autocreate_tables", True),
            inst_data,
            get_token_provider_from_config(settings),
        )
