"""Renders the report of many transfers as one HTML page, as JSON by its schema, or as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    from tableferry.pipelines.reporting.html import page

    return page(f"fleet.{fmt}.j2").render(
        fleet=fleet,
        asset_pages=asset_pages,
        proof=proof,
        position=position,
        behind=behind,
        iso_time=iso_time,
        minute=_minute,
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
