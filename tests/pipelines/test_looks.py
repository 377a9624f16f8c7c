"""Which of many transfers have nothing to do, in batches that read the catalogs together."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tableferry.pipelines.command.many import fleet
from tableferry.pipelines.command.one.finding import Selection
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.show.range_views import TransferOutcome, TransferView

BATCHES = (["slow", "to do", "altered"], ["next"])


def looks(names: Sequence[str]) -> Iterator[tuple[Sequence[str], Any]]:
    for batch in BATCHES:
        yield batch, SimpleNamespace(servers=SimpleNamespace(changed=lambda: {"altered"}))


def test_a_slow_look_holds_up_neither_a_move_nor_another_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on = threading.Event()

    def look(session: Session, name: str, selection: Selection) -> TransferOutcome | None:
        assert name != "slow" or goes_on.wait(60)
        return None if name == "to do" else TransferOutcome(TransferView(name, [], True, []), 0.0)

    monkeypatch.setattr(fleet, "_look", look)
    session = SimpleNamespace(looks=looks, transfer=lambda name: SimpleNamespace(tables=(name,)))
    names = [name for batch in BATCHES for name in batch]
    found = fleet._looks(cast(Session, session), names, Selection())
    settled = {name: outcome is not None for outcome, name in (next(found), next(found))}
    assert settled == {"to do": False, "next": True}
    goes_on.set()
    assert [(name, outcome is not None) for outcome, name in found] == [
        ("slow", True),
        ("altered", False),
    ]
