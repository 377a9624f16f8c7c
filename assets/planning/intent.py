"""What a run is asked to do, beside what the transfer declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.runs import FORCE, RECREATE, REPAIR
from tableferry.checks.levels import Level
from tableferry.resources.contract.loader import loader_of
from tableferry.resources.contract.target_options import WriteMode
from tableferry.resources.errors import InputError

if TYPE_CHECKING:
    import dagster as dg


@dataclass(frozen=True)
class Intent:
    """What a run is asked to do; by default to move what needs it, as declared."""

    force: bool = False
    """Move ranges also where nothing changed."""
    recreate: bool = False
    """Make the targets anew, each replaced by a swap when it is proven."""
    repair: bool = False
    """Put right the rows of committed ranges that differ, and nothing else."""
    adopt: Level | None = None
    """Compare, at this level, the ranges that are not committed as they are, and move nothing."""
    hops: frozenset[int] | None = None
    """The numbers of the hops that a run writes, and only reads the others; None: all."""

    @property
    def of_hops_that_are_read(self) -> Intent:
        """What it means for the hops of the transfer that the run does not write."""
        return replace(self, force=False, repair=False)

    def carried_out(self, declared: Transfer) -> Transfer:
        """Return the settings by which a run carries out a declaration.

        A target is recreated by a swap, in one run. A repair finds the rows that differ however
        many they are, and writes also where the transfer moves nothing (`write: none`). What is to
        be adopted is reconciled at the level that is asked for.

        Raises:
            InputError: a target cannot be replaced as a whole.
        """
        if self.recreate:
            _require_replaceable(declared)
            alone = declared.parallel.model_copy(update={"runs": 1})
            return declared.model_copy(update={"write": WriteMode.SWAP, "parallel": alone})
        if self.repair:
            write = declared.write if declared.write.moves else WriteMode.REPLACE
            return declared.model_copy(update={"delta": "always", "write": write})
        if self.adopt:
            in_place = declared.write.in_place
            return declared.model_copy(update={"reconcile": self.adopt, "write": in_place})
        return declared

    def tags(self) -> dict[str, str]:
        """Return the run tags that say the same."""
        given = {FORCE: self.force, RECREATE: self.recreate, REPAIR: self.repair}
        return {tag: "true" for tag, wanted in given.items() if wanted}

    @classmethod
    def parse(cls, tags: Mapping[str, str]) -> Intent:
        """Read the tags of a run."""
        force, recreate, repair = (tags.get(tag) == "true" for tag in (FORCE, RECREATE, REPAIR))
        return cls(force, recreate, repair)


def intent_of(run: dg.DagsterRun) -> Intent:
    """Return what a run is asked to do.

    Dagster copies the tags of a run to one that repeats it (*Re-execute*, a retry), which is to do
    what is left of it, and not to move everything once more.
    """
    intent = Intent.parse(run.tags)
    return replace(intent, force=False, recreate=False) if run.parent_run_id else intent


AS_DECLARED = Intent()
"""What a run is asked to do unless a user says more."""


def _require_replaceable(declared: Transfer) -> None:
    if declared.mark is not None:
        raise InputError(
            f"{declared.transfer}: a target recreated would be without the rows that "
            f"{declared.mark!r} marks"
        )
    for hop in declared.hops:
        if not any(mode.whole_table for mode in loader_of(hop.to.system).modes):
            raise InputError(f"{declared.transfer}: {hop.to} cannot be recreated by a swap")
