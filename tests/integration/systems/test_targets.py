"""What a target of any system shows when, and what a crash leaves."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tableferry.resources.contract.markers import Publication
from tableferry.resources.contract.target_names import MOST_REJECTED, shadow_of
from tableferry.resources.contract.target_options import WriteMode
from tableferry.resources.errors import ReceiptMismatch, SchemaDrift, StatementFailed
from tableferry.resources.keys.range import KeyRange
from tests.integration.support.target_bench import (
    AFTER,
    BENCHES,
    ELSEWHERE,
    HIGH,
    LOW,
    NEW,
    OLD,
    Bench,
    batch,
)
from tests.servers import Servers

pytestmark = pytest.mark.integration

MODES = [mode for mode in WriteMode if mode.moves]


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest, stack: Servers) -> Iterator[Bench]:
    made = BENCHES[request.param]
    with made(getattr(stack, f"{made.system}_url"), f"t_{uuid.uuid4().hex[:8]}") as bench:
        yield bench


@pytest.fixture
def filled(bench: Bench) -> Bench:
    """A table with the rows OLD."""
    bench.target.prepare(bench.plan, bench.base)
    bench.load(OLD)
    return bench


@pytest.mark.invariant("I4")
@pytest.mark.parametrize("text", [False, True], ids=["arrow", "text"])
@pytest.mark.parametrize("mode", MODES)
def test_load_and_load_again(filled: Bench, mode: WriteMode, text: bool) -> None:
    if text and filled.system != "clickhouse":
        pytest.skip("its text is another's")
    options = filled.options(mode)
    filled.load(ELSEWHERE, HIGH)
    notes = filled.target.prepare(filled.plan, options)
    assert bool(notes) == (filled.base.partition_by is not None and mode != "swap")
    for _ in range(2):
        filled.load(NEW, options=options, text=text)
        if mode == "swap":
            assert filled.rows() == [*OLD, *ELSEWHERE]
            assert filled.rows(shadow_of(filled.table)) == [*NEW, *ELSEWHERE]
    for _ in range(2):
        filled.target.promote(filled.plan, options)
    assert filled.rows() == [*AFTER[mode], *ELSEWHERE]
    assert not filled.left_over()


@pytest.mark.invariant("I1", "I4")
@pytest.mark.parametrize("mode", MODES)
def test_killed_inside_finalise(filled: Bench, mode: WriteMode) -> None:
    options = filled.options(mode)
    filled.target.prepare(filled.plan, options)
    filled.in_process_that_dies("inside_finalise", lambda: filled.load(NEW, options=options))
    assert filled.rows() == OLD
    assert len(filled.left_over()) > filled.locks

    filled.load(NEW, options=options, owner="run-2")
    filled.target.promote(filled.plan, options)
    assert filled.rows() == AFTER[mode]
    assert not filled.left_over()


def test_failed_attempt_leaves_nothing(filled: Bench) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(NEW)
        raise ValueError("the source went away")

    with (
        pytest.raises(ValueError, match="the source went away"),
        filled.target.attempt(Publication(filled.plan, LOW, "v", "run-1"), filled.base) as load,
    ):
        load.load_arrow(broken())
    assert filled.rows() == OLD
    assert not filled.left_over()


def test_null_into_not_null_is_refused(filled: Bench) -> None:
    with pytest.raises(StatementFailed, match=r"(?i)null"):
        filled.load([(None, "no key")])


@pytest.mark.invariant("I2")
def test_rows_that_nobody_sent_are_noticed(filled: Bench) -> None:
    with (
        pytest.raises(ReceiptMismatch, match="4 rows were sent, but 5 arrived"),
        filled.target.attempt(Publication(filled.plan, LOW, "v", "run-1"), filled.base) as load,
    ):
        load.load_arrow([batch(NEW)])
        filled.ask(f"INSERT INTO {filled.staged(load)} (id) VALUES (7)")
        load.finalise()
    assert filled.rows() == OLD


def test_empty_range_empties_itself_only(filled: Bench) -> None:
    filled.load(ELSEWHERE, HIGH)
    for _ in range(2):
        filled.load([])
        assert filled.rows() == ELSEWHERE


def test_null_keys_are_a_range_of_their_own(bench: Bench) -> None:
    if bench.base.partition_by is not None:
        pytest.skip("ClickHouse partitions by no column that may be NULL")
    bench.plan = bench.make_plan(nullable_key=True, primary_key=())
    bench.target.prepare(bench.plan, bench.base)
    null = KeyRange("integer", null=True)
    bench.load(OLD)
    bench.load([(None, "a"), (None, "b")], null)
    bench.load([(None, "c")], null)
    assert bench.rows() == [*OLD, (None, "c")]


def test_swap_interrupted_goes_on_with_its_shadow(bench: Bench) -> None:
    swap = bench.options(WriteMode.SWAP)
    bench.target.prepare(bench.plan, swap)
    bench.load(OLD, options=swap)
    bench.target.prepare(bench.plan, swap)  # the next run
    assert bench.target.clean(bench.table) == []
    bench.load(ELSEWHERE, HIGH, swap)
    assert bench.rows() == []
    bench.target.promote(bench.plan, swap)
    assert bench.rows() == [*OLD, *ELSEWHERE]
    assert [name for name in bench.tables() if bench.table.name in name] == [bench.table.name]


def test_clean_spares_the_living(bench: Bench) -> None:
    bench.target.prepare(bench.plan, bench.base)
    bench.in_process_that_dies("inside_finalise", lambda: bench.load(OLD, owner="dead"))
    living = Publication(bench.plan, HIGH, "v", "living")
    with bench.target.attempt(living, bench.base) as load:
        load.load_arrow([batch(ELSEWHERE)])
        dropped = bench.target.clean(bench.table, lambda run: run == "living")
        assert len(dropped) == 1 + bench.locks
        load.finalise()
    assert bench.target.clean(bench.table) == []
    assert bench.rows() == ELSEWHERE


def test_existing_table_is_verified(bench: Bench) -> None:
    bench.ask(f"CREATE TABLE {bench.named()} {bench.misfit}")
    missing = rf"'id'.*(?i:int).*'note' \({re.escape(bench.text)}\) is missing"
    with pytest.raises(SchemaDrift, match=missing):
        bench.target.prepare(bench.plan, bench.base)


def test_only_some_rejected_staging_tables_are_kept(bench: Bench) -> None:
    bench.target.prepare(bench.plan, bench.base)
    ranges = [KeyRange("integer", low, low + 1) for low in range(MOST_REJECTED + 2)]
    for key_range in ranges:
        row = [(key_range.lower, "rejected")]
        publication = Publication(bench.plan, key_range, "v1", "run-1")
        with bench.target.attempt(publication, bench.base) as load:
            load.load_arrow([batch(row)])
            load.audited_table()
            kept = load.keep_rejected()
        assert bench.rows(kept) == row, "the newest is there"
        assert bench.target.rejected_table(bench.plan, key_range) == kept
        if key_range == ranges[1]:
            bench.settle()
    assert len(bench.left_over()) == MOST_REJECTED
    gone = [bench.target.rejected_table(bench.plan, each) is None for each in ranges]
    assert gone == [True] * 2 + [False] * MOST_REJECTED, "the oldest are gone"
    assert bench.rows() == []

    assert bench.target.clean(bench.table, rejected=False) == []
    assert len(bench.target.clean(bench.table)) == MOST_REJECTED
    assert bench.left_over() == []
