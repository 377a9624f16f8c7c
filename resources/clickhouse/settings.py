"""How one logs in to ClickHouse, and the settings of every query, whatever a profile says.

A profile can truncate or filter results, or change how values are written and compared. Settings of
that kind are reset to the server's defaults; limits, priorities and the like stay as they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tableferry.resources.clickhouse.dialect import literal
from tableferry.resources.contract.settings import ConnectionSettings
from tableferry.resources.errors import InputError

OPTIONS = ("authentication", "client_cert", "client_key")


@dataclass(frozen=True)
class Credentials:
    """A way to log in.

    Args:
        token: whether the password is sent as a bearer token.
        certificate: the file of our own certificate; it logs in if there is no password.
        key: the file of its key, if that is not in the certificate's.
    """

    token: bool = False
    certificate: str = ""
    key: str = ""

    def arguments(self, settings: ConnectionSettings, user: str) -> dict[str, Any]:
        """Return what the driver is told."""
        return {
            "username": "" if self.token else user,
            "password": "" if self.token else settings.password or "",
            "access_token": settings.password if self.token else None,
            "client_cert": self.certificate or None,
            "client_cert_key": self.key or None,
            # with a password, the certificate is shown for TLS alone
            "tls_mode": "strict" if settings.has_password else None,
        }

    def written(self) -> tuple[float, ...]:
        """Return when the files of the certificate were written, as they are renewed.

        Raises:
            InputError: there is no such file.
        """
        try:
            return tuple(os.stat(one).st_mtime for one in (self.certificate, self.key) if one)
        except OSError as error:
            reason = (error.strerror or "").lower()
            raise InputError(f"clickhouse client_cert: {error.filename}: {reason}") from None


def login_of(
    settings: ConnectionSettings, declared: Mapping[str, str | None], *, secure: bool
) -> Credentials:
    """Read how to log in.

    Args:
        settings: the server's.
        declared: the values of `OPTIONS`.
        secure: whether the connection has TLS.

    Raises:
        InputError: a value is not known, or what is declared contradicts itself.
    """
    named, certificate, key = (declared.get(name) or "" for name in OPTIONS)
    if named not in ("", "password", "token"):
        raise InputError(f"clickhouse authentication should be password or token; found {named!r}")
    if key and not certificate:
        raise InputError("clickhouse client_key needs client_cert")
    if certificate and not secure:
        raise InputError("clickhouse client_cert needs https://")
    if named == "token" and not settings.has_password:
        raise InputError(
            "clickhouse authentication=token needs the token: a password_command that prints it"
        )
    if named == "token" and settings.user:
        raise InputError("clickhouse authentication=token takes no user: the token says who")
    return Credentials(named == "token", certificate, key)


CONDITION_CACHE, CACHE_MENDED = "use_query_condition_cache", (26, 7)
"""What it remembers of a condition may be another's before that version, so that rows are missing:
https://github.com/ClickHouse/ClickHouse/issues/104781, and 104203 for SAMPLE."""

SESSION: Mapping[str, str | int] = {
    # a DateTime64 without a time zone means UTC, whatever the server's zone
    "session_timezone": "UTC",
    # 23:59:60 or year 10000 must not wrap around silently; the default is `ignore`
    "date_time_overflow_behavior": "throw",
    CONDITION_CACHE: 0,
}

INSERT: Mapping[str, str | int] = {
    # the default turns NULL into 0 or '' where the column is not nullable
    "input_format_null_as_default": 0,
    "input_format_allow_errors_num": 0,
    "input_format_allow_errors_ratio": 0,
    "input_format_skip_unknown_fields": 0,
    "date_time_input_format": "best_effort",
    "precise_float_parsing": 1,
    # a first row with the columns' names would be taken for a header and skipped
    "input_format_tsv_detect_header": 0,
    # the answer must mean that the rows are stored
    "async_insert": 0,
    # Replacing and other collapsing engines would merge rows within the block and change counts
    "optimize_on_insert": 0,
}

_LIMITS = ("read", "result", "timeout", "group_by", "sort", "distinct", "set", "join", "transfer")

ALWAYS: Mapping[str, str | int] = {
    "limit": 0,
    "offset": 0,
    "additional_result_filter": "",
    "additional_table_filters": "{}",
    "final": 0,
    "extremes": 0,
    "dialect": "clickhouse",
    "use_query_cache": 0,
    # a query that exceeds a limit fails; its result is not truncated
    **{f"{name}_overflow_mode": "throw" for name in _LIMITS},
}
"""Settings that would affect the query for the settings, or are consumed by it and not shown. Every
release since 23.3 knows them."""

WRAPPERS = ("filter", "select", "sort", "order", "page")
"""Settings of newer releases that wrap each query into a subquery, even if empty; refused."""

