"""Tags of the Dagster runs that move ranges."""

FORCE = "tableferry/force"
"""Run tag: move the ranges also where nothing changed."""

PROFILE = "tableferry/profile"
"""Run tag: name of the profile to use instead of the transfer's own."""

LAUNCH = "tableferry/launch"
"""Run tag: `n:name` of the n runs that share the ranges of one command or tick."""

RANGE_START = "dagster/asset_partition_range_start"

RANGE_END = "dagster/asset_partition_range_end"
