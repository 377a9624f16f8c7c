"""How transfers are judged by their records and verdicts, and what the cutover report says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.judging import ProofState
from tableferry.assets.log.check_records import CheckRecord
from tableferry.assets.log.ranges import RangeStatus, TargetStatus
from tableferry.assets.log.records import RangeRecord
from tableferry.assets.log.runs import RunEnd
from tableferry.assets.log.states import State
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.pipelines.command.show.fleet_views import fleet_document, fleet_errors, show_fleet
from tableferry.pipelines.reporting.fleet import Fleet, TransferEntry, transfer_entry
from tableferry.pipelines.reporting.fleet_pages import render_fleet
from tableferry.resources.tables import TableRef

SCHEMA = Path(__file__).parents[2] / "docs" / "fleet.schema.json"
TRANSFER = Transfer.model_validate(
    {
        "transfer": "orders",
        "source": "postgres://public.orders",
        "hops": ["sqlserver://dbo.orders", "clickhouse://w.orders"],
        "key": "id",
    }
)
DAY = 86_400.0
WHOLE = tuple(CheckRecord(check, True, DAY) for check in WHOLE_TABLE_CHECKS)
PASSED = (CheckRecord("row_count", True, DAY), CheckRecord("checksum", True, DAY))


def committed(name: str, **more: object) -> RangeRecord:
    record = RangeRecord(name, State.COMMITTED, timestamp=DAY, rows=10, source_position="1/1/AB")
    return replace(record, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Past:
    """What the event log says of the transfer."""

    statuses: Mapping[TableRef, TargetStatus]
    failed: RunEnd | None = None

    @property
    def judged(self) -> TransferEntry:
        return transfer_entry(TRANSFER, self.statuses, failed=self.failed)


def history(
    records: Sequence[RangeRecord],
    verdicts: Mapping[str | None, Sequence[CheckRecord]] | None = None,
    *,
    hops: int = 2,
    failed: RunEnd | None = None,
) -> Past:
    """Two ranges, with the same history in each of the first hops and none in the others."""
    standing = {None: WHOLE, "a": PASSED, "b": PASSED, **(verdicts or {})}
    by_range = {record.range: record for record in records}
    missing = {name: RangeStatus(RangeRecord(name, State.MISSING)) for name in "ab"}
    given = {*by_range, *(verdicts or ())} & {*missing}
    ranges = {
        **missing,
        **{
            name: RangeStatus(by_range.get(name, missing[name].record), tuple(standing[name]))
            for name in sorted(given)
        },
    }
    begun, others = TargetStatus(ranges, tuple(standing[None])), TargetStatus(missing)
    statuses = {hop.to: begun if n < hops else others for n, hop in enumerate(TRANSFER.hops)}
    return Past(statuses, failed)


BOTH = [committed("a"), committed("b")]


def test_a_transfer_is_proven_by_the_weakest_and_oldest_proof_of_its_ranges() -> None:
    later = (*PASSED, CheckRecord("full_hash", True, 3 * DAY))
    entry = history(BOTH, {"a": later}).judged
    assert (entry.outcome, entry.problems) == ("proven", ())
    assert (entry.ranges, entry.committed, entry.rows) == (2, 2, 20), "once for both hops"
    assert (entry.proof, entry.proven_from) == ("checksum", DAY)
    table = entry.tables[0]
    assert (table.proven_to, table.read_at, table.positions) == (3 * DAY, DAY, ("1/1/AB",))


FAILED = CheckRecord("checksum", False, DAY, "checksum FAILED: 3 rows")
NEWER = replace(FAILED, source_newer=True, warning=True)
NEWER_HASH = replace(NEWER, name="full_hash")
HINT = CheckRecord("total_rows", False, DAY, "7 rows more", warning=True, rows_since=7)


@pytest.mark.parametrize(
    ("past", "outcome", "problem"),
    [
        (history([]), "not moved", "sqlserver://dbo.orders: no run has moved it yet"),
        (history(BOTH, hops=1), "not proven", "clickhouse://w.orders: no run has moved it yet"),
        (history([], failed="failed"), "failed", "its last run failed or was refused"),
        (history(BOTH, failed="failed"), "failed", "its last run failed or was refused"),
        (history(BOTH, failed="canceled"), "failed", "its last run was canceled; ferry report"),
        (
            history(
                [BOTH[0], RangeRecord("b", State.FAILED, error="t: x, b: no", why="no: b: no")]
            ),
            "failed",
            "sqlserver://dbo.orders b: failed: no: b: no",
        ),
        (
            history([BOTH[0], RangeRecord("b", State.FAILED, error="t: x range b: too long")]),
            "failed",
            "sqlserver://dbo.orders b: failed: t: x range b: too long",
        ),
        (
            history(BOTH[:1]),
            "not proven",
            "sqlserver://dbo.orders b: missing: no run has moved it yet",
        ),
        (
            history([BOTH[0], RangeRecord("b", State.LOADED)]),
            "not proven",
            "sqlserver://dbo.orders b: loaded: its run did not finish",
        ),
        (
            history([BOTH[0]], {"b": (FAILED,)}),
            "failed",
            "sqlserver://dbo.orders b: checksum FAILED: 3 rows",
        ),
        (
            history(BOTH, {"b": (PASSED[0], replace(FAILED, warning=True), NEWER_HASH)}),
            "not proven",
            "sqlserver://dbo.orders b: the source has changed since (full_hash)",
        ),
        (
            history(BOTH, {"b": (PASSED[0], FAILED)}),
            "failed",
            "sqlserver://dbo.orders b: checksum FAILED: 3 rows",
        ),
        (
            history(BOTH, {"b": (PASSED[0], NEWER)}),
            "not proven",
            "sqlserver://dbo.orders b: the source has changed since (checksum)",
        ),
        (
            history(BOTH, {"b": ()}),
            "not proven",
            "no verdict of row_count, checksum about",
        ),
        (
            history(BOTH, {None: (replace(HINT, warning=False), *WHOLE[1:])}),
            "failed",
            "sqlserver://dbo.orders as a whole: 7 rows more",
        ),
        (history(BOTH, {None: WHOLE[1:]}), "not proven", "no verdict of total_rows"),
    ],
)
def test_what_is_not_proven_says_why(past: Past, outcome: str, problem: str) -> None:
    entry = past.judged
    assert entry.outcome == outcome
    assert problem in entry.problems[0]
    if "FAILED" in problem or "changed since" in problem:
        assert entry.proof is None, "what differs at one level is not proven at another"


def test_rows_that_the_source_gained_are_told_without_failing() -> None:
    entry = history(BOTH, {None: (HINT, *WHOLE[1:])}).judged
    assert (entry.outcome, entry.behind) == ("proven", "7 rows")
    entry = history(BOTH, {"b": (PASSED[0], NEWER)}).judged
    assert entry.behind == "1 range"


def test_many_bad_ranges_are_counted_after_the_first() -> None:
    names = [f"r{number}" for number in range(50)]
    ranges = {name: RangeStatus(RangeRecord(name, State.FAILED)) for name in names}
    past = Past({hop.to: TargetStatus(ranges) for hop in TRANSFER.hops})
    problems = past.judged.problems
    assert len(problems) == 8
    assert problems[3] == "sqlserver://dbo.orders: 47 more ranges not proven"


def test_tables_are_as_of_a_snapshot_only_if_all_from_their_connection_are() -> None:
    def entry(*snapshots: str | None, name: str = "postgres") -> TransferEntry:
        ranges = zip("ab", snapshots, strict=True)
        records = [committed(range_, source_snapshot=snapshot) for range_, snapshot in ranges]
        return replace(history(records).judged, source=f"{name}://public.orders")

    both, none = entry("s1", "s1"), entry(None, None)
    assert Fleet(DAY, (both, both, none)).as_of == []
    assert Fleet(DAY, (both, entry("s1", "s2"))).as_of == []
    assert Fleet(DAY, (both, entry("s2", "s2"))).as_of == []
    assert Fleet(DAY, (both, replace(both, outcome=ProofState.FAILED))).as_of == []
    assert Fleet(DAY, (both, both, entry(None, None, name="other"))).as_of == [
        "all 4 tables from postgres as of snapshot s1"
    ]
    assert history([committed("a", source_snapshot="s1")]).judged.snapshot is None


def sample() -> Fleet:
    bad = history(BOTH, {"b": (replace(FAILED, summary="<b>|worse|</b>"),)}).judged
    return Fleet(
        3 * DAY,
        (replace(bad, transfer="bad"), history(BOTH).judged),
        {"odd.yaml": "odd.yaml:1: it has no source"},
    )


def test_the_report_is_complete_and_escaped_in_every_form() -> None:
    fleet = sample()
    document = json.loads(render_fleet(fleet, "json", asset_pages={}))
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)
    assert document["totals"] == {
        **{"transfers": 2, "failed": 1, "not_proven": 0, "not_moved": 0, "proven": 1},
        "proven_otherwise": 0,
        **{"invalid_files": 1, "tables": 4, "ranges": 4, "rows": 40},
    }
    assert fleet_document(fleet) | {"ok": False} == {
        "ok": False,
        "errors": fleet_errors(fleet),
        **document,
    }
    page = render_fleet(fleet, "html", asset_pages={"clickhouse://w.orders": "https://d/assets/x"})
    assert "&lt;b&gt;|worse" in page and "<b>|worse" not in page
    assert '<a href="https://d/assets/x">' in page
    assert page.index("odd.yaml") < page.index("<code>bad") < page.index("Signature")
    assert "http" not in render_fleet(fleet, "html", asset_pages={}), "nothing from elsewhere"
    markdown = render_fleet(fleet, "md", asset_pages={})
    assert r"\<b>\|worse\|\</b>" in markdown
    assert "| orders | clickhouse://w.orders | proven | 20 | 2 of 2 | checksum," in markdown


def test_it_passes_only_if_there_are_transfers_and_no_invalid_file() -> None:
    good = history(BOTH).judged
    assert Fleet(DAY, (good,)).passed
    assert not Fleet(DAY, ()).passed
    assert not sample().passed
    assert not replace(sample(), transfers=(good,)).passed, "a file is invalid"


def test_errors_name_some_transfers_and_count_the_others() -> None:
    bad = history([]).judged
    many: tuple[TransferEntry, ...] = tuple(
        replace(bad, transfer=f"t{number}") for number in range(1000)
    )
    errors = fleet_errors(Fleet(DAY, many))
    assert len(errors) == 11
    assert errors[0] == "t0: sqlserver://dbo.orders: no run has moved it yet"
    assert errors[-1] == "990 more transfers not proven"


@pytest.mark.parametrize("terminal", [True, False])
def test_each_transfer_has_a_line(terminal: bool) -> None:
    out = Console(record=True, force_terminal=terminal, width=100, color_system=None)
    with out.capture() as captured:
        show_fleet(out, sample())
    lines = captured.get().splitlines()
    bad = next(line for line in lines if line.startswith("bad"))
    assert bad.split()[1:4] == ["failed", "2/2", "20"]
    assert ("worse" in bad) is not terminal, "on a terminal the reason has a line of its own"
    assert lines[-1] == "2 transfers: 1 failed, 1 proven, 1 invalid file; 4 ranges, 40 rows"


def test_what_is_not_as_in_the_source_stands_beside_passed() -> None:
    declared = TRANSFER.model_copy(
        update={"where": "id > 0", "exclude": ["spec"], "row_security": "apply"}
    )
    record = committed(
        "a", counts={"closed": 5000}, quarantined=3, source_server="postgres at db:5432, 18.6"
    )
    past = history([record, committed("b", counts={"closed": 1})])
    entry = transfer_entry(declared, past.statuses, failed=None)
    said = (
        "only rows where id > 0",
        "only rows that row-level security shows to the login",
        "not copied: spec",
        "3 rows rejected, see sqlserver://dbo.orders__rejected",
        "values changed by on_overflow: 5,001 of closed",
    )
    assert entry.tables[0].departures == said
    shown = Fleet(DAY, (entry,))
    assert shown.servers["postgres"] == ["postgres at db:5432, 18.6"]
    document = json.loads(render_fleet(shown, "json", asset_pages={}))
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert document["transfers"][0]["tables"][0]["departures"] == [*said]
    for fmt in ("html", "md"):
        page = render_fleet(shown, fmt, asset_pages={})
        for text in (
            "2 tables are not in all as the source",
            "5,001 of closed",
            "18.6",
            "timeline",
        ):
            assert text in page
    out = Console(width=200, record=True, file=StringIO())
    show_fleet(out, shown)
    assert "not copied: spec" in out.export_text()
