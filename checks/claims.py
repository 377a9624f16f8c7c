"""What each level sees: the cheapest level that is certain to notice each kind of damage.

docs/reconciliation.md shows this as a table, and the mutation tests do each damage to a real
target and hold every claim against what the levels say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from checks.verdict import LEVELS, Level

_BEGIN, _END = "<!-- claims -->", "<!-- /claims -->"


@dataclass(frozen=True)
class Claim:
    """One kind of damage to the target, and the cheapest level that always sees it."""

    subject: str
    """The kind of column; `rows` for damage to whole rows."""
    damage: str
    digests: Level = "checksum"
    """Between PostgreSQL and ClickHouse."""
    positions: Level = "checksum"
    """Where one side is SQL Server."""

    def caught_by(self, level: Level, *, sqlserver: bool) -> bool:
        """Whether a level is claimed to see the damage.

        `sample_hash` sees what `full_hash` sees, in the rows that are in its sample.
        """
        cheapest = self.positions if sqlserver else self.digests
        return LEVELS.index(level) >= LEVELS.index(cheapest)


CLAIMS = (
    Claim("rows", "a row is missing", "count", "count"),
    Claim("rows", "a row is there twice", "count", "count"),
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
    Claim("double", "-0.0 instead of 0.0", "checksum", "sample_hash"),
    Claim(
        "double", "the last bit of a magnitude below 1e-48 or above 1e47", "checksum", "sample_hash"
    ),
    Claim("real", "the last bit"),
    Claim("text", "NULL instead of ''"),
    Claim("text", "'' instead of NULL"),
    Claim("text", "the first character"),
    Claim("text", "upper instead of lower case of the first character"),
    Claim("text", "one code point in the middle"),
    Claim("text", "one code point anywhere in a text declared up to 8 characters long"),
    Claim("text", "one code point elsewhere in a longer text", "checksum", "sample_hash"),
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


def table() -> str:
    """The claims as a Markdown table."""
    lines = [
        "| column | damage in the target | PostgreSQL and ClickHouse | with SQL Server |",
        "|---|---|---|---|",
    ]
    for claim in CLAIMS:
        lines.append(
            f"| {claim.subject} | {claim.damage} | {_shown(claim.digests)} | "
            f"{_shown(claim.positions)} |"
        )
    return "\n".join(lines) + "\n"


def _shown(level: Level) -> str:
    return f"`{level}`" + (" if the row is in the sample, `full_hash`" if "hash" in level else "")


def render(page: str) -> str:
    """A page with the table put between its markers."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{table()}{_END}{after}"


if __name__ == "__main__":
    path = Path(__file__).parent.parent / "docs" / "reconciliation.md"
    path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")
