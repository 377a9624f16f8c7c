"""Whatever stands for a bound, in a file or on the command line: read, or refused in words."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tableferry.assets.declaring.transfer_files import load_transfer
from tableferry.assets.planning.ranges.boundaries import KeyStatistics
from tableferry.assets.planning.ranges.cutting import (
    extend_ranges,
    find_range,
    like_range,
    plan_ranges,
)
from tableferry.resources.errors import InputError, TableferryError
from tableferry.resources.keys.range import KeyKind, KeyRange

KINDS: tuple[KeyKind, ...] = ("integer", "date", "timestamp", "uuid", "text")
ODD = (
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2024-01-01T00:00:00+02:00"),
    *("2024-01-01", "1", "1.5", "1e3", "null", "", "..", "1..2", "b..a", "9" * 5000),
)
ZONE = st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=14))])
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.dates(), st.sampled_from(ODD)),
    *(st.datetimes(timezones=ZONE), st.text(max_size=3), st.binary(max_size=2)),
    *(st.just({1: 2}), st.just([1])),
)
SAME = st.one_of(
    st.lists(st.integers(-50, 50), min_size=2, max_size=3, unique=True).map(sorted),
    st.lists(st.dates(), min_size=2, max_size=3, unique=True).map(sorted),
    st.lists(st.sampled_from(ODD), min_size=2, max_size=3, unique=True).map(sorted),
)
SPECS = st.fixed_dictionaries(
    {"bounds": st.one_of(SAME, st.lists(SCALARS, max_size=3), SCALARS)},
    optional={"width": SCALARS, "count": st.one_of(st.integers(1, 5), SCALARS), "rows": SCALARS},
)


@given(spec=SPECS, more=SCALARS)
def test_a_file_is_read_or_refused_by_its_line(
    tmp_path_factory: pytest.TempPathFactory, spec: dict[str, Any], more: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "bounds.yaml"
    document = {
        **{"transfer": "t", "source": "postgres://public.t", "key": "id"},
        **{"hops": ["clickhouse://warehouse.t"], "ranges": spec},
        **({"exclude": more} if isinstance(more, list | dict) else {}),
    }
    with suppress(yaml.YAMLError, ValueError):  # texts that YAML has no form for
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
    try:
        ranges = load_transfer(path).ranges
    except TableferryError as error:
        assert str(error).startswith(f"{path}:") or f"{path.name}:" in str(error)
        return
    declared = ranges.model_dump(exclude_none=True)
    for kind in KINDS:
        with suppress(InputError):
            assert all(one.name for one in plan_ranges(KeyStatistics(0), declared, kind))
        with suppress(InputError):
            extend_ranges([KeyRange(kind)], KeyStatistics(0), declared, kind)


@given(st.one_of(st.sampled_from(ODD), st.text(max_size=6)))
def test_a_range_is_found_by_any_text_or_it_is_not(text: str) -> None:
    for kind in KINDS:
        ranges = {one.name: one for one in plan_ranges(KeyStatistics(0), {"rows": 1}, kind)}
        for typed in (text, f"{text}..", f"..{text}"):
            found = find_range(typed, ranges)
            assert found is None or found in ranges
            assert set(like_range(typed, ranges)) <= set(ranges)


def test_a_partition_that_somebody_added_has_no_offset() -> None:
    with pytest.raises(InputError, match="UTC, without an offset"):
        KeyRange.parse("2024-01-01T00:00:00+02:00..", "timestamp")
