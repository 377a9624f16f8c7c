"""What a comparison of two tables found, as text, as JSON and as a page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from tableferry.checks.verdict import Difference, shown_value
from tableferry.pipelines.command.show.render import ListColumn, Listing, ListRow, number, shown
from tableferry.pipelines.reporting.report import moment
from tableferry.resources.words import counted, iso_time

if TYPE_CHECKING:
    from tableferry.checks.comparing.tables import TableComparison
    from tableferry.resources.contract.endpoint import Endpoint

A, B = "A", "B"
ONLY_IN_A, ONLY_IN_B, DIFFERENT = "only in A", "only in B", "different"
_KINDS = {
    "missing_in_target": ONLY_IN_A,
    "extra_in_target": ONLY_IN_B,
    "different": DIFFERENT,
}
_WITHOUT_KEY = {
    "row_count": "only counts are",
    "checksum": "only counts and the sum of the digests are",
}
"""What is compared of tables without a key, by check."""


def headline(outcome: TableComparison) -> str:
    """Say in one line whether the tables are equal, by what, and what was tolerated."""
    verdict, rows = (
        outcome.verdict,
        (outcome.verdict.source["rows"], outcome.verdict.target["rows"]),
    )
    by = f"by {verdict.check}"
    if verdict.source.get("one_in", 1) > 1:
        by += f" of {counted(verdict.source['hashed'], 'row')}"
    if outcome.equal:
        says = f"equal: {counted(rows[0], 'row')} {by}"
    else:
        says = f"different: {_counts(outcome, rows)} {by}"
    return "; ".join(
        (says, *([verdict.note] if verdict.note else []), *verdict.remarks, *_within(outcome))
    )


def _within(outcome: TableComparison) -> Iterator[str]:
    if tolerated := outcome.pairing.tolerances:
        listed = ", ".join(f"{name} ({tolerance})" for name, tolerance in tolerated.items())
        yield f"within tolerances: {listed}"


def _counts(outcome: TableComparison, rows: tuple[int, int]) -> str:
    differences = outcome.differences
    if differences is None:
        if rows[0] == rows[1]:
            return f"{counted(rows[0], 'row')} on both sides, {outcome.verdict.what_differs}"
        return f"{counted(rows[0], 'row')} in A, {rows[1]:,} in B"
    parts = (
        (differences.missing_in_target, ONLY_IN_A),
        (differences.extra_in_target, ONLY_IN_B),
        (differences.different, "differs" if differences.different == 1 else "differ"),
    )
    return ", ".join(f"{counted(count, 'row')} {what}" for count, what in parts if count)


def notes(outcome: TableComparison) -> Iterator[str]:
    """Say what was compared by a rule, and what was not compared."""
    pairing = outcome.pairing
    for name, rule in pairing.rules.items():
        yield f"column {name}: {rule}"
    for names, where in ((pairing.only_in_first, ONLY_IN_A), (pairing.only_in_second, ONLY_IN_B)):
        if names:
            yield f"columns {where}, not compared: {', '.join(names)}"
    if pairing.left_out:
        yield f"left out: {', '.join(pairing.left_out)}"
    plan = pairing.plan
    for side, table, condition in (
        (A, plan.source, plan.where),
        (B, plan.target, plan.target_where),
    ):
        if table in plan.final:
            yield f"{side} is read with FINAL"
        if condition:
            yield f"of the rows of {side} with {condition}"
    if not pairing.keyed:
        what = _WITHOUT_KEY.get(outcome.verdict.check, "all digests of rows are, as a whole")
        yield (
            f"neither table has a primary key that is compared: {what}; --key COLUMNS finds the "
            "rows that differ"
        )


def show(out: Console, outcome: TableComparison, limit: int) -> None:
    """Print the outcome: a headline, causes by column, the first rows that differ, and notes."""
    plan = outcome.pairing.plan
    out.print(Text.assemble((f"{A}  ", "bold"), shown(str(plan.source))))
    out.print(Text.assemble((f"{B}  ", "bold"), shown(str(plan.target))))
    out.print(Text(headline(outcome), style="green" if outcome.equal else "red"))
    if outcome.causes:
        columns = [
            ListColumn("column"),
            ListColumn("rows", right=True),
            ListColumn("likely cause"),
            ListColumn("values", right=True),
            ListColumn("e.g.", sentence=True),
        ]
        rows = [
            ListRow([shown(name), number(count), shown(says), number(values), shown(example)])
            for name, count, says, values, example in _causes(outcome)
        ]
        out.print()
        out.print(Listing(columns, rows), soft_wrap=True)
    if listed := _rows(outcome, limit):
        columns = [*(ListColumn(name) for name in _naming(outcome))]
        columns += [ListColumn(name) for name in ("what", "column", A, B)]
        out.print()
        out.print(
            Listing(columns, [ListRow([shown(cell) for cell in row]) for row in listed]),
            soft_wrap=True,
        )
    out.print()
    for note in notes(outcome):
        out.print(Text.assemble(("note: ", "yellow"), shown(note)), soft_wrap=True)


def _causes(outcome: TableComparison) -> list[tuple[str, int, str, int, str]]:
    """Rows of: column, its rows that differ, cause, values that show it, and examples."""
    assert outcome.differences is not None
    by_column = {
        outcome.pairing.names[name]: rows for name, rows in outcome.differences.by_column.items()
    }
    listed = []
    for name, causes in outcome.causes.items():
        for cause in causes:
            examples = "; ".join(_example(each) for each in cause.examples[:1])
            listed.append((name, by_column[name], cause.says, cause.values, examples))
    return listed


def _example(difference: Difference) -> str:
    key = ", ".join(shown_value(text) for text in difference.row.values())
    return f"{key}: {' -> '.join(difference.shown())}"


def _rows(outcome: TableComparison, limit: int) -> list[tuple[str, ...]]:
    """Rows of: the key's values, what differs, the column, and both values."""
    if outcome.differences is None:
        return []
    return [
        (
            *(shown_value(text) for text in each.row.values()),
            _KINDS[each.kind],
            outcome.pairing.names[each.column] if each.column else "",
            *each.shown(),
        )
        for each in outcome.differences.examples[:limit]
    ]


