"""Targets that make a range visible by one transaction: the statements, the load, the target."""
