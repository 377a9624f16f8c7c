"""Moved transfers, the user interface that shows them, and what people do on its pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import psutil
import psycopg

from tableferry.assets.running.processes import PROCESS
from tableferry.pipelines.command.session import Session
from tests.integration.support import looking
from tests.integration.support.beside import until
from tests.integration.support.webui import Browser, UserInterface
from tests.servers import Servers

DIALOG = "[role=dialog]"
LAUNCH_SECONDS = 120.0
"""After which a click that has launched nothing is taken for lost."""
LAUNCHED_BY = ("dagster/schedule_name", "dagster/sensor_name")


@dataclass(frozen=True)
class Shown:
    """The transfer NAME and its neighbour, shown by `make dev`."""

    stack: Servers
    session: Session
    dagster: UserInterface
    name: str
    folder: Path
    """The folder of the transfer files."""

    def source(self, statement: str) -> None:
        looking.ask_postgres(self.stack.postgres_url, statement)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While nobody else can read the source table."""
        with psycopg.connect(self.stack.postgres_url) as connection:
            connection.execute(f"LOCK TABLE {self.name} IN ACCESS EXCLUSIVE MODE")
            yield
            connection.rollback()

    def target(self, expression: str, key: int, table: str = "") -> object:
        """One value of the last hop's table, or of another one of ClickHouse."""
        return self.session.servers.endpoints["clickhouse"].query(
            f"SELECT {expression} FROM warehouse.{table or self.name} WHERE id = {key}"
        )[0][0]

    def states(self, asset: dg.AssetKey) -> dict[str, str]:
        """What the latest materialization of each range says of itself."""
        found: dict[str, str] = {}
        for record in self.session.instance.fetch_materializations(asset, limit=1000).records:
            event = record.asset_materialization
            assert event is not None
            found.setdefault(str(event.partition), str(event.metadata["tableferry/state"].value))
        return found

    def launched(self, page: Browser, act: Callable[[], object]) -> str:
        """The id of the one run that something on a page launches; leaves the page.

        Args:
            page: the browser.
            act: launches the run.
        """
        known = set(self._runs())
        page.do(act, until_seen=lambda: set(self._runs()) - known, seconds=LAUNCH_SECONDS)
        page.leave()
        (run_id,) = set(self._runs()) - known
        return run_id

    def _runs(self) -> list[str]:
        runs = self.session.instance.get_runs()
        return [run.run_id for run in runs if not run.tags.keys() & {*LAUNCHED_BY}]

    def idle(self) -> bool:
        """Whether all runs have ended, a schedule's too, and so have their processes."""
        runs = self.session.instance.get_runs()
        return all(run.is_finished for run in runs) and not self.dagster.running("watch_orphans")

    def ended(self, run_id: str) -> dg.DagsterRun:
        """The run, once it has ended."""

        def run() -> dg.DagsterRun | None:
            found = self.session.instance.get_run_by_id(run_id)
            return found if found is not None and found.is_finished else None

        ended: dg.DagsterRun = until("the run's end", run)
        return ended

    def outcome(self, page: Browser, act: Callable[[], object]) -> dg.DagsterRunStatus:
        """How the run ended that something on a page has launched."""
        return self.ended(self.launched(page, act)).status

    def process(self, run_id: str) -> psutil.Process | None:
        """The process of a run that has come as far as to say which it is."""
        run = self.session.instance.get_run_by_id(run_id)
        tag = run.tags.get(PROCESS) if run is not None else None
        return psutil.Process(int(tag.split(":")[1])) if tag else None


def materialize(page: Browser, group: str, *ranges: str, all_in: str = "") -> None:
    """Launch some ranges of both hops, from the dialog of their asset group.

    Args:
        page: the browser.
        group: the asset group.
        ranges: partition keys to choose.
        all_in: instead, the button of a state: `All`, `Failed`, ...
    """
    materialize_at(page, f"/locations/tableferry/asset-groups/{group}", *ranges, all_in=all_in)


def materialize_at(page: Browser, path: str, *ranges: str, all_in: str = "") -> None:
    """Launch some ranges from the dialog of the page of an asset or a group, see `materialize`."""

    def fill_in() -> None:
        page.open(path)
        page.see("ClickHouse", "Materialize")
        page.do(lambda: page.press("Materialize"), until_seen=lambda: page.there(DIALOG))
        if all_in:
            page.press(all_in, DIALOG)
        else:
            _choose(page, ranges)

    # "Launch 1 run", or "Launch backfill"; disabled until a range is chosen
    page.do(fill_in, until_seen=lambda: page.can_press("Launch ", DIALOG))
    # gone, or "Launching...", unless the click is lost
    page.do(
        lambda: page.press("Launch ", DIALOG),
        until_seen=lambda: not page.can_press("Launch ", DIALOG),
    )


def _choose(page: Browser, ranges: tuple[str, ...]) -> None:
    """Choose ranges from the dialog's list, and close it, because it covers the buttons."""

    def entry(name: str) -> str:
        return f"[data-tooltip='{name}']"

    opens = f"{DIALOG} [aria-haspopup=dialog]"
    page.do(lambda: page.click(opens), until_seen=lambda: page.there(entry(ranges[0])))
    for name in ranges:
        page.click(entry(name))
    page.escape()
