"""Whoever damages the middle of a chain, and whatever is done then: "proven" is true."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

from tableferry.assets.running.progress import Progress
from tableferry.checks.levels import Level
from tableferry.pipelines.command.one import runner
from tableferry.pipelines.command.show.range_views import TransferView
from tableferry.resources.errors import TableMissing
from tests.integration.conftest import Ferry
from tests.integration.moving.test_delta_property import Target
from tests.integration.support import looking
from tests.integration.support.command import command

pytestmark = pytest.mark.integration

Make = Callable[..., Ferry]
Rows = list[tuple[Any, ...]]

EXAMPLES = int(os.environ.get("TABLEFERRY_TEST_EXAMPLES", "1"))
ROWS = 60
TABLE = (
    "CREATE TABLE {t} (id integer PRIMARY KEY, a text)",
    f"INSERT INTO {{t}} SELECT g, 'a ' || g FROM generate_series(1, {ROWS}) g",
)
ORDERS = "DX DXP DXRP DCX DF D2C DX1 SD1 DS2 DSCP"
"""Letters are those of `Chain.STEPS`; run, check and run follow on each order."""
UNSEEN = "DX DX1 DXRF"
"""Orders for chains that record no digests."""
CHAINS: dict[str, tuple[str, dict[str, str]]] = {
    "checksum": ("postgres clickhouse", {}),
    "count": ("postgres clickhouse", {"reconcile": "count"}),
    "sample_hash": ("postgres clickhouse", {"reconcile": "sample_hash"}),
    "full_hash": ("postgres clickhouse", {"reconcile": "full_hash"}),
    "swap": ("postgres clickhouse", {"write": "swap"}),
    "swap-count": ("postgres clickhouse", {"write": "swap", "reconcile": "count"}),
    "upsert": ("postgres clickhouse", {"write": "upsert"}),
    "delta": ("sqlserver postgres", {"delta": "always"}),
    "fingerprint": ("postgres clickhouse", {"fingerprint": "none"}),
    "sqlserver": ("sqlserver clickhouse", {}),
    "three": ("postgres sqlserver clickhouse", {}),
    "files": ("postgres files", {}),
}


class Chain:
    """A chain whose last target is compared with the source past the product."""

    def __init__(self, one: Ferry, targets: Sequence[Target], guarded: bool) -> None:
        self.one, self.targets, self.guarded = one, targets, guarded
        self.done, self.number = "", 0

    @property
    def source(self) -> Rows:
        return self.one.rows("SELECT id, a FROM {t} ORDER BY id")

    def rows(self, hop: int) -> Rows:
        target = self.targets[hop]
        if target.system == "files":
            return sorted(map(tuple, pl.read_parquet(f"{target.table}/*.parquet").rows()))
        return [tuple(row) for row in target.ask("SELECT id, a FROM {t} ORDER BY id")]

    def steps(self, steps: str) -> None:
        for step in steps:
            self.done += step
            self.number += 1
            self.STEPS[step](self)

    def damage(self) -> None:
        hop = self.number % (len(self.targets) - 1)
        at, value = self.number * 7 % ROWS + 1, f"damaged {self.number}"
        self.targets[hop].change(f"UPDATE {{t}} SET a = '{value}' WHERE id = {at}")

    def drop_last(self) -> None:
        last = self.targets[-1]
        if last.system == "files":
            shutil.rmtree(last.table, ignore_errors=True)
            return
        sync = " SYNC" if last.system == "clickhouse" else ""
        looking.run(self.one.stack, last.system, f"DROP TABLE IF EXISTS {last.table}{sync}")

    def change(self) -> None:
        at = self.number * 11 % ROWS + 1
        self.one.source(f"UPDATE {{t}} SET a = 'changed {self.number}' WHERE id = {at}")

    def run(self, **options: Any) -> TransferView:
        view = self.one.run(**options)
        if view.good and self.guarded and "hop" not in options:
            assert self.rows(-1) == self.source, f"{self.done}: green, and wrong"
        return view

    def check(self) -> None:
        try:
            checked = runner.check(self.one.session, self.one.table, level=self.level)
        except TableMissing:
            return  # the last target was dropped
        behind = any(one.verdict.source_newer for one in checked.checks)
        if checked.good and not behind and self.proven:
            assert self.rows(-1) == self.source, f"{self.done}: proven, and wrong"

    @property
    def level(self) -> Any:
        """Counts alone show no value."""
        declared = self.one.session.transfer(self.one.table).reconcile
        return "checksum" if declared == "count" else None

    @property
    def proven(self) -> bool:
        return runner.status(self.one.session, self.one.table).good

    def converge(self) -> None:
        """Run, check and run: all is right, and says so."""
        self.steps("RCR")
        for hop in range(len(self.targets)):
            assert self.rows(hop) == self.source, f"{self.done}: hop {hop + 1} is wrong"
        assert self.proven, self.done
        self.done += " "

    STEPS: ClassVar[dict[str, Callable[[Chain], object]]] = {
        "D": damage,
        "X": drop_last,
        "S": change,
        "R": run,
        "C": check,
        "P": lambda self: self.run(repair=True),
        "F": lambda self: self.run(force=True),
        "1": lambda self: self.run(hop=1, force=True),
        "2": lambda self: self.run(hop=2, force=True),
    }


@pytest.fixture
def chain(ferry: Make, copies: str, tmp_path: Path) -> Callable[..., Chain]:
    def make(*systems: str, **settings: str) -> Chain:
        places = {"postgres": f"{copies}.{{t}}", "sqlserver": "dbo.{t}"}
        places |= {"clickhouse": "warehouse.{t}", "files": f"{tmp_path}/{{t}}/"}
        hops = [f"{each}://{places[each]}" for each in systems]
        one = ferry(str(hops), *TABLE, **{"ranges": "{bounds: [1, 31]}", **settings})
        targets = [Target(one, each, "", hop) for hop, each in enumerate(systems, 1)]
        for target in targets:
            target.table = places[target.system].format(t=one.table)
        guarded = settings.get("reconcile", "checksum") in ("checksum", "full_hash")
        seen = not {"none", "upsert"} & set(settings.values())
        return Chain(one, targets, guarded and seen)

    return make


@pytest.mark.invariant("I13")
@pytest.mark.parametrize(("level", "orders"), [("checksum", ORDERS), ("count", UNSEEN)])
def test_orders(chain: Callable[..., Chain], level: str, orders: str) -> None:
    made = chain("postgres", "clickhouse", reconcile=level)
    made.steps("R")
    for order in orders.split():
        made.steps(order)
        made.converge()


@pytest.mark.invariant("I13")
@pytest.mark.parametrize("name", CHAINS)
def test_whatever_is_done(chain: Callable[..., Chain], name: str) -> None:
    systems, settings = CHAINS[name]
    made, rng = chain(*systems.split(), **settings), random.Random(name)
    made.steps("R")
    for _ in range(EXAMPLES):
        made.steps("".join(rng.choices("DDDXXSRRCCPF12", k=rng.randint(3, 6))))
        made.converge()


@pytest.mark.parametrize("level", ["full_hash", "sample_hash", "checksum"])
def test_a_failure_that_the_mended_middle_has_caused_is_over_with_the_run(
    chain: Callable[..., Chain], level: Level
) -> None:
    """Also of a level that is not declared: a run compares by it again."""
    made = chain("postgres", "clickhouse")
    made.steps("R")
    made.targets[0].change("UPDATE {t} SET a = 'damaged' WHERE id = 5")
    checks = runner.check(made.one.session, made.one.table, level=level).checks
    assert {check.hop.number for check in checks if check.failed} == {1, 2}
    view = made.one.run()
    assert view.good, view.errors
    assert made.rows(0) == made.rows(-1) == made.source
    assert {str(each.reason) for each in made.one.plan().ranges} == {"unchanged"}


@pytest.mark.invariant("I13")
def test_what_was_taken_from_rows_that_were_mended_later_is_not_left_as_it_is(
    chain: Callable[..., Chain],
) -> None:
    made = chain("postgres", "clickhouse", reconcile="count")
    made.steps("RR")
    assert {str(each.reason) for each in made.one.plan().ranges} == {"unchanged"}
    middle, _ = made.targets
    middle.change("UPDATE {t} SET a = 'damaged' WHERE id = 5")
    made.steps("XR")
    assert made.rows(-1) == made.rows(0) != made.source, "counts show no value"
    made.steps("1")
    assert made.rows(0) == made.source
    reasons = {str(each.reason) for each in made.one.plan().ranges if each.hop == 2}
    assert reasons == {"source_rewritten"}
    made.steps("R")
    assert made.rows(-1) == made.source
    assert {str(each.reason) for each in made.one.plan().ranges} == {"unchanged"}


@pytest.mark.invariant("I12", "I13")
def test_a_repair_never_gives_the_last_target_damaged_values(chain: Callable[..., Chain]) -> None:
    made = chain("postgres", "clickhouse")
    made.steps("R")
    name, (middle, last) = made.one.table, made.targets
    last.change("UPDATE {t} SET a = 'wrong' WHERE id = 40")
    middle.change("UPDATE {t} SET a = 'damaged' WHERE id = 5")
    shown = json.loads(command("repair", name, "--dry-run", "--json").stdout)
    assert [(each["target"], each["different"]) for each in shown["differences"]] == [
        (f"postgres://{middle.table}", 1),
        (f"clickhouse://{last.table}", 1),
    ]
    rows = [example["source"] for each in shown["differences"] for example in each["examples"]]
    assert rows == ["a 5", "a 40"], "what the source has, not what the middle was damaged to"
    alone = command("repair", name, "--hop", "2", "--dry-run")
    assert alone.exit_code == 1
    assert f"{middle.table} has other rows than hop 1 has proved there" in alone.stderr
    repaired = command("repair", name, "--hop", "2", "--json")
    assert repaired.exit_code == 1
    states = {each["range"]: each["state"] for each in json.loads(repaired.stdout)["ranges"]}
    assert states["0000000001..0000000031"] == "failed"
    assert made.rows(-1) == made.source, "the other range is repaired"
    assert not made.proven, "the damage that was found stays known"
    assert command("repair", name).exit_code == 0
    assert made.rows(0) == made.source and made.proven


@pytest.mark.invariant("I10", "I13")
def test_damage_of_the_middle_is_called_that(chain: Callable[..., Chain]) -> None:
    made = chain("postgres", "clickhouse")
    made.steps("R")
    name, (middle, last) = made.one.table, made.targets
    middle.change("UPDATE {t} SET a = 'damaged' WHERE id = 5")
    checked = command("check", name)
    assert checked.exit_code == 1 and "BEHIND" not in checked.output
    assert (
        f"clickhouse://{last.table} 0000000001..0000000031: checksum FAILED: 1 row differs: a; "
        f"postgres://{middle.table} was changed since hop 1 proved it, and "
        f"clickhouse://{last.table} holds what was committed"
    ) in checked.stderr
    plan = {(each.hop, each.range): each.decision for each in made.one.plan().ranges}
    assert str(plan[1, "0000000001..0000000031"].reason) == "last_check_failed"
    assert str(plan[2, "0000000001..0000000031"].reason) == "source_rewritten"
    mended = made.run()
    moved = [each.target for each in mended.ranges if each.state == "committed"]
    assert mended.good and moved == [f"postgres://{middle.table}"], "the last target was right"
    made.steps("D")
    forced = command("run", name, "--hop", "2", "--force")
    assert forced.exit_code == 1
    assert f"postgres://{middle.table} has other rows than hop 1 has proved there" in forced.stderr
    assert made.rows(-1) == made.source, "nothing of it was published"


@pytest.mark.invariant("I10", "I13")
@pytest.mark.parametrize(
    "settings",
    [
        {"reconcile": "count"},
        {"reconcile": "count", "delta": "never"},
        {"reconcile": "sample_hash"},
        {"write": "append"},
        {"write": "upsert"},
        {"write": "upsert", "fingerprint": "{watermark: id}", "incremental": "true"},
    ],
    ids=lambda settings: " ".join(settings.values()),
)
def test_a_row_that_the_middle_loses_is_told_without_a_digest(
    chain: Callable[..., Chain], settings: dict[str, str]
) -> None:
    made = chain("postgres", "clickhouse", **settings)
    made.steps("R")
    middle, seen = made.targets[0], made.rows(-1)
    if settings.get("write") != "append":
        made.one.source("UPDATE {t} SET a = 'new' WHERE id = 60")
    made.one.source("INSERT INTO {t} VALUES (61, 'a 61')")

    def lose_a_row(progress: Progress) -> None:
        if progress.target.endswith(middle.table) and progress.phase == "committed":
            middle.change("DELETE FROM {t} WHERE id = 61")

    view = made.one.run(on_progress=lose_a_row)
    assert not view.good
    assert any(
        f"{middle.table} has other rows than hop 1 has proved there: row_count FAILED: 31 rows in "
        "source, 30 in target" in error
        for error in view.errors
    ), view.errors
    assert made.rows(-1) == seen, "nothing of the range was published"
    assert not made.proven, "the damage that was found stays known"
    assert made.run().good
    assert made.rows(0) == made.rows(-1) == made.source and made.proven


@pytest.mark.parametrize("write", ["append", "upsert"])
def test_rows_of_its_own_in_the_middle_are_no_damage(
    chain: Callable[..., Chain], write: str
) -> None:
    made = chain("postgres", "clickhouse", write=write)
    made.steps("R")
    made.targets[0].change("INSERT INTO {t} VALUES (25000, 'its own')")
    assert made.run(hop=2, force=True).good
    assert (25000, "its own") in made.rows(-1)


def test_what_only_the_source_has_changed_is_behind_and_moves(chain: Callable[..., Chain]) -> None:
    made = chain("postgres", "clickhouse")
    made.steps("RS")
    assert made.one.run(hop=1).good
    checked = command("check", made.one.table)
    assert checked.exit_code == 0 and "BEHIND" in checked.output
    made.steps("R")
    assert made.rows(-1) == made.source and made.proven
