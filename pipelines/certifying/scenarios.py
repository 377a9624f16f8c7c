"""What a certification tries, one scenario after the other, each judged by what is there then."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tableferry.pipelines.certifying import looking
from tableferry.pipelines.certifying.commands import Ran
from tableferry.pipelines.certifying.cut import Cutting
from tableferry.pipelines.certifying.edges import TYPES
from tableferry.pipelines.certifying.ground import DAMAGE, Ground
from tableferry.pipelines.certifying.site import Site
from tableferry.resources.contract.catalog import Use, inspection_of
from tableferry.resources.crash_points import CRASH_AT
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.words import counted

Result = Literal["passed", "failed", "not possible here"]

KILLS = {
    "after_export": "after the export",
    "during_load": "during the load",
    "after_audit": "before publishing",
    "after_commit": "after publishing, before it is recorded",
}
"""Crash points, and what they are called."""
CUTS = 2
ENOUGH = 8_000
"""Bytes that a connection passes before it is cut, and three more for each row."""
MOST = 5
"""Values that a scenario names."""
RESTARTED = 300.0
"""Seconds until a server that was restarted has to answer."""


class Failed(Exception):
    """A scenario did not end as expected; the message says what was seen."""


class NotPossible(Exception):
    """A scenario cannot be tried here; the message says why."""


Trial = tuple[str, str, Callable[[], str]]
"""A scenario's name, what is expected, and what tries it and returns what was seen."""


def tried(ground: Ground, trial: Trial) -> dict[str, Any]:
    """Try a scenario; returns its part of the certificate."""
    name, expected, attempt = trial
    began, before = time.monotonic(), len(ground.commands.ran)
    result: Result
    try:
        result, seen = "passed", attempt()
    except NotPossible as error:
        result, seen = "not possible here", str(error)
    except (Failed, TableferryError) as error:
        result, seen = "failed", str(error)
    return {
        "name": name,
        "expected": expected,
        "result": result,
        "seen": seen,
        "seconds": round(time.monotonic() - began, 2),
        "commands": [ran.json() for ran in ground.commands.ran[before:]],
    }


