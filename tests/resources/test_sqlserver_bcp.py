"""How values are staged that bcp would damage."""

from __future__ import annotations

import pytest

from tableferry.resources.sqlserver.bcp import StagedText, text_staging

WITHOUT_END = "LEFT({}, LEN({}) - 1)"


@pytest.mark.parametrize(
    ("target", "staged"),
    [
        ("nvarchar(40)", StagedText("nvarchar(41)", WITHOUT_END)),
        ("nvarchar(4000)", StagedText("nvarchar(max)", WITHOUT_END)),
        ("nvarchar(max)", StagedText("nvarchar(max)", WITHOUT_END)),
        ("varbinary(8)", StagedText("varbinary(9)", "SUBSTRING({}, 1, DATALENGTH({}) - 1)")),
        ("real", StagedText("nvarchar(30)", "CAST({} AS real)")),
        ("datetimeoffset(6)", StagedText("nvarchar(34)", "CAST({} AS datetimeoffset(6))")),
        ("decimal(38,10)", StagedText("decimal(38,10)", "{}")),
        ("bigint", StagedText("bigint", "{}")),
    ],
)
def test_what_bcp_would_damage_is_staged_as_text(target: str, staged: StagedText) -> None:
    assert text_staging(target) == staged
