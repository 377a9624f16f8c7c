"""What each level sees: the cheapest level that is certain to notice each kind of damage.

docs/reconciliation.md shows this as a table, and the mutation tests do each damage to a real
target and hold every claim against what the levels say.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tableferry.checks.levels import LEVELS, Level
from tableferry.resources.registry import system

_BEGIN, _END = "<!-- claims -->", "<!-- /claims -->"
_WORDS_OF_A_CELL = 25


@dataclass(frozen=True)
class Claim:
    """One kind of damage to the target, and the cheapest level that always sees it."""

    subject: str
    """The kind of column; `rows` for damage to whole rows."""
    damage: str
    cheapest: Level = "checksum"
    """On every pair of systems."""

    def caught_by(self, level: Level) -> bool:
        """Whether a level is claimed to see the damage.

        `sample_hash` sees what `full_hash` sees, in the rows that are in its sample.
        """
        levels = [*LEVELS]
        return levels.index(level) >= levels.index(self.cheapest)


CLAIMS = (
    Claim("rows", "a row is missing", "count"),
    Claim("rows", "a row is there twice", "count"),
    Claim("rows", "a row is replaced by a copy of another"),
    Claim("rows", "two rows have exchanged a value"),
    Claim("integer", "NULL instead of a value"),
    Claim("integer", "0 instead of NULL"),
    Claim("integer", "the last digit"),
    Claim("integer", "the sign"),
    Claim("boolean", "the other value"),
    Claim("boolean", "false instead of NULL"),
    Claim("decimal, up to 18 digits", "the last digit"),
    Claim("decimal, up to 18 digits", "the sign"),
    Claim("decimal, 38 digits", "the last digit"),
    Claim("decimal, 38 digits", "the first digit"),
    Claim("decimal, 38 digits", "the sign"),
    Claim("double", "the last bit"),
    Claim("double", "the sign"),
    Claim("double", "-0.0 instead of 0.0"),
    Claim("double", "the last bit of the least and of the greatest magnitudes"),
    Claim("real", "the last bit"),
    Claim("text", "NULL instead of ''"),
    Claim("text", "'' instead of NULL"),
    Claim("text", "the first character"),
    Claim("text", "upper instead of lower case of the first character"),
    Claim("text", "one code point in the middle"),
    Claim("text", "one code point of a short text"),
    Claim("text", "one code point elsewhere in a long text"),
    Claim("text", "one letter deep inside a text of 10,000"),
    Claim("text", "two letters exchanged there"),
    Claim("text", "a supplementary character (emoji)"),
    Claim("text", "two characters at the front exchanged"),
    Claim("text", "a trailing blank added"),
    Claim("text", "a trailing blank lost"),
    Claim("text", "CR LF instead of LF"),
    Claim("bytes", "one bit"),
    Claim("bytes", "a trailing zero byte lost"),
    Claim("bytes", "NULL instead of no bytes"),
    Claim("date", "one day"),
    Claim("time", "one microsecond"),
    Claim("timestamp", "one microsecond"),
    Claim("timestamp", "one hour"),
    Claim("timestamp with time zone", "one microsecond"),
    Claim("uuid", "one digit"),
    Claim("uuid", "both halves exchanged"),
    Claim("array", "one item"),
    Claim("array", "two items exchanged"),
    Claim("array", "an item NULL"),
    Claim("array", "an item more"),
)


SOURCES = ("postgres", "sqlserver", "clickhouse", "files")
TARGETS = SOURCES

NOT_FROM = {"clickhouse": ("bytes",)}
"""Kinds of columns that no rows out of a system have: a String of ClickHouse is a text."""


def claims_between(source: str, target: str) -> list[Claim]:
    """What is claimed of a pair of systems; nothing where there is no such hop."""
    if (source, target) == ("files", "files"):
        return []
    return [claim for claim in CLAIMS if claim.subject not in NOT_FROM.get(source, ())]


def table() -> str:
    """The claims as a Markdown table, a row for each column and level."""
    lines = ["| column | damage in the target |", "|---|---|"]
    for (subject, level), claims in groupby(CLAIMS, lambda one: (one.subject, one.cheapest)):
        cells = [""]
        for claim in claims:
            cell = "; ".join([cells[-1], claim.damage] if cells[-1] else [claim.damage])
            if len(cell.split()) > _WORDS_OF_A_CELL:
                cells.append(claim.damage)
            else:
                cells[-1] = cell
        column = subject if level == "checksum" else f"{subject}, by `{level}`"
        lines += [f"| {column} | {cell} |" for cell in cells]
    return "\n".join(lines) + "\n"


def pairs() -> str:
    """How many kinds of damage are done and seen on each pair of systems, as a sentence."""
    counts = {
        source: len(claims_between(source, target))
        for source in SOURCES
        for target in TARGETS
        if source != target
    }
    fewer = [
        f"{count} of them if the source is {system(source).title}"
        for source, count in counts.items()
        if count < len(CLAIMS)
    ]
    return f"These are {'; '.join([f'{len(CLAIMS)} kinds', *fewer])}.\n"


def render(page: str) -> str:
    """A page with the tables put between its markers."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{table()}\n{pairs()}{_END}{after}"


if __name__ == "__main__":
    path = Path(__file__).parent.parent / "reconciliation.md"
    path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")
