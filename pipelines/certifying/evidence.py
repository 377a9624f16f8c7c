"""The evidence of an ordinary run: what it did, as JSON and Markdown, and a trail of its states."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.ranges import read_status
from tableferry.pipelines.command.show.range_views import TransferView, range_notes, range_views
from tableferry.resources.words import counted, iso_time

if TYPE_CHECKING:
    import dagster as dg

    from tableferry.pipelines.command.session import Session
    from tableferry.pipelines.reporting.html import Table

SCHEMA_VERSION = 1
TRAIL = "trail.jsonl"
"""A line per range and state, and per verdict, of all runs; lines are only added."""

Line = dict[str, Any]


def keep(session: Session, views: Iterable[TransferView], folder: Path | None) -> list[str]:
    """Write what a command's runs did.

    Args:
        session: the session of the command.
        views: the transfers, as the command shows them.
        folder: where to write; by default what each transfer declares, or nowhere.

    Returns:
        Why files could not be written; the runs have ended all the same.
    """
    unwritten = []
    for view in views:
        declared = session.transfer(view.transfer).evidence
        if target := folder or (Path(declared) if declared else None):
            lines: list[Line] = []
            for run_id in view.run_ids:  # without one, Dagster is not imported
                from tableferry.assets.log.trail import trail

                lines += trail(session.instance, run_id)
            unwritten += _write(view, lines, target)
    return unwritten


def of_dagster(transfer: Transfer) -> dict[str, Any]:
    """Return the arguments of a transfer's op by which runs that no command starts leave evidence.

    Its hook runs after all else has been recorded, and whether the op has failed or not.
    """
    if not (transfer.evidence and transfer.write.moves):
        return {}
    import dagster as dg

    folder = Path(transfer.evidence)

    def leave(context: dg.HookContext, events: Sequence[dg.DagsterEvent]) -> dg.HookExecutionResult:
        view, lines = _run_view(context.instance, transfer, context.run_id, events)
        for why in _write(view, lines, folder):
            context.log.warning(why)
        return dg.HookExecutionResult(hook_name="evidence")

    return {"hooks": {dg.HookDefinition(name="evidence", hook_fn=leave)}}


def _run_view(
    instance: dg.DagsterInstance,
    transfer: Transfer,
    run_id: str,
    events: Sequence[dg.DagsterEvent],
) -> tuple[TransferView, list[Line]]:
    """Return the state of the ranges that a run has recorded anything of, and its trail."""
    from tableferry.assets.log.history import failure_lines
    from tableferry.assets.log.trail import trail

    lines = [*trail(instance, run_id)]
    statuses = read_status(instance, [transfer], only={line["range"] for line in lines})
    views = [
        view
        for hop in range(1, len(transfer.hops) + 1)
        for view in range_views(transfer, statuses, hop)
        if view.run_id == run_id
    ]
    errors = [line for event in events if event.is_step_failure for line in failure_lines(event)]
    errors = errors or [problem for view in views if (problem := view.problem)]
    errors += [
        f"{target}: {check.summary}"
        for target, status in statuses.items()
        for check in status.checks
        if check.failed and check.run_id == run_id
    ]
    notes = range_notes(views)
    return TransferView(transfer.transfer, views, not errors, errors, [run_id], notes), lines


def _write(view: TransferView, lines: Sequence[Line], folder: Path) -> list[str]:
    """Write the files of a command's runs, or of a run of Dagster's.

    Returns:
        Why they could not be written.
    """
    from tableferry.pipelines.reporting.html import markdown  # which imports Jinja

    now = dt.datetime.now(dt.UTC)
    document = {
        "schema_version": SCHEMA_VERSION,
        "written_at": iso_time(now.timestamp()),
        "tableferry": version("tableferry"),
        **view.json(),
        "trail": lines,
    }
    name = f"{view.transfer}-{now:%Y%m%dT%H%M%S%f}"
    text = json.dumps(document, indent=2, default=str, ensure_ascii=False)
    of_transfer = [{"transfer": view.transfer, **line} for line in lines]
    added = [json.dumps(line, default=str, ensure_ascii=False) + "\n" for line in of_transfer]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
        (folder / f"{name}.md").write_text(markdown(*_told(document)), encoding="utf-8")
        with (folder / TRAIL).open("ab", buffering=0) as file:  # other runs add to it as well
            file.write("".join(added).encode())
    except OSError as error:
        return [
            f"{view.transfer}: its run has ended, but the evidence cannot be written: "
            f"{error.filename or folder}: {error.strerror}"
        ]
    return []


def _told(document: dict[str, Any]) -> tuple[str, str, list[Table]]:
    """Return what `markdown` is given of a document."""
    runs = ", ".join(document["run_ids"]) or "none: there was nothing to do"
    heading = f"{document['transfer']}: {'passed' if document['ok'] else 'NOT PASSED'}"
    summary = (
        f"Written {document['written_at']} by Tableferry {document['tableferry']}; "
        f"{counted(len(document['ranges']), 'range')} in all hops; runs: {runs}."
    )
    said = [[line] for line in (*document["errors"], *document["notes"])]
    ranges = [
        [
            *(each[name] for name in ("target", "range", "state", "rows")),
            ", ".join(
                f"{name} {'passed' if good else 'FAILED'}" for name, good in each["checks"].items()
            ),
            each["error"],
        ]
        for each in document["ranges"]
    ]
    heads = ("target", "range", "state", "rows", "checks", "error")
    tables: list[Table] = [("Errors and notes", ("line",), said)] if said else []
    return heading, summary, [*tables, ("Ranges", heads, ranges)]
