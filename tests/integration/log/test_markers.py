"""What the target says of who published last: other homes, older backups, runs that slept."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tableferry.assets.running import audit, moving
from tableferry.assets.running.range_attempt import RangeAttempt
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.session import open_session
from tableferry.resources.contract.markers import MARKERS, Publication
from tableferry.resources.errors import InputError, RangeBusy, TableferryError
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.crashing import Command, crash, reopen

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, name text NOT NULL)",
    "INSERT INTO {t} SELECT g, 'A' FROM generate_series(1, 200) g",
)
FIRST, SECOND, OPEN = "..0000000101", "0000000101..0000000201", "0000000201.."
RANGES = "{rows: 100}"
SCHEMAS = {"postgres": "", "sqlserver": "dbo", "clickhouse": "warehouse", "files": ""}
SERVERS = ["postgres", "sqlserver", "clickhouse"]
EVERYWHERE = [*((one, "replace") for one in SCHEMAS), ("sqlserver", "swap"), ("clickhouse", "swap")]


@pytest.fixture(autouse=True)
def schemas(monkeypatch: pytest.MonkeyPatch, copies: str, tmp_path: Path) -> None:
    monkeypatch.setitem(SCHEMAS, "postgres", copies)
    monkeypatch.setitem(SCHEMAS, "files", f"{tmp_path}/out")


def hops_to(system: str) -> str:
    if system == "files":
        return f"['files://{SCHEMAS[system]}/']"
    return f"['{system}://{SCHEMAS[system]}.{{t}}']"


class Homes:
    """Event logs of one transfer, as different machines have them."""

    def __init__(self, one: Ferry, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.one, self._folder, self._patch = one, folder, patch
        self.path = folder / "dagster"

    @contextmanager
    def other(self, name: str) -> Iterator[Ferry]:
        """The transfer with the event log of another home."""
        with self._patch.context() as patch:
            patch.setenv("DAGSTER_HOME", str(self._folder / name))
            there = replace(self.one, session=open_session())
            try:
                yield there
            finally:
                there.session.instance.dispose()

    def backup(self, name: str) -> None:
        """Copy the home, as a backup that is restored there later."""
        self.one.session.instance.dispose()
        shutil.copytree(self.path, self._folder / name)
        self.one.session = open_session()


@pytest.fixture
def homes(ferry: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Homes]:
    def make(system: str, **settings: Any) -> Homes:
        one = ferry(hops_to(system), *TABLE, **{"ranges": RANGES, **settings})
        return Homes(one, tmp_path, monkeypatch)

    return make


def arrived(one: Ferry, system: str) -> list[looking.Row]:
    """The target's rows."""
    if system == "files":
        rows = pq.read_table(SCHEMAS[system], columns=["id", "name"]).sort_by("id").to_pylist()
        return [(row["id"], row["name"]) for row in rows]
    table = f"{SCHEMAS[system]}.{one.table}"
    return looking.ask(one.stack, system, f"SELECT id, name FROM {table} ORDER BY id")


def reasons(one: Ferry) -> dict[str, str]:
    """Why each range would run."""
    return {view.range: str(view.reason) for view in one.plan().ranges}


def require_same(one: Ferry, system: str) -> None:
    assert arrived(one, system) == one.rows("SELECT id, name FROM {t} ORDER BY id")
    assert set(reasons(one).values()) == {"unchanged"}


def change(one: Ferry, value: str) -> None:
    one.source(f"UPDATE {{t}} SET name = '{value}' WHERE id = 7")


@pytest.mark.invariant("I9")
@pytest.mark.parametrize(("system", "write"), EVERYWHERE)
def test_an_older_event_log_and_another_home_notice_what_was_published(
    homes: Callable[..., Homes], system: str, write: str
) -> None:
    all_homes = homes(system, write=write)
    one = all_homes.one
    assert one.run().good
    all_homes.backup("restored")
    change(one, "B")
    assert one.run().good
    change(one, "A")
    with all_homes.other("restored") as older:
        found = older.plan().ranges
        assert {view.range: view.reason for view in found}[FIRST] == "target_moved"
        detail = next(view.decision.detail for view in found if view.range == FIRST)
        assert str(all_homes.path) in detail, "who published it"
        view = older.run()
        assert view.good, view.errors
        require_same(older, system)
        change(one, "C")
        with all_homes.other("third") as third:
            view = third.run()
            assert view.good, view.errors
            require_same(third, system)
        change(one, "A")
        assert reasons(older)[FIRST] == "target_moved"
        view = older.run()
        assert view.good, view.errors
        require_same(older, system)


