"""The key ranges of a system's tables: possible keys, their distribution, SQL."""
