"""A prefix that nothing in a query begins with, whatever it is made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.contract.table_sql import alias_prefix

WIDE = "\uff46\uff45\uff52\uff52\uff59__n"


@pytest.mark.parametrize("name", ["ferry__0", "FERRY__g", "Ferry__", 'a"ferry__t', WIDE])
def test_a_name_that_begins_so_has_another_prefix_taken(name: str) -> None:
    assert alias_prefix("id", name) == "ferry2__"
    assert alias_prefix(name, "ferry2__x") == "ferry3__"


@given(st.lists(st.text("feryFERY_23 é\uff26", max_size=12)))
def test_no_column_is_called_so_in_any_case(names: list[str]) -> None:
    prefix = alias_prefix(*names)
    assert not any(prefix in name.casefold() for name in names)
    assert prefix.isascii() and prefix.isidentifier()
