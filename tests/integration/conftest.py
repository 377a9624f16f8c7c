"""A transfer on the servers, run as the command line runs it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.session import Session, open_session
from tableferry.pipelines.command.show.range_views import RangeView, TransferView
from tableferry.pipelines.command.show.views import PlannedRange, PlanView
from tableferry.pipelines.definitions import build
from tableferry.resources import registry
from tableferry.resources.contract import facts
from tableferry.resources.registry import registered
from tests.integration.support import looking
from tests.integration.support.untouched import refusals_touch_nothing
from tests.servers import SQLSERVER, Servers, named, own

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run config: nothing is logged to the console."""


@dataclass
class Ferry:
    """One declared transfer `t` of a source table of its own, and what can be done with it."""

    stack: Servers
    folder: Path
    table: str
    session: Session

    def declare(self, hops: str, **settings: Any) -> None:
        """Write the transfer's file; settings are lines of YAML."""
        lines = [f"transfer: {self.table}", f"hops: {hops.format(t=self.table)}"]
        given = {"source": f"postgres://public.{self.table}", "key": "id", **settings}
        lines += [f"{key}: {value}" for key, value in given.items()]
        (self.folder / "t.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.session.instance.dispose()
        self.session = open_session()

    def source(self, *statements: str) -> None:
        """Run statements on the source; `{t}` is the table."""
        looking.ask_postgres(
            self.stack.postgres_url, *(one.format(t=self.table) for one in statements)
        )

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the source."""
        return looking.ask_postgres(self.stack.postgres_url, sql.format(t=self.table))

    def run(self, **options: Any) -> TransferView:
        """`ferry run`."""
        return runner.run(self.session, self.table, **options)

    def launch(
        self, definitions: dg.Definitions | None = None, **options: Any
    ) -> dg.ExecuteInProcessResult:
        """What Dagster runs for a request of the transfer's assets; `options` of the run."""
        targets = [asset_key(hop.to) for hop in self.session.transfer(self.table).hops]
        job = (definitions or build()).resolve_implicit_global_asset_job_def()
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        options = {"asset_selection": targets, "run_config": quiet, **options}
        return job.execute_in_process(instance=self.session.instance, **options)

    def plan(self) -> PlanView:
        """`ferry plan`."""
        return runner.plan(self.session, self.table)

    def moved(self, view: TransferView) -> list[str]:
        """Ranges that a run moved, each once, whatever the hop."""
        return sorted({one.range for one in view.ranges if one.state == "committed"})

    def materializations(
        self, system: str, schema: str, *, after: int | None = None
    ) -> dict[str, int]:
        """How often each range was moved into a target, as the event log has it.

        Args:
            system: the target's.
            schema: the target's.
            after: count later events than the one of this storage id.
        """
        asset = dg.AssetKey([system, schema, self.table])
        wanted = dg.AssetRecordsFilter(asset_key=asset, after_storage_id=after)
        found: dict[str, int] = {}
        for record in self.session.instance.fetch_materializations(wanted, limit=1000).records:
            event = record.asset_materialization
            if event is not None and event.metadata["tableferry/state"].value == "committed":
                found[str(event.partition)] = found.get(str(event.partition), 0) + 1
        return found


def by_range(view: TransferView | PlanView, hop: int = 1) -> dict[str, RangeView | PlannedRange]:
    """The ranges of one hop by name."""
    return {one.range: one for one in view.ranges if one.hop == hop}


@pytest.fixture(scope="session")
def second_digits(mssql_url: str) -> int:
    """How many digits of a second the SQL Server keeps."""
    return looking.second_digits(mssql_url)


@pytest.fixture(scope="session")
def text_into_sqlserver(stack: Servers) -> None:
    """That `wire: text` gets into the SQL Server: one that the environment names is asked first."""
    if not (shutil.which("freebcp") or shutil.which("bcp")):
        pytest.skip("neither freebcp (Debian package freetds-bin) nor bcp is installed")
    if named(SQLSERVER) and (why := looking.no_text_into_sqlserver(stack)):
        pytest.skip(f"this server does not take what the installed bcp sends: {why}")


@pytest.fixture
def ferry(
    stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Ferry]]:
    """Makes the one transfer of a test, on a Dagster instance of its own."""
    made: list[Ferry] = []

    def make(hops: str, *statements: str, **settings: Any) -> Ferry:
        folder = tmp_path / "transfers"
        folder.mkdir(exist_ok=True)
        for name, value in stack.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("TABLEFERRY_TRANSFERS", str(folder))
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
        one = Ferry(stack, folder, table_name(), open_session())
        one.source(*statements)
        one.declare(hops, **settings)
        made.append(one)
        return one

    yield make
    for one in made:
        one.session.instance.dispose()
        one.source("DROP TABLE IF EXISTS {t}")


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Whatever is refused has written nothing."""
    with refusals_touch_nothing():
        yield


@pytest.fixture
def copies(stack: Servers) -> Iterator[str]:
    """A schema of the source's database for the copies, which nobody has made yet."""
    schema = own("copies")
    yield schema
    looking.ask_postgres(stack.postgres_url, f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def schemas(copies: str) -> dict[str, str]:
    """Where the copies are, by system."""
    return {"postgres": copies, "sqlserver": "dbo", "clickhouse": "warehouse"}


@pytest.fixture
def digests_by_servers() -> Iterator[None]:
    """The servers compute their digests, also those that do so slowly."""
    with registered(replace(registry.system("sqlserver"), slow_digests=())):
        yield


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Has the process know nothing of any connection, now and whenever it is called."""

    def forget() -> None:
        monkeypatch.setattr(facts, "_connections", {})

    forget()
    return forget


_numbers = itertools.count(1)


def table_name() -> str:
    """A name that no other table of the servers has."""
    return own(f"t{next(_numbers)}")
