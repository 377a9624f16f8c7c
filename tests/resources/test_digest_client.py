"""Canonical forms and their hashes, as the client writes them of Arrow columns."""

from __future__ import annotations

import hashlib
import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableferry.resources.columns.planner import ColumnOverride, plan_copy
from tableferry.resources.contract.digest_writer import Algorithm
from tableferry.resources.contract.fields import Field
from tableferry.resources.digest.client import digests, framed
from tableferry.resources.digest.definition import ALGORITHMS
from tableferry.resources.digest.fields import fields
from tableferry.resources.tables import TableRef
from tableferry.resources.types.type_map import Column

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


@pytest.mark.parametrize(
    ("source", "target", "single"),
    [
        (("postgres", "real"), ("sqlserver", "real"), True),
        (("sqlserver", "real"), ("postgres", "real"), True),
        (("files", "FLOAT"), ("postgres", "real"), True),
        (("postgres", "real"), ("clickhouse", "Float32"), True),
        (("postgres", "double precision"), ("clickhouse", "Float64"), False),
        (("sqlserver", "float"), ("clickhouse", "Float64"), False),
    ],
)
def test_the_text_of_a_float_is_read_in_the_precision_of_its_column(
    source: tuple[str, str], target: tuple[str, str], single: bool
) -> None:
    table = TableRef(source[0], "s", "t")
    columns = [Column("id", "bigint", nullable=False), Column("x", source[1])]
    into = {"x": ColumnOverride(type=target[1])}
    plan = plan_copy(table, columns, TableRef(target[0], "s", "t"), key="id", overrides=into)
    (field,) = (one for one in fields(plan) if one.name == "x")
    value = np.float64(np.float32("0.1")) if single else np.float64("0.1")
    written = framed(field, pa.array(["0.1"]), "md5").to_list()
    assert written == [str(value.view(np.int64))]


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
