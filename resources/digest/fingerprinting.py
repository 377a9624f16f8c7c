"""Fingerprints of a source's key ranges, which tell whether their rows have changed."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tableferry.resources.columns.key_kind import key_kind
from tableferry.resources.contract import table_sql
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.endpoint import Endpoint
from tableferry.resources.contract.fingerprint import (
    HISTORY,
    LONGEST,
    KnownFigures,
    SourceFingerprint,
)
from tableferry.resources.contract.source import source_of
from tableferry.resources.digest.definition import definition
from tableferry.resources.digest.expressions import RowDigest
from tableferry.resources.digest.fields import all_fields, fields, own_field
from tableferry.resources.digest.measure import DIGEST, ROWS, Grouped, empty, measure
from tableferry.resources.digest.probe import dialect, preferred
from tableferry.resources.digest.stretches import put_together, stretches
from tableferry.resources.errors import InputError, StatementFailed, concerning
from tableferry.resources.keys.cover import to_bound
from tableferry.resources.keys.range import KeyKind, KeyRange
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

METHODS = {
    "auto": (
        "nothing that content sees: row versions that are the recorded ones stand for the recorded "
        "content only where nothing that row_version misses can be; elsewhere content is read"
    ),
    "content": "nothing: every value of every copied column counts (64 bits per row, summed)",
    "row_version": (
        "nothing that was written, nor what ALTER TABLE or ALTER TYPE made of it; but a type whose "
        "output function was replaced, and the names of objects (regclass and its like) that were "
        "renamed. Rewriting the table (VACUUM FULL, CLUSTER, a restored dump), a new enum label, "
        "or updating a row to the same values counts as a change. SQL Server: needs a rowversion "
        "column; a column that was dropped and recreated under its name is missed"
    ),
    "watermark": (
        "an update that leaves primary key, key and watermark as they were, and a row that gave "
        "way to another with all of these; other inserts and deletes are seen. Without a primary "
        "key, no two rows may have the same key"
    ),
    "none": "everything: a committed range runs again only if it is forced or its target differs",
}
"""What each method can miss."""

OF_WRITES = ("row_version", "watermark")
"""The methods that read what each write leaves in a row instead of the row's values."""

Figure = tuple[str, str]
"""An expression on a row, and an aggregate with `{}` in the expression's place."""


@dataclass(frozen=True)
class SourceReading:
    """How the source of a hop is read for its fingerprints."""

    endpoint: Endpoint
    """The server of `plan.source`."""
    plan: CopyPlan
    """The hop; `content` reads only its columns."""
    snapshot: str | None = None
    """The exported PostgreSQL snapshot to read under."""
    expected: Mapping[str, int] = field(default_factory=dict)
    """How many rows the ranges have, as far as that is known."""
    watermark: str | None = None
    """For `watermark`, the column that every update raises."""
    greatest: bool = False
    """Find each range's greatest watermark, too."""
    segmented: bool = False
    """Hash contents by `segments`, too."""


def fingerprints(
    reading: SourceReading,
    ranges: Sequence[KeyRange],
    method: str = "content",
    *,
    recorded: Mapping[str, SourceFingerprint] | None = None,
    as_sent: Collection[str] = (),
) -> dict[str, SourceFingerprint]:
    """Fingerprint ranges of a hop's source by aggregate queries, see `stretches`.

    The value does not depend on the order in which the server reads the rows, nor on how many
    queries do. With up to 16 ranges a query selects just these, so that an index on the key serves
    it.

    Args:
        reading: how the source is read.
        ranges: ranges that do not overlap; they need not cover the table.
        method: one of `METHODS`, which says what each can miss.
        recorded: for `auto`, earlier fingerprints with `row_versions`, by range name.
        as_sent: with `auto` and `content`, the names of ranges that are counted only, under the
            snapshot: `with_content` gives their fingerprints the value.

    Returns:
        The fingerprints by range name, also of ranges without rows.

    Raises:
        InputError: the method is unknown or needs something that the table does not have.
        DigestRefused: the server does not compute the row digest.
    """
    endpoint, table = reading.endpoint, reading.plan.source
    source = source_of(endpoint.system)
    if sent := [each for each in ranges if each.name in as_sent]:
        unsent = _unsent(reading, sent, method)
        others = [each for each in ranges if each.name not in as_sent]
        return unsent | (fingerprints(reading, others, method, recorded=recorded) if others else {})
    if method in ("auto", "content") and source.file_key is not None:
        return source.fingerprints(endpoint, table, ranges, reading.plan.where)
    if method == "auto":
        return _by_versions_first(reading, ranges, recorded or {})
    if method == "content":
        return _contents(reading, ranges)
    if method == "row_version" and not source.versions_last:
        raise InputError(
            f"{table}: fingerprint row_version would take each merge of {endpoint.system} for a "
            "change; use auto, which then looks at the content"
        )
    with concerning(f"{table}: fingerprint {method}"):
        results = _aggregates(reading, ranges, method)
    # asked last, so that rows of the old history may pass for the new one's, but not the reverse
    history = source.history(endpoint) if method in OF_WRITES else ""
    if not history:
        return results
    return {
        name: replace(each, definition=f"{each.definition or 'r'}{HISTORY}{history}"[:LONGEST])
        for name, each in results.items()
    }


