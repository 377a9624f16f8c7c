"""What every session with PostgreSQL is set to, whatever the defaults of server and role are."""

from __future__ import annotations

from collections.abc import Mapping

SESSION = {
    # text must not depend on the role's or the database's defaults
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "xmloption": "content",
    "lc_monetary": "C",
    # an export may take hours; pg_dump switches the same limits off (setup_connection in pg_dump.c)
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",
}

QUERIES = {
    **SESSION,
    # of a query with a small result, workers hand on numbers, of which one costs a fifth of a row:
    # else the digests of many ranges, which are cheap ones, would be left to a single process
    "parallel_tuple_cost": "0.02",
}
"""Of all sessions but those that stream a result or load rows as Arrow."""


def setting(settings: Mapping[str, str]) -> str:
    """The statement that gives a session its settings."""
    # transaction_timeout exists from version 17 on only; pg_settings would show all settings for it
    return (
        "SELECT set_config(name, value, false) FROM (VALUES "
        + ", ".join(f"('{name}', '{value}')" for name, value in settings.items())
        + ") v(name, value) WHERE current_setting(name, true) IS NOT NULL"
    )
