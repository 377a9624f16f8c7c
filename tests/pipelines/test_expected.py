"""In which order transfers begin that have never run."""

from __future__ import annotations

import pytest

from tableferry.assets.declaring.manifest import Transfer
from tableferry.pipelines.command.many.fleet import expected_seconds
from tableferry.resources.contract.catalog import TableSize

NAMES = ("a_small", "b_wide", "c_long", "d_unknown", "e_ran", "f_killed")
TRANSFERS = {
    name: Transfer.model_validate(
        {
            "transfer": name,
            "source": f"postgres://public.{name}",
            "hops": [f"clickhouse://w.{name}"],
            "key": "id",
        }
    )
    for name in NAMES
}
SIZES = {
    TRANSFERS["a_small"].source: TableSize(200, 16_384),
    TRANSFERS["b_wide"].source: TableSize(0, 4_000_000_000),
    TRANSFERS["c_long"].source: TableSize(9_000_000),
    TRANSFERS["f_killed"].source: TableSize(90_000_000),
}


def test_the_longest_is_known_by_its_size_or_its_last_run() -> None:
    past = {"e_ran": 20.0, "f_killed": None}
    seconds = expected_seconds([*TRANSFERS.values()], past, SIZES)
    order = sorted(seconds, key=lambda name: -seconds[name])
    assert order == ["f_killed", "b_wide", "c_long", "d_unknown", "e_ran", "a_small"]
    assert seconds["d_unknown"] == pytest.approx(seconds["c_long"], rel=0.01), "the median"


def test_a_size_counts_if_the_last_run_was_shorter() -> None:
    transfer = TRANSFERS["c_long"]
    forced = expected_seconds([transfer], {"c_long": 0.2}, SIZES)
    assert forced == expected_seconds([transfer], {}, SIZES)
    assert expected_seconds([transfer], {"c_long": 0.2}, {}) == {"c_long": 0.2}


def test_more_hops_take_longer_and_nothing_known_is_alike() -> None:
    transfer = TRANSFERS["c_long"]
    longer = transfer.model_copy(update={"hops": [*transfer.hops, *transfer.hops]})
    once, twice = (expected_seconds([item], {}, SIZES)["c_long"] for item in (transfer, longer))
    assert twice == 2 * once
    assert set(expected_seconds([*TRANSFERS.values()], {}, {}).values()) == {1.0}
