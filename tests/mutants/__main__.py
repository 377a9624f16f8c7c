"""Mutation testing: changes the product, one place at a time, and looks whether a test fails.

    python -m tests.mutants [group ...] [--sample 30] [--seed 1] [--patience 30] [--no-servers]
    python -m tests.mutants --seconds 240

A runner of our own, as neither mutmut 3.8 nor cosmic-ray 8.7 fits: neither draws a seeded sample.
mutmut works on a copy of the tree, to which our `tableferry` is not mapped, and only in functions;
cosmic-ray has one command of tests for all modules, and starts it anew for each mutant: seconds of
imports where a test takes ten milliseconds. Neither changes a word within a text of SQL.

Here a worker has collected the tests, and forks for each mutant: in the fork, the function has
other code. Which tests get to it is found by running them once without a mutant. `targets.toml` has
the groups, `verdicts.toml` what has been said of survivors; the command ends with 1 if one has no
verdict. With `--seconds`, it judges what differs from the commit in `.ci/judged`, and ends with 1
also if more has been accepted than there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import runpy
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

from tests.mutants.operators import Mutant, Place, mutants
from tests.mutants.runner import PATIENCE, Group, Outcome, files_of, run

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
VERDICTS = HERE / "verdicts.toml"
CHANGED = SimpleNamespace(**runpy.run_path(str(ROOT / ".ci/changed")))
STATES = ("killed", "timed out", "survived")


def verdicts(text: str) -> dict[Place, str]:
    """What has been said of survivors, by file, function, and the line before and after."""
    return {
        (one["file"], one["within"], one["before"], one["after"]): one["verdict"]
        for one in tomllib.loads(text).get("survivor", [])
    }


def accepted(known: dict[Place, str]) -> int:
    """How many survivors are meant to be."""
    return sum(not verdict.startswith("equivalent") for verdict in known.values())


def source_at(commit: str, file: Path) -> str:
    """A file as a commit has it; empty without it."""
    return str(CHANGED.git("show", f"{commit}:{file.relative_to(ROOT)}") or "")


def told(outcome: Outcome) -> str:
    """A survivor, as `verdicts.toml` has it."""
    named = zip(("file", "within", "before", "after"), outcome.mutant.place, strict=True)
    lines = [f"# line {outcome.mutant.line}", "[[survivor]]"]
    lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in named]
    return "\n".join([*lines, 'verdict = ""', ""])


def unjudged(outcomes: list[Outcome], known: dict[Place, str]) -> list[Mutant]:
    """The survivors of which nothing has been said."""
    survivors = [one.mutant for one in outcomes if one.state == "survived"]
    return [one for one in survivors if not known.get(one.place)]


def table(outcomes: list[Outcome], known: dict[Place, str]) -> str:
    """The counts of each group; mutants that are equivalent count for nothing."""
    rows = ["| modules | mutants | killed | timed out | survived | equivalent | noticed |"]
    rows += ["|---|---|---|---|---|---|---|"]
    outcomes = [one for one in outcomes if one.state != "not judged"]
    for name in dict.fromkeys(one.group for one in outcomes):
        these = [one for one in outcomes if one.group == name]
        count = {state: sum(one.state == state for one in these) for state in STATES}
        equivalent = sum(
            one.state == "survived" and known.get(one.mutant.place, "").startswith("equivalent")
            for one in these
        )
        killed, late, survived = (count[state] for state in STATES)
        share = (killed + late) / max(1, len(these) - equivalent)
        cells = (name, len(these), killed, late, survived, equivalent, f"{share:.0%}")
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def gone(known: dict[Place, str]) -> list[Place]:
    """What verdicts speak of that is no mutant any more."""
    files = {file for file, *_ in known}
    there = {
        one.place
        for file in files
        if (ROOT / file).is_file()
        for one in mutants(file, (ROOT / file).read_text("utf-8"))
    }
    return [place for place in known if place not in there]


def main() -> int:
    """Run what the command line asks for; returns the code that the command ends with."""
    targets = tomllib.loads((HERE / "targets.toml").read_text("utf-8"))
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("groups", nargs="*", help=f"by default all: {' '.join(targets['groups'])}")
    parser.add_argument("--sample", type=int, default=30, help="mutants per group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--since", default=CHANGED.JUDGED.read_text().strip(), help="what is new since comes first"
    )
    parser.add_argument("--seconds", type=float, default=math.inf, help="only that, for so long")
    parser.add_argument("--file", default="", help="only files whose path has this in it")
    parser.add_argument("--no-servers", action="store_true", help="only tests that need none")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="seconds of tests that a mutant survives"
    )
    given = parser.parse_args()
    known, hurried = verdicts(VERDICTS.read_text("utf-8")), given.seconds < math.inf
    if hurried and CHANGED.git("cat-file", "-e", f"{given.since}^{{tree}}") is None:
        print(f"{given.since} is not in this clone: what has changed since is not mutated")
        return 0
    if hurried and accepted(known) > accepted(verdicts(source_at(given.since, VERDICTS))):
        print(f"verdicts.toml: more is accepted than in {given.since}: write a test instead")
        return 1
    tests = targets["tests"]
    groups = [
        Group(
            name,
            targets["groups"][name],
            [files_of(ROOT, tests["quick"]), *([tests["servers"][name]] * (not given.no_servers))],
        )
        for name in given.groups or targets["groups"]
        if given.groups or not (hurried and name in targets["compiled"])
    ]
    old = {
        one.place
        for group in groups
        for file in files_of(ROOT, group.files)
        for one in mutants(file, source_at(given.since, ROOT / file))
    }
    with tempfile.TemporaryDirectory(prefix="tableferry-mutants-") as folder:
        Path(folder).chmod(0o711)  # PostgreSQL's user must get to its own folder inside
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        os.environ |= {
            "TABLEFERRY_TEST_RUN": uuid4().hex[:6],
            "TABLEFERRY_TEST_OWNER": str(os.getpid()),
        }
        with servers(not given.no_servers):
            outcomes = run(
                ROOT,
                groups,
                size=sys.maxsize if hurried else given.sample,
                seed=given.seed,
                old=old,
                only=given.file,
                workers=given.workers,
                patience=given.patience,
                seconds=given.seconds,
                tell=lambda one: one.mutant.place in known or print(told(one), flush=True),
            )
    for place in gone(known):
        print(f"verdicts.toml: no mutant any more: {' | '.join(place)}")
    print(table(outcomes, known))
    if late := sum(one.state == "not judged" for one in outcomes):
        print(f"{late} of {len(outcomes)} mutants: not judged, as the time was up")
    remaining = unjudged(outcomes, known)
    for one in remaining:
        print(f"{one.file}:{one.line}: survived, and verdicts.toml has no verdict")
    return 1 if remaining else 0


@contextmanager
def servers(needed: bool) -> Iterator[None]:
    """The servers that the tests share, until the end."""
    from tests import servers

    try:
        if needed:
            servers.find()
        yield
    finally:
        servers.drop_leftovers()
        if servers.shared_folder().exists():
            from tableferry_local.stack import Stack

            Stack(servers.shared_folder()).remove()


if __name__ == "__main__":
    sys.exit(main())
