"""Canonical forms and their hashes, as the client writes them of Arrow columns."""

from __future__ import annotations

import hashlib
import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.digest.client import digests, framed
from tableferry.resources.digest.definition import ALGORITHMS, Algorithm
from tableferry.resources.digest.fields import Field
from tableferry.resources.tables import Column

ID = Field("id", "uuid", Column("id", "uuid"), Column("id", "UUID"))
TEXT = Field("note", "text", Column("note", "text"), Column("note", "String"))


@pytest.mark.parametrize("type_", [pa.binary(16), pa.binary(), pa.uuid()])
@given(ids=st.lists(st.none() | st.uuids(), max_size=20), at=st.integers(0, 20))
def test_uuids(type_: pa.DataType, ids: list[uuid.UUID | None], at: int) -> None:
    values = [one and one.bytes for one in ids]
    storage = pa.array(values, pa.binary(16) if type_ == pa.uuid() else type_)
    array = pa.ExtensionArray.from_storage(type_, storage) if type_ == pa.uuid() else storage
    expected = [None if one is None else str(one) for one in ids]
    assert framed(ID, array.slice(at), "md5").to_list() == expected[at:]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(texts=st.lists(st.none() | st.text(st.characters(codec="utf-8")), max_size=20))
def test_digests(algorithm: Algorithm, texts: list[str | None]) -> None:
    rows = ["~" if one is None else f"{len(one.encode())}:{one}" for one in texts]
    expected = [
        int.from_bytes(hashlib.new(algorithm, row.encode()).digest()[:8], "big", signed=True)
        for row in rows
    ]
    found = digests([TEXT], [pa.array(texts, pa.string())], algorithm)
    assert found.to_list() == expected
