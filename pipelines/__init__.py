"""What moves: the transfers, the code location and the commands."""
