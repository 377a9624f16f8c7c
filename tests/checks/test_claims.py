"""The table of what each level sees, in docs/reconciliation.md."""

from __future__ import annotations

from pathlib import Path

from docs.tools.detection_matrix import CLAIMS, Claim, render, table

PAGE = Path(__file__).parent.parent.parent / "docs" / "reconciliation.md"


def test_the_page_shows_the_claims_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert render(page) == page, "run: python -m docs.tools.detection_matrix"
    cells = [row.split(" | ")[1].removesuffix(" |") for row in table().splitlines()[2:]]
    damage = [one for cell in cells for one in cell.split("; ")]
    assert damage == [claim.damage for claim in CLAIMS]


def test_claims_are_named_once() -> None:
    names = [(claim.subject, claim.damage) for claim in CLAIMS]
    assert len(set(names)) == len(names)


def test_a_stricter_level_sees_what_a_cheaper_one_sees() -> None:
    claim = Claim("text", "anything")
    caught = [claim.caught_by(level) for level in ("count", "checksum", "full_hash")]
    assert caught == [False, True, True]