def _aggregates(
    reading: SourceReading, ranges: Sequence[KeyRange], method: str
) -> dict[str, SourceFingerprint]:
    """Fingerprint ranges by the figures of a method other than `content`."""
    endpoint, plan = reading.endpoint, reading.plan
    table, system, key = plan.source, endpoint.system, plan.key.source
    sql, source = system.dialect, source_of(system)
    digested = _watermarked(endpoint, plan, reading.watermark) if method == "watermark" else []
    figures = _figures(endpoint, table, method, digested)
    counts_keys = bool(digested) and not any(column.primary_key for column in digested)
    if counts_keys:
        count = sql.count.replace("*", "DISTINCT {}")
        figures.append((sql.grouping_key(system.quote(key.name), key), count))
    mark_kind = None
    if reading.greatest and digested:
        mark_kind, mark = key_kind(digested[-1], system)[0], digested[-1]
        value = sql.key_value(system.quote(mark.name), mark, mark_kind)
        figures.append((value, sql.text("MAX({})")))
    used = definition(dialect(endpoint).algorithm) if digested else ""
    detail = used
    if method == "row_version":
        copied = [column.source.name for column in plan.columns]
        # an expression may read columns that are not copied
        copied += plan.excluded if plan.source.read_as else ()
        detail = source.catalog_state(endpoint, table, copied, reading.snapshot)
    label = f"{method}:{detail}" if detail else method

    def fingerprint(rows: int, values: Sequence[Any], mark: str | None) -> SourceFingerprint:
        value, known = _value(label, rows, values), KnownFigures("", {ROWS: rows})
        return SourceFingerprint(rows, value, used, greatest=mark, source_figures=known)

    nothing = fingerprint(0, [None] * (len(figures) - bool(mark_kind) - counts_keys), None)
    results = {key_range.name: nothing for key_range in ranges}
    for chunk in _chunks(reading, ranges, len(digested)):
        began = time.monotonic()
        group, where = (
            table_sql.range_number(chunk, key, system),
            table_sql.within(chunk, key, system),
        )
        where = table_sql.filtered(where, plan.where)
        prefix = table_sql.alias_prefix(group, where, *(value for value, _ in figures))
        selected = "".join(f", {value} AS {prefix}{at}" for at, (value, _) in enumerate(figures))
        sums = "".join(f", {sum_.format(f'{prefix}{at}')}" for at, (_, sum_) in enumerate(figures))
        query = (
            f"SELECT {prefix}g, {sql.count}{sums} FROM "
            f"(SELECT {group} AS {prefix}g{selected} FROM {table_sql.qualified(table)} "
            f"WHERE {where}{sql.barrier}) AS {prefix}rows GROUP BY {prefix}g"
        )
        for number, rows, *values in endpoint.query(query, snapshot=reading.snapshot):
            if number >= 0:
                greatest_mark = _finite(values.pop(), mark_kind) if mark_kind else None
                if counts_keys:
                    _require_distinct(plan, chunk[number], int(rows), int(values.pop()))
                results[chunk[number].name] = fingerprint(int(rows), values, greatest_mark)
        _note_seconds(results, chunk, time.monotonic() - began)
    return results


def _chunks(
    reading: SourceReading, ranges: Sequence[KeyRange], columns: int
) -> Iterator[Sequence[KeyRange]]:
    """Cut ranges into those of one statement; see `stretches`."""
    return stretches(
        reading.endpoint,
        reading.plan.source,
        reading.plan.key.source,
        ranges,
        columns=columns,
        rows=reading.expected,
        most=reading.endpoint.system.dialect.most_branches,
    )


def _note_seconds(
    results: dict[str, SourceFingerprint], chunk: Sequence[KeyRange], seconds: float
) -> None:
    """Note how long the statement took that has read some ranges."""
    rows = sum(results[each.name].rows for each in chunk) or 1
    for each in chunk:
        before = results[each.name]
        share = seconds * before.rows / rows
        results[each.name] = replace(before, statement_seconds=seconds, source_seconds=share)


