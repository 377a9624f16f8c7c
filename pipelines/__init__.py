"""The declared transfers, the Dagster code location and the commands."""
