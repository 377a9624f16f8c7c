"""Renders the report of many transfers as one HTML page, as JSON by its schema, or as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tableferry.checks.levels import proofs
from tableferry.pipelines.reporting.fleet import Fleet, TableEntry, behind
from tableferry.resources.words import iso_time

SCHEMA_VERSION = 1
"""Incremented when a field is removed or changes its meaning; see docs/fleet.schema.json."""

STATEMENT = (
    "Proven means: every key range of the table is committed, every declared check of the range "
    "and of the whole table holds for the rows that were committed last, and no run has failed "
    "since. A proof holds for the moment that is given with it. This report is made from Dagster's "
    "event log; no server was queried."
)
LEVELS = f"Levels of proof, from the weakest: {proofs()}."
POSITIONS = (
    "A position says where in its history of writes a source was read. PostgreSQL: the cluster's "
    "number, the timeline, and the location in the write-ahead log."
)
SIGNED_BY = ("Name", "Role", "Date", "Signature")


def to_document(fleet: Fleet) -> dict[str, Any]:
    """Return the JSON form by docs/fleet.schema.json."""
    return {
        "schema_version": SCHEMA_VERSION,
        "passed": fleet.passed,
        "summary": fleet.summary,
        "created_at": iso_time(fleet.created_at),
        "totals": fleet.totals,
        "invalid_files": dict(fleet.invalid),
        "as_of": fleet.as_of,
        "transfers": [
            {
                "transfer": entry.transfer,
                "description": entry.description,
                "source": entry.source,
                "outcome": str(entry.outcome),
                "problems": list(entry.problems),
                "ranges": entry.ranges,
                "committed": entry.committed,
                "rows": entry.rows,
                "proof": entry.proof,
                "proven_from": iso_time(entry.proven_from),
                "behind": entry.behind,
                "tables": [_table(table) for table in entry.tables],
            }
            for entry in fleet.transfers
        ],
    }


def _table(table: TableEntry) -> dict[str, Any]:
    moments = ("proven_from", "proven_to", "read_at")
    return {
        **asdict(table),
        "outcome": str(table.outcome),
        "positions": list(table.positions),
        "problems": list(table.problems),
        "departures": list(table.departures),
        **{name: iso_time(getattr(table, name)) for name in moments},
    }


def render_fleet(fleet: Fleet, fmt: str, *, asset_pages: Mapping[str, str]) -> str:
    """Render the report in one of its formats.

    Args:
        fleet: the transfers.
        fmt: `json`, `md` or `html`.
        asset_pages: by target, its page in Dagster's web UI.
    """
    if fmt == "json":
        return json.dumps(to_document(fleet), indent=2, ensure_ascii=False) + "\n"
    if fmt == "md":
        return "\n".join(_markdown(fleet, asset_pages)) + "\n"
    from tableferry.pipelines.reporting.html import page

    return page("fleet.html.j2").render(
        fleet=fleet,
        asset_pages=asset_pages,
        proof=proof,
        position=position,
        behind=behind,
        iso_time=iso_time,
        statement=STATEMENT,
        levels=LEVELS,
        positions=POSITIONS,
        signed_by=SIGNED_BY,
    )


def proof(table: TableEntry) -> str:
    """Format the level of a table's proof, and when it was taken."""
    if table.proof is None:
        return "none"
    first, last = _minute(table.proven_from), _minute(table.proven_to)
    return f"{table.proof}, {first}{f' to {last}' if last != first else ''}"


def position(table: TableEntry) -> str:
    """Format the snapshot that the table shares with others, or else where the rows were read."""
    if table.snapshot:
        return ", at ".join([table.snapshot, *table.positions])
    if len(table.positions) < 3:
        return ", ".join(table.positions)
    return f"{table.positions[0]} to {table.positions[-1]} ({len(table.positions)} snapshots)"


def _minute(timestamp: float | None) -> str:
    text = iso_time(timestamp) or ""
    return f"{text[:10]} {text[11:19]} UTC" if text else "never"


def _markdown(fleet: Fleet, asset_pages: Mapping[str, str]) -> Iterator[str]:
    from tableferry.pipelines.reporting.html import Markdown, inline, row

    yield f"# Cutover report: {'passed' if fleet.passed else 'NOT PASSED'}"
    yield ""
    yield f"{fleet.summary}. Made {_minute(fleet.created_at)}."
    if sentence := fleet.departing_sentence:
        yield ""
        yield f"**{sentence}**: see the last column."
    yield ""
    if fleet.as_of:
        yield f"One state of the source: {'; '.join(map(inline, fleet.as_of))}."
        yield ""
    yield STATEMENT
    if fleet.unproven or fleet.invalid:
        yield from ("", "## Not proven", "")
        yield from (f"- {inline(name)}: {inline(text)}" for name, text in fleet.invalid.items())
        for entry in fleet.unproven:
            yield f"- **{inline(entry.transfer)}** ({entry.outcome})"
            yield from (f"  - {inline(problem)}" for problem in entry.problems)
    yield from ("", "## Tables", "")
    yield row(
        *("transfer", "table", "state", "rows", "ranges", "last proof"),
        *("source read", "snapshot or position", "behind the source", "not as in the source"),
    )
    yield "|---" * 10 + "|"
    for entry in fleet.transfers:
        for table in entry.tables:
            url = asset_pages.get(table.target)
            text = inline(table.target)
            yield row(
                entry.transfer,
                Markdown(f"[{text}]({url})" if url else text),
                table.outcome if table.outcome == "proven" else Markdown(f"**{table.outcome}**"),
                f"{table.rows:,}",
                f"{table.committed:,} of {table.ranges:,}",
                proof(table),
                _minute(table.read_at),
                position(table),
                behind(table.behind_ranges, table.behind_rows),
                "; ".join(table.departures),
            )
    if fleet.servers:
        yield from ("", "## Servers", "", row("connection", "server"), "|---|---|")
        yield from (row(name, "; ".join(each)) for name, each in fleet.servers.items())
    yield from (
        "",
        f"{LEVELS} {POSITIONS}",
        "",
        "## Accepted by",
        "",
        row(*SIGNED_BY),
        "|---" * 4 + "|",
    )
    yield row("", "", "", "")
