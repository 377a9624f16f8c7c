"""The types that columns of several files, and texts, are read as."""

from __future__ import annotations

import pytest

from tableferry.resources.errors import InputError
from tableferry.resources.files.described import WIDTH, inferred, united
from tableferry.resources.files.types import from_text


def test_integers_unite_in_the_narrowest_that_holds_all() -> None:
    assert united(["TINYINT", "INTEGER"]) == "INTEGER"
    assert united(["UINTEGER", "INTEGER"]) == "BIGINT"
    assert united(["UBIGINT", "BIGINT"]) == "DECIMAL(20,0)"
    assert united(["DECIMAL(9,2)", "DECIMAL(12,0)"]) == "DECIMAL(14,2)"
    assert united(["BIGINT", "VARCHAR"]) is None
    assert united(["DOUBLE", "BIGINT"]) is None


def test_texts_without_values_are_texts() -> None:
    assert inferred([(0,) * WIDTH]) == "VARCHAR FROM TEXT"


def test_declared_types_are_read() -> None:
    assert from_text("numeric(12, 2)") == "DECIMAL(12,2) FROM TEXT"
    assert from_text("varchar") == "VARCHAR FROM TEXT"
    with pytest.raises(InputError, match="texts cannot be read as 'geometry'"):
        from_text("geometry")