def _by_versions_first(
    reading: SourceReading,
    ranges: Sequence[KeyRange],
    recorded: Mapping[str, SourceFingerprint],
) -> dict[str, SourceFingerprint]:
    """Fingerprint the contents of ranges, but for those whose row versions are the recorded ones.

    Where readers share no snapshot, the row versions are looked at again after the
    contents: only versions that did not change meanwhile are those of the rows that were read.
    """
    versions, refused = _row_versions(reading, ranges)
    results: dict[str, SourceFingerprint] = {}
    for name, (version, row_versions) in versions.items():
        before = recorded.get(name)
        if before is not None and not before.unsent and before.row_versions == row_versions:
            known = before.source_figures or KnownFigures("", {ROWS: version.rows})
            results[name] = replace(
                before,
                rows=version.rows,
                source_figures=known,
                found_by="row versions",
                statement_seconds=version.statement_seconds,
                source_seconds=version.source_seconds,
            )
    changed = [key_range for key_range in ranges if key_range.name not in results]
    if not changed:
        return results
    counted = {name: version.rows for name, (version, _) in versions.items()}
    reading = replace(reading, expected={**reading.expected, **counted})
    contents = _contents(reading, changed)
    after = versions
    if versions and not _share_snapshots(reading.endpoint):
        after, _ = _row_versions(reading, changed)
    for name, content in contents.items():
        version, row_versions = versions.get(name, (content, ""))
        if after.get(name) != versions.get(name) or version.rows != content.rows:
            row_versions = ""
        results[name] = replace(
            content,
            row_versions=row_versions,
            found_by="content",
            no_versions=refused,
            statement_seconds=max(content.statement_seconds, version.statement_seconds),
            source_seconds=content.source_seconds + version.source_seconds,
        )
    return results


def _unsent(
    reading: SourceReading, ranges: Sequence[KeyRange], method: str
) -> dict[str, SourceFingerprint]:
    """Count ranges whose contents are digested as they are sent, with row versions for `auto`."""
    counts: dict[str, tuple[SourceFingerprint, str]] = {}
    refused, digest = "", source_digest(reading.endpoint, reading.plan)
    if method == "auto":
        counts, refused = _row_versions(reading, ranges)
    if not counts:
        counted = _aggregates(reading, ranges, "none")
        counts = {name: (count, "") for name, count in counted.items()}
    used = definition(digest.dialect.algorithm)
    results: dict[str, SourceFingerprint] = {}
    for name, (count, row_versions) in counts.items():
        # nothing is recorded under it; an insert of other rows must not pass for a repeated one
        results[name] = replace(
            count,
            value=f"unsent:{secrets.token_hex(8)}",
            definition=used,
            source_figures=None,
            row_versions=row_versions,
            found_by="content" if method == "auto" else None,
            no_versions=refused,
            unsent=True,
        )
        if not count.rows:
            nothing = KnownFigures(digest.id, {ROWS: 0, DIGEST: "0"})
            results[name] = with_content(results[name], used, nothing)
    return results


def source_digest(endpoint: Endpoint, plan: CopyPlan) -> RowDigest:
    """Return the digest that fingerprints by content are made of.

    Raises:
        DigestRefused: the server does not compute the row digest.
    """
    return RowDigest(preferred(endpoint, plan.target.system), all_fields(plan), "source")


def with_content(
    fingerprint: SourceFingerprint, used: str, figures: KnownFigures
) -> SourceFingerprint:
    """Give a fingerprint the value that its content has.

    Args:
        fingerprint: of the same rows.
        used: the definition of their digest.
        figures: their number, and the sum of their digests.
    """
    rows = figures.figures[ROWS]
    value = _value(f"content:{used}", rows, [figures.figures[DIGEST]])
    return replace(
        fingerprint,
        rows=rows,
        value=value,
        definition=used,
        source_figures=figures,
        unsent=False,
    )


def _row_versions(
    reading: SourceReading, ranges: Sequence[KeyRange]
) -> tuple[dict[str, tuple[SourceFingerprint, str]], str]:
    """Read the versions of rows; nothing, and what the server says, if it refuses to show them."""
    try:
        return _versions_of_rows(reading, ranges), ""
    except StatementFailed as error:
        if error.transient:
            raise
        # e.g. a login that may read some columns only: versions are granted with the table
        return {}, str(error)


