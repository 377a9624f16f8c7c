"""A first load reads its rows once: their digest is of the bytes that the source's server sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tableferry.assets.asset_keys import asset_key
from tableferry.assets.planning import wires
from tableferry.assets.running import stream_digest, work
from tableferry.resources.clickhouse.load import ClickHouseLoad
from tableferry.resources.digest import native
from tableferry.resources.errors import StatementFailed
from tableferry.resources.postgres.server import PostgresServer
from tests.integration.conftest import Ferry, by_range
from tests.integration.moving.test_moving_source import when
from tests.integration.proving.test_audit import corrupted
from tests.integration.support.crashing import (
    Command,
    crash,
    reopen,
    rows_of,
    staging_tables,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(native.extension() is None, reason="the extension was not built"),
]

Make = Callable[..., Ferry]
TEXT = "{{to: 'clickhouse://warehouse.{t}', wire: text}}"
TABLE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, name text, amount numeric(12,2) NOT NULL, "
    "at timestamptz)",
    "INSERT INTO {t} SELECT g, CASE WHEN g % 7 > 0 THEN 'fresh ' || g || chr(9) END, g * 1.5, "
    "timestamptz '2024-01-01 00:00+00' + g * interval '1 second' FROM generate_series(1, 300) g",
)
BOUNDS = "{bounds: [101, 201]}"
SENT, ASKED = "digested as sent", "asked of the server"


def declared(ferry: Make, hops: str = f"[{TEXT}]", **settings: str) -> Ferry:
    return ferry(hops, *TABLE, **{"ranges": BOUNDS, **settings})


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.fixture
def digested(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The queries to PostgreSQL that digest rows of tables."""
    asked: list[str] = []
    query = PostgresServer.query

    def noted(self: PostgresServer, sql: str, *more: Any, **named: Any) -> Any:
        if "md5(" in sql and '"public".' in sql:
            asked.append(sql)
        return query(self, sql, *more, **named)

    monkeypatch.setattr(PostgresServer, "query", noted)
    monkeypatch.setattr(work, "ASKED_OF", 10**9)
    yield asked


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Takes the extension away, and brings it back."""
    there = native.extension()
    return lambda away: monkeypatch.setattr(native, "extension", lambda: None if away else there)


def ways(one: Ferry, hop: int = 1) -> set[str]:
    """How the digests of a hop's source were found, as the checks say."""
    target = one.session.transfer(one.table).hops[hop - 1].to
    key = dg.AssetCheckKey(asset_key(target), "checksum")
    records = one.session.instance.event_log_storage.get_asset_check_execution_history(key, 100)
    evaluations = [record.event.asset_check_evaluation for record in records if record.event]
    return {str(each.metadata["source_digest"].value) for each in evaluations if each}


def versions(one: Ferry, hop: int = 1) -> dict[str, str | None]:
    return {name: each.data_version for name, each in by_range(one.run(), hop).items()}


def test_a_first_load_reads_its_rows_once(ferry: Make, digested: list[str]) -> None:
    one = declared(ferry)
    first = one.run()
    assert first.good, first.errors
    assert len(digested) == 1, "the first range is digested both ways"
    assert ways(one) == {SENT}
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert one.moved(one.run()) == []
    forced = one.run(force=True)
    assert forced.good and len(one.moved(forced)) == len(by_range(first))
    assert len(digested) == 2


def test_the_figures_are_those_that_the_server_computes(
    ferry: Make, uncompiled: Callable[[bool], None], digested: list[str]
) -> None:
    """With or without the extension, nothing moves again."""
    one = declared(ferry, fingerprint="content")
    uncompiled(True)
    assert one.run().good
    assert ways(one) == {ASKED}
    asked = versions(one)
    uncompiled(False)
    assert one.moved(one.run()) == []
    assert one.run(force=True).good
    assert ways(one) == {ASKED, SENT}
    assert versions(one) == asked
    uncompiled(True)
    assert one.moved(one.run()) == []
    one.source("UPDATE {t} SET name = 'x' WHERE id = 150")
    changed = one.run()
    assert changed.good and len(one.moved(changed)) == 1


