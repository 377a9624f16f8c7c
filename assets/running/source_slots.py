"""The slots of a source's budget, shared by all processes through Dagster's pools.

The budget of a connection is the pool `source/<connection>`, of which a process claims one slot per
connection that it may open. A process that was killed leaves its claims: whoever asks for a slot
frees them, and so does the reaper.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.resources.contract.limits import Sharing, Slots, Unshared

if TYPE_CHECKING:
    import dagster as dg

logger = logging.getLogger(__name__)

PREFIX = "source/"
"""The beginning of the pools' names. A transfer's own pool has its name, without a slash."""

PARTIAL_SECONDS = (1.0, 3.0)
"""How long some of the requested slots are kept while others are missing: two processes that each
hold what the other one needs do not wait for ever, nor begin anew at the same moment."""

REAP_SECONDS = 2.0
"""Between two looks for the claims of dead processes."""

LOCK = "source-slots.lock"
"""A file of the home. Two processes might take the same slot of a SQLite storage at once."""

_numbers = itertools.count(1)


def sharing(
    instance: dg.DagsterInstance | Callable[[], dg.DagsterInstance], run_id: str | None = None
) -> Sharing:
    """Share budgets with all processes that use a Dagster instance.

    Args:
        instance: the instance, or what opens it when the first slot is needed.
        run_id: the run in whose name slots are claimed, so that Dagster frees them when it has
            failed; None where a process outlives its runs.
    """

    def slots(connection: str, number: int) -> Slots:
        opened = instance() if callable(instance) else instance
        if not opened.event_log_storage.supports_global_concurrency_limits:
            logger.warning(
                "%s: this Dagster storage has no pools, so its budget holds per process", connection
            )
            return Unshared()
        return PoolSlots(opened, connection, number, run_id)

    return slots


class PoolSlots:
    """The slots that this process holds of a source's pool, see `Slots`."""

    def __init__(
        self, instance: dg.DagsterInstance, connection: str, number: int, run_id: str | None
    ) -> None:
        from tableferry.assets.running.processes import this_process

        self._instance, self._storage = instance, instance.event_log_storage
        self._pool = PREFIX + connection
        self._process = this_process(instance)
        self._run_id = run_id or self._process
        self._held: list[str] = []
        self._queued: list[str] = []
        self._granted: list[str] = []
        self._partial_since: float | None = None
        self._reaped_at = -float("inf")
        self._lock = threading.RLock()
        with self._alone():
            limits = self._storage.get_pool_limits()
            if (self._pool, number) not in [(limit.name, limit.limit) for limit in limits]:
                self._storage.set_concurrency_slots(self._pool, number)

    def request(self, count: int) -> bool:
        """See `Slots.request`. Requests are served in their order."""
        with self._lock, self._alone():
            self._reap()
            while len(self._queued) + len(self._granted) < count:
                self._queued.append(f"{self._process} {next(_numbers)}")
            for key in tuple(self._queued):
                claim = self._storage.claim_concurrency_slot(self._pool, self._run_id, key)
                if not claim.is_claimed:
                    break
                self._queued.remove(key)
                self._granted.append(key)
            if len(self._granted) >= count:
                self._held += self._granted
                self._granted = []
                self._free(self._queued)
                return True
            self._give_up_partial()
            return False

    def withdraw(self) -> None:
        """See `Slots.withdraw`."""
        with self._lock:
            self._free(self._queued, self._granted)

    def release(self, count: int) -> None:
        """See `Slots.release`."""
        with self._lock:
            given_back, self._held = self._held[:count], self._held[count:]
            self._free(given_back)

    def shared(self) -> tuple[int, bool]:
        """See `Slots.shared`."""
        info = self._storage.get_concurrency_info(self._pool)
        others = info.pending_run_ids - {self._run_id}
        return len(info.claimed_slots), bool(others)

    def _give_up_partial(self) -> None:
        now = time.monotonic()
        if not self._granted:
            self._partial_since = None
        elif self._partial_since is None:
            self._partial_since = now
        elif now - self._partial_since > random.uniform(*PARTIAL_SECONDS):
            self._free(self._granted, self._queued)

    def _free(self, *keys: list[str]) -> None:
        for each in keys:
            for key in each:
                self._storage.free_concurrency_slot_for_step(self._run_id, key)
            each.clear()
        if not self._granted:
            self._partial_since = None

    def _reap(self) -> None:
        now = time.monotonic()
        if now - self._reaped_at > REAP_SECONDS:
            self._reaped_at = now
            _free_dead(self._instance, self._pool, self._process)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep the other processes of the home from claiming at the same time."""
        with _open_lock(self._instance) as descriptor:
            if descriptor is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield


@contextmanager
def _open_lock(instance: dg.DagsterInstance) -> Iterator[int | None]:
    """Open the file that is locked, if the home can hold one; closing it releases the lock."""
    try:
        path = Path(instance.root_directory) / LOCK
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def free_dead_slots(instance: dg.DagsterInstance) -> None:
    """Free what dead processes hold of the sources' budgets."""
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    for pool in storage.get_concurrency_keys():
        if pool.startswith(PREFIX):
            _free_dead(instance, pool)


def _free_dead(instance: dg.DagsterInstance, pool: str, own: str = "") -> None:
    from tableferry.assets.running.processes import process_is_gone

    storage = instance.event_log_storage
    info = storage.get_concurrency_info(pool)
    claims = {(claim.run_id, claim.step_key) for claim in info.claimed_slots}
    claims |= {(step.run_id, step.step_key) for step in info.pending_steps}
    gone: dict[str, bool] = {own: False}
    for run_id, key in sorted(claims):
        process = key.rpartition(" ")[0]
        if process not in gone:
            gone[process] = process_is_gone(instance, process)
        if gone[process]:
            storage.free_concurrency_slot_for_step(run_id, key)