MEANING = re.compile(
    r"""
    .*_overflow_mode(_leaf)?
    | compatibility | framing_.* | (input|output)_format_.* | format_.*
    | bool_.*_representation | interval_output_format
    | date_time_.* | decimal_.* | cast_.* | check_conversion_.* | precise_float_parsing
    | implicit_table_at_top_level | transform_null_in | (join|group_by)_use_nulls | any_join_.*
    | aggregate_functions_.*
    | (union|intersect|except)_default_mode | empty_result_.* | count_distinct_implementation
    | prefer_column_name_to_alias | enable_positional_arguments | asterisk_.* | legacy_.*
    | least_greatest_.* | function_.* | formatdatetime_.* | parsedatetime_.* | splitby_.*
    | use_legacy_to_time | allow_lossy_.* | regexp_.* | use_variant_as_common_type
    | enable_(unaligned_array_join|extended_results_for_datetime_functions)
    | external_table_.* | totals_mode | optimize_(trivial_approximate_count_query|using_constraints)
    | optimize_(substitute_columns|append_index|skip_unused_shards)
    | distributed_(group_by_no_merge|product_mode|push_down_limit) | skip_unavailable_shards.*
    | enable_parallel_replicas | allow_experimental_parallel_reading_from_replicas
    | parallel_replica.* | max_parallel_replicas
    | .*query_cache.* | ignore_cold_parts_seconds | prefer_warmed_unmerged_parts_seconds
    | apply_(deleted_mask|patch_parts|mutations_on_fly) | .*_(after|select)_final | checksum_on_read
    | .*_if_final(_exact_mode)? | .*_lazy_final | discard_query_data | run_query_in_background
    | partial_result_on_first_cancel | implicit_transaction
    | data_type_default_nullable | default_(temporary_)?table_engine | flatten_nested
    | create_(if_not_exists|table_empty_primary_key_by_default) | ignore_drop_queries_probability
    | alter_update_mode | lightweight_delete_mode | validate_mutation_query
    | insert_(null_as_default|deduplicate|deduplication_token|shard_id|allow_materialized_columns)
    | deduplicate_insert(_select)? | allow_replace_partition_from_empty_source
    | show_create_.* | show_table_uuid_.* | print_pretty_type_names | describe_.*
    """,
    re.VERBOSE,
)
"""Names of settings that change the meaning or the result of a statement, in any release."""

WAITING = ("mutations_sync", "alter_sync", "lightweight_deletes_sync")
"""Settings that make a statement finish its work before it answers: a profile may set more than the
default, not less."""

_MARK, _PROOF = "proof ", 5

ASK = f"""
SELECT name, value, `default`, toUInt8(readonly) FROM system.settings WHERE
    (changed AND value != `default` AND match(name, '^({"".join(MEANING.pattern.split())})$'))
    OR (value = '0' AND name IN {WAITING}) OR name IN {tuple(SESSION)}
    OR (value NOT IN ('', '0') AND name IN {WRAPPERS})
UNION ALL SELECT concat('{_MARK}', toString(number)), '', '', 0 FROM numbers({_PROOF})
"""


BOUND = "max_execution_time"

_ASK_BOUND = f"""
SELECT toUInt8(readonly), toUInt32OrZero(value), toUInt32OrZero(ifNull(max, ''))
FROM system.settings WHERE name = '{BOUND}'
"""


def longest_statement(client: Any) -> int | None:
    """The seconds that the profile allows a statement, 0 for any number; None if its user may not
    set another number."""
    readonly, own, most = client.query(_ASK_BOUND).result_rows[0]
    return None if readonly else min(filter(None, (own, most)), default=0)


WRITES = "readonly"


def writes(client: Any) -> bool:
    """Whether the profile lets its user write, and forbid it."""
    ask = f"SELECT value = '0' AND NOT readonly FROM system.settings WHERE name = '{WRITES}'"
    return bool(client.query(ask).result_rows[0][0])


def release(client: Any) -> tuple[int, int]:
    """The first two numbers of a server's version, as it told a client of `clickhouse_connect`."""
    major, minor = str(client.server_version).split(".")[:2]
    return int(major), int(minor)


def pin(client: Any, who: str) -> None:
    """Make a client of `clickhouse_connect` send the settings with each of its queries.

    Raises:
        InputError: the profile has a setting that changes results, and forbids changing it.
    """
    rows = {row[0]: row[1:] for row in client.query(ASK, settings=dict(ALWAYS)).result_rows}
    proof = [rows.pop(f"{_MARK}{number}", None) for number in range(_PROOF)]
    if None in proof:
        raise InputError(
            f"{who}: of {_PROOF} rows {_PROOF - proof.count(None)} came: the profile has a "
            "setting such as limit, offset, filter or select that cuts results, and that is not "
            "to be changed by its user. Give it a profile without"
        )
    if release(client) >= CACHE_MENDED:
        rows.pop(CONDITION_CACHE, None)
    refused = []
    wanted: dict[str, str | int] = dict(ALWAYS)
    for name, (value, default, readonly) in rows.items():
        wanted[name] = SESSION.get(name, default)
        if name in WRAPPERS or (readonly and str(wanted[name]) != value):
            refused.append(f"{name} = {literal(value)}")
    if refused:
        raise InputError(
            f"{who}: its profile says {', '.join(refused)}, which changes what is read or written, "
            "and keeps the user from setting it otherwise, by readonly = 1 or a constraint. Give "
            "it a profile without, or with readonly = 2"
        )
    for name, setting in wanted.items():
        client.set_client_setting(name, setting)