def document(outcome: TableComparison, limit: int) -> dict[str, Any]:
    """The outcome as JSON."""
    pairing, differences = outcome.pairing, outcome.differences
    differing = None
    if differences is not None:
        first = replace(differences, examples=differences.examples[:limit])
        differing = {
            "only_in_a": first.missing_in_target,
            "only_in_b": first.extra_in_target,
            "different": first.different,
            "by_column": {pairing.names[name]: n for name, n in first.by_column.items()},
            "examples": [
                {
                    "row": _row(outcome, each),
                    "what": _KINDS[each.kind],
                    "column": pairing.names[each.column] if each.column else None,
                    "a": each.source,
                    "b": each.target,
                }
                for each in first.examples
            ],
        }
    return {
        "a": str(pairing.plan.source),
        "b": str(pairing.plan.target),
        "ok": outcome.equal,
        "says": headline(outcome),
        "level": outcome.verdict.check,
        "figures": {"a": outcome.verdict.source, "b": outcome.verdict.target},
        "columns": list(pairing.names.values()),
        "key": [pairing.names[name] for name in pairing.plan.primary_key],
        "rules": dict(pairing.rules),
        "tolerances": {name: str(each) for name, each in pairing.tolerances.items()},
        "not_compared": {
            "only_in_a": pairing.only_in_first,
            "only_in_b": pairing.only_in_second,
            "left_out": pairing.left_out,
        },
        "ranges": {"compared": outcome.ranges, "different": outcome.ranges_that_differ},
        "read": {
            "a": asdict(outcome.read["source"]),
            "b": asdict(outcome.read["target"]),
        },
        "differences": differing,
        "causes": {
            name: [
                {
                    "cause": cause.says,
                    "values": cause.values,
                    "examples": [
                        {"row": _row(outcome, e), "a": e.source, "b": e.target}
                        for e in cause.examples
                    ],
                }
                for cause in causes
            ]
            for name, causes in outcome.causes.items()
        },
        "seconds": round(outcome.seconds, 3),
        "notes": list(notes(outcome)),
    }


def _facts(outcome: TableComparison, servers: Sequence[Endpoint]) -> list[tuple[str, str]]:
    """When, where, how strictly and by which columns the tables were compared."""
    verdict, columns = outcome.verdict, [*outcome.pairing.names.values()]
    sides = [
        (f"{name} is on", str(endpoint.settings()))
        for name, endpoint in zip((A, B), servers, strict=True)
    ]
    rows = [counted(side["rows"], "row") for side in (verdict.source, verdict.target)]
    return [
        ("Compared at", moment(iso_time(time.time()))),
        *sides,
        ("Rows", f"{rows[0]} in {A}, {rows[1]} in {B}"),
        ("Level", verdict.check),
        ("Columns", ", ".join(columns)),
        ("Took", f"{outcome.seconds:.1f} s"),
    ]


def _row(outcome: TableComparison, difference: Difference) -> dict[str, str | None]:
    """What names a row, by the first table's columns."""
    return {outcome.pairing.names.get(name, name): text for name, text in difference.row.items()}


def _naming(outcome: TableComparison) -> list[str]:
    """What names rows: the first table's columns, and a shard's number where there are shards."""
    names = outcome.differences.named_by if outcome.differences else ()
    return [outcome.pairing.names.get(name, name) for name in names]


def page(outcome: TableComparison, limit: int, servers: Sequence[Endpoint]) -> str:
    """The outcome as one page, with what a reviewer needs to know it by."""
    from tableferry.pipelines.reporting.html import page as template

    return template("compare.html.j2").render(
        facts=_facts(outcome, servers),
        a=str(outcome.pairing.plan.source),
        b=str(outcome.pairing.plan.target),
        equal=outcome.equal,
        headline=headline(outcome),
        causes=_causes(outcome) if outcome.causes else [],
        named_by=_naming(outcome),
        rows=_rows(outcome, limit),
        notes=list(notes(outcome)),
    )
