"""Connection parameters and session settings, whatever the defaults of server and role are."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import InputError

FIRST = "SET search_path TO pg_catalog, pg_temp"
"""The first statement of a session: no function or operator in another schema can replace
PostgreSQL's own in it, or in any that follows (CVE-2018-1058)."""

SESSION = {
    # the meaning of SQL
    "standard_conforming_strings": "on",
    "backslash_quote": "safe_encoding",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "quote_all_identifiers": "off",
    "xmlbinary": "base64",
    "xmloption": "content",
    # which rows are visible
    "row_security": "off",
    "gin_fuzzy_search_limit": "0",
    "zero_damaged_pages": "off",
    "ignore_checksum_failure": "off",
    # the text of values
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
    # (a session's `lock_timeout` is that of `connecting.waiting`)
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
    # a session whose connection was lost on the way is to give up its locks within two minutes
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "15",
    "tcp_keepalives_count": "4",
}
"""docs/security.md tells what each group of them would change."""

POLICIES = {"row_security": "on"}
"""Overrides `SESSION` for a transfer that declares `row_security: apply`."""

QUERIES = {
    # workers pass on numbers, each of which costs a fifth of a row; with the default, one process
    # alone would compute the digests of many ranges
    "parallel_tuple_cost": "0.02",
}
"""Added to `SESSION` for queries with small results."""

PARALLEL_WORKERS = "max_parallel_workers_per_gather"
"""Added to `SESSION` where the limits of a source bound it; a lower one is left alone."""

AT_LOGIN = "-c search_path=pg_catalog,pg_temp -c quote_all_identifiers=off"
"""Startup options for ADBC, which reads the server's types before any statement of ours."""

AS_FOUND = "DISCARD ALL"
"""Leaves a session to the next client as the server had made it."""

NO_OPTIONS = "unsupported startup parameter"
"""The error of poolers that refuse `AT_LOGIN`."""

MISREAD = (
    "SELECT reset_val FROM pg_catalog.pg_settings "
    "WHERE name = 'quote_all_identifiers' AND reset_val = 'on'"
)
"""Has a row if ADBC has read the types under a setting that garbles them: a pooler that refuses or
drops `AT_LOGIN` leaves the role's."""

CONNECT_DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "tableferry",
    # notice a silently dropped connection within two minutes, not after the system's two hours
    "keepalives_idle": "60",
    "keepalives_interval": "15",
    "keepalives_count": "4",
}


def connect_seconds(settings: ConnectionSettings) -> float:
    """How long a connection may take until it has a session."""
    declared = settings.options.get("connect_timeout", CONNECT_DEFAULTS["connect_timeout"])
    return float(declared) if float(declared) > 0 else math.inf


def conninfo(settings: ConnectionSettings, options: str = "") -> str:
    """Return libpq's connection string.

    Args:
        settings: the server's.
        options: startup options, added to those of the URL or the environment.

    Raises:
        InputError: libpq does not know a parameter of the URL.
    """
    before = settings.options.get("options", os.environ.get("PGOPTIONS", ""))
    parameters: dict[str, Any] = {
        **CONNECT_DEFAULTS,
        **settings.options,
        **({"options": f"{before} {options}".strip()} if options else {}),
        "host": ",".join(host for host, _ in settings.hosts),
        "port": ",".join(str(port) for _, port in settings.hosts),
        "dbname": settings.database,
        "user": settings.user,
        "password": settings.password,
        "client_encoding": "UTF8",
    }
    try:
        return make_conninfo("", **parameters)
    except psycopg.ProgrammingError as error:
        raise InputError(f"{settings.address}: {settings.redact(str(error))}") from None


def statements(settings: Mapping[str, str]) -> Sequence[str]:
    """The statements that give a session its settings, in this order.

    A setting that is right is not set again: the login may lack the privilege.
    """
    # transaction_timeout exists from version 17 on; asking pg_settings would evaluate all settings
    conditions = (
        "pg_catalog.current_setting(name, true) <> value "
        # this promises more than ours
        "AND NOT (name = 'synchronous_commit' "
        "AND pg_catalog.current_setting(name) = 'remote_apply') "
        f"AND CASE name WHEN '{PARALLEL_WORKERS}' "
        "THEN pg_catalog.current_setting(name)::int > value::int ELSE true END"
    )
    pairs = ", ".join(f"('{name}', '{value}')" for name, value in settings.items())
    return (
        FIRST,
        "SELECT pg_catalog.set_config(name, value, false) "
        f"FROM (VALUES {pairs}) v(name, value) WHERE {conditions}",
    )
