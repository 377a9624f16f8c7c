"""What every session with PostgreSQL is set to, whatever the defaults of server and role are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FIRST = "SET search_path TO pg_catalog, pg_temp"
"""The first statement of a session. No function or operator that somebody made in another schema
can take the place of PostgreSQL's own in it, nor in any that follows (CVE-2018-1058)."""

SESSION = {
    # what SQL means
    "standard_conforming_strings": "on",
    "backslash_quote": "safe_encoding",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "quote_all_identifiers": "off",
    "xmlbinary": "base64",
    "xmloption": "content",
    # which rows there are
    "row_security": "off",
    "gin_fuzzy_search_limit": "0",
    "zero_damaged_pages": "off",
    "ignore_checksum_failure": "off",
    # text must not depend on the role's or the database's defaults
    "client_encoding": "UTF8",
    "TimeZone": "UTC",
    "timezone_abbreviations": "Default",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    # transactions
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "synchronous_commit": "on",
    "exit_on_error": "off",
    # an export may take hours; pg_dump switches the same limits off (setup_connection in pg_dump.c)
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
}
"""docs/security.md has a table of them, with what each would change."""

STRONGER = {"synchronous_commit": ("remote_apply",)}
"""By setting, the values that promise more than ours and are left alone."""

POLICIES = {"row_security": "on"}
"""Of a transfer that declares `row_security: apply`, in place of what `SESSION` has."""

QUERIES = {
    # of a query with a small result, workers hand on numbers, of which one costs a fifth of a row:
    # else the digests of many ranges, which are cheap ones, would be left to a single process
    "parallel_tuple_cost": "0.02",
}
"""Besides those of `SESSION`, of sessions that neither stream a result nor load rows as Arrow."""


AT_LOGIN = "-c search_path=pg_catalog,pg_temp -c quote_all_identifiers=off"
"""Of sessions by ADBC, which asks for the types of the server before any statement of ours."""

NO_OPTIONS = "unsupported startup parameter"
"""What poolers say that do not pass `AT_LOGIN` on."""

NOTHING_MISREAD = (
    "SELECT CASE WHEN reset_val = 'on' THEN ('quote_all_identifiers of the role or the database "
    "must be off where a pooler refuses startup options')::bool END "
    "FROM pg_catalog.pg_settings WHERE name = 'quote_all_identifiers'"
)
"""Fails behind such a pooler where ADBC has read the types under a setting that garbles them."""


def statements(settings: Mapping[str, str]) -> Sequence[str]:
    """What gives a session its settings, in this order.

    What is as it should be is left alone: a login may not be allowed to set it.
    """
    # transaction_timeout exists from version 17 on only; pg_settings would show all settings for it
    conditions = ["pg_catalog.current_setting(name, true) <> value"]
    for name, values in STRONGER.items():
        listed = ", ".join(f"'{value}'" for value in values)
        conditions.append(
            f"NOT (name = '{name}' AND pg_catalog.current_setting(name) IN ({listed}))"
        )
    pairs = ", ".join(f"('{name}', '{value}')" for name, value in settings.items())
    return (
        FIRST,
        "SELECT pg_catalog.set_config(name, value, false) "
        f"FROM (VALUES {pairs}) v(name, value) WHERE {' AND '.join(conditions)}",
    )
