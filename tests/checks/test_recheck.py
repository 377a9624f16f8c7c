"""How often rows that differ are compared again, as users write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tableferry.checks import recheck
from tableferry.checks.recheck import Recheck, RepeatedLooks, look_together
from tableferry.checks.verdict import Difference, Differences, Verdict
from tableferry.resources.errors import InputError


@pytest.mark.parametrize(
    ("text", "times", "seconds"), [("3x10s", 3, 10), ("1x0s", 1, 0), ("2x1.5m", 2, 90)]
)
def test_looks_and_pauses_are_read(text: str, times: int, seconds: float) -> None:
    recheck = Recheck.parse(text)
    assert (recheck.times, recheck.seconds) == (times, seconds)
    assert Recheck.parse(str(recheck)) == recheck


@pytest.mark.parametrize("text", ["", "3", "3x", "x10s", "3x10", "0x1s", "101x1s", "1x61m"])
def test_other_texts_are_refused_with_the_value(text: str) -> None:
    with pytest.raises(InputError, match=f"recheck: '{text}' should be a number of retries"):
        Recheck.parse(text)


FAILED = Verdict("full_hash", False, {"rows": 3}, {"rows": 3}, 0, disagreeing=("digest",))
PASSED = replace(FAILED, passed=True, disagreeing=())


class Rows:
    """Both sides of a range, whose rows differ as they are said to, look by look."""

    def __init__(self, *looks: Sequence[str]) -> None:
        self.looks = list(looks)

    def search(self, sink: Any) -> Differences:
        found = [Difference(key, "different", "n", "1", "2") for key in self.looks.pop(0)]
        if found:
            sink(found)
        return Differences(different=len(found), by_column={"n": len(found)})


def judged(rows: Rows, *again: Verdict) -> Verdict:
    answers = iter(again)
    looks = RepeatedLooks(rows, Recheck(1, 0))  # type: ignore[arg-type]
    verdict = looks.judge(FAILED, lambda: next(answers))
    assert not rows.looks and next(answers, None) is None
    return verdict


def test_a_failure_that_no_look_confirms_is_asked_for_again() -> None:
    passed = judged(Rows([]), PASSED)
    assert passed.passed and "rows differed while being written" in passed.summary()
    stays = judged(Rows([], []), FAILED)
    assert not stays.passed and "compared in another way, no row differs" in stays.summary()


def test_rows_that_are_being_written_pass_though_others_are_too() -> None:
    settled = judged(Rows(["1"], []), PASSED)
    assert settled.passed and "1 row differed while being written" in settled.summary()
    busy = judged(Rows(["1"], [], ["2"], []), FAILED)
    assert busy.passed and "1 row differed" in busy.summary()
    damaged = judged(Rows([], ["2"], ["2"]), FAILED)
    assert damaged.differences is not None and damaged.differences.different == 1


def test_the_ranges_of_a_table_wait_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(recheck, "pause", pauses.append)
    looks = [
        RepeatedLooks(Rows(*each), Recheck(3, 10))  # type: ignore[arg-type]
        for each in ([["1"]] * 4, [["1"], []], [[]], [["1"], ["1"], []])
    ]
    look_together(looks)
    assert pauses == [10, 10, 10]
    lasts = [each.judge(FAILED, lambda: PASSED).passed for each in looks]
    assert lasts == [False, True, True, True]
