"""The publishing protocol as a model: every order of its steps, and what must hold in each state.

One key range goes into one target. Two runs work on it, of one home (event log) or of two, while
the source changes, a run crashes or sleeps, a session or an answer is lost, a log is restored from
a backup, or a server restarts and shows again what had been replaced. `explore` goes through all
interleavings of that, breadth first, so that the counterexample it returns is a shortest one.

A run is a list of steps, each atomic as one statement or transaction of the server is. What a step
stands for in the product is said at the step. The order of the steps is data (`Protocol`), so that
a test can exchange two of them, or leave one out, and see that the model finds what breaks.

What is abstracted: rows are one letter, the content of the range; a digest tells any two letters
apart, and a row count none. A data version is the letter, too. Not modelled: homes that cut the key
space otherwise, `append`, `upsert`, `swap` and deltas. A statement is atomic, also ClickHouse's
INSERT ... SELECT of a marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

DAMAGED = "?"
"""Content that no source ever had: rows that were changed on the wire."""
NOTHING = "-"
"""No rows, where there should be some: between DELETE and INSERT."""
TWICE = "+"
"""Rows beside those that they have replaced."""


ANNOUNCED = "!"
"""Of a marker whose rows may not be there yet."""


class Rows(NamedTuple):
    """The rows of the range somewhere."""

    content: str
    time: int
    """When the source had them; only the invariants look at it."""


class Marker(NamedTuple):
    """What the target says was published last (`resources/contract/markers.py`)."""

    content: str
    token: tuple[int, int]
    """Run and attempt; of the first publication (-1, 0)."""


class Run(NamedTuple):
    """A run, or rather the thread that takes the range through the hop."""

    home: int
    step: str = ""
    """What it does next; empty before it has begun."""
    path: str = "plan"
    attempt: int = 0
    session: bool = True
    """Whether its session lives, and with it a lock of the session's."""
    known: Marker | None = None
    """The marker that it was planned from."""
    read: Rows | None = None
    """What the source had when it was fingerprinted, and under a snapshot still has."""
    staged: Rows | None = None
    """Its staging table; None if there is none."""
    seen: frozenset[int] = frozenset()
    """Runs whose staging tables were there when it found the lock of a dead run."""
    committed: bool = False
    """Whether its transaction has committed: known to the server, and asked for."""

    @property
    def alive(self) -> bool:
        """Whether its process is there."""
        return self.step not in ("done", "failed", "crashed")


class World(NamedTuple):
    """A state of everything."""

    now: int
    """The state of the source: its content is `Protocol.history[now]`."""
    rows: Rows
    """What readers see in the target."""
    marker: Marker | None
    lock: tuple[int, int] | None
    """The run and attempt that hold the range."""
    logs: tuple[str | None, ...]
    """By home: the data version that the event log calls committed."""
    runs: tuple[Run, ...]
    mishaps: int
    """How many may still happen."""
    shown: frozenset[str]
    """The contents that readers have ever seen."""
    kept: bool = False
    """Whether the server still has what was replaced, and a restart brings it back."""


class Protocol(NamedTuple):
    """A protocol, and the world that it has to live in."""

    paths: dict[str, tuple[str, ...]]
    """The steps of each path, in their order."""
    lock_of_session: bool
    """Whether the lock ends with the session of its owner (PostgreSQL, SQL Server), or is a table
    that stays (ClickHouse)."""
    history: str = "ABA"
    """The contents that the source goes through."""
    homes: tuple[int, ...] = (0, 1)
    """The homes of the runs."""
    marked: bool = True
    """Whether the target has markers, as one that an older release has filled has not."""
    far: bool = False
    """Whether the runs are on two hosts, so that each takes the other for dead."""
    snapshot: bool = True
    """Whether the source is exported as it was fingerprinted."""
    mishaps: frozenset[str] = frozenset({"crash", "restore"})
    most_mishaps: int = 1
    attempts: int = 2
    """How often a run tries."""

    def without(self, step: str) -> Protocol:
        """Leave a step out."""
        paths = {name: tuple(one for one in steps if one != step) for name, steps in self.each()}
        return self._replace(paths=paths)

    def exchanged(self, one: str, other: str) -> Protocol:
        """Exchange two steps, of the paths that have both."""
        swap = {one: other, other: one}
        paths = {
            name: tuple(swap.get(step, step) for step in steps)
            if swap.keys() <= {*steps}
            else steps
            for name, steps in self.each()
        }
        return self._replace(paths=paths)

    def replaced(self, step: str, *by: str) -> Protocol:
        """Take other steps in the place of one."""
        paths = {
            name: tuple(each for one in steps for each in (by if one == step else (one,)))
            for name, steps in self.each()
        }
        return self._replace(paths=paths)

    def each(self) -> list[tuple[str, tuple[str, ...]]]:
        return list(self.paths.items())


