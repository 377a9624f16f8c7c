"""How long a server that cannot be reached is waited for, and by whom."""

from __future__ import annotations

import pytest

from tableferry.resources.connecting import retry, waiting
from tableferry.resources.connecting.retry import patiently, retrying
from tableferry.resources.errors import ConnectionFailed, InputError, StatementFailed

ADDRESS = "postgres at db:5432"


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(retry, "time", found)
    monkeypatch.setattr(retry, "_outages", {})
    monkeypatch.setattr(retry, "backoff", lambda attempt: 0.0)
    return found


def refused() -> ConnectionFailed:
    return ConnectionFailed("cannot connect to db: refused", transient=True, address=ADDRESS)


def attempts(clock: Clock, seconds: float) -> int:
    """How often a loop tries a server that is away, when each attempt takes so long."""
    tries = 0
    with pytest.raises(ConnectionFailed):
        for attempt in retrying():
            with attempt:
                tries += 1
                clock.now += seconds
                raise refused()
    return tries


def test_all_loops_together_wait_once(clock: Clock) -> None:
    assert attempts(clock, 2.0) == 16, "half a minute after the first failure"
    assert attempts(clock, 2.0) == 1, "it is known to be away"


def test_patience_is_the_users(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(retry.PATIENCE, "600")
    assert attempts(clock, 10.0) == 61
    monkeypatch.setenv(retry.PATIENCE, "soon")
    with pytest.raises(InputError, match="TABLEFERRY_PATIENCE_SECONDS should be a number"):
        retry.patience()


def test_nobody_asks_a_server_that_was_just_given_up(clock: Clock) -> None:
    retry.require_reachable(ADDRESS)
    attempts(clock, 2.0)
    with pytest.raises(ConnectionFailed, match=r"refused; it has been away for 30 s") as error:
        retry.require_reachable(ADDRESS)
    assert not retry.is_transient(error.value)
    retry.require_reachable("postgres at another:5432")
    clock.now += retry.RECENT_SECONDS + 1
    retry.require_reachable(ADDRESS)
    assert attempts(clock, 0.0) == 1, "it is asked once, now and then"


def test_a_server_that_is_back_is_waited_for_anew(clock: Clock) -> None:
    attempts(clock, 2.0)
    retry.note_reached(ADDRESS)
    retry.require_reachable(ADDRESS)
    assert attempts(clock, 2.0) == 16


def test_waiting_is_said_at_once_and_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConnectionFailed, match=r"away for 30 s, longer than .* `ferry doctor`"):
        connecting(clock, [refused() for _ in range(100)])
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "cannot connect to db: refused; waiting up to 30 s for it (TABLEFERRY_PATIENCE_SECONDS)"
    ]
    retry.note_reached(ADDRESS)
    connecting(clock, [refused(), None])
    assert len(caplog.records) == 2, "another outage"


def test_who_does_not_wait_says_nothing_of_it(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with waiting.bounded(), pytest.raises(ConnectionFailed, match=r"refused$"):
        connecting(clock, [refused(), None])
    assert caplog.records == []


def test_an_outage_of_long_ago_does_not_count(clock: Clock) -> None:
    attempts(clock, 2.0)
    clock.now += retry.FORGOTTEN_SECONDS + 1
    assert attempts(clock, 2.0) == 16


def connecting(clock: Clock, errors: list[Exception | None]) -> list[str]:
    """Connect by a function that fails like this, one after the other."""
    tries: list[str] = []

    @patiently
    def connect() -> str:
        tries.append("asked")
        clock.now += 2.0
        if error := errors.pop(0):
            raise error
        return "connected"

    assert connect() == "connected"
    return tries


def test_who_connects_waits_from_the_first_time_on(clock: Clock) -> None:
    assert len(connecting(clock, [refused(), refused(), refused(), None])) == 4
    assert retry.note_failure(refused()) == 0.0, "the outage is over"


@pytest.mark.parametrize(
    "error", [ConnectionFailed("login refused", address=ADDRESS), InputError("no such database")]
)
def test_nobody_waits_for_what_does_not_pass(clock: Clock, error: Exception) -> None:
    with pytest.raises(type(error)):
        connecting(clock, [error, None])


def test_who_only_asks_whether_it_is_there_does_not_wait(clock: Clock) -> None:
    with waiting.bounded(), pytest.raises(ConnectionFailed):
        connecting(clock, [refused(), None])
    retry.forget_outages()
    assert len(connecting(clock, [refused(), None])) == 2


def test_a_server_that_stays_away_is_given_up_once(clock: Clock) -> None:
    tries = 0
    with pytest.raises(ConnectionFailed):
        for attempt in retrying():
            with attempt:
                tries += 1
                connecting(clock, [refused() for _ in range(100)])
    assert tries == 1 and clock.now >= 1030.0


def test_nobody_sleeps_past_the_end_of_a_tick(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "time", clock)
    monkeypatch.setattr(retry, "backoff", lambda attempt: 0.0 if attempt < 3 else 20.0)
    tries = 0
    with pytest.raises(StatementFailed), waiting.bounded(clock.now + 10):
        for attempt in retrying():
            with attempt:
                tries += 1
                raise StatementFailed("postgres", "too many clients", transient=True)
    assert tries == 3


def test_the_last_attempt_is_at_the_end_of_patience(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "backoff", lambda attempt: 0.5 * 2.0**attempt)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr("tenacity.nap.time.sleep", sleep)
    began = clock.now
    attempts(clock, 0.0)
    assert clock.now - began == retry.DEFAULT_PATIENCE
