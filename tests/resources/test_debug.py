"""The hook by which crash tests name the moment to die at."""

from __future__ import annotations

import signal

import pytest

from resources import debug


def test_the_debug_hook_is_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(debug.os, "kill", lambda pid, number: killed.append(number))
    monkeypatch.setattr(debug, "_seen", {})
    monkeypatch.delenv(debug.CRASH_AT, raising=False)
    debug.reached("after_load")
    assert not killed
    monkeypatch.setenv(debug.CRASH_AT, "after_load:2")
    debug.reached("before_export")
    debug.reached("after_load")
    assert not killed
    debug.reached("after_load")
    assert killed == [signal.SIGKILL]
    debug.reached("after_load")
    assert len(killed) == 1
