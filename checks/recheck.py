"""Looks again at rows that differ, so that rows that are being written are not called damage."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Self

from tableferry.checks.levels import BY_CHECK
from tableferry.checks.sides import Comparison
from tableferry.checks.verdict import Difference, DifferenceKind, Differences, Verdict
from tableferry.resources.errors import InputError
from tableferry.resources.words import counted

MOST_VALUES = 10_000
"""Maximum differing values of a range to look at again: more than that is no passing change."""

MOST_TIMES, MOST_SECONDS = 100, 3600.0

WRITTEN = "rows_being_written"
"""The metadata of a passed verdict: how many rows differed at the first look, and not for good."""

_PATTERN = re.compile(r"(\d{1,3})x(\d{1,4}(?:\.\d{1,3})?)(s|m)")

_Row = tuple[tuple[str, str | None], ...]
_Values = Counter[tuple[DifferenceKind, str | None, bytes]]
"""The differences of a row: kind, column, and a hash of both values, which may be long."""
_Rows = Mapping[_Row, _Values]
_Lasting = tuple[_Rows, _Rows, _Rows, Differences] | Exception | None
"""The rows that differ at the first look; those that differ at each, as they were at the last and
at the one before; and all differences of the last. None if there are too many."""


@dataclass(frozen=True)
class Recheck:
    """How often rows that differ are compared again, and after which pause."""

    times: int = 1
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a text such as `3x10s` or `2x1m`.

        Raises:
            InputError: the text has another form, or names no or too many or too long looks.
        """
        match = _PATTERN.fullmatch(text)
        times = int(match[1]) if match else 0
        seconds = float(match[2]) * (60 if match[3] == "m" else 1) if match else 0.0
        if not 1 <= times <= MOST_TIMES or seconds > MOST_SECONDS:
            raise InputError(
                f"recheck: {text!r} should be a number of retries and the pause before each, as "
                f"3x10s or 2x1m: at most {MOST_TIMES} retries and {MOST_SECONDS / 3600:.0f} hour"
            )
        return cls(times, seconds)

    def __str__(self) -> str:
        return f"{self.times}x{self.seconds:g}s"


ONCE = Recheck()
"""Look again at once."""


@dataclass(frozen=True)
class RepeatedLooks:
    """What several looks at the rows of a range have found, shared by the verdicts about it."""

    comparison: Comparison
    """Both sides of the range."""
    recheck: Recheck = ONCE

    def judge(
        self, verdict: Verdict, ask: Callable[[], Verdict], *, keeps_rows: bool = False
    ) -> Verdict:
        """Keep only the differences that last.

        A row that agrees at any look was being written when it was read. Neither is a row whose
        values changed from each look to the next a proven difference: it is counted in a remark.
        Rows are looked at by other figures than those of the verdict, so that before it is called
        passed, it is asked for again.

        Args:
            verdict: about both sides as they are now; returned as it is if it passed, or is not
                about rows.
            ask: compares both sides again, as the verdict did.
            keeps_rows: whether the target may have rows that the source does not have.

        Returns:
            The verdict as it is, with the reason as a remark, if its rows cannot be looked at.
        """
        if verdict.passed or verdict.check not in BY_CHECK:
            return verdict
        judged = self._judged(verdict, keeps_rows)
        if not judged.passed or (again := ask()).passed:
            return judged
        anew = replace(self)._judged(again, keeps_rows)
        if not anew.passed or anew.metadata[WRITTEN]:
            return anew  # other rows are being written
        why = "compared in another way, no row differs, so that none can be shown"
        return replace(again, remarks=(*again.remarks, why))

    def _judged(self, verdict: Verdict, keeps_rows: bool) -> Verdict:
        lasting = self._lasting
        if isinstance(lasting, Exception):
            return verdict.unexplained(lasting)
        if lasting is None:
            return self.comparison.explained(verdict)
        first, rows, before, differences = lasting
        first, rows, before = (
            _concerning(verdict, some, keeps_rows) for some in (first, rows, before)
        )
        unsettled = {row for row, values in rows.items() if values != before.get(row)}
        damaged = {row: values for row, values in rows.items() if row not in unsettled}
        remarks = verdict.remarks
        if unsettled:
            changing = counted(len(unsettled), "row")
            remarks = (*remarks, f"{changing} changed from look to look, and cannot be judged")
        metadata = {**verdict.metadata, "rechecked": str(self.recheck)}
        verdict = replace(verdict, metadata=metadata, remarks=remarks)
        if damaged:
            return replace(verdict, differences=_only(differences, damaged), note="")
        settled = len(first) - len(rows)
        which = counted(settled, "row") if settled else "rows"
        return replace(
            verdict,
            passed=True,
            disagreeing=(),
            differences=None,
            note=f"{which} differed while being written, and agreed when looked at again",
            metadata={**metadata, WRITTEN: len(first)},
        )

    @cached_property
    def _lasting(self) -> _Lasting:
        look_together([self])
        return self._lasting

    def _rounds(self) -> Iterator[None]:
        """Look at the rows, with a pause wherever this yields; `_lasting` is known in the end."""
        found: _Lasting
        try:
            rows, differences = _look(self.comparison)
            first = before = rows
            for _ in range(self.recheck.times):
                if not rows:
                    break
                yield
                again, differences = _look(self.comparison)
                before = rows
                rows = {row: values for row, values in again.items() if row in rows}
            found = first, rows, before, differences
        except _TooManyError:
            found = None
        except Exception as error:
            found = error
        vars(self)["_lasting"] = found


