"""Who a table belongs to, by its comment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.clickhouse.locks import Owner


@given(st.text(), st.text(), st.text())
def test_owner_survives_the_comment(run: str, token: str, replaces: str) -> None:
    owner = Owner(run, token, replaces)
    literal = owner.comment()
    # undo what ClickHouse's parser undoes
    text = literal[1:-1].replace("\\'", "'").replace("\\\\", "\\")
    assert Owner.read(text) == owner


@pytest.mark.parametrize("comment", ["", "orders of the shop", "tableferry:", "tableferry:{}"])
def test_foreign_comment_has_no_owner(comment: str) -> None:
    assert Owner.read(comment) == Owner()
