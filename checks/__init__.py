"""Whether both sides of a hop agree: reconciliation levels, and the rows that differ."""
