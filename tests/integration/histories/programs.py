"""Histories as data: made by chance, shortened while they fail, printed to be kept."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

ROUTES = [
    ("postgres", "clickhouse"),
    ("postgres", "sqlserver"),
    ("postgres", "postgres"),
    ("postgres", "sqlserver", "clickhouse"),
    ("postgres", "clickhouse", "postgres"),
    ("sqlserver", "postgres"),
    ("sqlserver", "clickhouse"),
    ("clickhouse", "postgres"),
    ("clickhouse", "sqlserver"),
]
"""The systems of the source and of each hop."""

POINTS = [
    *("before_export", "during_export", "after_export", "during_load", "after_load"),
    *("before_audit", "after_audit", "inside_finalise", "after_commit", "after_event"),
]
ONLY_CLICKHOUSE = ["after_marker", "after_publish", "before_strays"]
ONLY_CHAIN = ["between_hops"]
ONLY_SWAP = ["after_shadowed", "before_swap", "inside_swap", "after_swap"]
ONLY_EVOLVE = ["during_evolution"]


@dataclass(frozen=True)
class Step:
    """A call of a method of `tests.integration.histories.world.World`."""

    name: str
    given: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        given = [repr(self.name), *map(repr, self.given)]
        return f"step({', '.join([*given, *(f'{key}={value!r}' for key, value in self.named)])})"


def step(name: str, *given: Any, **named: Any) -> Step:
    return Step(name, given, tuple(named.items()))


@dataclass(frozen=True)
class History:
    """A transfer, and what happens to it."""

    route: tuple[str, ...]
    key: str = "n"
    """The key column: the primary key `n`, or `id`, which may be NULL and change."""
    declared: tuple[tuple[str, str], ...] = ()
    rows: int = 24
    steps: tuple[Step, ...] = field(default=(), repr=False)

    def program(self) -> str:
        """The history as Python."""
        lines = [
            "History(",
            f"    {self.route!r}, key={self.key!r}, rows={self.rows},",
            f"    declared={self.declared!r},",
            "    steps=(",
            *(f"        {each!r}," for each in self.steps),
            "    ),",
            ")",
        ]
        return "\n".join(lines)


def random_history(chance: random.Random, length: int) -> History:
    """Make a history of one of the routes."""
    route = chance.choice(ROUTES)
    # ClickHouse tells no primary key of a source
    key = "n" if chance.random() < 0.6 else "id"
    declared = {
        "ranges": chance.choice(["{bounds: [10, 20, 30]}", "{rows: 10}"]),
        **random_settings(chance, route, key),
        "on_schema_drift": chance.choice(["evolve", "evolve", "add_columns", "fail", "ignore_new"]),
    }
    if declared["on_schema_drift"] == "evolve" and chance.random() < 0.4:
        declared["dropped_columns"] = chance.choice(["keep", "null", "drop"])
    steps: list[Step] = []
    if chance.random() < 0.8:
        steps.append(step("run"))
    while len(steps) < length:
        steps.extend(random_steps(chance, route, key, declared))
    return History(route, key, tuple(declared.items()), chance.choice([0, 24, 40]), tuple(steps))


def random_settings(chance: random.Random, route: tuple[str, ...], key: str) -> dict[str, str]:
    """Settings that a transfer of the route may have."""
    modes = ["replace", "replace", "replace", "swap"]
    if key == "n" and route[0] != "clickhouse":
        modes.append("upsert")
    made = {"write": chance.choice(modes)}
    if made["write"] == "upsert" and "clickhouse" not in route[1:]:
        made["deletes"] = chance.choice(["keep", "apply", "{mark: gone}"])
    made["reconcile"] = chance.choice(["checksum", "checksum", "full_hash", "sample_hash", "count"])
    made["fingerprint"] = chance.choice(["auto", "auto", "content"])
    if route[0] == "postgres" and chance.random() < 0.2:
        made["fingerprint"] = "row_version"
    if made["write"] == "upsert" and chance.random() < 0.5:
        made |= {"fingerprint": "{watermark: v}", "incremental": "true"}
    elif made["write"] != "swap":
        made["delta"] = chance.choice(["auto", "always", "never"])
    return made


def random_steps(
    chance: random.Random, route: tuple[str, ...], key: str, declared: dict[str, str]
) -> Iterator[Step]:
    """What may happen next: one thing, or two that belong together."""
    hops = len(route) - 1

    def picks(most: int) -> list[int]:
        return [chance.randrange(60) for _ in range(chance.randint(1, most))]

    def value() -> int:
        return chance.randrange(1000)

    kinds = {
        "insert": 4,
        "update": 5,
        "delete": 3,
        "move": 3 if key == "id" else 0,
        "exchange": 2 if key == "id" else 0,
        "alter": 3,
        "declare": 2,
        "damage": 7,
        "run": 9,
        "kill": 6,
        "check": 5,
        "compare": 2,
        "repair": 2,
        "status": 1,
        "plan": 2,
        "backup": 2,
        "restore": 2,
        "forget": 1,
        "lose_log": 1,
        "adopt": 1,
        "expect": 2,
        "unlist": 2,
        "launch": 1,
        "revoke": 2,
        "mistake": 2,
        "restart": 2,
    }
    kind = chance.choices([*kinds], [*kinds.values()])[0]
    if kind == "insert":
        keys = [chance.choice([chance.randrange(70), chance.randrange(70), -3, 2**31 - 2])]
        keys += picks(4)
        yield step("insert", keys, value())
    elif kind in ("update", "delete"):
        yield step(kind, picks(4), *([value()] if kind == "update" else []))
    elif kind == "move":
        yield step("move", chance.randrange(60), chance.choice([None, chance.randrange(70)]))
    elif kind == "exchange":
        yield step("exchange", *picks(1), *picks(1))
    elif kind == "alter":
        what = chance.choice(["add", "add", "drop", "rename", "widen", "widen"])
        yield step("alter", what, chance.randrange(20))
    elif kind == "declare":
        drift = {"on_schema_drift": chance.choice(["evolve", "add_columns", "ignore_new"])}
        changed = chance.choice([random_settings(chance, route, key), drift])
        yield step("declare", **changed)
    elif kind == "damage":
        what = chance.choice(
            [
                *("value", "value", "null", "exchange", "delete", "insert", "twice", "key"),
                *("empty", "drop", "lose_column", "add_column"),
            ]
        )
        yield step("damage", chance.randint(1, hops), what, chance.randrange(60))
    elif kind == "run":
        more = [[], [], [], ["--force"], ["--failed"], ["--hop", str(chance.randint(1, hops))]]
        more += [["--range", str(chance.randrange(60))], ["--recreate"]]
        yield step("run", *chance.choice(more))
    elif kind == "kill":
        points = POINTS + ONLY_CLICKHOUSE * ("clickhouse" in route[1:]) + ONLY_CHAIN * (hops > 1)
        points = points + ONLY_SWAP * 2 * (declared["write"] == "swap") + ONLY_EVOLVE
        at = f"{chance.choice(points)}:{chance.choice([1, 1, 2, 3, 4])}"
        if chance.random() < 0.7:
            yield step("update", [1, 11, 22, 34], value())
        force = chance.random() < 0.3
        yield step("run", *(["--force"] * force), kill=at)
    elif kind == "check":
        yield step("check", chance.choice(["", "", "checksum", "full_hash"]))
    elif kind in ("compare", "restart"):
        if kind == "restart":
            yield step("update", [1, 11, 22, 34], value())
        yield step(kind, chance.randint(kind == "compare", hops))
    elif kind == "expect":
        yield step("expect", chance.random() < 0.7)
    elif kind == "unlist":
        yield step("unlist", chance.randrange(10))
    elif kind == "launch":
        yield step("launch", chance.choice(["", "", "ALL_STEPS", "FROM_FAILURE"]))
    elif kind == "mistake":
        wrong = [("deletes", "some"), ("key", "nothing")]
        yield step("mistake", *chance.choice([*wrong, ("hops", "[nowhere://public.t]")]))
    elif kind == "repair" and chance.random() < 0.4:
        points = ["before_audit", "inside_finalise", "after_commit", "after_event"]
        yield step("repair", kill=f"{chance.choice(points)}:{chance.choice([1, 2])}")
    elif kind == "restore":
        if chance.random() < 0.6:
            yield step("go_back")
        yield step("restore")
    else:
        yield step(kind)


def shrunk(history: History, fails: Callable[[History], bool], seconds: float) -> History:
    """Shorten a history that fails for as long as it fails in the same way.

    Args:
        history: one that fails.
        fails: whether another one fails in the same way.
        seconds: when to stop, with the shortest one so far.
    """
    end = time.monotonic() + seconds

    def still(shorter: History) -> bool:
        return time.monotonic() < end and fails(shorter)

    size = max(1, len(history.steps) // 2)
    while size and time.monotonic() < end:
        start, steps = 0, history.steps
        while start < len(history.steps):
            shorter = replace(history, steps=history.steps[:start] + history.steps[start + size :])
            if still(shorter):
                history = shorter
            else:
                start += size
        size = size // 2 if size > 1 or history.steps == steps else 1
        if size == 0:
            break
    for name, _ in history.declared:
        without = tuple(each for each in history.declared if each[0] != name)
        if name != "ranges" and still(replace(history, declared=without)):
            history = replace(history, declared=without)
    for shorter in (replace(history, rows=0), replace(history, rows=12)):
        if shorter.rows < history.rows and still(shorter):
            return shorter
    return history
