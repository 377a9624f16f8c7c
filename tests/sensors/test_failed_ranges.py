"""The sensor that tries failed ranges again: which, when, how often; tick after tick."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.dagster_rules import ASSET_JOB
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.sections import CheckSpec
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.runs import RANGE_END, RANGE_START
from tableferry.assets.log.states import State
from tableferry.assets.log.writer import Writer
from tableferry.checks.verdict import Verdict
from tableferry.resources.errors import ConnectionFailed
from tableferry.sensors import failed_ranges, new_ranges, rounds
from tableferry.sensors.failed_ranges import failed_ranges_sensor
from tableferry.sensors.rounds import MOST_TRIES
from tableferry.sensors.sending import Alert
from tests.integration.support import homes
from tests.integration.support.recording import Log

TRANSFER = Transfer.model_validate(
    {
        "transfer": "orders",
        "source": "postgres://public.orders",
        "hops": ["sqlserver://dbo.orders", "clickhouse://warehouse.orders"],
        "key": "id",
    }
)
LEFT_OUT = TRANSFER.model_copy(update={"transfer": "left_out", "retry_failed": False})
ONE, TWO = (asset_key(hop.to) for hop in TRANSFER.hops)
NAMES = [f"{start:010d}..{start + 10:010d}" for start in range(0, 60, 10)]
PAUSE, LATE = 1_000_000.0, 10_000.0
"""Long, so that the seconds that a test takes do not matter."""


@dg.asset
def any_asset() -> None:
    pass


DEFINITIONS = dg.Definitions([any_asset])


def tries_of(cursor: str | None) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = json.loads(cursor or "")["tries"]
    return found


class Ticks:
    """The sensor as the daemon evaluates it, with its cursor and a clock of its own."""

    def __init__(self, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
        self.instance, self.cursor, self.now = instance, None, time.time()
        self._sensor = failed_ranges_sensor({"orders": TRANSFER, "left_out": LEFT_OUT})
        monkeypatch.setattr(failed_ranges, "time", lambda: self.now)
        monkeypatch.setattr(rounds, "FIRST_PAUSE", PAUSE)
        instance.add_dynamic_partitions(TRANSFER.partitions_name, NAMES)

    def tick(self, after: float = 0.0) -> list[tuple[str, str]]:
        """The first and last range of each run that a tick asks for."""
        return [self.span(one) for one in self.evaluate(after).run_requests or ()]

    def evaluate(self, after: float = 0.0) -> Any:
        self.now += after
        data = self._sensor.evaluate_tick(
            dg.build_sensor_context(self.instance, cursor=self.cursor, definitions=DEFINITIONS)
        )
        self.cursor = data.cursor
        return data

    @staticmethod
    def span(request: dg.RunRequest) -> tuple[str, str]:
        return request.tags[RANGE_START], request.tags[RANGE_END]

    def write(
        self,
        act: Callable[[Writer], None],
        hop: dg.AssetKey = ONE,
        status: dg.DagsterRunStatus = dg.DagsterRunStatus.SUCCESS,
    ) -> dg.DagsterRun:
        """Let a run of that status have recorded something of a hop."""
        run = self.instance.add_run(dg.DagsterRun(job_name="another", status=status))
        act(Writer(Log(self.instance, run.run_id), hop, TRANSFER))
        return run

    def record(self, state: State, *names: str, hop: dg.AssetKey = ONE) -> None:
        def act(writer: Writer) -> None:
            for name in names:
                one = RangeRecord(range=name, state=state, data_version="a.b.c")
                if state in (State.COMMITTED, State.SKIPPED_UNCHANGED):
                    writer.commit(one)
                else:
                    writer.progress(one)

        self.write(act, hop)

    def start_run(self, job: str = ASSET_JOB, **arguments: Any) -> dg.DagsterRun:
        run = dg.DagsterRun(job_name=job, status=dg.DagsterRunStatus.STARTED, **arguments)
        return self.instance.add_run(run)

    def end(self, run: dg.DagsterRun) -> None:
        self.instance.report_run_failed(run)


@pytest.fixture
def ticks(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ticks]:
    with homes.local_temp(tmp_path_factory.mktemp("dagster")) as instance:
        yield Ticks(instance, monkeypatch)


def test_what_no_run_has_come_to_in_a_hop_is_missing(ticks: Ticks) -> None:
    """It was killed between two hops, say; a hop of which nothing is recorded is not begun."""

    def missing() -> set[str]:
        context = dg.build_sensor_context(ticks.instance)
        return new_ranges._untouched(TRANSFER, context, NAMES)

    assert missing() == set(NAMES)
    ticks.record(State.COMMITTED, *NAMES[:4])
    assert missing() == set(NAMES[4:])
    ticks.record(State.COMMITTED, *NAMES[4:])
    assert missing() == set()
    ticks.record(State.FAILED, *NAMES[:4], hop=TWO)
    assert missing() == set(NAMES[4:])


def test_only_what_failed_is_tried_again_one_run_per_stretch(ticks: Ticks) -> None:
    ticks.record(State.COMMITTED, NAMES[0], NAMES[3])
    ticks.record(State.FAILED, NAMES[1], NAMES[2])
    ticks.record(State.COMMITTED, *NAMES[:4], hop=TWO)
    ticks.record(State.FAILED, NAMES[4], hop=TWO)
    found = ticks.evaluate(PAUSE + LATE)
    assert [ticks.span(one) for one in found.run_requests] == [
        (NAMES[1], NAMES[2]),
        (NAMES[4], NAMES[4]),
    ]
    assert {tuple(one.asset_selection) for one in found.run_requests} == {(ONE, TWO)}


def test_the_pauses_double_and_then_it_gives_up(ticks: Ticks) -> None:
    ticks.record(State.FAILED, NAMES[1])
    keys = []
    for number in range(MOST_TRIES):
        pause = PAUSE * 2**number
        assert ticks.tick(pause - LATE) == []
        found = ticks.evaluate(2 * LATE)
        assert [ticks.span(one) for one in found.run_requests] == [(NAMES[1], NAMES[1])]
        keys += [one.run_key for one in found.run_requests]
        assert ticks.tick() == [], "once for each pause"
        ticks.now -= LATE
    assert len(set(keys)) == MOST_TRIES, "Dagster launches each run key once"
    found = ticks.evaluate(PAUSE * 100)
    assert not found.run_requests
    assert f"given up after {MOST_TRIES} tries: {NAMES[1]}" in str(found.skip_message)


def test_a_run_that_died_before_it_came_to_the_range_counts_as_a_try(ticks: Ticks) -> None:
    """It leaves the record of the failure as it was; the pause counts from the try."""
    ticks.record(State.FAILED, NAMES[1])
    first = ticks.evaluate(PAUSE + LATE)
    assert ticks.tick(PAUSE) == [], "not yet: twice as long since the first try"
    second = ticks.evaluate(PAUSE + LATE)
    assert [one.run_key for one in first.run_requests] != [
        one.run_key for one in second.run_requests
    ]


def test_a_tick_that_is_repeated_asks_for_the_same_runs(ticks: Ticks) -> None:
    """The daemon died before it stored the cursor."""
    ticks.record(State.FAILED, NAMES[1], NAMES[4])
    before = ticks.cursor
    first = ticks.evaluate(PAUSE + LATE)
    ticks.cursor = before
    second = ticks.evaluate(1)
    assert [one.run_key for one in first.run_requests] == [
        one.run_key for one in second.run_requests
    ]


def test_what_was_mended_begins_anew_when_it_fails_again(ticks: Ticks) -> None:
    ticks.record(State.FAILED, NAMES[1])
    assert ticks.tick(PAUSE + LATE)
    assert tries_of(ticks.cursor)["orders"][NAMES[1]][0] == 1
    ticks.record(State.COMMITTED, NAMES[1])
    assert ticks.tick() == []
    assert tries_of(ticks.cursor) == {}
    ticks.record(State.FAILED, NAMES[1])
    ticks.now = time.time()
    assert ticks.tick(PAUSE + LATE) == [(NAMES[1], NAMES[1])]


def test_a_failed_check_counts_and_one_about_an_older_materialization_does_not(
    ticks: Ticks,
) -> None:
    ticks.record(State.COMMITTED, NAMES[1], NAMES[2])
    bad = Verdict("row_count", False, {"rows": 2}, {"rows": 1}, 0.1)
    ticks.write(lambda writer: [writer.all_checked(name, [bad]) for name in NAMES[1:3]] and None)
    ticks.record(State.COMMITTED, NAMES[2])
    assert ticks.tick(PAUSE + LATE) == [(NAMES[1], NAMES[1])]


def test_what_a_killed_run_left_half_done_is_tried_again(ticks: Ticks) -> None:
    """A dead run leaves no failure, only how far it came; while it lives that is no failure."""
    half_done = RangeRecord(range=NAMES[1], state=State.LOADED)
    run = ticks.write(lambda writer: writer.progress(half_done), status=dg.DagsterRunStatus.STARTED)
    assert ticks.tick(PAUSE + LATE) == []
    ticks.end(run)
    assert ticks.tick() == [(NAMES[1], NAMES[1])]


def test_it_waits_for_the_end_of_a_run_of_the_transfer(ticks: Ticks) -> None:
    ticks.record(State.FAILED, NAMES[1])
    for target in (ONE, TWO):
        run = ticks.start_run(asset_selection=frozenset([target]))
        found = ticks.evaluate(PAUSE + LATE)
        assert not found.run_requests
        assert run.run_id in str(found.skip_message)
        ticks.end(run)
    other = ticks.start_run("move_other", asset_selection=frozenset([dg.AssetKey("other")]))
    assert ticks.tick() == [(NAMES[1], NAMES[1])], "no try is lost by waiting"
    ticks.end(other)


def test_a_cursor_of_another_version_is_no_error(ticks: Ticks) -> None:
    ticks.record(State.FAILED, NAMES[1])
    for cursor in (json.dumps({NAMES[1]: 2}), '{"tries": {"orders": {"x": 2}}}', "nonsense", "[]"):
        ticks.cursor = cursor
        assert ticks.tick(PAUSE + LATE) == [(NAMES[1], NAMES[1])]


def test_nothing_failed_is_nothing_to_do(ticks: Ticks) -> None:
    ticks.record(State.COMMITTED, *NAMES)
    found = ticks.evaluate(PAUSE * 10)
    assert not found.run_requests
    assert str(found.skip_message) == "orders: 0 failed ranges, none due for a retry"


def test_a_range_that_is_given_up_is_told_once(
    ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Alert] = []
    refuse = [ConnectionFailed("the hook is away")]

    def send(alert: Alert) -> None:
        if refuse:
            raise refuse.pop()
        told.append(alert)

    monkeypatch.setattr(rounds, "send", send)
    ticks.record(State.FAILED, NAMES[1])
    ticks.now = time.time()
    for number in range(MOST_TRIES):
        assert ticks.tick(after=PAUSE * 2**number + LATE)
        assert told == [], "the last try may still do"
    ticks.evaluate()
    assert told == [], "it has not ended yet"
    ticks.evaluate(after=PAUSE * 2**MOST_TRIES + LATE)
    assert (told, refuse) == ([], []), "nobody took it"
    ticks.evaluate()
    ticks.evaluate()
    (alert,) = told
    why = f"sqlserver://dbo.orders {NAMES[1]}: failed: its run did not finish"
    assert (alert.kind, alert.errors) == ("ranges_given_up", [why])
    assert alert.text == f"orders: 1 range given up after {MOST_TRIES} tries"
    ticks.record(State.COMMITTED, NAMES[1])
    ticks.evaluate()
    assert tries_of(ticks.cursor) == {}, "it may fail anew"


def test_a_failure_counts_as_it_does_for_planning(ticks: Ticks) -> None:
    """Of a level that is not declared, too, which moves the range; a warning moves nothing."""
    ticks.record(State.COMMITTED, *NAMES[:4])
    strict = Verdict("full_hash", False, {"rows": 2}, {"rows": 2}, 0.1)
    ticks.write(lambda writer: writer.all_checked(NAMES[1], [strict]))
    warning = {"checks": {"full_hash": CheckSpec(severity="warn", blocking=False)}}
    run = ticks.instance.add_run(dg.DagsterRun("another", status=dg.DagsterRunStatus.SUCCESS))
    lenient = Writer(Log(ticks.instance, run.run_id), ONE, TRANSFER.model_copy(update=warning))
    lenient.all_checked(NAMES[2], [strict])
    assert ticks.tick(PAUSE + LATE) == [(NAMES[1], NAMES[1])]
