"""What the tags of a run that only checks ask for."""

from __future__ import annotations

import pytest

from tableferry.assets.declaring.manifest import Transfer
from tableferry.assets.log.runs import AS_OF_LAST_RUN, LEVEL, RANGES, RECHECK
from tableferry.assets.verifying.checked import CheckRequest
from tableferry.checks.recheck import Recheck
from tableferry.checks.whole_table import WHOLE_TABLE_CHECKS
from tableferry.resources.errors import InputError

TRANSFER = Transfer.model_validate(
    {
        "transfer": "orders",
        "source": "postgres://public.orders",
        "hops": ["clickhouse://warehouse.orders"],
        "key": "id",
    }
)


@pytest.mark.parametrize(
    "request_",
    [
        CheckRequest(),
        CheckRequest("full_hash", ("..5", "5.."), True, True, True),
        CheckRequest(complete=True, recheck=Recheck(3, 0.5)),
    ],
)
def test_a_request_is_read_from_the_tags_that_it_writes(request_: CheckRequest) -> None:
    assert CheckRequest.parse(TRANSFER, request_.tags(), ["..5", "5.."]) == request_


@pytest.mark.parametrize(
    ("tag", "value", "expected"),
    [
        (LEVEL, "hash", "is 'hash'; it should be one of count, checksum, sample_hash, full_hash"),
        (RANGES, "..5", "is '..5'; it should be a JSON list of key ranges"),
        (RANGES, "[5]", "should be a JSON list of key ranges"),
        (RANGES, '["9.."]', "names '9..', which is no key range of it; `ferry status orders`"),
        (RECHECK, "often", "'often' should be a number of retries and the pause"),
        (AS_OF_LAST_RUN, "yes", "is 'yes'; it should be true or false"),
    ],
)
def test_a_wrong_tag_is_refused_by_name(tag: str, value: str, expected: str) -> None:
    with pytest.raises(InputError) as refused:
        CheckRequest.parse(TRANSFER, {tag: value}, ["..5"])
    assert f"orders: the run tag {tag}" in str(refused.value)
    assert expected in str(refused.value)


def test_a_level_that_is_gone_is_refused_by_what_to_take() -> None:
    with pytest.raises(InputError, match="take checksum; or count"):
        CheckRequest("in_flight")  # type: ignore[arg-type]


def test_a_run_selects_the_checks_that_it_does() -> None:
    def names(request_: CheckRequest) -> list[str]:
        return [key.name for key in request_.checks(TRANSFER)]

    assert names(CheckRequest()) == ["row_count", "checksum", *WHOLE_TABLE_CHECKS]
    assert names(CheckRequest("checksum", ("..5",))) == ["checksum"]
    assert names(CheckRequest("full_hash", ("..5",))) == ["row_count"], "one that is declared"
