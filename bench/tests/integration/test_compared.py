"""What `ferry compare` is measured beside."""

from __future__ import annotations

import pytest

from tableferry_bench import compared
from tableferry_bench.compared import FERRY, TOOLS, measure
from tableferry_bench.contenders.peers import NATIVE_PORT
from tableferry_bench.servers import Servers


@pytest.mark.parametrize("pair", compared.PAIRS)
def test_each_tool_finds_the_rows_that_differ(databases: Servers, pair: str) -> None:
    measured = measure(databases, 2_000, [0, 10], runs=1, pair=pair)
    assert {each.tool for each in measured} <= {tool.name for tool in TOOLS}
    assert [(each.different, each.found) for each in measured if each.tool == FERRY.name] == [
        (0, 0),
        (10, 10),
    ]
    for each in measured:
        assert each.seconds > 0
        assert each.peak_mb > 1


def test_what_cannot_be_measured_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, plain, _, joined = TOOLS
    assert joined.missing("clickhouse") == "it compares tables of one server"
    monkeypatch.setattr(compared.importlib.util, "find_spec", lambda name: object())
    monkeypatch.delenv(NATIVE_PORT, raising=False)
    assert NATIVE_PORT in (plain.missing("clickhouse") or "")
    monkeypatch.setenv(NATIVE_PORT, "9000")
    assert plain.missing("clickhouse") is None
    monkeypatch.setattr(compared.importlib.util, "find_spec", lambda name: None)
    assert "not installed" in (plain.missing("postgres") or "")
    assert FERRY.missing("clickhouse") is None