PLAN = ("markers", "source", "decide")

TRANSACTIONAL = Protocol(
    {
        "plan": PLAN,
        "move": ("lock", "drop_staging", "load", "unmoved", "audit", "commit", "record", "release"),
        "compare": ("compare", "lock", "mark", "record", "release"),
        "skip": ("record",),
    },
    lock_of_session=True,
    mishaps=frozenset({"crash", "restore", "session", "answer", "wire"}),
)
"""PostgreSQL and SQL Server: rows and marker in one transaction of the session with the lock."""

CLICKHOUSE = Protocol(
    {
        "plan": PLAN,
        "move": (
            *("lock", "drop_staging", "load", "unmoved", "audit"),
            *("announce", "look", "replace", "let_go", "see", "confirm", "record", "release"),
        ),
        "compare": ("compare", "lock", "put_marker", "marked", "record", "release"),
        "skip": ("record",),
    },
    lock_of_session=False,
    mishaps=frozenset({"crash", "restore", "wire", "restart"}),
)
"""ClickHouse: the marker first, a look at it and the lock, REPLACE PARTITION, and a look again once
a restart cannot bring back what was replaced."""


class Broken(Exception):
    """An invariant does not hold; the number is that of docs/guarantees.md."""


Outcome = Iterator[tuple[World, Run, str]]
"""Worlds after a step, the run in them, and where it goes: "next", "again", "failed" or a path."""


# --- planning ---------------------------------------------------------------------------------


