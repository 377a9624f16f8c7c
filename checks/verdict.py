"""What a reconciliation found: a verdict per check, rows that differ, and what was not compared."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from tableferry.checks.levels import BY_CHECK, LEVELS, Level
from tableferry.resources.contract.copy_plan import CopyPlan
from tableferry.resources.contract.target_names import quarantine_of
from tableferry.resources.digest.fields import fields, not_compared, relaxed_fields
from tableferry.resources.errors import describe
from tableferry.resources.tables import TableRef
from tableferry.resources.words import counted

DifferenceKind = Literal["missing_in_target", "extra_in_target", "different"]

SHARD = "_shard_num"
"""What names, beside a row's key, the server that has it, where several share a table."""

MOST_SHOWN = 1_000
"""Maximum letters of a value that are shown beside each other, or stored with a check."""


@dataclass(frozen=True)
class Difference:
    """One value that differs, or one row that only one side has (then `column` is None)."""

    key: str | None
    """The row's value of the key column, in canonical form."""
    kind: DifferenceKind
    column: str | None = None
    source: str | None = None
    target: str | None = None
    row: Mapping[str, str | None] = field(default_factory=dict)
    """The row's values of `Differences.named_by`, by target column."""

    def shown(self) -> tuple[str, str]:
        """Both values as texts that a reader can tell apart; NULL is `NULL`.

        Both are quoted if one is empty, has unprintable characters, or blanks that would not be
        seen; look-alikes (composed and combining accents) are escaped.
        """
        if self.column is None:
            return "", ""
        # of a long value the part around the first letter that differs
        both = self.source or "", self.target or ""
        letters = enumerate(zip(*both, strict=False))
        same = next((at for at, (one, other) in letters if one != other), min(map(len, both)))
        source, target = (_excerpt(text, same) for text in (self.source, self.target))
        texts = [unicodedata.normalize("NFKC", text or "") for text in (source, target)]
        alike = texts[0] == texts[1]
        if not alike and _plain(source) and _plain(target):
            return source or "NULL", target or "NULL"
        quote = ascii if alike else repr
        return _quoted(source, quote), _quoted(target, quote)


def shown_value(text: str | None) -> str:
    """A value as a text that hides nothing."""
    text = _excerpt(text, 0)
    return text or "NULL" if _plain(text) else _quoted(text, repr)


Sink = Callable[[Sequence[Difference]], None]
"""Receives all differences, chunk by chunk."""


