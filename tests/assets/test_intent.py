"""What a run is asked to do stands beside what is declared."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.transfer_files import load_transfer
from tableferry.assets.planning.intent import AS_DECLARED, Intent, intent_of
from tableferry.resources.errors import InputError
from tests.assets.test_manifest import GOOD, UPSERT, write


@pytest.fixture
def declared(tmp_path: Path) -> Transfer:
    return load_transfer(write(tmp_path, GOOD + UPSERT + "parallel: {runs: 3}\n"))


@pytest.mark.parametrize(
    "intent",
    [AS_DECLARED, Intent(force=True), Intent(recreate=True), Intent(force=True, repair=True)],
)
def test_the_tags_of_a_run_say_it(intent: Intent) -> None:
    assert Intent.parse({**intent.tags(), "tableferry/profile": "safe"}) == intent


def test_a_run_as_declared_carries_out_the_declaration_itself(declared: Transfer) -> None:
    assert Intent(force=True).carried_out(declared) is declared


def test_targets_are_made_anew_by_a_swap_in_one_run(declared: Transfer) -> None:
    settings = Intent(recreate=True).carried_out(declared)
    assert (settings.write.whole_table, settings.parallel.runs) == (True, 1)
    assert (declared.write, declared.parallel.runs) == ("upsert", 3), "the declaration stays"


def test_marked_rows_would_be_lost_to_a_table_made_anew(tmp_path: Path) -> None:
    one_hop = GOOD.replace("  - clickhouse://warehouse.orders\n", "")
    marking = one_hop + UPSERT + "deletes: {mark: gone}\n"
    with pytest.raises(InputError, match="without the rows that 'gone' marks"):
        Intent(recreate=True).carried_out(load_transfer(write(tmp_path, marking)))


def test_a_repair_finds_the_rows_that_differ_and_writes_also_what_only_watches(
    tmp_path: Path, declared: Transfer
) -> None:
    settings = Intent(repair=True).carried_out(declared)
    assert (settings.delta, settings.write) == ("always", "upsert")
    watched = load_transfer(write(tmp_path, GOOD + "write: none\n"))
    assert Intent(repair=True).carried_out(watched).write == "replace"
    assert not watched.write.moves


def test_hops_that_a_run_only_reads_are_decided_about_as_declared() -> None:
    assert Intent(force=True, repair=True).of_hops_that_are_read == AS_DECLARED
    assert Intent(recreate=True).of_hops_that_are_read == Intent(recreate=True)


def test_a_run_that_repeats_another_one_forces_nothing_once_more() -> None:
    """Dagster copies the tags of the run."""
    asked = Intent(force=True, recreate=True, repair=True)
    first = dg.DagsterRun(job_name="job", tags=asked.tags())
    again = dg.DagsterRun(
        job_name="job", tags=asked.tags(), parent_run_id=first.run_id, root_run_id=first.run_id
    )
    assert intent_of(first) == asked
    assert intent_of(again) == Intent(repair=True)
