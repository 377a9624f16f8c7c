"""Why a range runs: which of several reasons counts, and what follows for the hop behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tableferry.assets.log.ledger import Committed
from tableferry.assets.log.records import DataVersion
from tableferry.assets.log.states import Reason
from tableferry.assets.planning.rows.decision import Decision, decide
from tableferry.assets.planning.rows.decisions import _after_mends
from tableferry.resources.contract.markers import ANNOUNCED, Marker, Published

V1 = DataVersion("md5-2-source", "schema", "settings")
NO_TABLE = Decision(Reason.TARGET_MISSING, "no such table")
LOST = Decision(Reason.TARGET_CHANGED, "'note', 'at' is gone")
MOVED = Marker("a", "other.schema.settings", owner="7 host:1", home="here", at="today")


@dataclass
class Case:
    """What is known of one range `a`; as it is, nothing is to do."""

    current: DataVersion = V1
    before: Committed | None = field(default_factory=lambda: Committed(V1, 1))
    target_rows: dict[str, int] | Decision = field(default_factory=lambda: {"a": 10})
    expected_rows: dict[str, int] | None = field(default_factory=lambda: {"a": 10})
    marker: Marker | None = field(default_factory=lambda: Marker("a", str(V1)))
    marked: bool = True
    fewer: tuple[str, ...] = ()
    force: bool = False

    def decision(self) -> Decision:
        markers = {"1": {"a": self.marker}} if self.marker else {}
        return decide(
            {"a": self.current},
            {"a": self.before} if self.before else {},
            target_rows=self.target_rows,
            expected_rows=self.expected_rows,
            published=Published("1", markers) if self.marked else None,
            explained=dict.fromkeys(self.fewer, Reason.FEWER_COLUMNS),
            force=self.force,
        )["a"]


def committed(**changes: Any) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        assert case.before is not None
        case.before = replace(case.before, **changes)

    return change


def known(**changes: Any) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        vars(case).update(changes)

    return change


IN_ORDER: list[tuple[Reason, Callable[[Case], None]]] = [
    (Reason.MISSING, known(before=None)),
    (Reason.FORCED, known(force=True)),
    (Reason.SOURCE_CHANGED, known(current=replace(V1, source="md5-2-new"))),
    (Reason.LAST_CHECK_FAILED, committed(failed=("row_count", "checksum"))),
    (Reason.TARGET_MISSING, known(target_rows=NO_TABLE)),
    (Reason.TARGET_CHANGED, known(target_rows=LOST)),
    (Reason.ROW_COUNT_DIFFERS, known(target_rows={"a": 9})),
    (Reason.TARGET_MOVED, known(marker=MOVED)),
    (Reason.DIGEST_CHANGED, known(current=replace(V1, source="md5-3-source"))),
    (Reason.UNCHECKED, committed(unchecked=True)),
    (Reason.UNCHANGED, known()),
]
"""Each reason, and what alone brings it about; where two come together, the first counts."""


@pytest.mark.invariant("I6")
@pytest.mark.parametrize(("reason", "change"), IN_ORDER, ids=[str(one) for one, _ in IN_ORDER])
def test_one_reason(reason: Reason, change: Callable[[Case], None]) -> None:
    case = Case()
    change(case)
    assert case.decision().reason is reason


@pytest.mark.invariant("I6")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (first, second)
        for n, first in enumerate(IN_ORDER)
        for second in IN_ORDER[n + 1 :]
        # the source cannot have changed in two ways
        if {first[0], second[0]} != {Reason.SOURCE_CHANGED, Reason.DIGEST_CHANGED}
        and not (
            first[0] is Reason.MISSING and second[0] in (Reason.LAST_CHECK_FAILED, Reason.UNCHECKED)
        )
    ],
    ids=lambda one: str(one[0]),
)
def test_the_first_of_two_reasons_counts(
    first: tuple[Reason, Callable[[Case], None]], second: tuple[Reason, Callable[[Case], None]]
) -> None:
    case = Case()
    second[1](case)
    first[1](case)
    assert case.decision().reason is first[0]


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        (known(target_rows=LOST), "target_changed ('note', 'at' is gone)"),
        (known(marker=MOVED), "target_moved (published by run 7 of here, today)"),
        (
            known(marker=replace(MOVED, version=ANNOUNCED + str(V1))),
            "target_moved (was about to publish run 7 of here, today)",
        ),
        (
            known(marker=None),
            "target_moved (the target does not say what was published last)",
        ),
        (committed(failed=("row_count", "checksum")), "last_check_failed (row_count, checksum)"),
        (known(target_rows={}), "target_missing (all 10 rows missing)"),
        (known(target_rows={}, expected_rows={"a": 1}), "target_missing (all 1 row missing)"),
        (known(target_rows={"a": 1}), "row_count_differs (9 of 10 rows missing)"),
        (known(target_rows={"a": 11}), "row_count_differs (1 row more than the source's 10)"),
        (known(), "unchanged"),
    ],
)
def test_what_is_said_of_a_reason(changes: Callable[[Case], None], shown: str) -> None:
    case = Case()
    changes(case)
    assert str(case.decision()) == shown


@pytest.mark.parametrize(
    "changes",
    [
        {"marked": False, "marker": None},  # a target without markers
        {"expected_rows": None, "target_rows": {"a": 3}},  # which may have others
        {"expected_rows": {"a": 0}, "target_rows": {}},
    ],
)
def test_what_says_nothing_against_a_range(changes: dict[str, Any]) -> None:
    case = Case()
    known(**changes)(case)
    assert case.decision() == Decision(Reason.UNCHANGED)


@pytest.mark.parametrize(
    ("current", "reason"),
    [
        (replace(V1, schema="less"), Reason.FEWER_COLUMNS),
        (replace(V1, source="md5-2-new"), Reason.FEWER_COLUMNS),
        (replace(V1, settings="other"), Reason.SETTINGS_CHANGED),
        (replace(V1, source="md5-3-source"), Reason.DIGEST_CHANGED),
        (V1, Reason.UNCHANGED),
    ],
)
def test_a_range_with_fewer_columns_is_compared_unless_it_has_changed_otherwise(
    current: DataVersion, reason: Reason
) -> None:
    assert Case(current=current, fewer=("a",)).decision().reason is reason
    assert Case(current=current, fewer=("b",)).decision().reason is not Reason.FEWER_COLUMNS


@pytest.mark.parametrize(
    "changes, reason",
    [
        (known(current=replace(V1, schema="less"), fewer=("a",)), Reason.FEWER_COLUMNS),
        (known(current=replace(V1, source="md5-3-source")), Reason.DIGEST_CHANGED),
    ],
)
def test_what_is_compared_first_is_not_if_the_target_cannot_be_as_committed(
    changes: Callable[[Case], None], reason: Reason
) -> None:
    case = Case()
    changes(case)
    assert case.decision().reason is reason
    case.target_rows = {"a": 9}
    assert case.decision().reason is Reason.ROW_COUNT_DIFFERS


def test_each_range_is_decided_by_itself() -> None:
    names = {name: V1 for name in "abc"}
    found = decide(
        names,
        {"a": Committed(V1, 1), "b": Committed(V1, 2, unchecked=True)},
        target_rows={"a": 1, "b": 2},
        expected_rows={"a": 1, "b": 2, "c": 3},
    )
    reasons = (Reason.UNCHANGED, Reason.UNCHECKED, Reason.MISSING)
    assert [found[name].reason for name in "abc"] == [*reasons]


HOP: Any = SimpleNamespace(plan=SimpleNamespace(source="sqlserver://dbo.t"))


def after(
    here: Reason, before: Decision | None, taken_from: str | None = "1"
) -> Mapping[str, Decision]:
    decided = {"a": Decision(here, "said")}
    previous = {"a": Committed(V1, 1, taken_from=taken_from)}
    return _after_mends(HOP, decided, previous, {"a": before} if before else {})


SAME = Decision(Reason.UNCHANGED, written_by="1")


@pytest.mark.invariant("I13")
@pytest.mark.parametrize(
    ("here", "before", "detail"),
    [
        *(
            (
                here,
                Decision(Reason.ROW_COUNT_DIFFERS, written_by="1"),
                "sqlserver://dbo.t: row_count_differs",
            )
            for here in (Reason.UNCHANGED, Reason.UNCHECKED, Reason.LAST_CHECK_FAILED)
        ),
        (
            Reason.UNCHANGED,
            replace(SAME, written_by="2"),
            "sqlserver://dbo.t was rewritten since",
        ),
        (
            Reason.UNCHANGED,
            replace(SAME, written_by=None),
            "sqlserver://dbo.t was rewritten since",
        ),
    ],
)
def test_a_range_is_compared_if_its_source_is_written_anew(
    here: Reason, before: Decision, detail: str
) -> None:
    assert after(here, before) == {"a": Decision(Reason.SOURCE_REWRITTEN, detail)}


@pytest.mark.invariant("I13")
@pytest.mark.parametrize(
    ("here", "before"),
    [
        (Reason.UNCHANGED, SAME),
        (Reason.UNCHANGED, None),
        (Reason.SOURCE_CHANGED, replace(SAME, reason=Reason.SOURCE_CHANGED)),
        (Reason.ROW_COUNT_DIFFERS, replace(SAME, written_by="2")),
    ],
)
def test_a_range_is_decided_alone_if_its_source_is_not(
    here: Reason, before: Decision | None
) -> None:
    assert after(here, before) == {"a": Decision(here, "said")}


@pytest.mark.invariant("I13")
@pytest.mark.parametrize(
    ("before", "enough"),
    [
        (SAME, True),
        (replace(SAME, reason=Reason.SOURCE_CHANGED, since="2024-01-01"), True),
        (replace(SAME, reason=Reason.SOURCE_CHANGED), False),
        (replace(SAME, reason=Reason.LAST_CHECK_FAILED), False),
        (replace(SAME, reason=Reason.FULL_CHECK), False),
    ],
)
def test_newer_rows_are_enough_where_the_hop_before_moves_no_others(
    before: Decision, enough: bool
) -> None:
    here = Decision(Reason.SOURCE_CHANGED, "v >= 2024-01-01", "2024-01-01")
    previous = {"a": Committed(V1, 1, taken_from="1")}
    found = _after_mends(HOP, {"a": here}, previous, {"a": before})
    assert found == {"a": here if enough else Decision(Reason.SOURCE_CHANGED)}


def test_one_range_that_needs_nothing_does_not_hide_the_next() -> None:
    decided = {name: Decision(Reason.UNCHANGED) for name in "ab"}
    previous = {name: Committed(V1, 1, taken_from="1") for name in "ab"}
    for first, second in pairwise((SAME, replace(SAME, written_by="2"))):
        found = _after_mends(HOP, decided, previous, {"a": first, "b": second})
        reasons = (Reason.UNCHANGED, Reason.SOURCE_REWRITTEN)
        assert (found["a"].reason, found["b"].reason) == reasons