def markers(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`Target.published`, by `plan_transfer` and, after `TargetMoved`, by `Work.refresh`."""
    yield w, run._replace(known=w.marker), "next"


def source(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """The fingerprint, by `fingerprints_of`: under a snapshot, what will be exported as well."""
    yield w, run._replace(read=Rows(p.history[w.now], w.now)), "next"


def decide(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`assets.planning.rows.decision.decide`, from the log of its home."""
    assert run.read is not None
    recorded = w.logs[run.home]
    if recorded != run.read.content or (run.known and run.known.content == ANNOUNCED):
        yield w, run, "move"
    elif run.known is None or run.known.content != recorded:
        yield w, run, "compare"  # Reason.TARGET_MOVED
    else:
        yield w, run, "skip"


def decide_by_the_log(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """A fault: what the target's marker says is not asked."""
    assert run.read is not None
    yield w, run, "skip" if w.logs[run.home] == run.read.content else "move"


# --- the lock ---------------------------------------------------------------------------------


def lock(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`sp_getapplock`, `pg_try_advisory_lock`, `CREATE TABLE <lock>` (`clickhouse.locks`)."""
    if w.lock is None:
        yield w._replace(lock=(me, run.attempt)), run._replace(session=True), "next"
    elif p.lock_of_session or (w.lock[0] != me and not p.far and w.runs[w.lock[0]].alive):
        yield w, run, "failed"  # RangeBusy
    else:
        # a dead run's, or one's that is taken for dead
        there = frozenset(i for i, one in enumerate(w.runs) if one.staged and i != me)
        yield w, run._replace(seen=there), "drop_lock"


def drop_lock(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`clickhouse.locks.take_lock`: the lock that was found goes, whoever has one by now."""
    yield w._replace(lock=None), run, "lock"


def drop_seen(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """A fault: only the staging tables go that were there when the lock was found."""
    yield _without_staging(w, run.seen), run, "next"


def drop_staging(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """Whoever has the lock drops what others have staged: `TransactionalTarget._drop_all`,
    `clickhouse.locks.take_lock`."""
    yield _without_staging(w, range(len(w.runs))), run, "next"


def _without_staging(w: World, whose: object) -> World:
    runs = tuple(
        one._replace(staged=None) if i in whose else one  # type: ignore[operator]
        for i, one in enumerate(w.runs)
    )
    return w._replace(runs=runs)


def release(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """The end of `Target.attempt` and `Target.marking`."""
    yield _released(w, run, me), run._replace(staged=None), "next"


def _released(w: World, run: Run, me: int) -> World:
    return w._replace(lock=None) if w.lock == (me, run.attempt) else w


# --- a move -----------------------------------------------------------------------------------


def load(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """The staging table, filled: `RangeLoad.load_arrow`, `load_bytes`."""
    assert run.read is not None
    exported = run.read if p.snapshot else Rows(p.history[w.now], w.now)
    yield w, run._replace(staged=exported), "next"
    if w.mishaps and "wire" in p.mishaps:
        damaged = run._replace(staged=Rows(DAMAGED, exported.time))
        yield w._replace(mishaps=w.mishaps - 1), damaged, "next"


def unmoved(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`SourceState.require_source_unchanged` without a snapshot: fingerprinted once more."""
    assert run.read is not None
    yield w, run, "next" if p.snapshot or p.history[w.now] == run.read.content else "again"


def audit(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`assets.running.audit.audit`: the staging table against the fingerprint's figures."""
    if run.staged is None:
        yield w, run, "failed"  # whoever took the range over has dropped it
    else:
        assert run.read is not None
        yield w, run, "next" if run.staged.content == run.read.content else "failed"


def commit(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`TransactionalLoad.finalise`: rows and marker, or nothing (`MarkerTable.put`)."""
    if not run.session:
        yield w, run, "resolve"
        return
    if run.staged is None:
        yield w, run, "failed"
        return
    if w.marker != run.known and not _is_mine(w.marker, me):
        yield w, run, "again"  # TargetMoved
        return
    after = _publish(w, run, me)
    after = after._replace(marker=Marker(run.staged.content, (me, run.attempt)))
    done = run._replace(committed=True)
    yield after, done, "next"
    if w.mishaps and "answer" in p.mishaps:
        lost = after._replace(lock=None, mishaps=w.mishaps - 1)
        yield lost, done._replace(session=False), "resolve"
        lost = w._replace(lock=None, mishaps=w.mishaps - 1)
        yield lost, run._replace(session=False), "resolve"


def resolve(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`TransactionalLoad._committed`: was it? Asked with the lock, and of the staging table."""
    if w.lock is not None or run.staged is None:
        yield w, run, "failed"  # RangeBusy
    else:
        w = w._replace(lock=(me, run.attempt))
        yield w, run._replace(session=True), "record" if run.committed else "commit"


def commit_rows(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """A fault: the rows are committed by themselves, and what the marker says is not asked."""
    yield (_publish(w, run, me), run, "next") if run.staged else (w, run, "failed")


def mark_anyhow(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """A fault: the marker is written whatever is there."""
    assert run.read is not None
    yield w._replace(marker=Marker(run.read.content, (me, run.attempt))), run, "next"


def delete(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """ClickHouse tables with another partitioning (`ClickHouseLoad._rewrite`): not atomic."""
    yield w._replace(rows=Rows(NOTHING, w.rows.time)), run, "next"


def announce(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`RangeMarker.put`: the marker before its rows, with a version that no log has."""
    if w.marker == run.known or _is_mine(w.marker, me):
        w = w._replace(marker=Marker(ANNOUNCED, (me, run.attempt)))
    yield w, run, "next"


def confirm(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`RangeMarker.confirm`: the version, now that its rows are there."""
    assert run.read is not None
    if w.marker is not None and w.marker.token == (me, run.attempt):
        w = w._replace(marker=w.marker._replace(content=run.read.content))
    yield w, run, "next"


def put_marker(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`RangeMarker.put`: one INSERT ... SELECT, which writes nothing over another's marker."""
    assert run.read is not None
    if w.marker == run.known or _is_mine(w.marker, me):
        w = w._replace(marker=Marker(run.read.content, (me, run.attempt)))
    yield w, run, "next"


def look(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`ClickHouseLoad._owned_rows`: lock and marker, by one query."""
    if w.lock != (me, run.attempt):
        yield w, run, "failed"  # RangeBusy
    else:
        yield from verify(p, w, run, me)


def replace(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`REPLACE PARTITION ... FROM <staging>`, in `ClickHouseLoad._replace_partition`."""
    if run.staged:
        yield _publish(w, run, me)._replace(kept="restart" in p.mishaps), run, "next"
    else:
        yield w, run, "failed"


def let_go(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`clickhouse.replaced.let_go`: until a restart cannot bring back what anybody replaced."""
    yield w._replace(kept=False), run, "next"


def see(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`ClickHouseLoad._rows_by_key`, `_require_shown`: are its rows there once, and still its?"""
    if w.rows.content == TWICE:
        yield w, run, "failed"  # ReceiptMismatch
    else:
        yield from verify(p, w, run, me)


def verify(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`RangeMarker.require`: is the marker still this attempt's?"""
    mine = w.marker is not None and w.marker.token == (me, run.attempt)
    yield w, run, "next" if mine else "again"  # TargetMoved


def _publish(w: World, run: Run, me: int) -> World:
    """Show what is staged; this is where older rows could replace newer ones."""
    assert run.staged is not None
    if run.staged.content == DAMAGED:
        raise Broken("I2: rows became visible that the audit would have refused")
    if run.staged.time < w.rows.time and run.staged.content != w.rows.content != NOTHING:
        raise Broken("I8: older rows have replaced newer ones")
    return w._replace(rows=run.staged, shown=w.shown | {run.staged.content})


def _is_mine(marker: Marker | None, me: int) -> bool:
    return marker is not None and marker.token[0] == me


# --- without a move, and the record -----------------------------------------------------------


def compare(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`actions._compare`: the target against the source as it was read, without a lock; what
    another has announced is moved (`RangeAttempt.marked_by_moving`)."""
    assert run.read is not None
    announced = run.known is not None and run.known.content == ANNOUNCED
    same = w.rows.content == run.read.content and not announced
    yield w, run, "next" if same else "move"


def mark(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`TransactionalTarget.marking`: the marker alone, by a transaction, while the lock is held."""
    assert run.read is not None
    if w.marker != run.known and not _is_mine(w.marker, me):
        yield w, run, "again"  # TargetMoved
    else:
        yield from mark_anyhow(p, w, run, me)


def marked(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`ClickHouseTarget.marking`: `RangeMarker.require_alone`."""
    yield from verify(p, w, run, me)


def record(p: Protocol, w: World, run: Run, me: int) -> Outcome:
    """`Writer.record_commit` and `commit_again`: commit and verdicts, by one transaction."""
    assert run.read is not None
    logs = list(w.logs)
    logs[run.home] = run.read.content
    yield w._replace(logs=tuple(logs)), run, "next"


Step = Callable[[Protocol, World, Run, int], Outcome]
STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        *(markers, source, decide, decide_by_the_log, lock, drop_lock, drop_staging, drop_seen),
        *(load, unmoved, audit, commit, resolve, commit_rows, mark_anyhow, delete, put_marker),
        *(announce, confirm, let_go, see),
        *(look, replace, verify, compare, mark, marked, record, release),
    )
}


# --- what can happen in a state ---------------------------------------------------------------


def after(p: Protocol, w: World, me: int) -> Iterator[tuple[str, World]]:
    """Each world after the next step of a run, and what happened."""
    run = w.runs[me]
    if not run.step:
        run = run._replace(step=p.paths["plan"][0])
    for world, done, where in STEPS[run.step](p, w, run, me):
        reached, now, said = world, done, f"run {me}: {run.step}"
        if where == "next":
            now = done._replace(step=_following(p, run))
        elif where in p.paths:
            now = done._replace(path=where, step=p.paths[where][0])
        elif where in ("again", "failed"):
            reached, said = _released(world, done, me), f"{said} -> {where}"
            now = done._replace(staged=None, committed=False, step="failed")
            if where == "again" and run.attempt + 1 < p.attempts:
                now = now._replace(step=p.paths["plan"][0], attempt=run.attempt + 1)
        else:
            now = done._replace(step=where)
        # a step of one run may drop what the others have staged
        others = reached.runs
        yield said, reached._replace(runs=(*others[:me], now, *others[me + 1 :]))


def _following(p: Protocol, run: Run) -> str:
    """The step after the present one, of the run's path or of a plan."""
    *reading, _ = p.paths["plan"]
    if run.path != "plan" and run.step in reading[:-1]:
        return reading[reading.index(run.step) + 1]
    if run.path != "plan" and run.step in reading:
        return p.paths[run.path][0]  # the range is read again, and goes on as was decided
    steps = p.paths[run.path]
    at = steps.index(run.step) + 1
    return steps[at] if at < len(steps) else "done"


def events(p: Protocol, w: World) -> Iterator[tuple[str, World]]:
    """Each world after something that no run does."""
    if w.now + 1 < len(p.history):
        yield f"the source becomes {p.history[w.now + 1]}", w._replace(now=w.now + 1)
    if not w.mishaps:
        return
    less = w._replace(mishaps=w.mishaps - 1)
    for me, run in enumerate(w.runs):
        if not run.alive or not run.step:
            continue
        runs = list(w.runs)
        mine = w.lock == (me, run.attempt)
        if "crash" in p.mishaps:
            runs[me] = run._replace(step="crashed")
            held = None if mine and p.lock_of_session else w.lock
            yield f"run {me} is killed", less._replace(runs=tuple(runs), lock=held)
        if "session" in p.mishaps and mine:
            runs[me] = run._replace(session=False)
            yield f"run {me} loses its session", less._replace(runs=tuple(runs), lock=None)
    if "restore" in p.mishaps:
        for home, log in enumerate(w.logs):
            resting = all(one.home != home or not one.alive for one in w.runs)
            if resting and log != p.history[0]:
                logs = (*w.logs[:home], p.history[0], *w.logs[home + 1 :])
                yield f"the log of home {home} is restored", less._replace(logs=logs)
    if "restart" in p.mishaps and w.kept:
        both = less._replace(rows=w.rows._replace(content=TWICE), kept=False)
        yield "the server restarts, and shows what was replaced beside what is", both


# --- the invariants ---------------------------------------------------------------------------


def require_invariants(p: Protocol, w: World) -> None:
    """What holds in every state; `_publish` has I2 and I8."""
    if w.rows.content == NOTHING:
        raise Broken("I1: readers see a part of the range")
    for log in w.logs:
        if log is not None and log not in w.shown:
            raise Broken("I3: what is recorded as committed was never visible")
        # what the next plan calls unchanged, it skips
        same = w.marker is not None and log == w.marker.content == p.history[w.now]
        if same and w.rows.content != log:
            raise Broken("I9: the range would be skipped, though log and target do not agree")


def require_recovery(p: Protocol, w: World) -> None:
    """Once both runs have ended, however, one more run of any home puts everything right (I4)."""
    for home in range(len(w.logs)):
        me, way = len(w.runs), list[str]()
        late = w._replace(runs=(*w.runs, Run(home)), mishaps=0)
        try:
            while late.runs[me].alive:
                (what, late), *_ = after(p, late, me)
                way.append(what)
                require_invariants(p, late)
            right = p.history[w.now]
            if late.runs[me].step != "done":
                raise Broken("I4: the next run fails")
            if late.rows.content != right or late.logs[home] != right:
                raise Broken("I4: the next run has not made the target what its source is")
        except Broken as broken:
            broken.add_note(f"by a run of home {home}: {', '.join(way)}")
            raise


class Explored(NamedTuple):
    """What came out of it."""

    states: int
    broken: str = ""
    """The invariant; empty if all hold in all states."""
    trace: tuple[str, ...] = ()
    """A shortest way there."""

    def __str__(self) -> str:
        lines = [f"{number:3}  {what}" for number, what in enumerate(self.trace, 1)]
        return "\n".join([self.broken or f"all holds in {self.states:,} states", *lines])


def _notes(broken: Broken) -> list[str]:
    return list(getattr(broken, "__notes__", ()))


def explore(p: Protocol, most: int = 10**9) -> Explored:
    """Go through every state that can be reached, breadth first.

    Args:
        p: the protocol.
        most: the states after which to give up.
    """
    first = p.history[0]
    start = World(
        now=0,
        rows=Rows(first, 0),
        marker=Marker(first, (-1, 0)) if p.marked else None,
        lock=None,
        logs=(first,) * (max(p.homes) + 1),
        runs=tuple(Run(home) for home in p.homes),
        mishaps=p.most_mishaps,
        shown=frozenset({first}),
    )
    came: dict[World, tuple[World, str] | None] = {start: None}
    layer = [start]

    def trace(world: World, *last: str) -> tuple[str, ...]:
        steps: list[str] = []
        while (before := came[world]) is not None:
            world, what = before
            steps.append(what)
        return (*reversed(steps), *last)

    while layer and len(came) < most:
        following: list[World] = []
        for world in layer:
            ways: list[tuple[str, World]] = list(events(p, world))
            for me, run in enumerate(world.runs):
                if run.alive:
                    try:
                        ways += after(p, world, me)
                    except Broken as broken:
                        way = trace(world, f"run {me}: {run.step or p.paths['plan'][0]}")
                        return Explored(len(came), str(broken), way)
            for what, reached in ways:
                if reached in came:
                    continue
                came[reached] = (world, what)
                try:
                    require_invariants(p, reached)
                    if not any(run.alive for run in reached.runs):
                        require_recovery(p, reached)
                except Broken as broken:
                    return Explored(len(came), str(broken), trace(reached, *_notes(broken)))
                following.append(reached)
        layer = following
    return Explored(len(came))
