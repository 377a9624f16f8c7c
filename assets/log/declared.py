"""What a range was proven by, as the log keeps it beside the proof; Dagster is not imported.

Only what differs from the defaults is kept, so that records of earlier releases, and parts that a
later one adds, are never taken for another declaration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.declaring.sections import Section
from tableferry.assets.log.records import RangeRecord, digest
from tableferry.checks.expectations import CHECK_NAME as EXPECTATIONS
from tableferry.checks.levels import CHECK_NAMES
from tableferry.checks.rejected import most_rejected
from tableferry.resources.words import counted

SOURCE = "source"
_OF_ROWS = ("where", "row_security", "key", "write", "deletes", "mover", "final", "on_reject")
_SELECTING = ("where", "row_security", "final")
_OF_TABLE = ("engine", "order_by", "partition_by")


def declaration_of(transfer: Transfer, hop: int) -> str:
    """Return what decides which rows and values a hop (1-based) proves, but for its checks."""
    hops = transfer.hops[:hop]
    columns = [
        *(sorted(transfer.only or ()), sorted(transfer.exclude), _shapes(transfer.columns)),
        *(part for each in hops for part in (sorted(each.exclude), _shapes(each.columns))),
    ]
    parts = transfer.model_dump(mode="json", include={*_OF_ROWS}, exclude_defaults=True)
    table = hops[-1].model_dump(mode="json", include={*_OF_TABLE}, exclude_defaults=True)
    parts = {name: digest(value) for name, value in (parts | table).items()}
    if any(columns):
        parts["columns"] = digest(json.dumps(columns, sort_keys=True))
    return json.dumps({SOURCE: str(transfer.tables[hop - 1]), **parts}, ensure_ascii=False)


def _shapes(columns: Mapping[str, Section]) -> dict[str, dict[str, object]]:
    """Return the settings of columns that decide values; `was` only finds one in a target."""
    shapes = {
        name: spec.model_dump(mode="json", exclude_defaults=True, exclude={"was"})
        for name, spec in columns.items()
    }
    return {name: shape for name, shape in shapes.items() if shape}


def asked_of(transfer: Transfer) -> dict[str, str]:
    """Return a hash of what each check is asked, for the checks of which more than a level is."""
    asked = {}
    if suite := transfer.suite:
        said = [(each.type, each.kwargs) for each in suite]
        asked[EXPECTATIONS] = digest(json.dumps(said, sort_keys=True, default=str))
    if transfer.figures and transfer.reconcile == "checksum":
        asked[CHECK_NAMES["checksum"]] = digest(sorted(transfer.figures))
    return asked


def changes(recorded: str | None, now: str) -> Iterator[str]:
    """Say what of a declaration has changed since it was recorded; nothing if none was."""
    if recorded is None or recorded == now:
        return
    before, after = (_parts(text) for text in (recorded, now))
    if before[SOURCE] != after[SOURCE]:
        yield f"source was {before[SOURCE]}"
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if others := [name for name in names if name != SOURCE]:
        yield f"changed since: {', '.join(others)}"


def has_other_source(recorded: str | None, now: str) -> bool:
    """Whether the recorded declaration names another source."""
    return recorded is not None and _parts(recorded)[SOURCE] != _parts(now)[SOURCE]


def selects_other_rows(recorded: str | None, now: str) -> bool:
    """Whether the recorded declaration takes other rows of a source."""
    if recorded is None:
        return False
    before, after = _parts(recorded), _parts(now)
    return any(before.get(name) != after.get(name) for name in _SELECTING)


def too_many_rejected(transfer: Transfer, record: RangeRecord) -> str:
    """Say that a range lacks more rows than `max_rejected` allows now; empty if it does not."""
    rejected = record.quarantined or 0
    allowed = most_rejected(transfer.max_rejected, (record.rows or 0) + rejected)
    if transfer.on_reject != "quarantine" or rejected <= allowed:
        return ""
    return (
        f"{counted(rejected, 'row')} rejected, and max_rejected ({transfer.max_rejected}) allows "
        f"{allowed:,} now"
    )


def _parts(text: str) -> Mapping[str, str]:
    parts: Mapping[str, str] = json.loads(text)
    return parts
