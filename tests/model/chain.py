"""A chain of two hops as a model: what the last target may take from a middle that others change.

One range, from the source through a middle table to the last one. Runs follow each other (a
transfer has one slot), may die between any two steps, and each hop publishes as `protocol.py` says.
Between the steps the source changes, somebody damages the middle, a check looks at it, or a run is
forced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.protocol import DAMAGED, Broken, Explored


class Rules(NamedTuple):
    """What runs go by; a test leaves some out."""

    digests: bool = True
    """Whether commits of the middle record a digest: not with `reconcile: count`."""
    prove: bool = True
    """`audit.require_proven_source`: what is read is held against that digest."""
    rewritten: bool = True
    """`decisions._after_mends`: a hop is compared whose source was rewritten."""
    history: str = "ABA"
    events: int = 4
    """How many may happen: changes, damages, checks, forced or killed runs."""


class Chain(NamedTuple):
    """A state of everything."""

    now: int = 0
    middle: str = "A"
    last: str = "A"
    version: str = "A"
    """Of the middle, by its newest commit; without damage that is its digest, too."""
    written_by: int = 0
    """The run that has written the middle."""
    failed: bool = False
    """Whether the middle's last check failed."""
    taken: tuple[str, int] = ("A", 0)
    """The last target's commit: its version, and `written_by` of what it was taken from."""
    marker: str = "A"
    """The version that the last target says was published there."""
    runs: int = 0
    events: int = 0
    step: str = ""
    """The run's next step; empty if there is none."""
    read: str = ""
    """What the run has read: of the source, then of the middle."""
    before: tuple[str, int] = ("", 0)
    """The middle's commit as hop 2 read it: `Work.recorded_before`."""


def stale(r: Rules, c: Chain) -> bool:
    """Whether the second hop runs (`planning.decisions`)."""
    if c.marker != c.taken[0]:
        return True
    return c.taken[0] != c.version or (r.rewritten and c.taken[1] != c.written_by)


def after(r: Rules, c: Chain) -> Iterator[tuple[str, Chain]]:
    """Each state after the run's next step, or after something else."""
    if not c.step:
        yield "a run plans", c._replace(step="first", read=r.history[c.now], runs=c.runs + 1)
    elif c.step == "first":
        yield from first(c)
    elif c.step == "second":
        if not stale(r, c):
            yield "hop 2 is skipped", c._replace(step="")
        else:
            yield (
                "hop 2 reads the middle",
                c._replace(step="prove", read=c.middle, before=(c.version, c.written_by)),
            )
    elif c.step == "prove":
        if r.prove and r.digests and c.read != c.before[0]:
            yield "hop 2 finds the middle damaged", c._replace(step="", failed=True)
        else:
            yield "hop 2 publishes", c._replace(step="record", last=c.read, marker=c.before[0])
    elif c.step == "record":
        yield "hop 2 is recorded", c._replace(step="", taken=c.before)
    if c.events < r.events:
        yield from events(r, c._replace(events=c.events + 1))


def first(c: Chain, *, force: bool = False) -> Iterator[tuple[str, Chain]]:
    """The first hop: moved if the source has changed, a check has failed, or it is forced."""
    if c.read == c.version and not c.failed and not force:
        yield "hop 1 is skipped", c._replace(step="second")
    else:
        moved = c._replace(middle=c.read, version=c.read, written_by=c.runs, failed=False)
        yield "hop 1 is moved", moved._replace(step="second")


def events(r: Rules, c: Chain) -> Iterator[tuple[str, Chain]]:
    if c.now + 1 < len(r.history):
        yield f"the source becomes {r.history[c.now + 1]}", c._replace(now=c.now + 1)
    if c.middle != DAMAGED:
        yield "somebody damages the middle", c._replace(middle=DAMAGED)
    if not c.step and c.middle != c.version:
        yield "a check finds it", c._replace(failed=True)
    if c.step:
        yield "the run is killed", c._replace(step="")
    if c.step == "first":
        for what, forced in first(c, force=True):
            yield f"{what} by force", forced


def require_invariants(r: Rules, c: Chain) -> None:
    """I13, and that what is skipped is right."""
    if r.digests and c.last == DAMAGED:
        raise Broken("I13: damage of the middle has reached the last target")
    right = r.history[c.now]
    skipped = c.version == right and not c.failed and not stale(r, c)
    if skipped and c.middle == right != c.last and not c.step:
        raise Broken("I13: the middle is right, the last target is not, and both are skipped")


def explore(r: Rules) -> Explored:
    """Go through every state that can be reached, breadth first."""
    start = Chain()
    came: dict[Chain, tuple[str, ...]] = {start: ()}
    layer = [start]
    while layer:
        following = []
        for chain in layer:
            for what, reached in after(r, chain):
                if reached in came or reached.runs > r.events + 2:
                    continue
                came[reached] = (*came[chain], what)
                try:
                    require_invariants(r, reached)
                except Broken as broken:
                    return Explored(len(came), str(broken), came[reached])
                following.append(reached)
        layer = following
    return Explored(len(came))
