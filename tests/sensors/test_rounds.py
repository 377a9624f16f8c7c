"""A sensor that serves all transfers looks at them in turn."""

from __future__ import annotations

import json
from collections.abc import Mapping

import dagster as dg
import pytest

from tableferry.assets.declaring.manifest import Transfer
from tableferry.resources.errors import InputError
from tableferry.sensors import rounds
from tableferry.sensors.rounds import Look, Tries, look_round

TRANSFERS = {
    name: Transfer(
        transfer=name, source="postgres://s.t", hops=[f"clickhouse://w.{name}"], key="id"
    )
    for name in "abcd"
}


def test_each_tick_goes_on_where_the_last_one_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(rounds, "thread_time", lambda: clock[0])
    seen: list[str] = []

    def look(transfer: Transfer, _: Mapping[str, Tries]) -> Look:
        clock[0] += rounds.TICK_CPU_SECONDS * 0.6
        seen.append(transfer.transfer)
        return Look("nothing to do")

    cursor = None
    for expected in ("ab", "cd", "ab"):
        seen.clear()
        found = look_round(dg.build_sensor_context(cursor=cursor), TRANSFERS, look)
        assert "".join(seen) == expected
        cursor = found.cursor
    fewer = {name: TRANSFERS[name] for name in "ad"}
    seen.clear()
    look_round(dg.build_sensor_context(cursor=cursor), fewer, look)
    assert seen == ["d", "a"], "the last one of the tick before has gone"


def test_a_transfer_that_fails_stops_no_other_and_keeps_its_tries() -> None:
    errors: list[Exception] = [InputError("no such table"), KeyError("a fault of ours")]
    kept = {"a": {"..5": [1, 9.0, False]}, "gone": {"..5": [1, 9.0, False]}}
    cursor = json.dumps({"last": "d", "tries": kept})

    def look(transfer: Transfer, tries: Mapping[str, Tries]) -> Look:
        if transfer.transfer in "ab":
            raise errors.pop(0)
        assert tries == {}
        request = dg.RunRequest(run_key=transfer.transfer)
        return Look(requests=[request], tries={"..5": Tries(1, 5.0)})

    found = look_round(dg.build_sensor_context(cursor=cursor), TRANSFERS, look)
    assert [request.run_key for request in found.run_requests or ()] == ["c", "d"]
    tried = {"..5": [1, 5.0, False]}
    assert json.loads(found.cursor or "") == {
        "last": "d",
        "tries": {"a": kept["a"], "c": tried, "d": tried},
    }
    errors += [InputError("no such table"), KeyError("a fault of ours")]
    pair = {name: TRANSFERS[name] for name in "ab"}
    told = look_round(dg.build_sensor_context(cursor=cursor), pair, look).skip_reason
    assert told is not None
    assert told.skip_message == "a: no such table; b: failed; see the log of this tick"