@dataclass(frozen=True)
class Differences:
    """The rows of a key range that differ: counts, and the first few in key order."""

    missing_in_target: int = 0
    extra_in_target: int = 0
    different: int = 0
    """Rows on both sides that have at least one different value."""
    by_column: dict[str, int] = field(default_factory=dict)
    """How many of the `different` rows differ in each column."""
    examples: tuple[Difference, ...] = ()
    rows_compared: int = 0
    """Rows read from the source for the comparison."""
    target_rows_compared: int = 0
    """Rows read from the target for it."""
    named_by: tuple[str, ...] = ()
    """Target columns that name a row: the primary key, and the key column if not part of it."""
    primary_key: tuple[str, ...] = ()
    """The primary key's target columns; none unless all of them are compared."""
    range: str = ""
    """The name of the key range, where the user asked for it in other words."""
    remarks: tuple[str, ...] = ()
    """What the comparison left out, or compared as something else, see `limits`."""

    @property
    def rows(self) -> int:
        return self.missing_in_target + self.extra_in_target + self.different

    def summary(self) -> str:
        """One line, e.g. `2 rows missing in target, 1 row differs: note`."""
        parts = []
        if self.missing_in_target:
            parts.append(f"{_rows(self.missing_in_target)} missing in target")
        if self.extra_in_target:
            parts.append(f"{_rows(self.extra_in_target)} extra in target")
        if self.different:
            columns = ", ".join(self.by_column)
            verb = "differs" if self.different == 1 else "differ"
            parts.append(f"{_rows(self.different)} {verb}" + (f": {columns}" if columns else ""))
        return ", ".join(parts) or "no row differs"

    def naming(self) -> str:
        """The columns that name rows, e.g. `primary key (id, line)`."""
        if self.primary_key:
            return f"primary key ({', '.join(self.primary_key)})"
        keys = [name for name in self.named_by if name != SHARD]
        return (
            f"key column alone ({', '.join(keys)}), whose values several rows may share: "
            "no whole primary key is compared"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check of one key range.

    `source` and `target` hold each side's figures, JSON-able: `rows`, for `checksum` the sum of the
    row digests as `digest`, and of declared columns `sum`, `min` and `max`.
    """

    check: str
    passed: bool
    source: dict[str, Any]
    target: dict[str, Any]
    seconds: float
    disagreeing: tuple[str, ...] = ()
    """The figures that disagree: `rows`, `digest`, or columns."""
    differences: Differences | None = None
    """The rows that differ, where the level itself reads rows (`sample_hash`, `full_hash`)."""
    metadata: dict[str, Any] = field(default_factory=dict)
    ranges: int = 1
    """The number of ranges compared by the query that took these `seconds`."""
    note: str = ""
    """The outcome in words, where row counts and columns do not say it."""
    remarks: tuple[str, ...] = ()
    """What was not compared, for `summary` to claim no more than was proven."""
    digest: str | None = None
    """Identifies the target's row digest: only sums of the same digest can be compared."""
    source_digest: str | None = None
    """The same of the source's."""
    source_newer: bool = False
    """Whether the target holds what was committed, and the source has changed since."""

    @classmethod
    def of_figure(cls, check: str, name: str, source: int, target: int, **rest: Any) -> Verdict:
        """The verdict on one figure, which should be the same on both sides."""
        differing = () if source == target else (name,)
        return cls(
            check, not differing, {name: source}, {name: target}, disagreeing=differing, **rest
        )

    def unexplained(self, error: Exception) -> Verdict:
        """Keep a failed verdict whose rows could not be looked for, and say why they could not."""
        why = f"which rows differ cannot be shown: {describe(error)}"
        return replace(self, remarks=tuple(dict.fromkeys((*self.remarks, why))))

    @property
    def what_differs(self) -> str:
        """E.g. `digest differs`, `digest, amount differ`."""
        verb = "differs" if len(self.disagreeing) == 1 else "differ"
        return f"{', '.join(self.disagreeing)} {verb}"

    def summary(self, *, warning: bool = False) -> str:
        """One line that says what was compared and how it ended; `warning` names a failure so."""
        return "; ".join((self._outcome(warning), *self.remarks))

    def conclusion(self) -> str:
        """Say what the outcome is, without the check's name; empty if there is nothing to say."""
        return "; ".join(filter(None, (self._found(), *self.remarks)))

    def _outcome(self, warning: bool) -> str:
        failed = "WARNED" if warning else "FAILED"
        outcome = "passed" if self.passed else "BEHIND" if self.source_newer else failed
        says = self._found()
        return f"{self.check} {outcome}{f': {says}' if says else ''}"

    def _found(self) -> str:
        if self.note:
            return self.note
        rows = self.source.get("rows"), self.target.get("rows")
        if rows[0] != rows[1]:
            return f"{_rows(rows[0] or 0)} in source, {rows[1] or 0:,} in target"
        if self.differences is not None and not self.passed:
            return self.differences.summary()
        where = "" if rows[0] is None else f"{_rows(rows[0])} on both sides, "
        if not self.passed:
            return f"{where}{self.what_differs}"
        if rows[0] is None:
            return ""
        if self.check not in BY_CHECK or not BY_CHECK[self.check].values:
            return f"{_rows(rows[0])} on both sides"
        if self.source.get("one_in", 1) > 1:
            return f"{self.source['hashed']:,} of {_rows(rows[0])} were sampled, and agree"
        return f"{_rows(rows[0])} agree"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _rows(count: int) -> str:
    return counted(count, "row")


def _excerpt(text: str | None, around: int) -> str | None:
    """Cut a long text to the part around one of its letters, and say how long it is."""
    if text is None or len(text) <= MOST_SHOWN:
        return text
    start = max(0, around - MOST_SHOWN // 2)
    end = start + MOST_SHOWN
    before, after = "... " if start else "", " ..." if end < len(text) else ""
    return f"{before}{text[start:end]}{after} ({len(text):,} characters)"


def _plain(text: str | None) -> bool:
    """Whether a value can be shown unquoted: nothing of it would be hidden or misread."""
    if text is None:
        return True
    readable = bool(text) and text.isprintable() and text == text.strip() and "  " not in text
    return readable and text != "NULL"


def _quoted(text: str | None, quote: Callable[[str], str]) -> str:
    if text is None:
        return "NULL"
    # web pages collapse blanks
    return re.sub("  +", lambda blanks: r"\x20" * len(blanks[0]), quote(text))


NAMED = 6
"""Maximum number of columns that one line names; the metadata has all."""

FILTERED = "of the source's rows with "
"""The beginning of the remark about a row filter."""

FINAL = "with FINAL of "
"""The beginning of the remark about tables of which the newest version of each row is read."""


def with_limits(
    verdict: Verdict, plan: CopyPlan, level: Level, changed: Mapping[str, int]
) -> Verdict:
    """Add to a verdict what it does not prove.

    Args:
        verdict: the verdict on a key range, or on the whole table.
        plan: the hop.
        level: what was compared.
        changed: the number of values that `on_overflow` changes, by target column.
    """
    values = LEVELS[level].values
    remarks = limits(plan, changed) if values else []
    metadata = _metadata(plan, changed) if values else {}
    if plan.fitting:
        remarks.append("of the rows whose values fit")
    if plan.where:
        remarks.append(f"{FILTERED}{plan.where}")
        metadata["where"] = plan.where
    verdict = replace(verdict, remarks=tuple(remarks), metadata={**verdict.metadata, **metadata})
    return with_final(verdict, plan.final)


def with_final(verdict: Verdict, tables: Sequence[TableRef]) -> Verdict:
    """Add to a verdict which tables were read with FINAL, if any."""
    if not tables:
        return verdict
    metadata = {**verdict.metadata, "final": ", ".join(map(str, tables))}
    return replace(verdict, remarks=(*verdict.remarks, *final(tables)), metadata=metadata)


def final(tables: Sequence[TableRef]) -> list[str]:
    """Say which tables were read with FINAL, if any."""
    return [f"{FINAL}{', '.join(map(str, tables))}"] if tables else []


def with_rejected(verdict: Verdict, plan: CopyPlan, rows: int) -> Verdict:
    """Add to a verdict that the target does without some rows of the source, if it does.

    Args:
        verdict: the verdict on a key range, or on the whole table.
        plan: the hop.
        rows: the number of rejected rows.
    """
    if not rows:
        return verdict
    kept = quarantine_of(plan.target)
    remark = f"without {rows} {'row' if rows == 1 else 'rows'} that {kept} has: rejected"
    metadata = {**verdict.metadata, "rejected": rows, "rejected_in": str(kept)}
    return replace(verdict, remarks=(*verdict.remarks, remark), metadata=metadata)


def limits(plan: CopyPlan, changed: Mapping[str, int] | None = None) -> list[str]:
    """Say what a comparison of values leaves out, or compares as something else.

    Args:
        plan: the hop.
        changed: the number of values that `on_overflow` changes, by target column; None if they
            were not counted.
    """
    policies = _policies(plan)
    if changed is None:
        parts = [f"{field.name} ({policies[field.name]})" for field in relaxed_fields(plan)]
    else:
        parts = [f"{_values(n)} of {name} ({policies[name]})" for name, n in changed.items() if n]
    said = {
        "compared as on_overflow makes them": parts,
        "compared after the same cast": [each.target.name for each in plan.columns if each.lossy],
        "not compared": [f"{name} (on_overflow: {policies[name]})" for name in not_compared(plan)],
        "not copied": plan.excluded,
    }
    return [f"{what}: {_listed(names)}" for what, names in said.items() if names]


def _metadata(plan: CopyPlan, changed: Mapping[str, int]) -> dict[str, str]:
    policies = _policies(plan)
    counted = [f"{name}: {_values(n)} ({policies[name]})" for name, n in changed.items()]
    names = {
        "changed (on_overflow)": counted,
        "not_compared (on_overflow)": not_compared(plan),
        "not_copied": plan.excluded,
        "not_compared (only in the target)": plan.only_in_target,
        "compared without trailing blanks": [f.name for f in fields(plan) if f.padded],
    }
    return {title: ", ".join(listed) for title, listed in names.items() if listed}


def _policies(plan: CopyPlan) -> dict[str, str]:
    return {column.target.name: column.on_overflow for column in plan.columns}


def _values(number: int) -> str:
    return f"{number} value" if number == 1 else f"{number} values"


def _listed(names: Collection[str]) -> str:
    more = len(names) - NAMED
    return ", ".join([*names][:NAMED]) + (f" and {more} more" if more > 0 else "")
