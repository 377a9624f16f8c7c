"""The event log as the record of what is committed, on a real Dagster instance."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
)
from dagster._core.definitions.partitions.subset.default import DefaultPartitionsSubset
from dagster._core.events import DagsterEvent, DagsterEventType, StepMaterializationData

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.sections import HopSpec
from tableferry.assets.log import attention, ledger, queries, written_columns
from tableferry.assets.log.downstream import marks
from tableferry.assets.log.ledger import Committed
from tableferry.assets.log.queries import Log as EventLog
from tableferry.assets.log.queries import event_storage
from tableferry.assets.log.ranges import read_status
from tableferry.assets.log.records import DATA_VERSION, DataVersion, RangeRecord
from tableferry.assets.log.runs import failed_transfers, is_unanswered
from tableferry.assets.log.states import Reason, State
from tableferry.assets.log.writer import Writer
from tableferry.assets.planning.rows.decision import Decision, decide
from tableferry.assets.verifying.checked import NotCommitted
from tableferry.checks.expectations import ALL_CHECKS
from tableferry.checks.verdict import Verdict
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.contract.markers import Marker, Published
from tableferry.resources.tables import TableRef
from tests.integration.support import homes
from tests.integration.support.recording import Log

ASSET = dg.AssetKey(["clickhouse", "warehouse", "orders"])
TABLE = TableRef.parse("clickhouse://warehouse.orders")
CHECK = "row_count"
TRANSFER = Transfer.model_validate(
    {
        "transfer": "orders",
        "source": "postgres://public.orders",
        "hops": ["clickhouse://warehouse.orders"],
        "key": "id",
    }
)
PARTITIONS = dg.DynamicPartitionsDefinition(name="orders_ranges")
V1 = DataVersion("source1", "schema1", "settings1")
NO_TABLE = Decision(Reason.TARGET_MISSING, "no such table")


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    with homes.local_temp(tmp_path_factory.mktemp("dagster")) as made:
        yield made
        assert_read_as_dagster_reads_it(made)
        assert_read_alike_in_its_files(made)


def assert_read_as_dagster_reads_it(instance: dg.DagsterInstance) -> None:
    """Whatever is in the log: our statements find what Dagster finds."""
    storage, moved = instance.event_log_storage, dg.DagsterEventType.ASSET_MATERIALIZATION
    newest = ledger.newest_ids(instance, ASSET)
    assert newest == storage.get_latest_storage_id_by_partition(ASSET, moved)
    tags = storage.get_latest_tags_by_partition(ASSET, moved, [DATA_VERSION])
    assert {
        name: {DATA_VERSION: str(one.data_version)}
        for name, one in ledger.committed(instance, ASSET, ()).items()
    } == tags
    events = [
        *instance.fetch_materializations(ASSET, limit=999).records,
        *instance.fetch_observations(ASSET, limit=999).records,
    ]
    latest = {one.partition_key: one for one in sorted(events, key=lambda one: one.storage_id)}
    found = ledger.records(instance, ASSET, {str(name) for name in latest})
    assert {name: (one.run_id, one.timestamp) for name, one in found.items()} == {
        name: (one.run_id, one.timestamp) for name, one in latest.items()
    }
    for name, about in ledger.newest(instance, ASSET, newest).items():
        (one,) = instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=ASSET, asset_partitions=[name]), limit=1
        ).records
        assert (about.storage_id, about.run_id, about.timestamp) == (
            one.storage_id,
            one.run_id,
            one.timestamp,
        )
        assert about == ledger.latest_materialization(instance, ASSET, name)
    assert_a_status_is_read_alike(instance)


def assert_a_status_is_read_alike(instance: dg.DagsterInstance) -> None:
    """Whatever is in the log: read for many tables at once, it says what it says of each."""
    names = sorted({"a", "b", "c", *ledger.newest_ids(instance, ASSET)})
    instance.add_dynamic_partitions(TRANSFER.partitions_name, names)
    status = read_status(instance, [TRANSFER])[TABLE]
    assert [*status.ranges] == instance.get_dynamic_partitions(TRANSFER.partitions_name)
    records = ledger.records(instance, ASSET, status.ranges)
    assert {
        name: each.record
        for name, each in status.ranges.items()
        if each.record.state is not State.MISSING
    } == records
    standing = ledger.standing(instance, ASSET, (*ALL_CHECKS, *WHOLE_TABLE_CHECKS))
    checks = {None: status.checks, **{name: each.checks for name, each in status.ranges.items()}}
    for name, found in checks.items():
        assert {check.name: check.passed for check in found if not check.source_newer} == {
            check: verdict.passed for check, verdict in standing.get(name, {}).items()
        }
    failed = {TRANSFER.transfer} if is_unanswered(instance, TRANSFER, [TABLE]) else set()
    assert failed_transfers(instance, [TRANSFER]).keys() == failed
    assert_what_needs_attention_is_found(instance)


def assert_what_needs_attention_is_found(instance: dg.DagsterInstance) -> None:
    """Whatever is in the log: no range that failed, and none without a record, is overlooked."""
    names = {*instance.get_dynamic_partitions(TRANSFER.partitions_name)}
    records = ledger.records(instance, ASSET, names)
    verdicts = ledger.verdicts(instance, ASSET, ALL_CHECKS)
    failed = [
        name
        for name, record in records.items()
        if not record.state.in_target or not all(verdicts.get(name, {}).values())
    ]
    assert not failed or attention.with_failures(instance, [TRANSFER])
    untouched = attention.with_untouched_ranges(instance, [TRANSFER])
    assert untouched == ({TRANSFER.transfer} if names - records.keys() else set())


def assert_read_alike_in_its_files(instance: dg.DagsterInstance) -> None:
    """Whatever is in the log: it is found without Dagster, too."""
    names = {"a", "b", "c", *ledger.newest_ids(instance, ASSET)}
    questions: list[Callable[[EventLog], object]] = [
        lambda log: ledger.newest_ids(log, TABLE),
        lambda log: ledger.records(log, TABLE, names),
        lambda log: ledger.moves(log, TABLE, names),
        lambda log: ledger.verdicts(log, TABLE, [CHECK]),
        lambda log: ledger.committed(log, TABLE, [CHECK], declared=[CHECK, "checksum"]),
        lambda log: ledger.partitions(log, str(PARTITIONS.name)),
        lambda log: written_columns.committed_schema(log, TABLE),
        lambda log: written_columns.created_table(log, TABLE),
        lambda log: is_unanswered(log, TRANSFER, [TABLE]),
        lambda log: read_status(log, [TRANSFER], evidence=True),
        lambda log: failed_transfers(log, [TRANSFER]),
    ]
    with queries.opened(Path(instance.root_directory)) as files:
        for ask in questions:
            assert ask(files) == ask(instance)


def write(instance: dg.DagsterInstance, act: Callable[[Writer], None]) -> None:
    """Let `act` write from inside a run, as the worker does."""

    @dg.op
    def writing(context: dg.OpExecutionContext) -> None:
        act(Writer(context, ASSET, TRANSFER))

    @dg.job
    def write_job() -> None:
        writing()

    assert write_job.execute_in_process(
        instance=instance,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    ).success


@dg.job
def nothing() -> None:
    pass


def plan_check(instance: dg.DagsterInstance, *ranges: str) -> dg.DagsterRun:
    """Leave what a run leaves that is to check these ranges and has not come to it."""
    event = DagsterEvent(
        DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value,
        nothing.name,
        event_specific_data=AssetCheckEvaluationPlanned(
            asset_key=ASSET,
            check_name=CHECK,
            partitions_subset=DefaultPartitionsSubset(set(ranges)),
        ),
    )
    run = instance.create_run_for_job(nothing)
    instance.report_dagster_event(event, run.run_id)
    return run


class Queued:
    """A run whose checks were planned before other runs recorded theirs."""

    def __init__(self, instance: dg.DagsterInstance, *ranges: str) -> None:
        self.instance, self._run = instance, plan_check(instance, *ranges)

    def log_event(self, event: object) -> None:
        kind, data = (
            (DagsterEventType.ASSET_MATERIALIZATION, StepMaterializationData(event))
            if isinstance(event, dg.AssetMaterialization)
            else (DagsterEventType.ASSET_CHECK_EVALUATION, event)
        )
        self.instance.report_dagster_event(
            DagsterEvent(kind.value, nothing.name, event_specific_data=data),  # type: ignore[arg-type]
            self._run.run_id,
        )

    @property
    def writer(self) -> Writer:
        return Writer(self, ASSET, TRANSFER)


def record(name: str, state: State = State.COMMITTED, version: DataVersion = V1) -> RangeRecord:
    return RangeRecord(
        range=name,
        state=state,
        data_version=str(version),
        rows=10,
        bytes=100,
        wire="arrow",
        seconds={"export": 1.0, "load": 3.0},
    )


def verdict(passed: bool) -> Verdict:
    return Verdict(CHECK, passed, {"rows": 10}, {"rows": 10 if passed else 9}, 0.1)


def test_a_commit_tells_whose_rows_it_has_taken(instance: dg.DagsterInstance) -> None:
    first = replace(record("a"), written_by="run-1")
    second = replace(record("b"), taken_from="run-2")
    write(instance, lambda writer: (writer.commit(first), writer.commit(second)))
    known = ledger.committed(instance, ASSET, (), origins=True)
    assert (known["a"].written_by, known["a"].taken_from) == ("run-1", None)
    assert (known["b"].written_by, known["b"].taken_from) == (None, "run-2")


def test_a_record_survives_the_event_log(instance: dg.DagsterInstance) -> None:
    write(instance, lambda writer: writer.commit(record("a")))
    found = ledger.records(instance, ASSET, ["a", "b"])
    assert set(found) == {"a"}
    assert found["a"].rows == 10
    assert found["a"].seconds == {"export": 1.0, "load": 3.0}
    assert found["a"].state is State.COMMITTED
    assert found["a"].data_version == str(V1)


def test_the_reason_of_a_failure_survives_however_it_is_worded(
    instance: dg.DagsterInstance,
) -> None:
    why = "value 'range a: b' of x: y is too long"
    failed = replace(record("a", State.FAILED), error=f"orders: target range a: {why}", why=why)
    write(instance, lambda writer: writer.progress(failed))
    found = ledger.records(instance, ASSET, ["a"])["a"]
    assert (found.error, found.why) == (failed.error, why)
    shown = NotCommitted("target", "a", found.state, found.error, found.why).summary()
    assert shown == f"target a: failed: {why}"


def test_metadata_has_plottable_numbers_and_the_bottleneck() -> None:
    metadata = record("a").metadata()
    assert metadata["dagster/partition_row_count"] == 10
    assert metadata["bottleneck"] == "load"


@pytest.mark.parametrize(
    ("rows", "moving_seconds", "expected"),
    [(20_000, 4.0, 5000.0), (9_999, 0.1, None), (16, 5.0, None), (20_000, None, None)],
    ids=["enough rows", "too few rows", "a tiny table", "a skip"],
)
def test_a_rate_is_of_wall_clock_time_and_of_enough_rows(
    instance: dg.DagsterInstance, rows: int, moving_seconds: float | None, expected: float | None
) -> None:
    moved = replace(record("a"), rows=rows, moving_seconds=moving_seconds)
    assert moved.metadata().get("rows_per_second") == expected
    write(instance, lambda writer: writer.commit(moved))
    assert ledger.records(instance, ASSET, ["a"])["a"].rows_per_second == expected


def test_a_move_is_found_however_often_its_range_was_skipped(instance: dg.DagsterInstance) -> None:
    write(instance, lambda writer: writer.commit(record("a")))
    write(instance, lambda writer: writer.commit(record("b", State.ADOPTED)))
    write(instance, lambda writer: writer.commit(record("b", State.SKIPPED_UNCHANGED)))
    columns = "run_id, event, dagster_event_type, timestamp, step_key, asset_key, partition"
    with event_storage(instance).index_connection() as connection:
        connection.exec_driver_sql(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
            f"INSERT INTO event_logs ({columns}) SELECT {columns} FROM n, event_logs WHERE "
            "partition = 'b' AND event LIKE '%skipped_unchanged%'"
        )
    runs = [run.run_id for run in instance.get_runs()]
    moves = ledger.moves(instance, ASSET, {"a", "b"})
    assert {name: (move.state, move.run_id) for name, move in moves.items()} == {
        "a": (State.COMMITTED, runs[2]),
        "b": (State.ADOPTED, runs[1]),
    }


@pytest.mark.invariant("I3")
def test_an_unfinished_attempt_is_not_committed_but_is_shown(instance: dg.DagsterInstance) -> None:
    write(instance, lambda writer: writer.progress(record("a", State.LOADED)))
    assert ledger.committed(instance, ASSET, [CHECK]) == {}
    shown = ledger.records(instance, ASSET, ["a"])["a"]
    assert (shown.state, shown.data_version) == (State.LOADED, str(V1))


@pytest.mark.invariant("I11")
def test_a_failed_check_after_the_commit_makes_the_range_suspect(
    instance: dg.DagsterInstance,
) -> None:
    def first(writer: Writer) -> None:
        for name in ("good", "bad", "mended"):
            writer.commit(record(name))
            writer.all_checked(name, [verdict(True)])

    def second(writer: Writer) -> None:
        writer.all_checked("bad", [verdict(False)])
        writer.all_checked("mended", [verdict(False)])

    write(instance, first)
    write(instance, second)
    write(instance, lambda writer: writer.commit(record("mended")))
    found = ledger.committed(instance, ASSET, [CHECK])
    assert {name: one.failed for name, one in found.items()} == {
        "good": (),
        "bad": (CHECK,),
        "mended": (),
    }, "a verdict older than the materialization does not count"


def test_a_commit_without_a_verdict_is_committed(instance: dg.DagsterInstance) -> None:
    """A process killed between the two events leaves this; the commit itself was checked."""
    write(instance, lambda writer: writer.commit(record("a")))
    found = ledger.committed(instance, ASSET, [CHECK])
    assert found["a"].failed == ()
    assert decide({"a": V1}, found, target_rows={"a": 10}, expected_rows={"a": 10}) == {
        "a": Decision(Reason.UNCHECKED)
    }
    write(instance, lambda writer: writer.all_checked("a", [verdict(True)]))
    assert ledger.committed(instance, ASSET, [CHECK])["a"].unchecked is False


def test_a_planned_check_does_not_hide_the_verdict_before_it(instance: dg.DagsterInstance) -> None:
    def act(writer: Writer) -> None:
        for name in ("good", "bad", "open"):
            writer.commit(record(name))
        writer.all_checked("good", [verdict(True)])
        writer.all_checked("bad", [verdict(False)])

    write(instance, act)
    plan_check(instance, "good", "bad", "open")
    found = ledger.committed(instance, ASSET, [CHECK])
    assert {name: (one.failed, one.unchecked) for name, one in found.items()} == {
        "good": ((), False),
        "bad": ((CHECK,), False),
        "open": ((), True),
    }


def everything_known(instance: dg.DagsterInstance) -> tuple[dict[str, bool], ...]:
    """What status, the report and planning make of the one check: whether it passed, by range."""
    committed = ledger.committed(instance, ASSET, [CHECK])
    seen = ledger.verdicts(instance, ASSET, [CHECK])
    full = ledger.evaluations(instance, ASSET, [CHECK])
    return (
        {name: not one.failed for name, one in committed.items() if not one.unchecked},
        {name: checks[CHECK] for name, checks in seen.items()},
        {
            str(name): checks[CHECK].evaluation is not None and checks[CHECK].evaluation.passed
            for name, checks in full.items()
            if name is not None
        },
    )


@pytest.mark.invariant("I11")
def test_a_check_beside_a_move_does_not_outlive_it(instance: dg.DagsterInstance) -> None:
    """The move's rows of checks are created when it is queued, and filled in after the check's."""
    write(instance, lambda writer: writer.commit(record("a")))
    move = Queued(instance, "a")
    write(instance, lambda writer: writer.all_checked("a", [verdict(False)]))
    move.writer.commit(record("a"))
    move.writer.all_checked("a", [verdict(True)])
    assert everything_known(instance) == ({"a": True},) * 3


@pytest.mark.invariant("I11")
def test_nor_does_one_that_is_recorded_after_the_move(instance: dg.DagsterInstance) -> None:
    write(instance, lambda writer: writer.commit(record("a")))
    before = ledger.newest(instance, ASSET, ["a"])["a"]

    def move(writer: Writer) -> None:
        writer.commit(record("a"))
        writer.all_checked("a", [verdict(True)])

    write(instance, move)
    write(instance, lambda writer: writer.checked("a", verdict(False), before))
    assert everything_known(instance) == ({"a": True},) * 3


def test_the_verdict_that_was_given_last_counts_whichever_was_planned_first(
    instance: dg.DagsterInstance,
) -> None:
    write(instance, lambda writer: writer.commit(record("a")))
    late = Queued(instance, "a")
    write(instance, lambda writer: writer.all_checked("a", [verdict(True)]))
    late.writer.all_checked("a", [verdict(False)])
    assert everything_known(instance) == ({"a": False},) * 3


def test_a_verdict_of_a_range_that_was_never_committed_counts(
    instance: dg.DagsterInstance,
) -> None:
    write(instance, lambda writer: writer.all_checked("a", [verdict(False)]))
    assert everything_known(instance)[1:] == ({"a": False},) * 2
    write(instance, lambda writer: writer.commit(record("a")))
    assert everything_known(instance) == ({}, {}, {})


def test_a_verdict_of_the_whole_table_is_about_its_newest_range(
    instance: dg.DagsterInstance,
) -> None:
    def check(writer: Writer) -> None:
        writer._log(
            dg.AssetCheckEvaluation(
                asset_key=ASSET,
                check_name="total_rows",
                passed=False,
                target_materialization_data=ledger.latest_materialization(instance, ASSET),
            )
        )

    write(instance, lambda writer: writer.commit(record("a")))
    write(instance, check)
    assert set(ledger.evaluations(instance, ASSET, ["total_rows"])) == {None}
    write(instance, lambda writer: writer.commit(record("b")))
    assert ledger.evaluations(instance, ASSET, ["total_rows"]) == {}


def test_a_check_declared_later_has_no_verdict_yet(instance: dg.DagsterInstance) -> None:
    def move(writer: Writer) -> None:
        writer.commit(record("a"))
        writer.all_checked("a", [verdict(True)])

    write(instance, move)
    found = ledger.committed(instance, ASSET, [CHECK], declared=[CHECK, "checksum"])
    assert found["a"].unchecked


def test_a_skip_repeats_what_still_holds_with_who_found_it(instance: dg.DagsterInstance) -> None:
    def move(writer: Writer) -> None:
        writer.commit(record("a"))
        writer.all_checked("a", [verdict(True)])

    write(instance, move)
    first = ledger.evaluations(instance, ASSET, [CHECK])["a"][CHECK]
    skipped = record("a", State.SKIPPED_UNCHANGED)
    for _ in range(2):
        write(instance, lambda writer: writer.commit_again(skipped, [CHECK]) and None)
    found = ledger.evaluations(instance, ASSET, [CHECK])["a"][CHECK]
    assert found.timestamp > first.timestamp
    evaluation = found.evaluation
    assert evaluation.passed
    assert evaluation.metadata["found_in_run"].value == first.run_id != found.run_id
    assert evaluation.metadata["found_at"].value == first.timestamp
    assert evaluation.metadata["rows_source"].value == 10, "the evidence comes along"
    assert evaluation.description is not None
    assert evaluation.description.startswith("row_count passed: 10 rows on both sides (found ")
    assert evaluation.description.count("found") == 1
    assert "unchanged" in evaluation.description
    assert not ledger.committed(instance, ASSET, [CHECK])["a"].unchecked


@pytest.mark.invariant("I11")
def test_a_skip_does_not_hide_a_failure_found_meanwhile(instance: dg.DagsterInstance) -> None:
    def move(writer: Writer) -> None:
        writer.commit(record("a"))
        writer.all_checked("a", [verdict(True)])

    write(instance, move)
    write(instance, lambda writer: writer.all_checked("a", [verdict(False)]))
    found: list[str] = []
    skipped = record("a", State.SKIPPED_UNCHANGED)
    write(instance, lambda writer: found.extend(writer.commit_again(skipped, [CHECK])))
    assert found == [CHECK]
    assert everything_known(instance) == ({"a": False},) * 3


def test_a_verdict_that_was_not_looked_at_is_not_missed(instance: dg.DagsterInstance) -> None:
    def commit(writer: Writer) -> None:
        for name in ("a", "b"):
            writer.commit(record(name))
            writer.all_checked(name, [verdict(True)])

    write(instance, commit)

    def again(writer: Writer) -> None:
        for _ in range(4 * 2 + 100):
            writer.all_checked("b", [verdict(True)])

    write(instance, again)
    plan_check(instance, "a", "b")
    found = ledger.committed(instance, ASSET, [CHECK])
    assert not any(one.unchecked for one in found.values())


def test_the_number_of_queries_does_not_grow_with_the_ranges(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_all(writer: Writer) -> None:
        for number in range(30):
            writer.commit(record(f"r{number}"))
            writer.all_checked(f"r{number}", [verdict(True)])

    write(instance, commit_all)
    storage: Any = instance.event_log_storage
    connect, asked = storage.index_connection, []

    def counted() -> Any:
        asked.append(connect)
        return connect()

    monkeypatch.setattr(storage, "index_connection", counted)
    ledger.committed(instance, ASSET, [CHECK])
    few = len(asked)
    write(instance, lambda writer: [writer.commit(record(f"more{n}")) for n in range(20)] and None)
    asked.clear()
    assert len(ledger.committed(instance, ASSET, [CHECK])) == 50
    assert len(asked) == few


@pytest.mark.invariant("I6")
@pytest.mark.parametrize(
    ("current", "before", "target_rows", "force", "reason"),
    [
        (V1, None, 10, False, Reason.MISSING),
        (V1, Committed(V1, 1), 10, False, Reason.UNCHANGED),
        (V1, Committed(V1, 1), 10, True, Reason.FORCED),
        (V1, Committed(V1, 1, failed=("checksum",)), 10, False, Reason.LAST_CHECK_FAILED),
        (V1, Committed(V1, 1), 9, False, Reason.ROW_COUNT_DIFFERS),
        (V1, Committed(V1, 1), 11, False, Reason.ROW_COUNT_DIFFERS),
        (V1, Committed(V1, 1), 0, False, Reason.TARGET_MISSING),
        (V1, Committed(V1, 1), None, False, Reason.TARGET_MISSING),
        (
            DataVersion("x", "schema1", "settings1"),
            Committed(V1, 1),
            10,
            False,
            Reason.SOURCE_CHANGED,
        ),
        (DataVersion("x", "y", "settings1"), Committed(V1, 1), 10, False, Reason.SCHEMA_CHANGED),
        (
            DataVersion("source1", "schema1", "z"),
            Committed(V1, 1),
            10,
            False,
            Reason.SETTINGS_CHANGED,
        ),
        (V1, Committed(DataVersion.parse("foreign"), 1), 10, False, Reason.SCHEMA_CHANGED),
    ],
)
def test_why_a_range_runs(
    current: DataVersion,
    before: Committed | None,
    target_rows: int | None,
    force: bool,
    reason: Reason,
) -> None:
    found = decide(
        {"a": current},
        {} if before is None else {"a": before},
        target_rows=NO_TABLE if target_rows is None else {"a": target_rows},
        expected_rows={"a": 10},
        force=force,
    )
    assert found["a"].reason is reason


@pytest.mark.invariant("I9")
@pytest.mark.parametrize(
    ("published", "reason", "detail"),
    [
        (None, Reason.UNCHANGED, ""),
        (str(V1), Reason.UNCHANGED, ""),
        ("x.schema1.settings1", Reason.TARGET_MOVED, "published by run 7 of here, today"),
        ("", Reason.TARGET_MOVED, "the target does not say what was published last"),
    ],
)
def test_a_marker_that_says_otherwise_has_a_range_compared(
    published: str | None, reason: Reason, detail: str
) -> None:
    markers = {"a": Marker("a", published or "", owner="7 host:1", home="here", at="today")}
    known = None if published is None else Published("1", {"1": markers})
    rows = {"a": 10}
    found = decide(
        {"a": V1},
        {"a": Committed(V1, 1)},
        target_rows=rows,
        expected_rows=rows,
        published=known,
    )
    assert (found["a"].reason, found["a"].detail) == (reason, detail)


@pytest.mark.parametrize(
    ("rows", "expected", "shown"),
    [
        (49_998, 50_000, "row_count_differs (2 of 50,000 rows missing)"),
        (50_003, 50_000, "row_count_differs (3 rows more than the source's 50,000)"),
        (0, 50_000, "target_missing (all 50,000 rows missing)"),
        (None, 50_000, "target_missing (no such table)"),
        (3, 0, "row_count_differs (3 rows more than the source's 0)"),
    ],
)
def test_a_row_count_that_differs_says_by_how_much(
    rows: int | None, expected: int, shown: str
) -> None:
    found = decide(
        {"a": V1},
        {"a": Committed(V1, 1)},
        target_rows=NO_TABLE if rows is None else {"a": rows},
        expected_rows={"a": expected},
    )
    assert str(found["a"]) == shown


def test_what_was_recorded_before_an_asset_was_wiped_is_gone(
    instance: dg.DagsterInstance,
) -> None:
    def move(writer: Writer) -> None:
        writer.commit(record("a"))
        writer.all_checked("a", [verdict(True)])

    write(instance, move)
    instance.wipe_assets([ASSET])
    assert ledger.committed(instance, ASSET, [CHECK]) == {}
    assert ledger.records(instance, ASSET, ["a"]) == {}
    write(instance, lambda writer: writer.commit(record("b")))
    assert set(ledger.committed(instance, ASSET, [CHECK])) == {"b"}


def test_of_many_assets_only_the_wiped_one_is_forgotten(instance: dg.DagsterInstance) -> None:
    other = TRANSFER.model_copy(
        update={"transfer": "others", "hops": (HopSpec(to="clickhouse://warehouse.others"),)}
    )
    for transfer, name in ((TRANSFER, "a"), (other, "b")):
        instance.add_dynamic_partitions(transfer.partitions_name, [name])
        run = instance.add_run(dg.DagsterRun("any", status=dg.DagsterRunStatus.SUCCESS))
        target = asset_key(transfer.hops[0].to)
        Writer(Log(instance, run.run_id), target, transfer).commit(record(name))
    instance.wipe_assets([ASSET])
    statuses = read_status(instance, [TRANSFER, other])
    assert [
        (name, each.record.state)
        for status in statuses.values()
        for name, each in status.ranges.items()
    ] == [("a", State.MISSING), ("b", State.COMMITTED)]


def test_data_versions_round_trip() -> None:
    assert DataVersion.parse(str(V1)) == V1


@pytest.mark.parametrize(
    ("figures", "passed", "severity", "says"),
    [
        ({"failed": 0}, True, "WARN", "all 3 ranges passed"),
        ({"failed": 1}, False, "ERROR", "1 of 3 ranges failed"),
        ({"failed": 2, "warning": True}, False, "WARN", "2 of 3 ranges failed"),
        (
            {"failed": 0, "unseen": 1, "problem": "the run ended"},
            False,
            "WARN",
            "not compared: 1 of 3 ranges; the run ended",
        ),
        (
            {"failed": 1, "unseen": 1, "problem": "the run ended"},
            False,
            "ERROR",
            "1 of 3 ranges failed; not compared: 1 of 3 ranges; the run ended",
        ),
    ],
)
def test_a_summary_is_as_good_as_its_ranges(
    instance: dg.DagsterInstance, figures: dict[str, Any], passed: bool, severity: str, says: str
) -> None:
    events: list[dg.AssetCheckEvaluation] = []
    context: Any = SimpleNamespace(instance=instance, log_event=events.append)
    Writer(context, ASSET, TRANSFER).summarised(CHECK, ranges=3, **figures)
    (event,) = events
    assert (event.passed, event.severity.value, event.description) == (passed, severity, says)


def test_a_move_that_died_before_it_was_recorded_is_told_downstream(
    instance: dg.DagsterInstance,
) -> None:
    """Also after a check that found its rows equal, and a run that had nothing to move."""
    write(instance, lambda writer: writer.commit(record("a")))
    first = marks(instance, ASSET)
    write(instance, lambda writer: writer.commit(record("a", state=State.SKIPPED_UNCHANGED)))
    assert marks(instance, ASSET) == first, "nothing has moved"
    write(instance, lambda writer: writer.progress(record("a", state=State.FINALISED)))
    died = marks(instance, ASSET)
    assert died != first
    write(instance, lambda writer: writer.checked("a", verdict(True)))
    write(instance, lambda writer: writer.commit(record("a", state=State.SKIPPED_UNCHANGED)))
    assert marks(instance, ASSET) == died, "it is told once"