@pytest.mark.invariant("I9")
@pytest.mark.parametrize(("point", "shown"), [("inside_finalise", "B"), ("after_publish", "A")])
def test_a_marker_whose_rows_may_be_missing_hides_nothing(
    homes: Callable[..., Homes], tmp_path: Path, point: str, shown: str
) -> None:
    """It says the same as the older log, and the target need not: `tests/model` found that."""
    all_homes, command = homes("clickhouse"), Command(tmp_path)
    one = all_homes.one
    assert one.run().good
    all_homes.backup("older")
    change(one, "B")
    assert one.run().good
    change(one, "A")
    with all_homes.other("older") as older:
        assert reasons(older)[FIRST] == "target_moved"
        crash(command, older.table, point)
        assert (7, shown) in arrived(older, "clickhouse")
        reopen(older)
        assert "was about to publish" in plan_of(older, FIRST).decision.detail
        view = older.run()
        assert view.good, view.errors
        assert older.moved(view) == [FIRST], "what may still be replaced is not compared"
        require_same(older, "clickhouse")


def plan_of(one: Ferry, name: str) -> Any:
    return next(view for view in one.plan().ranges if view.range == name)


@pytest.mark.invariant("I8")
@pytest.mark.parametrize(("system", "write"), EVERYWHERE)
def test_a_run_that_slept_through_the_commit_of_another_publishes_nothing_old(
    homes: Callable[..., Homes], system: str, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_homes = homes(system, write=write)
    one = all_homes.one
    assert one.run().good
    all_homes.backup("other")
    change(one, "B")
    asleep, wake = threading.Event(), threading.Event()

    def reached(point: str) -> None:
        if point == "before_export" and not asleep.is_set():
            asleep.set()
            assert wake.wait(300)

    monkeypatch.setattr(moving, "reached", reached)
    views: list[Any] = []
    # with more workers, the others would still load ranges
    sleeping = threading.Thread(target=lambda: views.append(one.run(profile="safe")))
    sleeping.start()
    assert asleep.wait(300)
    try:
        change(one, "C")
        with all_homes.other("other") as other:
            view = other.run()
            assert view.good, view.errors
    finally:
        wake.set()
        sleeping.join()
    with all_homes.other("other") as other:
        assert (7, "C") in arrived(one, system), "what is older was not published"
        if write == "replace":
            assert views[0].good, "it has read the source again"
            require_same(one, system)
        else:
            assert not views[0].good
            view = one.run()
            assert view.good, view.errors
            require_same(one, system)
        require_same(other, system)


@pytest.mark.invariant("I8")
@pytest.mark.parametrize("system", SERVERS)
@pytest.mark.parametrize("recreated", [True, False])
def test_a_table_that_others_have_published_in_is_not_swapped_for_an_older_one(
    homes: Callable[..., Homes], system: str, recreated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_homes = homes(system)
    one = all_homes.one
    assert one.run().good
    all_homes.backup("other")
    change(one, "B")
    if not recreated:
        one.declare(hops_to(system), ranges=RANGES, write="swap")

    def publishes(point: str) -> None:
        if point == "before_swap":
            change(one, "C")
            one.declare(hops_to(system), ranges=RANGES)
            with all_homes.other("other") as other:
                view = other.run()
                assert view.good, view.errors

    with monkeypatch.context() as patch:
        patch.setattr("tableferry.assets.running.swap.reached", publishes)
        view = one.run(recreate=recreated)
        assert not view.good
        assert "published rows since" in "".join(view.errors), view.errors
    assert (7, "C") in arrived(one, system), "what is older was not swapped in"
    view = one.run(recreate=recreated)
    assert view.good, view.errors
    require_same(one, system)


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("system", ["sqlserver", "clickhouse"])
def test_what_another_home_has_put_into_a_shadow_is_not_taken_for_ones_own(
    homes: Callable[..., Homes], system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_homes = homes(system, write="swap")
    one = all_homes.one
    assert one.run().good
    all_homes.backup("other")
    change(one, "B")

    def dies(point: str) -> None:
        if point == "before_swap":
            raise TableferryError("died")

    with monkeypatch.context() as patch:
        patch.setattr("tableferry.assets.running.swap.reached", dies)
        assert not one.run().good
        assert set(reasons(one).values()) == {"shadowed"}
        change(one, "C")
        with all_homes.other("other") as other:
            assert not other.run().good
    change(one, "B")
    assert reasons(one) == {FIRST: "source_changed", SECOND: "shadowed", OPEN: "shadowed"}
    view = one.run()
    assert view.good, view.errors
    require_same(one, system)


@pytest.mark.invariant("I9")
@pytest.mark.parametrize("system", SERVERS)
def test_a_table_in_the_place_of_the_target_is_compared(
    homes: Callable[..., Homes], system: str
) -> None:
    """A copy, with one value changed; and then a target that nobody has marked."""
    one = homes(system).one
    assert one.run().good
    table, copy = f"{SCHEMAS[system]}.{one.table}", f"{SCHEMAS[system]}.{one.table}_copy"
    if system == "clickhouse":
        parts = looking.ask(one.stack, system, f"SELECT DISTINCT _partition_id FROM {table}")
        statements = [
            f"CREATE TABLE {copy} AS {table}",
            *(f"ALTER TABLE {copy} ATTACH PARTITION ID '{part}' FROM {table}" for (part,) in parts),
            f"ALTER TABLE {copy} UPDATE name = 'x' WHERE id = 150 SETTINGS mutations_sync = 2",
            f"DROP TABLE {table} SYNC",
            f"RENAME TABLE {copy} TO {table}",
        ]
    else:
        columns = "id int NOT NULL, name nvarchar(max) NOT NULL"
        if system == "postgres":
            columns = f"LIKE {table}"
        statements = [f"CREATE TABLE {copy} ({columns})"]
        statements += [f"INSERT INTO {copy} SELECT * FROM {table}"]
        statements += [f"UPDATE {copy} SET name = 'x' WHERE id = 150", f"DROP TABLE {table}"]
        rename = f"EXEC sp_rename '{copy}', '{one.table}', 'OBJECT'"
        if system == "postgres":
            rename = f"ALTER TABLE {copy} RENAME TO {one.table}"
        statements.append(rename)
    for statement in statements:
        looking.run(one.stack, system, statement)
    assert set(reasons(one).values()) == {"target_moved"}
    view = one.run()
    assert view.good, view.errors
    assert one.moved(view) == [SECOND], "the others were found equal"
    require_same(one, system)

    how = "ALTER TABLE {0} DELETE WHERE `table` = '{1}' SETTINGS mutations_sync = 2"
    if system != "clickhouse":
        how = "DELETE FROM {0} WHERE target_name = '{1}'"
    looking.run(one.stack, system, how.format(f"{SCHEMAS[system]}.{MARKERS}", one.table))
    assert set(reasons(one).values()) == {"target_moved"}
    view = one.run()
    assert view.good, view.errors
    assert one.moved(view) == []
    require_same(one, system)


@pytest.mark.invariant("I7")
@pytest.mark.parametrize(
    ("system", "write"), [*((one, "replace") for one in SCHEMAS), ("clickhouse", "swap")]
)
def test_a_range_is_held_until_it_is_recorded(
    homes: Callable[..., Homes], system: str, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So runs record in the order in which they publish."""
    monkeypatch.setattr("tableferry.resources.transactional.target.LOCK_SECONDS", 0)
    one, recording = homes(system, write=write).one, moving.settle
    held: set[str] = set()

    def settled(attempt: RangeAttempt, *given: Any) -> Any:
        with (
            pytest.raises(RangeBusy),
            attempt.loader.attempt(
                Publication(attempt.hop.plan, attempt.key_range, "v", "another"),
                attempt.hop.options,
                alive=lambda owner: True,
            ),
        ):
            pass
        held.add(attempt.name)
        return recording(attempt, *given)

    # a range without rows is recorded without a move
    for module in (moving, audit):
        monkeypatch.setattr(module, "settle", settled)
    view = one.run()
    assert view.good, view.errors
    assert held == {FIRST, SECOND, OPEN}


def partitions(one: Ferry) -> list[looking.Row]:
    """Rows, different ids and partitions of the target in ClickHouse."""
    table = f"warehouse.{one.table}"
    counts = f"SELECT count(), uniqExact(id), uniqExact(_partition_id) FROM {table}"
    return looking.ask(one.stack, "clickhouse", counts)


def test_a_home_takes_over_how_another_has_cut_a_table(homes: Callable[..., Homes]) -> None:
    all_homes = homes("clickhouse")
    one = all_homes.one
    assert one.run().good
    with all_homes.other("other") as other:
        other.declare(hops_to("clickhouse"), ranges="{rows: 30}")
        planned = other.plan()
        assert {view.range: view.reason for view in planned.ranges} == dict.fromkeys(
            (FIRST, SECOND, OPEN), "missing"
        )
        assert any(str(all_homes.path) in note for note in planned.notes), planned.notes
        assert other.run().good
        assert partitions(one) == [(200, 200, 2)]
        assert set(reasons(one).values()) == {"unchanged"}

        other.source("INSERT INTO {t} SELECT g, 'new' FROM generate_series(201, 260) g")
        view = other.run()
        assert view.good, view.errors
        require_same(other, "clickhouse")
        found = {view.range for view in other.plan().ranges}
        assert OPEN not in found, "its place was taken by others"
        assert {view.range: view.reason for view in one.plan().ranges} == {
            name: "unchanged" if name in (FIRST, SECOND) else "missing" for name in found
        }
        assert one.run().good
        require_same(one, "clickhouse")
        require_same(other, "clickhouse")
        assert partitions(one)[0][:2] == (260, 260)


def test_declared_bounds_are_refused_beside_other_cuts(homes: Callable[..., Homes]) -> None:
    all_homes = homes("clickhouse")
    one = all_homes.one
    assert one.run().good
    with all_homes.other("other") as other:
        other.declare(hops_to("clickhouse"), ranges="{bounds: [1, 51]}")
        with pytest.raises(InputError) as refused:
            other.plan()
        assert FIRST in str(refused.value) and str(all_homes.path) in str(refused.value)
        assert f"ferry clean {one.table} --markers" in str(refused.value)
        with pytest.raises(InputError):
            other.run()
        done = CliRunner().invoke(main, ["clean", one.table, "--markers"])
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines() == [f"markers of clickhouse://warehouse.{one.table}"]
        view = other.run()
        assert view.good, view.errors
        require_same(other, "clickhouse")
        assert partitions(one) == [(200, 200, 2)]
