"""What the log says of a range that was committed: in one transaction, or not at all."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from tableferry.assets.log import grouping, ledger
from tableferry.assets.log.states import State
from tableferry.assets.log.writer import Writer
from tableferry.checks.verdict import Verdict
from tableferry.pipelines import event_log
from tests.integration.support import homes
from tests.log.test_ledger import ASSET, CHECK, record, verdict, write


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.delenv(homes.STORAGE, raising=False)
    monkeypatch.setenv(event_log.DAGSTER_HOME, str(tmp_path))
    with event_log.open_to_record() as opened:
        yield opened


def settle(writer: Writer, name: str = "a") -> None:
    writer.record_commit(record(name), [verdict(True)])


@contextmanager
def commits() -> Iterator[Counter[str]]:
    """How many transactions of the block have written to each file."""
    found: Counter[str] = Counter()

    def listen(connection: Connection) -> None:
        if connection.info.pop("wrote", False):
            found[Path(connection.engine.url.database or "").name] += 1

    def look(connection: Connection, cursor: object, sql: str, *_: object) -> None:
        wrote = sql.startswith("INSERT INTO event_logs")
        connection.info["wrote"] = connection.info.get("wrote") or wrote

    event.listen(Engine, "commit", listen)
    event.listen(Engine, "before_cursor_execute", look)
    try:
        yield found
    finally:
        event.remove(Engine, "commit", listen)
        event.remove(Engine, "before_cursor_execute", look)


def assert_settled(instance: dg.DagsterInstance, names: Sequence[str]) -> None:
    assert ledger.verdicts(instance, ASSET, [CHECK]) == {name: {CHECK: True} for name in names}
    for name, of_range in ledger.evaluations(instance, ASSET, [CHECK]).items():
        evaluation = of_range[CHECK].evaluation
        assert evaluation is not None
        assert evaluation.target_materialization_data == ledger.latest_materialization(
            instance, ASSET, name
        ), "each verdict is about its own range"


def settle_beside_each_other(writer: Writer, names: Sequence[str]) -> list[str]:
    """All of them wait until the last one does; returns those that failed."""
    storage: Any = writer._context.instance.event_log_storage
    waiting, failed = threading.Barrier(len(names) + 1), []

    def act(name: str) -> None:
        waiting.wait()
        try:
            settle(writer, name)
        except OSError:
            failed.append(name)

    threads = [threading.Thread(target=act, args=(name,)) for name in names]
    for one in threads:
        one.start()
    with storage._storing:
        waiting.wait()
        time.sleep(0.1)
    for one in threads:
        one.join()
    return failed


def test_a_commit_and_its_verdicts_are_one_transaction(
    instance: dg.DagsterInstance,
) -> None:
    found: Counter[str] = Counter()

    def act(writer: Writer) -> None:
        with commits() as counted:
            settle(writer)
        found.update(counted)

    write(instance, act)
    assert found == {"index.db": 1}
    (materialization,) = instance.fetch_materializations(ASSET, limit=9).records
    evaluation = ledger.evaluations(instance, ASSET, [CHECK])["a"][CHECK].evaluation
    assert evaluation is not None
    assert evaluation.target_materialization_data == ledger.latest_materialization(instance, ASSET)
    assert ledger.verdicts(instance, ASSET, [CHECK]) == {"a": {CHECK: True}}
    run = materialization.run_id
    kinds = {dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_CHECK_EVALUATION}
    stored = [one.dagster_event_type for one in instance.all_logs(run, of_type=kinds)]
    assert len(stored) == 2, "its run has them, too"


def test_a_verdict_that_comes_alone_is_one_transaction(
    instance: dg.DagsterInstance,
) -> None:
    found: Counter[str] = Counter()

    def act(writer: Writer) -> None:
        settle(writer)
        with commits() as counted:
            writer.checked("a", verdict(False))
        found.update(counted)

    write(instance, act)
    assert found == {"index.db": 1}
    assert ledger.verdicts(instance, ASSET, [CHECK]) == {"a": {CHECK: False}}


def test_what_a_run_plans_is_one_transaction(instance: dg.DagsterInstance) -> None:
    checks = [dg.AssetCheckSpec(f"check_{number}", asset=ASSET) for number in range(3)]

    @dg.multi_asset(specs=[dg.AssetSpec(ASSET)], check_specs=checks)
    def planned() -> Iterator[Any]:
        yield from ()

    job = dg.Definitions([planned], jobs=[dg.define_asset_job("job")]).resolve_job_def("job")
    with commits() as found, grouping.together(instance.event_log_storage):
        run = instance.create_run_for_job(job).run_id
    assert found == {"index.db": 1}
    kinds = Counter(one.dagster_event_type for one in instance.all_logs(run))
    assert kinds == {
        dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED: 1,
        dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED: 3,
    }
    keys = [one.key for one in checks]
    planned_checks = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    assert {one.run_id for one in planned_checks.values()} == {run}
    assert len(planned_checks) == 3


def test_a_crash_in_between_leaves_nothing_in_the_index(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashed(point: str) -> None:
        raise OSError(point)

    def act(writer: Writer) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(grouping, "reached", crashed)
            with pytest.raises(OSError, match="inside_event"):
                settle(writer)
        settle(writer, "b")

    write(instance, act)
    assert set(ledger.committed(instance, ASSET, [CHECK])) == {"b"}
    assert ledger.verdicts(instance, ASSET, [CHECK]) == {"b": {CHECK: True}}


def test_threads_beside_each_other_and_beside_the_log_of_their_run(
    instance: dg.DagsterInstance,
) -> None:
    def act(writer: Writer) -> None:
        ranges = [
            threading.Thread(target=settle, args=(writer, f"{number:02}")) for number in range(8)
        ]
        for one in ranges:
            one.start()
            writer.progress(record("other", State.LOADED))
        for one in ranges:
            one.join()

    write(instance, act)
    names = [f"{number:02}" for number in range(8)]
    assert_settled(instance, names)


def test_no_range_fails_for_the_events_of_another(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = grouping.resolved

    def broken(event: dg.EventLogEntry, about: Any) -> dg.EventLogEntry:
        if event.dagster_event and event.dagster_event.partition == "02":
            raise OSError("of this one alone")
        return store(event, about)

    def act(writer: Writer) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(grouping, "resolved", broken)
            assert settle_beside_each_other(writer, ["01", "02", "03"]) == ["02"]

    write(instance, act)
    assert set(ledger.committed(instance, ASSET, [CHECK])) == {"01", "03"}


def test_a_range_whose_transaction_fails_is_not_recorded_and_the_others_are_once(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage: Any = instance.event_log_storage
    begin, failed = storage.begin, list[str]()

    @contextmanager
    def failing_once() -> Iterator[Connection]:
        with begin() as connection:
            yield connection
            if not failed:
                failed.append("once")
                raise OSError("the disk is full")

    def act(writer: Writer) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(storage, "begin", failing_once)
            failed.extend(settle_beside_each_other(writer, ["01", "02", "03"]))

    write(instance, act)
    _, lost = failed
    recorded = [name for name in ("01", "02", "03") if name != lost]
    assert_settled(instance, recorded)
    (run,) = instance.get_runs()
    events = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert sorted(str(e.get_dagster_event().partition) for e in events) == recorded


def test_a_commit_whose_verdicts_cannot_be_recorded_is_not_recorded(
    instance: dg.DagsterInstance,
) -> None:
    def verdicts() -> Iterator[Verdict]:
        yield verdict(True)
        raise OSError("a verdict that cannot be written")

    def act(writer: Writer) -> None:
        with pytest.raises(OSError, match="cannot be written"):
            writer.record_commit(record("a"), verdicts())
        settle(writer, "b")

    write(instance, act)
    assert set(ledger.committed(instance, ASSET, [CHECK])) == {"b"}
    assert_settled(instance, ["b"])