def look_together(looks: Sequence[RepeatedLooks]) -> None:
    """Look at the rows of several ranges, with each pause for all of them."""
    unseen = [each for each in looks if "_lasting" not in vars(each)]
    rounds = [(each._rounds(), each.recheck.seconds) for each in unseen]
    ended = object()
    while rounds := [each for each in rounds if next(each[0], ended) is not ended]:
        pause(max(seconds for _, seconds in rounds))


def pause(seconds: float) -> None:
    """Wait between two looks."""
    time.sleep(seconds)


class _TooManyError(Exception):
    """More values differ than are kept."""


def _look(comparison: Comparison) -> tuple[_Rows, Differences]:
    """Compare the range now."""
    rows: defaultdict[_Row, _Values] = defaultdict(Counter)
    values = 0

    def collect(differences: Sequence[Difference]) -> None:
        nonlocal values
        values += len(differences)
        if values > MOST_VALUES:
            raise _TooManyError
        for difference in differences:
            pair = repr((difference.source, difference.target)).encode()
            digest = blake2b(pair, digest_size=16).digest()
            rows[_row(difference)][difference.kind, difference.column, digest] += 1

    differences = comparison.search(collect)  # fills `rows`
    return dict(rows), differences


def _concerning(verdict: Verdict, rows: _Rows, keeps_rows: bool) -> dict[_Row, _Values]:
    """Restrict rows to the differences that a verdict is about."""
    kinds = {"missing_in_target"}
    if BY_CHECK[verdict.check].values:
        kinds.add("different")
    if not keeps_rows:
        kinds.add("extra_in_target")
    concerned = {
        row: Counter({value: times for value, times in values.items() if value[0] in kinds})
        for row, values in rows.items()
    }
    return {row: values for row, values in concerned.items() if values}


def _row(difference: Difference) -> _Row:
    return tuple(difference.row.items()) or (("", difference.key),)


def _only(differences: Differences, rows: _Rows) -> Differences:
    """Restrict differences to those of some rows."""
    kinds: Counter[DifferenceKind] = Counter()
    by_column: Counter[str] = Counter()
    for values in rows.values():
        columns: Counter[str] = Counter()
        for (kind, column, _), times in values.items():
            if column is None:
                kinds[kind] += times
            else:
                columns[column] += times
        by_column += columns
        # rows that share a name differ in one column or another
        kinds["different"] += max(columns.values(), default=0)
    return replace(
        differences,
        missing_in_target=kinds["missing_in_target"],
        extra_in_target=kinds["extra_in_target"],
        different=kinds["different"],
        by_column={name: by_column[name] for name in differences.by_column if by_column[name]},
        examples=tuple(one for one in differences.examples if _row(one) in rows),
    )
