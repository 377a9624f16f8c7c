"""docs/types.md says what the type map does."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.tools import types_page

from tableferry.resources.postgres import types as postgres
from tableferry.resources.sqlserver import types as sqlserver
from tableferry.resources.types.type_map import read

DOCS = Path(__file__).parents[2] / "docs" / "types.md"


def test_the_page_is_up_to_date():
    assert DOCS.read_text() == types_page.render(), (
        "run: python -m docs.tools.types_page > docs/types.md"
    )


KNOWN = [
    (types_page.POSTGRES, {*postgres.INTEGERS, *postgres.TEXT} - {"int"}),
    (
        types_page.SQLSERVER,
        {*sqlserver.INTEGERS, *sqlserver.MONEY, *sqlserver.METHODS} - {"timestamp"},
    ),
]


@pytest.mark.parametrize(("shown", "known"), KNOWN)
def test_every_type_with_a_rule_is_on_the_page(shown, known):
    assert known <= {read(type_).name for type_ in shown}
