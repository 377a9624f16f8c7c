"""The settings of every session with SQL Server, whatever the defaults of server and login are."""

from __future__ import annotations

from collections.abc import Mapping

SESSION = {
    # a login's language decides whether '2024-02-01' is the first of February for a datetime; it
    # also sets DATEFORMAT, which Babelfish may refuse to set by itself
    "LANGUAGE": "us_english",
    "DATEFIRST": "7",
    "QUOTED_IDENTIFIER": "ON",
    "ANSI_NULLS": "ON",
    "ANSI_NULL_DFLT_ON": "ON",
    "ANSI_PADDING": "ON",
    # texts that are too long are refused, not cut
    "ANSI_WARNINGS": "ON",
    "ARITHABORT": "ON",
    "CONCAT_NULL_YIELDS_NULL": "ON",
    "NUMERIC_ROUNDABORT": "OFF",
    "IMPLICIT_TRANSACTIONS": "OFF",
    "CURSOR_CLOSE_ON_COMMIT": "OFF",
    # an error ends the whole transaction, not one statement
    "XACT_ABORT": "ON",
    # callers need the number of rows that a statement changed
    "NOCOUNT": "OFF",
    "ROWCOUNT": "0",
    "TEXTSIZE": "2147483647",
    "LOCK_TIMEOUT": "-1",  # of queries as `connecting.waiting` says
}
"""The isolation level stays at its default, READ COMMITTED, except where rows are read."""


def statements(settings: Mapping[str, str]) -> list[str]:
    """The statements that give a session its settings."""
    return [f"SET {name} {value}" for name, value in settings.items()]
