"""The protocol holds in every state of its model, and the model finds what breaks a changed one."""

from __future__ import annotations

import pytest

from tests.model.protocol import CLICKHOUSE, PLAN, TRANSACTIONAL, Protocol, explore

WORLDS: dict[str, Protocol] = {
    f"{target}, {name}": protocol._replace(**settings)  # type: ignore[arg-type]
    for target, protocol in (("transactional", TRANSACTIONAL), ("clickhouse", CLICKHOUSE))
    for name, settings in {
        "two homes": {},
        "one home": {"homes": (0, 0)},
        "two hosts": {"far": True},
        "one home, two hosts": {"homes": (0, 0), "far": True},
        "no snapshot": {"snapshot": False},
        "no markers yet": {"marked": False},
        "no state returns": {"far": True, "history": "ABC"},
    }.items()
}


@pytest.mark.invariant("I1", "I2", "I3", "I4", "I8", "I9")
@pytest.mark.parametrize("world", WORLDS)
def test_the_invariants_hold_in_every_state(world: str) -> None:
    found = explore(WORLDS[world])
    assert not found.broken, f"\n{found}"
    assert found.states > 3_000


@pytest.mark.soak
@pytest.mark.parametrize("world", WORLDS)
def test_they_hold_whatever_else_happens(world: str) -> None:
    """Two mishaps, three attempts, and a source that goes on."""
    deeper = WORLDS[world]._replace(most_mishaps=2, attempts=3, history="ABAC")
    found = explore(deeper)
    assert not found.broken, f"\n{found}"


FAR = CLICKHOUSE._replace(far=True)
FAULTS: dict[str, tuple[Protocol, str]] = {
    "rows are published before their audit": (TRANSACTIONAL.exchanged("audit", "commit"), "I2"),
    "nobody audits": (CLICKHOUSE.without("audit"), "I2"),
    "nobody looks whether the source has moved, nor audits": (
        CLICKHOUSE._replace(snapshot=False, mishaps=frozenset({"crash"}))
        .without("unmoved")
        .without("audit"),
        "I3",
    ),
    "a range is recorded before it is committed": (
        TRANSACTIONAL.exchanged("record", "commit"),
        "I3",
    ),
    "a range is recorded before it is replaced": (CLICKHOUSE.exchanged("record", "replace"), "I3"),
    "the marker is asked after the source is read": (
        CLICKHOUSE.exchanged("markers", "source")._replace(history="ABC"),
        "I8",
    ),
    "the same, with transactions": (
        TRANSACTIONAL.exchanged("markers", "source")._replace(history="ABC"),
        "I8",
    ),
    "rows and marker are two transactions, and the marker is written anyhow": (
        TRANSACTIONAL.replaced("commit", "commit_rows", "mark_anyhow"),
        "I9",
    ),
    "equal rows are marked whatever the marker says by then": (
        TRANSACTIONAL.replaced("mark", "mark_anyhow")._replace(marked=False),
        "I9",
    ),
    "no marker is asked at all": (
        TRANSACTIONAL._replace(
            paths={**TRANSACTIONAL.paths, "plan": (*PLAN[:2], "decide_by_the_log")}
        ),
        "I4",
    ),
    "the range is deleted, and then inserted": (
        CLICKHOUSE.replaced("replace", "delete", "replace"),
        "I1",
    ),
    "a range is recorded while a restart may bring back what it has replaced": (
        CLICKHOUSE.without("let_go"),
        "I9",
    ),
    "nobody looks whether a restart has brought back what was replaced": (
        CLICKHOUSE.replaced("see", "verify"),
        "I9",
    ),
    "nobody looks at lock and marker before rows are replaced": (
        FAR._replace(history="ABC").without("look"),
        "I8",
    ),
    # these two were in the product until the model found them
    "the marker has its version before its rows are there": (
        CLICKHOUSE.replaced("announce", "put_marker"),
        "I9",
    ),
    "what others have staged is dropped as it was when their lock was found": (
        FAR.replaced("drop_staging", "drop_seen"),
        "I8",
    ),
}
"""Two steps exchanged, or one left out or done otherwise; and the invariant that breaks."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    protocol, number = FAULTS[fault]
    found = explore(protocol)
    print(f"{fault}:\n{found}")
    assert found.broken.startswith(f"{number}:"), f"\n{found}"
