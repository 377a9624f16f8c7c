"""Tags of the Dagster runs that move or check ranges."""

import json
from collections.abc import Mapping

FORCE = "tableferry/force"
"""Run tag: move the ranges also where nothing changed."""

REPAIR = "tableferry/repair"
"""Run tag: put right the rows of targets that differ, and nothing else."""

RECREATE = "tableferry/recreate"
"""Run tag: make the targets anew, and replace them when they are proven."""

PROFILE = "tableferry/profile"
"""Run tag: name of the profile to use instead of the transfer's own."""

TRANSFER = "tableferry/transfer"
"""Run tag: the transfer that the run moves or checks, to find its runs by in the user interface."""

LEVEL = "tableferry/level"
"""Run tag of a check: count, checksum, sample_hash or full_hash; else as the transfer declares."""

RANGES = "tableferry/ranges"
"""Run tag of a check: a JSON list of the partition keys to compare; else all."""

AS_OF_LAST_RUN = "tableferry/as_of_last_run"
"""Run tag of a check: compare with the recorded digests, without reading the source."""

UP_TO_DATE = "tableferry/up_to_date"
"""Run tag of a check: also fail where the source is newer than the last move."""

COMPLETE = "tableferry/complete"
"""Run tag of a check: also fail if ranges are not committed."""

ADOPT = "tableferry/adopt"
"""Run tag of a check: record ranges that are equal as committed, see `ferry adopt`."""

RECHECK = "tableferry/recheck"
"""Run tag of a check: `NxS`, compare rows that differ N more times, S seconds apart."""

LAUNCH = "tableferry/launch"
"""Run tag: `n:name` of the n runs that share the ranges of one command or tick."""

PARTITION = "dagster/partition"

RANGE_START = "dagster/asset_partition_range_start"

RANGE_END = "dagster/asset_partition_range_end"


def checked_ranges(tags: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the partition keys that a check is restricted to; None if the tag is invalid."""
    try:
        names = json.loads(tags.get(RANGES, "[]"))
    except ValueError:
        return None
    valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if valid else None
