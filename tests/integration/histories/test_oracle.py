"""The oracle finds what it is there for, and what fails is told as shortly as it can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tableferry.assets.log.records import Reason
from tableferry.assets.planning.rows import decision, decisions
from tests.chance import chance
from tests.integration.histories.oracle import Fault
from tests.integration.histories.programs import History, Step, random_history, shrunk, step
from tests.integration.histories.world import run_history
from tests.servers import Servers

pytestmark = pytest.mark.integration


def forget_failures(patch: pytest.MonkeyPatch) -> None:
    """What a check has found does not count."""
    committed = decisions.committed

    def without(*given: Any, **named: Any) -> Any:
        found = committed(*given, **named)
        return {name: replace(each, failed=()) for name, each in found.items()}

    patch.setattr(decisions, "committed", without)


def believe_the_log(patch: pytest.MonkeyPatch) -> None:
    """What a target's marker says does not count."""
    for module in (decision, decisions):
        patch.setattr(module, "moved_by_others", lambda *_: "")


def count_nothing(patch: pytest.MonkeyPatch) -> None:
    """A target is not counted before its ranges are skipped."""
    same = decision.Decision(Reason.UNCHANGED)
    patch.setattr(decision, "_row_count_differs", lambda *_: same)


CHANGE = step("update", [4], 7)
DIRECT = ("postgres", "postgres")
FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], tuple[str, ...], list[Step]]] = {
    "a check that failed": (
        forget_failures,
        DIRECT,
        [step("run"), step("damage", 1, "value", 3), step("check"), step("run")],
    ),
    "a marker": (
        believe_the_log,
        DIRECT,
        [
            *(step("run"), step("backup"), CHANGE, step("run")),
            *(step("go_back"), step("restore"), step("run")),
        ],
    ),
    "missing rows": (
        count_nothing,
        DIRECT,
        [step("run"), step("damage", 1, "delete", 3), step("run")],
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_product_that_overlooks_something_is_found(
    stack: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    break_it, route, steps = FAULTS[what]
    history = History(route, declared=(("ranges", "{bounds: [10, 20]}"),), steps=tuple(steps))
    break_it(monkeypatch)
    with pytest.raises(Fault):
        run_history(history, stack, tmp_path / "history")


def test_a_history_is_shortened_to_what_fails_and_printed_as_a_program() -> None:
    long = random_history(chance("a long one"), 40)
    long = replace(long, steps=(*long.steps[:30], step("check", "odd"), *long.steps[30:]))

    def fails(history: History) -> bool:
        return step("check", "odd") in history.steps and len(history.steps) > 2

    short = shrunk(long, fails, 60)
    assert len(short.steps) == 3 and fails(short)
    assert [name for name, _ in short.declared] == ["ranges"]
    assert eval(long.program(), {"History": History, "step": step}) == long