SETTINGS: dict[str, dict[str, str]] = {
    "some of the rows": {"where": "amount > 30"},
    "some of the columns": {"exclude": "[at]"},
    "computed values": {"columns": "{name: {expression: 'upper(name)', type: text}}"},
    "another type": {"columns": "{at: {type: String}, amount: {type: 'Decimal(30, 6)'}}"},
    "rows that stay": {"write": "append"},
    "rows that are merged": {"write": "upsert"},
    "gathered for a swap": {"write": "swap"},
    "counted only": {"reconcile": "count"},
    "row by row": {"reconcile": "full_hash"},
    "one snapshot for each run": {"fingerprint": "content"},
    "sums": {"figures": "[amount]"},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_same_with_what_a_transfer_declares(
    ferry: Make,
    uncompiled: Callable[[bool], None],
    digested: list[str],
    settings: dict[str, str],
) -> None:
    one = declared(ferry, **settings)
    assert one.run().good
    as_sent = versions(one)
    uncompiled(True)
    again = one.run(force=True)
    assert again.good, again.errors
    assert versions(one) == as_sent


ELSEWHERE: dict[str, dict[str, str]] = {
    "rejected rows": {"on_reject": "quarantine"},
    "segments": {"delta": "always"},
}


@pytest.mark.parametrize("settings", ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_needs_the_digest_before_rows_move_asks_the_server(
    ferry: Make, digested: list[str], settings: dict[str, str]
) -> None:
    one = declared(ferry, **settings)
    first = one.run()
    assert first.good, first.errors
    assert ways(one) == {ASKED}


@pytest.mark.parametrize("method", ["row_version", "'watermark:at'"])
def test_versions_that_say_changed_need_no_digest_either(
    ferry: Make, digested: list[str], method: str
) -> None:
    one = declared(ferry, fingerprint=method)
    assert one.run().good
    one.source("UPDATE {t} SET at = now(), name = 'new' WHERE id = 150")
    del digested[:]
    changed = one.run()
    assert changed.good and len(one.moved(changed)) == 1
    assert ways(one) == {SENT}
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_what_is_not_what_was_sent_is_not_seen(ferry: Make, digested: list[str]) -> None:
    one = declared(ferry)
    with corrupted(one, "clickhouse"):
        failed = one.run()
    assert not failed.good
    errors = [str(each.error) for each in by_range(failed).values() if each.error]
    assert errors and all("checksum FAILED" in error for error in errors)
    again = one.run()
    assert again.good, again.errors
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_a_digest_that_is_not_the_servers_ends_the_run(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = declared(ferry, profile="safe")
    add = native.SentRows.add

    def wrong(self: native.SentRows, chunk: bytes) -> None:
        add(self, chunk)
        self.total += 1

    with monkeypatch.context() as patch:
        patch.setattr(native.SentRows, "add", wrong)
        failed = one.run()
    errors = [str(each.error) for each in by_range(failed).values() if each.error]
    assert len(errors) == 1, "no other range was begun"
    assert "One of them is wrong" in errors[0] and "range " in errors[0]
    assert one.moved(failed) == []
    again = one.run()
    assert again.good, again.errors
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_what_no_snapshot_holds_does_not_end_the_run(
    ferry: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the server answers otherwise each time, the digest is not blamed."""
    view = (
        "CREATE VIEW {t} AS SELECT g AS id, 'x' AS name, "
        "(CASE WHEN g < 101 THEN random() ELSE 1 END)::numeric(12, 2) AS amount "
        "FROM generate_series(1, 300) g"
    )
    one = ferry(f"[{TEXT}]", view, ranges=BOUNDS, profile="safe")
    try:
        moved = one.run()
    finally:
        one.source("DROP VIEW {t}")
    assert moved.good and len(one.moved(moved)) == 4, "with the range of NULL keys"
    assert "No snapshot holds" in caplog.text


def test_an_attempt_after_one_that_failed_publishes_what_was_sent(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, digested: list[str]
) -> None:
    one = declared(ferry)
    finalise, tried = ClickHouseLoad.finalise, list[str]()

    def busy(self: ClickHouseLoad) -> int:
        tried.append(self.publication.version)
        if len(tried) == 1:
            raise StatementFailed("clickhouse", "the connection broke", transient=True)
        return finalise(self)

    monkeypatch.setattr(ClickHouseLoad, "finalise", busy)
    first = one.run()
    assert first.good, first.errors
    assert tried.count(tried[0]) == 2
    assert one.moved(one.run()) == []
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_a_chain_goes_by_the_digest_that_was_sent(
    ferry: Make, uncompiled: Callable[[bool], None], digested: list[str]
) -> None:
    one = declared(ferry, f"[{TEXT}, 'postgres://public.{{t}}_2']")
    first = one.run()
    assert first.good, first.errors
    as_sent = [versions(one, hop) for hop in (1, 2)]
    assert len(digested) >= 1
    uncompiled(True)
    assert one.moved(one.run()) == []
    assert one.run(force=True).good
    assert [versions(one, hop) for hop in (1, 2)] == as_sent


def test_the_middle_is_digested_as_sent_where_its_own_digest_is_another(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, digested: list[str]
) -> None:
    """Between two PostgreSQL servers rows have another digest than ClickHouse computes."""
    one = declared(ferry, f"['postgres://public.{{t}}_2', {TEXT}]", profile="safe")
    first = one.run()
    assert first.good, first.errors
    assert ways(one, hop=2) == {SENT} and len(digested) == 1, "the first range, both ways"
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert one.moved(one.run()) == []
    ask = stream_digest._asked

    def changed(*more: Any) -> Any:
        one.source("UPDATE {t}_2 SET name = 'damaged' WHERE id = 50")
        return ask(*more)

    with monkeypatch.context() as patch:
        patch.setattr(stream_digest, "_asked", changed)
        failed = one.run(hop=2, force=True)
    errors = [str(each.error) for each in by_range(failed, 2).values() if each.error]
    assert errors and all("has other rows than hop 1 has proved" in error for error in errors)
    again = one.run()
    assert again.good, again.errors
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_auto_takes_the_wire_that_saves_a_scan(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, uncompiled: Callable[[bool], None]
) -> None:
    one = declared(ferry, "['clickhouse://warehouse.{t}']")
    one.source("ANALYZE {t}")
    assert not [note for note in one.plan().notes if "wire auto" in note], "a small table"
    monkeypatch.setattr(wires, "WORTH_TRYING", 300)
    (note,) = [note for note in one.plan().notes if "wire auto" in note]
    assert "wire auto is text here: its rows are digested as they are sent" in note
    first = one.run()
    assert first.good, first.errors
    assert {each.wire for each in first.ranges} == {"text"} and ways(one) == {SENT}
    uncompiled(True)
    again = one.run(force=True)
    assert {each.wire for each in again.ranges} == {"arrow"} and ways(one) == {SENT, ASKED}


def test_a_wire_that_does_not_get_in_has_the_server_asked(
    ferry: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan took `text`, and a load shows that it cannot be."""
    monkeypatch.setattr(wires, "WORTH_TRYING", 300)
    one = declared(ferry, "['clickhouse://warehouse.{t}']")
    one.source("ANALYZE {t}")
    problem = wires._load_problem

    def refused(wire: str, *more: Any) -> str | None:
        return "here" if wire == "text" else problem(wire, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(wires, "_load_problem", refused)
        first = one.run()
    assert first.good, first.errors
    assert {each.wire for each in first.ranges} == {"arrow"} and ways(one) == {ASKED}
    as_asked = versions(one)
    assert one.moved(one.run()) == []
    assert one.run(force=True).good
    assert ways(one) == {ASKED, SENT} and versions(one) == as_asked


@pytest.mark.invariant("I3", "I5")
@pytest.mark.parametrize("point", ["during_export", "after_export", "after_audit"])
def test_a_source_that_is_rewritten_meanwhile_is_sent_again(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, digested: list[str], point: str
) -> None:
    one = declared(ferry)

    def rewrite(number: int) -> None:
        if number == 1:
            one.source(
                "UPDATE {t} SET name = 'rewritten' WHERE id IN (50, 150, 250)",
                "ALTER TABLE {t} SET UNLOGGED",
            )

    reached = when(monkeypatch, point, rewrite)
    first = one.run()
    assert first.good, first.errors
    assert reached() > len(by_range(first)), "again"
    # a range that was committed before is of the state before
    assert one.run().good
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert one.moved(one.run()) == []
    as_sent = versions(one)
    monkeypatch.setattr(native, "extension", lambda: None)
    assert one.run(force=True).good
    assert versions(one) == as_sent


def test_rows_that_change_beside_the_snapshot_are_moved_by_the_next_run(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, digested: list[str]
) -> None:
    one = declared(ferry)

    def change(number: int) -> None:
        one.source(f"UPDATE {{t}} SET name = 'n{number}' WHERE id IN (50, 150, 250)")

    with monkeypatch.context() as patch:
        when(patch, "during_export", change)
        assert one.run().good
    again = one.run()
    assert again.good and len(one.moved(again)) == 3
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


def test_a_target_that_takes_fewer_rows_than_were_sent_is_not_seen(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, digested: list[str]
) -> None:
    """Even where nobody has counted them: the rows from a watermark on."""
    one = declared(ferry, fingerprint="'watermark:at'", write="upsert", incremental="{}")
    assert one.run().good
    one.source("UPDATE {t} SET at = '2025-01-01 00:00+00', name = 'new' WHERE id > 290")
    load = ClickHouseLoad.load_bytes

    def fewer(self: ClickHouseLoad, chunks: Iterator[bytes]) -> Any:
        whole = b"".join(chunks)
        return load(self, iter([whole[: whole.rindex(b"\n", 0, -1) + 1]]))

    with monkeypatch.context() as patch:
        patch.setattr(ClickHouseLoad, "load_bytes", fewer)
        failed = one.run()
    assert not failed.good
    again = one.run()
    assert again.good, again.errors
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")


KILLED = ["during_export", "after_load", "after_audit", "after_marker", "after_publish"]
KILLED += ["after_commit", "after_event"]


@pytest.mark.invariant("I3", "I4")
@pytest.mark.parametrize("point", KILLED)
def test_a_first_load_that_was_killed_goes_on(
    ferry: Make, uncompiled: Callable[[bool], None], command: Command, point: str
) -> None:
    one = declared(ferry)
    crash(command, one.table, point)
    reopen(one)
    again = one.run()
    assert again.good, again.errors
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert staging_tables(one, "clickhouse") == []
    as_sent = versions(one)
    assert one.moved(one.run()) == []
    uncompiled(True)
    assert one.run(force=True).good
    assert versions(one) == as_sent


@pytest.mark.invariant("I3", "I4")
@pytest.mark.parametrize(
    ("point", "sent"), [("after_load", 3), ("after_shadowed", 2), ("after_swap", 0)]
)
def test_what_a_swap_had_gathered_when_it_was_killed_does_not_move_again(
    ferry: Make, monkeypatch: pytest.MonkeyPatch, command: Command, point: str, sent: int
) -> None:
    one = declared(ferry, write="swap", profile="safe")
    crash(command, one.table, point)
    reopen(one)
    streamed, end = list[int](), native.SentRows.end

    def noted(self: native.SentRows) -> None:
        streamed.append(self.rows)
        end(self)

    monkeypatch.setattr(native.SentRows, "end", noted)
    again = one.run()
    assert again.good, again.errors
    assert len([rows for rows in streamed if rows]) == sent
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert one.moved(one.run()) == []


def test_several_runs_share_the_ranges_of_a_first_load(ferry: Make) -> None:
    one = declared(ferry, parallel="{runs: 2}")
    first = one.run()
    assert first.good, first.errors
    assert len(set(first.run_ids)) == 2 and ways(one) == {SENT}
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert one.moved(one.run()) == []


def test_a_launched_run_of_all_ranges_goes_by_what_was_sent(ferry: Make) -> None:
    one = declared(ferry)
    assert one.launch().success
    reopen(one)
    assert ways(one) == {SENT}
    assert rows_of(one, "clickhouse") == rows_of(one, "postgres")
    assert one.moved(one.run()) == []
