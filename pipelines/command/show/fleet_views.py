"""`ferry status`, `plan`, `check` and `report` of several transfers: a line each, and totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from tableferry.assets.declaring.dagster_rules import about
from tableferry.assets.judging import ProofState
from tableferry.assets.log.states import State
from tableferry.pipelines.command.session import Session
from tableferry.pipelines.command.show.range_views import Attempt, TransferOutcome
from tableferry.pipelines.command.show.render import ListColumn, Listing, ListRow, number, shown
from tableferry.pipelines.reporting.fleet import Fleet, fleet
from tableferry.resources.words import counted, iso_time

if TYPE_CHECKING:
    from tableferry.pipelines.command.show.views import CheckView, PlannedRange, PlanView

STYLES = {ProofState.FAILED: "red", ProofState.PROVEN: "green"}
MOST_REASONS = 10
"""Maximum transfers of which standard error says why they are not proven."""


def read_fleet(session: Session, names: Sequence[str], *, whole: bool) -> Fleet:
    """Read the event log for all named transfers at once; no server is queried.

    Args:
        session: the session of the command.
        names: the transfers.
        whole: they are all of the folder, whose invalid files count as well.
    """
    return session.ask_log(lambda log: fleet(log, session.declared, names, whole=whole))


def show_fleet(out: Console, view: Fleet) -> None:
    """Print a line per transfer, failures first, and the totals."""
    plain = not out.is_terminal
    columns = [ListColumn("transfer"), ListColumn("state"), ListColumn("ranges", right=True)]
    columns += [ListColumn("rows", right=True), ListColumn("proof"), ListColumn("proven at (UTC)")]
    columns += [ListColumn("behind")] + [ListColumn("problem")] * plain
    rows = []
    for entry in view.transfers:
        moment = (iso_time(entry.proven_from) or "")[: 19 if plain else 16]
        cells = [
            shown(entry.transfer),
            Text(entry.outcome, style=STYLES.get(entry.outcome, "yellow")),
            Text(f"{entry.committed:,}/{entry.ranges:,}"),
            number(entry.rows),
            Text(entry.proof or ""),
            Text(f"{moment}Z" if moment and plain else moment.replace("T", " ")),
            Text(entry.behind),
        ]
        problem = [shown(entry.problems[0])] if entry.problems else []
        if plain:
            cells = [cell if cell.plain else Text("-") for cell in [*cells, *(problem or [Text()])]]
        rows.append(ListRow(cells, [] if plain else problem))
    out.print(Listing(columns, rows), soft_wrap=plain)
    out.print(Text(view.summary, style="bold"), soft_wrap=plain)
    for sentence in view.as_of:
        out.print(Text(sentence), soft_wrap=plain)
    for table in view.departing:
        said = "; ".join(table.departures)
        out.print(Text(f"not as in the source: {table.target}: {said}"), soft_wrap=plain)


def fleet_errors(view: Fleet) -> list[str]:
    """Say why not all is proven, in a few lines; empty if all is."""
    unproven = view.unproven
    errors = [about(entry.transfer, entry.problems[0]) for entry in unproven[:MOST_REASONS]]
    if rest := len(unproven) - len(errors):
        errors.append(f"{counted(rest, 'more transfer')} not proven")
    if view.invalid:
        errors.append(f"not proven, because they are invalid: {', '.join(view.invalid)}")
    return errors


def fleet_document(view: Fleet) -> dict[str, Any]:
    """Return the `--json` form: that of the report, with what all commands have in theirs."""
    from tableferry.pipelines.reporting.fleet_pages import to_document

    return {"ok": view.passed, "errors": fleet_errors(view), **to_document(view)}


def fleet_report(view: Fleet, fmt: str, dagster_url: str | None) -> str:
    """Render the report of several transfers."""
    from tableferry.pipelines.reporting.fleet_pages import render_fleet

    pages: dict[str, str] = {}
    if dagster_url:
        from tableferry.pipelines.reporting.collect import checked_url

        url = checked_url(dagster_url)
        for entry in view.transfers:
            for table in entry.tables:
                pages[table.target] = f"{url}/assets/{table.asset}"
    return render_fleet(view, fmt, asset_pages=pages)


def attempt_errors(attempts: Sequence[Attempt[Any]]) -> list[str]:
    """Return the errors of all attempts, each with its transfer in front."""
    return [about(item.transfer, line) for item in attempts for line in item.errors]


def attempts_document(attempts: Sequence[Attempt[Any]], errors: Sequence[str]) -> dict[str, Any]:
    """Return the `--json` form of several attempts."""
    documents = [
        item.view.json()
        if item.view is not None
        else {"transfer": item.transfer, "ok": False, "errors": list(item.errors)}
        for item in attempts
    ]
    return {"ok": not errors, "errors": list(errors), "transfers": documents}


def show_plans(out: Console, attempts: Sequence[Attempt[PlanView]]) -> None:
    """Print what a run of each transfer would move, and why; a range counts once for all hops."""
    columns = [ListColumn("transfer"), ListColumn("result"), ListColumn("run", right=True)]
    columns += [ListColumn(name, right=True) for name in ("refused", "skip", "rows", "notes")]
    columns += [ListColumn("reasons")]
    rows = []
    runs = 0
    for item in attempts:
        ranges = item.view.ranges if item.view else []
        # of a range, what its first hop that is not skipped has
        planned: dict[str, PlannedRange] = {}
        for range_ in ranges:
            if range_.range not in planned or planned[range_.range].state == "skip":
                planned[range_.range] = range_
        states = Counter(range_.state for range_ in planned.values())
        reasons = Counter(range_.reason for range_ in planned.values() if range_.state != "skip")
        runs += bool(states["run"])
        moved_rows = {range_.range: range_.rows or 0 for range_ in ranges if range_.state == "run"}
        counts = [states["run"], states["refused"], states["skip"], sum(moved_rows.values())]
        counts += [len(item.view.notes) if item.view else 0]
        text = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        cells = [shown(item.transfer), _result(item), *map(number, counts), Text(text or "-")]
        rows.append(ListRow(cells))
    _show(out, columns, rows, f"{runs:,} of {counted(len(attempts), 'transfer')} would move rows")


def show_check_views(out: Console, attempts: Sequence[Attempt[CheckView]]) -> None:
    """Print how many verdicts each transfer got, and how many of them failed."""
    columns = [ListColumn("transfer"), ListColumn("result")]
    columns += [
        ListColumn(name, right=True)
        for name in ("checks", "failed", "warnings", "behind", "seconds")
    ]
    rows = []
    for item in attempts:
        checks = item.view.checks if item.view else []
        failed = sum(check.failed for check in checks)
        behind = sum(check.verdict.source_newer for check in checks)
        warnings = sum(not check.verdict.passed and check.warning for check in checks) - behind
        counts = map(number, (len(checks), failed, warnings, behind))
        rows.append(
            ListRow([shown(item.transfer), _result(item), *counts, Text(f"{item.seconds:.1f}")])
        )
    good = sum(not item.errors for item in attempts)
    _show(out, columns, rows, f"{good:,} of {counted(len(attempts), 'transfer')} passed")


def _result(item: Attempt[Any]) -> Text:
    return Text("FAILED", style="red") if item.errors else Text("ok", style="green")


def _show(out: Console, columns: Sequence[ListColumn], rows: Sequence[ListRow], total: str) -> None:
    plain = not out.is_terminal
    out.print(Listing(columns, rows), soft_wrap=plain)
    out.print(Text(total, style="bold"), soft_wrap=plain)


def show_summary(out: Console, outcomes: Sequence[TransferOutcome]) -> None:
    """Print a line per transfer, and a total; a range counts once for all hops. None has ended of
    a command that was interrupted early."""
    if not outcomes:
        return
    columns = [ListColumn("transfer"), ListColumn("result")]
    columns += [ListColumn(name, right=True) for name in ("moved", "skipped", "failed")]
    columns += [ListColumn("rows", right=True), ListColumn("seconds", right=True)]
    rows = []
    for outcome in outcomes:
        ranges = outcome.view.ranges
        failed = {range_.range for range_ in ranges if not range_.good}
        moved = outcome.moved_ranges - failed
        skipped = {range_.range for range_ in ranges if range_.state is State.SKIPPED_UNCHANGED}
        counts = (len(moved), len(skipped - moved - failed), len(failed))
        result = Text("ok", style="green") if outcome.view.good else Text("FAILED", style="red")
        cells = [shown(outcome.view.transfer), result]
        cells += [number(count) for count in counts]
        rows.append(ListRow([*cells, number(outcome.rows), Text(f"{outcome.seconds:.1f}")]))
    plain = not out.is_terminal
    out.print(Listing(columns, rows), soft_wrap=plain)
    good = sum(outcome.view.good for outcome in outcomes)
    total = counted(sum(outcome.rows for outcome in outcomes), "row")
    transfers = counted(len(outcomes), "transfer")
    out.print(Text(f"{good} of {transfers} succeeded; {total} moved", "bold"), soft_wrap=plain)
