"""Several outputs of COPY in one stream."""

from __future__ import annotations

import pytest

from tableferry.resources.postgres.copy_out import HEADER_BYTES, joined_binary
from tableferry.resources.wires.text_rows import CountedBytes

HEADER, TRAILER = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


def chunk(content: bytes, rows: int) -> CountedBytes:
    counted = CountedBytes(content)
    counted.rows = rows
    return counted


@pytest.mark.parametrize(
    "streams",
    [
        [],
        [[chunk(HEADER + TRAILER, 0)]],
        [[chunk(HEADER + b"ab" + TRAILER, 2)], [chunk(HEADER + b"c" + TRAILER, 1)]],
        [
            [chunk(HEADER + b"a", 1), chunk(b"b", 1), chunk(TRAILER, 0)],
            [chunk(HEADER + TRAILER, 0)],
            [chunk(HEADER + b"c", 1), chunk(b"d" + TRAILER, 1)],
        ],
    ],
    ids=["none", "empty", "two", "in chunks"],
)
def test_outputs_of_binary_copies_have_one_header_and_one_trailer(
    streams: list[list[CountedBytes]],
) -> None:
    joined = list(joined_binary(iter(map(iter, streams))))
    assert len(HEADER) == HEADER_BYTES
    rows = b"".join(b"".join(stream)[len(HEADER) : -len(TRAILER)] for stream in streams)
    assert b"".join(joined) == (HEADER + rows + TRAILER if streams else b"")
    expected = sum(one.rows for stream in streams for one in stream)
    assert sum(one.rows for one in joined if isinstance(one, CountedBytes)) == expected
