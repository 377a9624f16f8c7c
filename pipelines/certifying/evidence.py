"""The evidence of an ordinary run: what it did, as JSON and Markdown, and a trail of its states."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.show.range_views import TransferView
from tableferry.resources.words import counted, iso_time

SCHEMA_VERSION = 1
TRAIL = "trail.jsonl"
"""A line per range and state, and per verdict, of all runs; lines are only added."""


def keep(session: Session, views: Iterable[TransferView], folder: Path | None) -> list[str]:
    """Write what a command's runs did.

    Args:
        session: the session of the command.
        views: the transfers, as the command shows them.
        folder: where to write; by default what each transfer declares, or nowhere.

    Returns:
        Why files could not be written; the runs have ended all the same.
    """
    errors = []
    for view in views:
        declared = session.transfer(view.transfer).evidence
        if target := folder or (Path(declared) if declared else None):
            try:
                _write(session, view, target)
            except OSError as error:
                errors.append(
                    f"{view.transfer}: its run has ended, but the evidence cannot be written: "
                    f"{error.filename or target}: {error.strerror}"
                )
    return errors


def _write(session: Session, view: TransferView, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for run_id in view.run_ids:  # without one, Dagster is not imported
        from tableferry.assets.log.trail import trail

        lines += trail(session.instance, run_id)
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
    (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    (folder / f"{name}.md").write_text("\n".join(_markdown(document)) + "\n", encoding="utf-8")
    with (folder / TRAIL).open("a", encoding="utf-8") as file:
        for line in lines:
            of_transfer = {"transfer": view.transfer, **line}
            file.write(json.dumps(of_transfer, default=str, ensure_ascii=False) + "\n")


def _markdown(document: dict[str, Any]) -> Iterator[str]:
    from tableferry.pipelines.reporting.html import inline, row  # which imports Jinja

    runs = ", ".join(document["run_ids"]) or "none: there was nothing to do"
    yield f"# {inline(document['transfer'])}: {'passed' if document['ok'] else 'NOT PASSED'}"
    yield ""
    yield (
        f"Written {document['written_at']} by Tableferry {document['tableferry']}; "
        f"{counted(len(document['ranges']), 'range')} in all hops; runs: {runs}."
    )
    yield from ("", *(f"- {inline(line)}" for line in (*document["errors"], *document["notes"])))
    yield from ("", "| target | range | state | rows | checks | error |", "|---" * 6 + "|")
    for each in document["ranges"]:
        verdicts = each["checks"].items()
        checks = [f"{name} {'passed' if good else 'FAILED'}" for name, good in verdicts]
        names = ("target", "range", "state", "rows")
        yield row(*(each[name] for name in names), ", ".join(checks), each["error"])
