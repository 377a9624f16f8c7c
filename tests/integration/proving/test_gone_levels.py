"""Verdicts of a level that is gone, which earlier releases have recorded, still count."""

from __future__ import annotations

import json
from collections.abc import Callable

import dagster as dg
import pytest
from click.testing import CliRunner

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.log.writer import Writer
from tableferry.checks.verdict import Verdict
from tableferry.pipelines.cli import main
from tableferry.pipelines.command.one import runner
from tests.integration.conftest import Ferry
from tests.integration.support import looking
from tests.integration.support.recording import Log

pytestmark = pytest.mark.integration

TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, a text)",
    "INSERT INTO {t} SELECT g, 'a ' || g FROM generate_series(1, 60) g",
)
DAMAGED = "0000000001..0000000031"


@pytest.fixture
def chain(ferry: Callable[..., Ferry], copies: str) -> Ferry:
    """Three ranges in two targets."""
    hops = f"['postgres://{copies}.{{t}}', 'clickhouse://warehouse.{{t}}']"
    one = ferry(hops, *TABLE, ranges="{bounds: [1, 31]}", fingerprint="row_version")
    assert one.run().good
    return one


def judged(one: Ferry, *, passed: bool) -> None:
    """Record of the damaged range in both targets what a run at the level `in_flight` did."""
    transfer, instance = one.session.transfer(one.table), one.session.instance
    log = Log(instance, instance.add_run(dg.DagsterRun("any")).run_id)
    sums = [{"rows": 30, "digest": text} for text in ("1", "1" if passed else "2")]
    differing = () if passed else ("digest",)
    verdict = Verdict("in_flight", passed, *sums, seconds=0.1, disagreeing=differing)
    for each in transfer.hops:
        Writer(log, asset_key(each.to), transfer).checked(DAMAGED, verdict)


def reasons(one: Ferry) -> set[str]:
    return {str(each.reason) for each in one.plan().ranges}


def said(one: Ferry, *arguments: str) -> tuple[int, str]:
    one.session.instance.dispose()
    done = CliRunner().invoke(main, [*arguments])
    return done.exit_code, done.stdout


def test_a_failure_is_told_and_its_range_moves(chain: Ferry) -> None:
    judged(chain, passed=False)
    assert reasons(chain) == {"last_check_failed", "source_rewritten", "unchanged"}
    status = runner.status(chain.session, chain.table)
    assert not status.good
    code, text = said(chain, "report", chain.table, "--format", "json")
    assert code == 1 and "in_flight FAILED" in text, text
    code, text = said(chain, "report", "--all", "--format", "json")
    assert code == 1 and json.loads(text)["transfers"][0]["tables"][0]["proof"] is None, text

    view = chain.run()
    assert view.good, view.errors
    assert chain.moved(view) == [DAMAGED]
    assert reasons(chain) == {"unchanged"}
    assert runner.status(chain.session, chain.table).good


def test_where_the_middle_was_mended_the_range_behind_it_moves(chain: Ferry, copies: str) -> None:
    damage = f"UPDATE {copies}.{chain.table} SET a = 'damaged' WHERE id = 5"
    looking.ask_postgres(chain.stack.postgres_url, damage)
    judged(chain, passed=False)
    view = chain.run()
    assert view.good, view.errors
    assert reasons(chain) == {"unchanged"}
    assert runner.status(chain.session, chain.table).good


def test_what_passed_is_checked_as_declared_once_and_nothing_moves(chain: Ferry) -> None:
    judged(chain, passed=True)
    view = chain.run()
    assert view.good and not chain.moved(view), view.errors
    assert reasons(chain) == {"unchanged"}
