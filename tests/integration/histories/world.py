"""What a history does, and what is held of it after each step."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import pytest
from click.testing import CliRunner

from tableferry.pipelines.cli import main
from tableferry.pipelines.command.session import open_session
from tableferry_local.stack import Stack
from tests.integration.histories.changes import COPIES, Changes
from tests.integration.histories.oracle import (
    Fault,
    Range,
    Record,
    Seen,
    content,
    hold,
    require_whole,
)
from tests.integration.histories.programs import History
from tests.integration.support import looking
from tests.integration.support.crashing import Command
from tests.integration.support.interface import AT_ONCE, opened
from tests.servers import Servers

Place = tuple[int, str]
SUCCESS = dg.DagsterRunStatus.SUCCESS


@contextmanager
def world(
    history: History, servers: Servers, folder: Path, stack: Stack | None = None
) -> Iterator[World]:
    """The tables and the home of a history, gone at its end."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in servers.environment().items():
            patch.setenv(name, value)
        patch.setenv("TABLEFERRY_TRANSFERS", str(folder / "transfers"))
        patch.setenv("DAGSTER_HOME", str(folder / "home"))
        patch.setenv("TABLEFERRY_QUIET", "1")
        made = World(history, servers, folder, stack)
        patch.setenv("TABLEFERRY_POSTGRES_URL", made.log_in())
        try:
            yield made
        finally:
            for table in (*made.targets, made.source):
                table.drop()
            made.log_out()
            shutil.rmtree(folder)


