"""What PostgreSQL's binary COPY wants in another form than it arrives in."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from tableferry.resources.errors import InputError
from tableferry.resources.postgres.target import _uuid_bytes


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
def test_uuids_that_arrive_as_texts_become_their_bytes(text: pa.DataType) -> None:
    values = [uuid.uuid4(), None, uuid.UUID(int=0), None, uuid.UUID(int=2**128 - 1), uuid.uuid4()]
    texts = pa.array([value and str(value) for value in values], text)
    for part in (slice(0, None), slice(1, 4), slice(1, 2), slice(0, 1), slice(0, 0)):
        found = _uuid_bytes(texts[part], "id")
        assert found.type == pa.large_binary()
        assert found.to_pylist() == [value and value.bytes for value in values[part]]


@pytest.mark.parametrize("text", ["", "12", "x" * 32, "0" * 31 + " ", "0" * 30 + "é"])
def test_what_is_no_uuid_is_refused_by_column(text: str) -> None:
    with pytest.raises(InputError, match=r"column 'id': a uuid should have 32 hexadecimal digits"):
        _uuid_bytes(pa.array([str(uuid.uuid4()), text]), "id")
    with pytest.raises(InputError):
        _uuid_bytes(pa.array(["0" * 30, "0" * 34]), "id")
