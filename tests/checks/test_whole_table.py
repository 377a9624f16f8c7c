"""Counts of whole tables."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tableferry.checks import whole_table
from tableferry.checks.sides import Comparison
from tableferry.resources.keys.range import KeyRange
from tableferry.resources.registry import system
from tableferry.resources.types.type_map import Column


def test_a_source_that_is_lost_is_told_while_the_target_is_counted() -> None:
    key, ended, counted = Column("id", "integer"), threading.Event(), list[bool]()

    def lost(*_: Any) -> Any:
        raise ConnectionError("lost")

    side = SimpleNamespace(
        key=key, table=SimpleNamespace(system=system("postgres")), filter=None, plan=None
    )
    source = SimpleNamespace(**vars(side), stretches=lambda ranges: [ranges], total=lost)
    target = SimpleNamespace(**vars(side), measure=lambda _: counted.append(ended.wait(20)))
    comparison = SimpleNamespace(
        plan=SimpleNamespace(where=None, key=SimpleNamespace(source=key)),
        ranges=[KeyRange("integer")],
        sides={"source": source, "target": target},
    )
    try:
        with pytest.raises(ConnectionError, match="lost"):
            whole_table._count(cast(Comparison, comparison), None, 0)
        assert not counted, "it is still being counted"
    finally:
        ended.set()