class World(Changes):
    """The commands of a transfer, each with what it promises."""

    def __init__(
        self, history: History, servers: Servers, folder: Path, stack: Stack | None
    ) -> None:
        super().__init__(history, servers, folder)
        self.stack = stack
        """The servers, if nobody else is on them."""
        self.command = Command(folder)
        self.login = f"{self.name}_login"
        """Who moves rows from and to PostgreSQL, with the rights that this takes."""
        self.lacking: list[str] = []
        """The ranges whose partitions somebody has deleted since the last good run."""
        self.kept: tuple[dict[Place, Record], bool, dict[str, str], list[str]] | None = None
        """What the oracle knew of the event log that was kept."""
        self.failing = 0
        """Runs that have failed one after the other."""

    def ferry(
        self, *arguments: str, kill: str = "", restart: str = ""
    ) -> tuple[int, dict[str, Any], str]:
        """A command's exit code, what it says as JSON, and all it says.

        Args:
            arguments: the command's.
            kill: where it is killed.
            restart: the server that stops and starts while it is at work.
        """
        if kill or restart:
            self.command.start(*arguments, "--json", TABLEFERRY_CRASH_AT=kill)
            if restart:
                self._restart(restart)
            code = self.command.wait()
            said = self.command.output
            hold(code in (0, 1, 2, -signal.SIGKILL), "died", f"{arguments}: {code}\n{said[-3000:]}")
            hold("Traceback" not in said, "traceback", said[-3000:])
            return code, {}, said
        result = CliRunner().invoke(main, [*arguments, "--json"])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise Fault("traceback", f"{arguments}: {result.output[-2000:]}") from result.exception
        try:
            document = json.loads(result.stdout)
        except ValueError:
            document = {}
        hold(result.exit_code in (0, 1, 2), "exit code", f"{arguments}: {result.exit_code}")
        if result.exit_code:
            hold(
                bool(result.stderr.strip()), "no word why", f"{arguments}: {result.output[-2000:]}"
            )
        return result.exit_code, document, result.output

    def see(self) -> Seen:
        """Read all tables, past the product."""
        columns = [each.columns() for each in self.targets]
        names = [*self.kinds]
        targets = [
            [row for row in table.read(there) if row.get("gone") is None] if there else []
            for table, there in zip(self.targets, columns, strict=True)
        ]
        for row in itertools.chain.from_iterable(targets):
            # a run renames a column before it moves anything
            row |= {name: row[old] for name, old in self.names.items() if old in row}
        source = [dict(row) for row in self.rows.values()]
        return Seen(source, names, targets, columns)

    def ranges(self) -> list[Range]:
        """The ranges of the transfer, as `ferry status` has them."""
        _, document, _ = self.ferry("status", self.name)
        names = dict.fromkeys(each["range"] for each in document.get("ranges", []))
        if self.lacking:
            with self._instance() as instance:
                listed = {*instance.get_dynamic_partitions(f"{self.name}_ranges")}
            begun = {Range(name).bounds[0] for name in listed - {"null"}}
            # an open range that has outgrown itself comes back as several
            self.lacking = [
                name
                for name in self.lacking
                if name not in listed and (name == "null" or Range(name).bounds[0] not in begun)
            ]
        ranges = [Range(name) for name in dict.fromkeys((*names, *self.lacking))]
        if names and not self.lacking:
            require_whole(ranges)
        return ranges

    def run(self, *options: str, kill: str = "", restart: str = "", excused: bool = False) -> None:
        before, checked = self.see(), self.checked
        damage = self._damage(before)
        options = ("--profile", "safe", *options) if kill else options
        only = ""
        if "--range" in options:
            key = int(options[options.index("--range") + 1])
            known = [one for one in self.ranges() if one.holds(key)]
            if not known or known[0].name in self.lacking:
                return
            only = known[0].name
            options = tuple(only if each == str(key) else each for each in options)
        part = bool({"--failed", "--hop"} & {*options})
        code, document, said = self.ferry("run", self.name, *options, kill=kill, restart=restart)
        after = self.see()
        excused = excused or bool(restart) or code == -signal.SIGKILL
        good = code == 0 and not part
        ranges = self.ranges()
        hold(
            not (good and not only and self.lacking), "a range lacks after a good run", said[-2000:]
        )
        self.trail.append(f"run {' '.join(options)} -> {code}")
        states = {
            (each["hop"] - 1, each["range"]): each["state"] for each in document.get("ranges", [])
        }
        hold(bool(ranges) or not good, "no ranges after a good run", said[-2000:])
        self.oracle.after_run(
            before,
            after,
            ranges,
            good=good,
            states=states,
            forced="--force" in options or "--recreate" in options,
            only=[only] if only else (),
        )
        self.checked = False
        if good and not only:
            hold(
                not self.oracle.unexpected(before.source), "an expectation overlooked", said[-2000:]
            )
            missing = [
                name
                for hop in range(len(self.targets))
                for name in before.columns
                if name not in after.target_columns[hop]
            ]
            if missing and self.settings.get("on_schema_drift") != "ignore_new":
                raise Fault("a column is missing after a good run", missing)
            self.drift = bool(missing)
            if not missing:
                self.altered.clear()
            self.failing = 0
        elif not good and not excused and not part and not only and "--recreate" not in options:
            self.failing += 1
            refused = self.may_refuse(before)
            if not (refused or damage):
                raise Fault("a run failed", f"without a reason: {said[-3000:]}")
            if checked and not refused:
                raise Fault("a run failed after a check", f"{damage}: {said[-3000:]}")

    def may_refuse(self, seen: Seen) -> bool:
        """Whether a run may end otherwise than well, though nothing is damaged."""
        policy = self.settings.get("on_schema_drift", "fail")
        followed = {"evolve": {"add", "rename", "widen"}, "add_columns": {"add"}}.get(policy, set())
        drift = self.drift and not (self.altered and self.altered <= followed)
        unexpected = any(map(self.oracle.unexpected, (seen.source, *seen.targets)))
        return drift or unexpected or self.lost_columns(seen) or self.columns_of_others(seen)

    def lost_columns(self, seen: Seen) -> bool:
        return any(there and not {*seen.columns} <= {*there} for there in seen.target_columns)

    def columns_of_others(self, seen: Seen) -> bool:
        """Whether a table has columns that one in its place would not have, and `swap` has to."""
        return self.settings.get("write") == "swap" and any(
            {*there} - {*seen.columns}
            for table, there in zip(self.targets, seen.target_columns, strict=True)
            if table.system == "sqlserver"
        )

    def _damage(self, seen: Seen) -> list[str]:
        """Where targets are not what was put there."""
        return [
            f"{hop + 1}:{name}"
            for hop, name in {*self.oracle.log}
            if self.oracle.damaged(hop, Range(name), seen)
        ]

    def check(self, level: str = "full_hash") -> None:
        before = self.see()
        told = ["--level", level] if level else []
        code, document, said = self.ferry("check", self.name, *told)
        self._unchanged(before, "check")
        self.trail.append(f"check {level} -> {code}")
        hold(code != 0 or not self.lacking, "a deleted range overlooked", said[-2000:])
        effective = level or self.settings.get("reconcile", "checksum")
        if code == 2 or effective == "count":
            hold(
                code != 2
                or self.drift
                or self.lost_columns(before)
                or not all(before.target_columns)
                or not self.oracle.log,
                "a check refused",
                said[-2000:],
            )
            return
        said_failed: set[Place] = set()
        tables = [f"{each.system}://{each.name}" for each in self.targets]
        for each in document.get("checks", []):
            place = each["hop"] - 1, each["range"]
            if each["check"] == "expectations":
                self._expected(place, not each["passed"], before, said)
            elif not each["passed"] and not each["warning"] and each["range"]:
                said_failed.add(place)
        open_ranges = {
            (tables.index(each["target"]), each["range"])
            for each in document.get("not_committed", [])
        }
        failures = False
        for one in self.ranges():
            for hop in range(len(self.targets)):
                place = hop, one.name
                expected = self.oracle.verdict(hop, one, before)
                failed = place in said_failed
                where = f"hop {hop + 1} range {one.name}: {said[-2500:]}"
                if expected == "failed" and place not in open_ranges:
                    hold(failed, "damage not found", where)
                    failures = True
                if expected in ("passed", "behind"):
                    hold(not failed, f"a false alarm ({expected})", where)
                record = self.oracle.log.get(place)
                if failed and record is not None and record.sure:
                    record.failed = True
        hold(code == 1 or not failures, "exit code of a check", said[-2000:])
        hold(code == 1 or not said_failed, "exit code of a check", said[-2000:])
        if code == 1 and not said_failed and not open_ranges and not self.lacking:
            why = [
                each
                for each in document.get("checks", [])
                if not each["passed"] and not each["warning"]
            ]
            why = [each for each in why if each["check"] != "expectations"] or why
            hold(
                bool(why) or not document.get("checks"),
                "a check failed without a word",
                said[-2000:],
            )
            known = bool(self._damage(before)) or self.drift or self.lost_columns(before)
            sure = any(record.sure for record in self.oracle.log.values())
            known = known or not sure or self.oracle.uneven(before)
            known = known or any(map(self.oracle.unexpected, before.targets))
            hold(known, "a false alarm (table)", why)
        self.checked = True
        status, _, told_status = self.ferry("status", self.name)
        if said_failed:
            hold(status == 1, "status after a failed check", told_status[-2000:])
            report, _, _ = self.ferry("report", self.name)
            hold(report == 1, "report after a failed check")

    def _expected(self, place: tuple[int, str | None], failed: bool, seen: Seen, said: str) -> None:
        """Hold a verdict on what is expected of a range, or of all of them."""
        hop, name = place
        rows = seen.targets[hop]
        if name is not None:
            rows = self.oracle.rows_of(Range(name), rows)
            record = self.oracle.log.get((hop, name))
            if failed and record is not None:
                record.failed = record.sure
        hold(failed == self.oracle.unexpected(rows), "an expectation", f"{place}: {said[-2000:]}")

    def compare(self, hop: int) -> None:
        seen, target = self.see(), self.targets[hop - 1]
        if not seen.target_columns[hop - 1] or self.drift or self.lost_columns(seen):
            return
        names = [f"{each.system}://{each.name}" for each in (self.source, target)]
        code, _, said = self.ferry("compare", *names)
        columns = seen.copied(hop - 1)
        same = content(seen.source, columns) == content(seen.targets[hop - 1], columns)
        hold(code == (0 if same else 1), "compare", f"{code}, equal: {same}: {said[-3000:]}")
        self._unchanged(seen, "compare")

    def plan(self) -> None:
        before = self.see()
        code, document, said = self.ferry("plan", self.name)
        self._unchanged(before, "plan")
        told = {each["range"] for each in document.get("ranges", [])}
        hold(code != 0 or {*self.lacking} <= told, "a deleted range overlooked", said[-2000:])
        for each in document.get("ranges", []):
            why = self.oracle.why_right(each["hop"] - 1, Range(each["range"]), before, False)
            if why and each["state"] == "skip":
                raise Fault("planned to be skipped", f"{each['hop']} {each['range']}: {why}")
        hold(code != 2 or self.drift or self.lost_columns(before), "plan", said[-2000:])

    def repair(self, kill: str = "") -> None:
        before = self.see()
        code, document, _ = self.ferry("repair", self.name, kill=kill)
        after, ranges = self.see(), self.ranges()
        self.trail.append(f"repair -> {code}")
        self.checked = False
        states = {(each["hop"] - 1, each["range"]): "" for each in document.get("ranges", [])}
        good = code == 0 and bool(states)
        self.oracle.after_run(before, after, ranges, good=good, states=states, repaired=True)

    def status(self) -> None:
        before = self.see()
        self.ferry("status", self.name)
        code, _, said = self.ferry("report", self.name)
        self._unchanged(before, "report")
        hold(code != 0 or not self.lacking, "a deleted range overlooked")
        if code == 0 and self.checked:
            for hop, name in self.oracle.log:
                expected = self.oracle.verdict(hop, Range(name), before)
                hold(expected != "failed", "called proven", f"{hop + 1}:{name} {said[-2000:]}")

    # --- what Dagster's user does ----------------------------------------------------------------

    def unlist(self, pick: int) -> None:
        """Delete a range's partition."""
        known = [one.name for one in self.ranges() if one.name not in self.lacking]
        if known:
            with self._instance() as instance:
                name = known[pick % len(known)]
                instance.delete_dynamic_partition(f"{self.name}_ranges", name)
            self.lacking.append(name)
            self.checked = False

    def launch(self, again: str = "") -> None:
        """Backfill all ranges that are listed, and run the last run of that again, if need be.

        Args:
            again: the strategy.
        """
        before, known = self.see(), self.ranges()
        listed = [one.name for one in known if one.name not in self.lacking]
        if not listed:
            return
        home = self.folder / "home" / "dagster.yaml"
        if AT_ONCE not in home.read_text():
            home.write_text(f"{home.read_text()}\n{AT_ONCE}")
        assets = [[table.system, *table.name.split(".")] for table in self.targets]
        with self._instance() as instance, opened(instance) as api:
            runs = api.launch_backfill(assets, listed)
            ended = [api.wait(run) for run in runs]
            good = all(status is SUCCESS for status in ended)
            _, document, _ = self.ferry("status", self.name)
            # of a run that is good, Dagster refuses to do what failed
            if again and runs and not (again == "FROM_FAILURE" and ended[-1] is SUCCESS):
                api.reexecute(runs[-1], again)
        self.trail.append(f"launch -> {good}")
        states = {(each["hop"] - 1, each["range"]): each["state"] for each in document["ranges"]}
        after, ranges = self.see(), self.ranges()
        self.oracle.after_run(before, after, ranges, good=good, states=states, only=listed)
        self.checked = False
        # a swap needs all ranges in one run
        in_parts = self.oracle.write == "swap" and (len(runs) > 1 or bool(self.lacking))
        if not good and not in_parts:
            reason = self.may_refuse(before) or self._damage(before)
            hold(bool(reason), "a backfill failed", self.trail)

    @contextmanager
    def _instance(self) -> Iterator[dg.DagsterInstance]:
        session = open_session()
        try:
            yield session.instance
        finally:
            session.instance.dispose()

    # --- what the servers' users do ---------------------------------------------------------------

    def log_in(self) -> str:
        """Make a login of PostgreSQL that has only the rights that it needs; returns its URL."""
        url = urlsplit(self.servers.postgres_url)
        looking.ask_postgres(
            self.servers.postgres_url,
            f"CREATE SCHEMA IF NOT EXISTS {COPIES}",
            f"CREATE ROLE {self.login} LOGIN PASSWORD 'moves'",
            f"GRANT USAGE, CREATE ON SCHEMA {COPIES} TO {self.login}",
            *([f"GRANT SELECT ON {self.source.name} TO {self.login}"] * self.from_postgres),
        )
        place = url.netloc.rpartition("@")[2]
        return url._replace(netloc=f"{self.login}:moves@{place}").geturl()

    def log_out(self) -> None:
        """Drop the login, its sessions, which this process keeps, and what it has."""
        looking.ask_postgres(
            self.servers.postgres_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE usename = '{self.login}'",
            f"DROP OWNED BY {self.login}",
            f"DROP ROLE {self.login}",
        )

    @property
    def from_postgres(self) -> bool:
        return self.source.system == "postgres"

    def revoke(self) -> None:
        """Have a command try without a right that it needs."""
        systems = [self.source.system, *(table.system for table in self.targets)]
        if "postgres" not in systems:
            return
        right = f"CREATE ON SCHEMA {COPIES}"
        if self.from_postgres:
            right = f"SELECT ON {self.source.name}"
        looking.ask_postgres(self.servers.postgres_url, f"REVOKE {right} FROM {self.login}")
        if self.from_postgres:
            self._refused()
        else:
            self.run(excused=True)
        looking.ask_postgres(self.servers.postgres_url, f"GRANT {right} TO {self.login}")

    def mistake(self, setting: str, value: str) -> None:
        """Have a command try with a mistake in the file."""
        if self.ranges():
            self.write_file(**{setting: value})
            self._refused()
            self.write_file()

    def _refused(self) -> None:
        """Hold that a run is refused, by name, and has touched nothing."""
        before = self.see()
        code, _, said = self.ferry("run", self.name)
        hold(code != 0 and (self.name in said or "t.yaml:" in said), "not refused", said[-2000:])
        self._unchanged(before, "a refused run")
        hold(self.see().target_columns == before.target_columns, "a refused run altered a target")
        for word in ("check", "plan", "report", "status"):
            code, _, said = self.ferry(word, self.name)
            hold(
                code != 0 or word in ("status", "plan"), f"{word} after a refused run", said[-2000:]
            )
        self._unchanged(before, "what followed a refused run")

    def restart(self, hop: int) -> None:
        """Have the server of a hop, or of the source, stop and start while a run is at work."""
        if self.stack is not None:  # else others are on it
            self.run(restart=[self.source, *self.targets][hop].system)

    def _restart(self, system: str) -> None:
        assert self.stack is not None
        time.sleep(0.5)
        # the stand-in's rows are in PostgreSQL
        for each in ("postgres", "sqlserver") if system != "clickhouse" else (system,):
            self.stack.restart(each)

    def backup(self) -> None:
        """Keep a copy of the event log."""
        home = self.folder / "home"
        if home.exists():
            copy(home, self.folder / "kept")
            self.kept = self.oracle.backup(), self.oracle.altered, dict(self.kinds), [*self.lacking]
            self.kept_source = dict(self.kinds), {n: dict(row) for n, row in self.rows.items()}

    def restore(self) -> None:
        """Have the event log be what it was."""
        if self.kept is not None:
            copy(self.folder / "kept", self.folder / "home")
            log, altered, kinds, lacking = self.kept
            self.lacking = [*lacking]
            self.oracle.restore(log)
            self.oracle.altered = altered
            if kinds != self.kinds:
                self.oracle.alter()
            self.checked = False

    def lose_log(self) -> None:
        """Have no event log any more."""
        shutil.rmtree(self.folder / "home", ignore_errors=True)
        self.oracle.log.clear()
        self.lacking.clear()
        self.checked = False

    def adopt(self) -> None:
        before = self.see()
        code, document, said = self.ferry("adopt", self.name)
        self._unchanged(before, "adopt")
        there = all(before.target_columns) and not self.lost_columns(before)
        hold(code == 0 or self.drift or not there, "adopt", said[-2000:])
        for each in document.get("ranges", []):
            if each["state"] != "left":
                self.oracle.adopted(each["hop"] - 1, Range(each["range"]), before)

    def forget(self) -> None:
        """Have the targets forget who has published what."""
        code, _, said = self.ferry("clean", self.name, "--markers")
        hold(code == 0, "clean", said)
        for hop in range(len(self.targets)):
            self._forget(hop + 1)

    def _unchanged(self, before: Seen, what: str) -> None:
        after = self.see()
        for hop in range(len(self.targets)):
            old, new = (
                content(each.targets[hop], each.target_columns[hop]) for each in (before, after)
            )
            hold(old == new, f"{what} changed a target", hop + 1)

    def finish(self) -> None:
        """After a check and two runs, all is there and proven."""
        self.expect(False)
        if self.columns_of_others(self.see()):
            self.declare(write="replace")
        if self.settings.get("on_schema_drift") != "evolve":
            self.declare(on_schema_drift="evolve", dropped_columns="keep")
        self.check()
        for _ in range(3):
            self.run()
            if self.failing == 0:
                break
        hold(self.failing == 0, "not mended by runs", self.trail)
        self.check()
        hold(self.failing == 0, "not mended", self.trail)
        seen = self.see()
        for hop in range(len(self.targets)):
            columns = seen.copied(hop)
            wanted = content(self.oracle.wanted(seen.targets[hop], seen.source), columns)
            there = content(seen.targets[hop], columns)
            hold(there == wanted, "not the source at the end", f"hop {hop + 1}: {there} {wanted}")
        for command in ("status", "report"):
            code, _, said = self.ferry(command, self.name)
            hold(code == 0, f"{command} at the end", said[-3000:])
        code, document, said = self.ferry("plan", self.name)
        states = {each["state"] for each in document["ranges"]}
        hold(states <= {"skip"}, "not all skipped at the end", said[-3000:])
        there = content(self.source.read(self.kinds), [*self.kinds])
        assert there == content(self.rows.values(), [*self.kinds]), "the oracle's source"


def copy(folder: Path, to: Path) -> None:
    """Copy a home, by a process of its own: a file that is closed here gives up SQLite's locks."""
    shutil.rmtree(to, ignore_errors=True)
    subprocess.run(["cp", "-a", folder, to], check=True)


def run_history(
    history: History, servers: Servers, folder: Path, stack: Stack | None = None
) -> None:
    """Do all steps of a history, and hold the promises."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with world(history, servers, folder, stack) as made:
        for each in history.steps:
            made.trail.append(repr(each))
            getattr(made, each.name)(*each.given, **dict(each.named))
        made.finish()