@dataclass(frozen=True)
class Trials:
    """The scenarios of a certification."""

    ground: Ground
    restart_command: str | None = None

    def all(self) -> Iterator[Trial]:
        """Yield the scenarios in their order; each leaves all targets as the source is."""
        same = "each target has the rows of the source"
        yield "full run", f"all ranges are committed; {same}, value by value", self._full
        yield "types", "every edge value, NULL and '' of every type arrives as it left", self._types
        yield "second run", "no range moves", self._second
        for what, statement in self.ground.one_row().items():
            change = partial(self._change, statement)
            yield f"{what} row", f"its range alone moves; {same}", change
        for site in self.ground.targets:
            for point, words in KILLS.items():
                yield (
                    f"killed {words} into {site.connection}",
                    "each range is old or new, and whole; the next run goes on, and no row is lost "
                    "or doubled",
                    partial(self._killed, site, point),
                )
        for site in self.ground.targets:
            yield (
                f"damaged row in {site.connection}",
                "a check fails, a comparison shows the row, the next run repairs it",
                partial(self._damaged, site),
            )
        yield (
            "refused value",
            "the run fails and names it; nothing is left of its range",
            self._refused,
        )
        yield "two runs at once", f"both end well; {same}", self._two
        for site in self.ground.sites:
            yield (
                f"cut session to {site.connection}",
                f"the run, or the next one, ends well; {same}",
                partial(self._cut, site),
            )
        yield (
            "restarted server",
            f"what is committed is there once; no range moves; {same}",
            self._restarted,
        )
        yield "least privilege", "the logins have the rights that moves need", self._privileges

    # what is judged

    def _same(self) -> str:
        """Compare all targets with the source.

        Raises:
            Failed: rows differ.
        """
        for site in self.ground.targets:
            if difference := looking.differing_rows(self.ground.source, site):
                raise Failed(f"{site.table(looking.ROWS)}: {difference}")
        return f"{counted(len(self.ground.targets), 'target')} equal"

    def _run(self, *arguments: str, **environment: str) -> Ran:
        """Run a command that has to end with 0."""
        ran = self.ground.commands.ferry("run", *arguments, **environment)
        if ran.exit_code != 0:
            raise Failed(ran.why)
        return ran

    def _settled(self) -> None:
        """Bring the targets to the source's state, if a scenario before has not."""
        if any(looking.differing_rows(self.ground.source, site) for site in self.ground.targets):
            self._run(looking.ROWS)

    def _do(self, site: Site, statement: str) -> None:
        """Run a statement of the scenario itself, for which no login needs to have the right."""
        try:
            site.execute(statement)
        except TableferryError as error:
            raise NotPossible(f"the login may not do this to {site.connection}: {error}") from None

    def _writable(self) -> None:
        if self.ground.read_only:
            raise NotPossible(f"the source is read only: {self.ground.read_only}")

    def _all_to_move(self) -> Sequence[str]:
        """Have all ranges move with the next run, by its arguments if the source is read only."""
        if self.ground.read_only:
            return ["--force"]
        self._do(self.ground.source, self.ground.all_rows())
        return []

    def _moved(self, ran: Ran, expected: int) -> str:
        """Count the ranges that a run has moved, in all hops."""
        moved = ran.states().count("committed")
        if moved != expected * len(self.ground.targets):
            raise Failed(f"{counted(moved, 'range')} moved, {expected} per hop were expected")
        return f"{counted(moved, 'range')} moved in {counted(len(self.ground.targets), 'hop')}"

    # the scenarios

    def _full(self) -> str:
        states = {*self._run(looking.ROWS).states()}
        if states != {"committed"}:
            raise Failed(f"the ranges are {', '.join(sorted(states))}")
        return f"{counted(self.ground.rows, 'row')}: {self._same()}"

    def _types(self) -> str:
        self._run(TYPES)
        seen = []
        for site in self.ground.targets:
            count, wrong = looking.differing_values(self.ground.edges, site)
            if wrong:
                more = f" and {len(wrong) - MOST} more" if len(wrong) > MOST else ""
                raise Failed(f"{site.table(TYPES)}: {'; '.join(wrong[:MOST])}{more}")
            seen.append(f"{counted(count, 'value')} equal in {site.connection}")
        return f"{counted(len(self.ground.edges.columns), 'type')}: {', '.join(seen)}"

    def _second(self) -> str:
        return f"{self._moved(self._run(looking.ROWS), 0)}: {self._same()}"

    def _change(self, statement: str) -> str:
        self._writable()
        self._settled()
        self._do(self.ground.source, statement)
        ran = self._run(looking.ROWS)
        return f"{self._moved(ran, 1)}: {self._same()}"

    def _killed(self, site: Site, point: str) -> str:
        self._settled()
        force = self._all_to_move()
        # one worker takes range after range through all hops: it dies in the second range
        nth = len(self.ground.targets) + site.position
        died = self.ground.commands.ferry(
            "run", looking.ROWS, "--profile", "safe", *force, **{CRASH_AT: f"{point}:{nth}"}
        )
        if died.exit_code != -signal.SIGKILL:
            raise Failed(f"it was not killed: {died.why}")
        for each in self.ground.targets:
            if torn := looking.torn_ranges(each, self.ground.spans):
                raise Failed(f"{each.table(looking.ROWS)}: after the kill, {'; '.join(torn)}")
        self._run(looking.ROWS, *force)
        return f"killed; the next run ended with 0: {self._same()}"

    def _damaged(self, site: Site) -> str:
        self._settled()
        key, ferry = self.ground.damaged_key, self.ground.commands.ferry
        self._do(site, self.ground.damage(site))
        check = ferry("check", looking.ROWS)
        if check.exit_code != 1:
            raise Failed(f"the check did not find it: {check.why}")
        shown = ferry("diff", looking.ROWS, "--range", str(key), "--hop", str(site.position))
        if shown.exit_code != 1 or str(DAMAGE) not in shown.said:
            raise Failed(f"the comparison did not show it: {shown.why}")
        self._run(looking.ROWS)
        return f"id {key} found, shown and repaired: {self._same()}"

    def _refused(self) -> str:
        self._writable()
        for name, statements in self.ground.misfits().items():
            for statement in statements:
                self._do(self.ground.source, statement)
            self.ground.declare(name)
            ran = self.ground.commands.ferry("run", name)
            if ran.exit_code == 0:
                continue
            said = "\n".join(map(str, ran.document.get("errors", ()))) or ran.errors
            if ran.exit_code != 1 or "misfit" not in said:
                raise Failed(f"{statements[-1]}: the column is not named: {ran.why}")
            ranges = ran.document.get("ranges", ())
            good = {each["hop"] for each in ranges if each["state"] == "committed"}
            for site in self.ground.targets:
                table = site.table(name)
                if site.position in good or table.name not in site.tables():
                    continue
                ((rows,),) = site.query(f"SELECT COUNT(*) FROM {site.sql(name)}")
                if rows:
                    raise Failed(f"{table} has {rows} rows of the range that was refused")
            return f"{statements[-1]}: it was refused, and nothing is left of its range"
        raise NotPossible("the targets hold every edge value that is tried")

    def _two(self) -> str:
        self._settled()
        run = partial(self._run, looking.ROWS, *self._all_to_move())
        with ThreadPoolExecutor(2) as both:
            for ended in [both.submit(run) for _ in range(2)]:
                ended.result()
        return f"both ended with 0: {self._same()}"

    def _cut(self, site: Site) -> str:
        self._settled()
        try:
            cutting = Cutting(site.connection, ENOUGH + 3 * self.ground.rows, CUTS)
        except InputError as error:
            raise NotPossible(str(error)) from None
        with cutting:
            try:
                site.endpoint.system.resource(url=cutting.url).ping()
            except TableferryError as error:
                raise NotPossible(f"the server is not reached by way of a proxy: {error}") from None
            cutting.armed = True
            force = self._all_to_move()
            environment = {cutting.variable: cutting.url}
            ran = self.ground.commands.ferry("run", looking.ROWS, *force, **environment)
        if not cutting.cut:
            raise NotPossible("no connection has passed enough to be cut")
        cut = f"{counted(cutting.cut, 'connection')} cut"
        if ran.exit_code == 0:
            return f"{cut}; the run ended with 0 all the same: {self._same()}"
        self._run(looking.ROWS, *force)
        return f"{cut}; {ran.why}; the next run ended with 0: {self._same()}"

    def _restarted(self) -> str:
        if not self.restart_command:
            raise NotPossible("no --restart-command was given")
        self._settled()
        self._run(looking.ROWS, *self._all_to_move())
        ended = subprocess.run(
            self.restart_command, shell=True, capture_output=True, text=True, check=False
        )
        if ended.returncode != 0:
            raise Failed(f"the restart command ended with {ended.returncode}: {ended.stderr}")
        until = time.monotonic() + RESTARTED
        for site in self.ground.sites:
            while True:
                try:
                    site.endpoint.ping()
                    break
                except TableferryError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(1)
        seen = self._same()
        return f"{seen}; after that, {self._moved(self._run(looking.ROWS), 0)}: {self._same()}"

    def _privileges(self) -> str:
        unneeded, problems = [], []
        last = len(self.ground.sites) - 1
        for site in self.ground.sites:
            told, table = site.told(site.plain.unneeded), site.table(looking.ROWS)
            rights = [right for right, has in told.items() if has in ("1", "True")]
            if rights:
                unneeded.append(f"{', '.join(rights)} of {site.connection}")
            reads = [table] if site.position < last else []
            use = Use(reads, [table] if site.position else [])
            for finding in inspection_of(site.endpoint.system).health(site.endpoint, use):
                if finding.subject == "privileges" and finding.state == "problem":
                    problems.append(f"{site.connection}: {finding.says}")
        if problems:
            raise Failed("; ".join(problems))
        return f"enough; not needed: {'; '.join(unneeded) or 'nothing that is known of'}"
