"""Crash points: where crash tests kill the process."""

from __future__ import annotations

import signal

import pytest

from tableferry.resources import crash_points


def test_the_chosen_point_kills_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(crash_points.os, "kill", lambda pid, number: killed.append(number))
    monkeypatch.setattr(crash_points, "_times", {})
    monkeypatch.delenv(crash_points.CRASH_AT, raising=False)
    crash_points.reached("after_load")
    assert not killed
    monkeypatch.setenv(crash_points.CRASH_AT, "after_load:2")
    crash_points.reached("before_export")
    crash_points.reached("after_load")
    assert not killed
    crash_points.reached("after_load")
    assert killed == [signal.SIGKILL]
    crash_points.reached("after_load")
    assert len(killed) == 1