def _versions_of_rows(
    reading: SourceReading, ranges: Sequence[KeyRange]
) -> dict[str, tuple[SourceFingerprint, str]]:
    """Count the rows of each range and hash their versions; {} if these stand for no values.

    The hash covers how the content is computed, so that it holds for one content fingerprint only.
    """
    endpoint, plan, snapshot = reading.endpoint, reading.plan, reading.snapshot
    if plan.source.read_as:
        return {}  # an expression may read more than the row
    source, copied = source_of(endpoint.system), [column.source.name for column in plan.columns]
    tie = source.version_scope(endpoint, plan.source, copied, snapshot)
    if tie is None:
        return {}
    versions = _aggregates(reading, ranges, "row_version")
    # a server that took over meanwhile may have given the same versions to other rows
    unshared = not _share_snapshots(endpoint)
    if unshared and source.version_scope(endpoint, plan.source, copied, snapshot) != tie:
        return {}
    digest = source_digest(endpoint, plan)
    content = (definition(digest.dialect.algorithm), str(digest), plan.where)
    return {
        name: (version, _hash(version.value, tie, name, content))
        for name, version in versions.items()
    }


def _share_snapshots(endpoint: Endpoint) -> bool:
    return source_of(endpoint.system).snapshots and endpoint.shares_snapshots


def _hash(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _contents(reading: SourceReading, ranges: Sequence[KeyRange]) -> dict[str, SourceFingerprint]:
    endpoint, plan = reading.endpoint, reading.plan
    digest = source_digest(endpoint, plan)
    used = definition(digest.dialect.algorithm)
    summed = [field for field in fields(plan) if field.name in plan.figures]
    # other figures than sums are not put together here
    segmented = reading.segmented and not summed
    grouped = Grouped.by_segment if segmented else Grouped.by_range
    results: dict[str, SourceFingerprint] = {}
    for chunk in _chunks(reading, ranges, len(digest.fields)):
        began = time.monotonic()
        rows = grouped(chunk, plan.key.source, endpoint.system, plan.where)
        rows = replace(rows, snapshot=reading.snapshot)
        measured = measure(endpoint, plan.source, "source", rows, digest=digest, figures=summed)
        hashes: dict[int, str] = {}
        if segmented:
            measured, hashes = put_together(chunk, measured, str(digest))
        for number, key_range in enumerate(chunk):
            figures = measured.get(number) or empty(True, summed)
            results[key_range.name] = with_content(
                SourceFingerprint(figures[ROWS], "", segments=hashes.get(number, "")),
                used,
                KnownFigures(digest.id, figures),
            )
        _note_seconds(results, chunk, time.monotonic() - began)
    return results


def _figures(
    endpoint: Endpoint, table: TableRef, method: str, digested: Sequence[Column]
) -> list[Figure]:
    system, sql = endpoint.system, endpoint.system.dialect
    match method:
        case "row_version":
            return [*source_of(system).row_version(endpoint, table)]
        case "watermark":
            fields = [own_field(system, column) for column in digested]
            return [(dialect(endpoint).digest(fields, "source"), sql.exact_sum("{}"))]
        case "none":
            return []
    raise InputError(f"{table}: fingerprint {method!r} should be one of {', '.join(METHODS)}")


def _watermarked(endpoint: Endpoint, plan: CopyPlan, watermark: str | None) -> list[Column]:
    """List the key, the other columns of the primary key, and last the watermark."""
    columns = {column.name: column for column in endpoint.columns(plan.source)}
    if watermark not in columns:
        raise InputError(f"{plan.source}: the watermark column {watermark!r} does not exist")
    primary_key = [column for column in columns.values() if column.primary_key]
    identifying = {column.name: column for column in (plan.key.source, *primary_key)}
    identifying.pop(watermark, None)
    return [*identifying.values(), columns[watermark]]


def _require_distinct(plan: CopyPlan, key_range: KeyRange, rows: int, keys: int) -> None:
    """Refuse rows that could replace each other without a change of the fingerprint."""
    if rows > keys + key_range.null:
        raise InputError(
            f"{plan.source}: fingerprint watermark cannot tell rows apart: there is no primary "
            f"key, and in the range {key_range.name} {rows} rows have {keys} different values of "
            f"{plan.key.source.name!r}; give the table a primary key, choose a key whose values "
            "are unique, or use fingerprint content"
        )


def _finite(text: Any, kind: KeyKind) -> str | None:
    """A watermark in the form that `to_bound` reads; None for infinity and years beyond 9999."""
    try:
        bound = None if text is None else to_bound(text, kind)
    except InputError:
        return None
    if bound is None:
        return None
    return bound.isoformat() if isinstance(bound, dt.date) else str(bound)


def _value(label: str, rows: int, values: Sequence[Any]) -> str:
    if label == "none":
        return "none"
    return ":".join([label, str(rows), *("" if value is None else str(value) for value in values)])
